"""Requests that arrive together begin in turn."""

import asyncio
from itertools import pairwise

import pytest
from starlette.types import Message

from shortlist.front.http import build_app
from shortlist.front.requests import AT_ONCE, Turns
from tests.gateway.support import Fixture, serve

pytestmark = pytest.mark.anyio


async def test_a_few_requests_begin_in_each_pass_of_the_loop_and_callers_take_turns() -> None:
    turns, begun = Turns(3), list[str]()

    async def request(caller: str) -> None:
        await turns.wait(caller)
        begun.append(caller)

    requests = [asyncio.create_task(request("bob")) for _ in range(100)]
    requests.append(asyncio.create_task(request("ada")))
    counts = [0]
    while not all(each.done() for each in requests):
        await asyncio.sleep(0)
        counts.append(len(begun))
    assert max(after - before for before, after in pairwise(counts)) == 3
    assert begun.index("ada") < 10


async def test_a_client_that_left_takes_no_turn() -> None:
    turns = Turns(1)
    await turns.wait("bob")
    left = [asyncio.create_task(turns.wait("bob")) for _ in range(100)]
    last = asyncio.create_task(turns.wait("bob"))
    await asyncio.sleep(0)
    for each in left:
        each.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert last.done()


async def test_requests_to_the_endpoint_wait_for_their_turn_before_their_bodies_are_read() -> None:
    read = list[str]()
    async with serve(Fixture("alpha")) as served:
        app = build_app(served.front, "127.0.0.1")

        async def receive() -> Message:
            read.append("the body")
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            pass

        async def request() -> None:
            scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"127.0.0.1")]}
            await app({**scope, "query_string": b"", "client": ("127.0.0.1", 1), "state": {}}, receive, send)

        requests = [asyncio.create_task(request()) for _ in range(100)]
        await asyncio.sleep(0)
        assert 0 < len(read) <= AT_ONCE
        await asyncio.gather(*requests)
    assert len(read) == 100
