"""Schemas that take seconds to check keep the calls of other servers from nothing."""

import anyio
import pytest

from shortlist import validation, workers
from tests.gateway.support import DEADLINE_SECONDS, Fixture, schema, serve, words

pytestmark = pytest.mark.anyio
SLOW = {f"p{number}": {"type": "string", "pattern": rf"[\pL\pN]{{1,{number}}}x"} for number in range(200, 400)}
"""`ax` matches all of them: a check ends with the fifth violation."""
LETTERS = {"text": {"type": "string", "pattern": r"^\pL+$"}}  # which is checked in a worker process as well


async def test_a_schema_that_takes_long_to_check_does_not_delay_calls_of_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validation, "WORKER_SECONDS", DEADLINE_SECONDS)  # a busy machine needs seconds for the others
    bad, good = Fixture("bad"), Fixture("good")
    bad.tools = {"echo": ("Echo.", {**schema(), "properties": SLOW})}
    good.tools = {"echo": ("Echo.", {**schema(), "properties": LETTERS})}
    ended = anyio.Event()

    async def call_bad() -> None:
        await client.call_tool("call_tool", {"name": "bad__echo", "arguments": dict.fromkeys(SLOW, "ax")})
        ended.set()

    async with serve(bad, good) as served, served.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call_bad)
        with anyio.fail_after(DEADLINE_SECONDS):
            while not workers._places().slow:
                await anyio.sleep(0.01)
        for said, expected in (("tree", "tree"), ("7", "does not match")):
            shown = await client.call_tool("call_tool", {"name": "good__echo", "arguments": {"text": said}})
            assert expected in words(shown)
            assert "not checked" not in words(shown)
        assert not ended.is_set()
        tasks.cancel_scope.cancel()
