"""What a call and a search cost, in lines of code and in garbage: counts that a busy machine does not change."""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from benchmarks.stress.client import RawClient

import shortlist
from shortlist.config.settings import Limits
from shortlist.disclosure import render
from shortlist.disclosure.render import compact_json
from shortlist.gateway import refusing
from tests.gateway.support import Era, Fixture, schema, serve, words
from tests.gateway.test_limits import listening

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
OURS = str(Path(shortlist.__file__).parent)
SIZES = (20, 1_000)


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Count the lines of Shortlist that this thread runs; a line counts each time that a loop comes back to it."""
    lines, before = [0], sys.gettrace()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        lines[0] += event == "line"
        return count

    sys.settrace(count)
    try:
        yield lines
    finally:
        sys.settrace(before)


def stocked(tools: int) -> Fixture:
    """Return a server with so many tools that differ, and the one that is called."""
    fixture = Fixture("alpha")
    more = {f"tool_{n}": (f"Look up entry number {n} of the ledger.", schema(text="string")) for n in range(tools)}
    fixture.tools = {"echo": fixture.tools["echo"], **more}
    return fixture


def arguments_of(name: str, number: int) -> dict[str, Any]:
    if name == "call_tool":
        return {"name": "alpha__echo", "arguments": {"text": "hello"}}
    return {"query": f"the ledger of week {number}"}


async def lines_of(tools: int, name: str) -> int:
    """Return how many lines the event loop runs to serve a request that it has served before."""
    async with serve(stocked(tools)) as served, listening(served, Limits()) as (port, _):
        client, lines = RawClient(port, "modern"), 0
        for number in range(4):  # what is loaded or computed once is done by the first ones
            with counted_lines() as counted:
                answer = await client.call(name, arguments_of(name, number))
            lines = counted[0]
            assert not answer["result"].get("isError"), answer
        client.close()
    return lines


@pytest.mark.parametrize("name", ["call_tool", "search_tools"])
async def test_what_a_request_costs_the_event_loop_does_not_depend_on_how_many_tools_there_are(name: str) -> None:
    few, many = [await lines_of(size, name) for size in SIZES]
    assert 0 < many < 1.3 * few


@pytest.mark.parametrize("name", ["call_tool", "search_tools"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_request_leaves_nothing_to_the_garbage_collector(era: Era, name: str) -> None:
    """A cycle in what a request leaves would make collections frequent and long, and stop the event loop for them."""
    async with serve(stocked(20)) as served, listening(served, Limits()) as (port, _):
        client = RawClient(port, era)
        await client.open()
        for number in range(5):
            await client.call(name, arguments_of(name, number))
        gc.collect()
        gc.disable()
        try:
            for number in range(50):
                await client.call(name, arguments_of(name, number))
            assert gc.collect() < 50
        finally:
            gc.enable()
        client.close()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("describe_tools", {"names": ["alpha__wide"]}),
        ("search_tools", {"query": "wide", "detail": "full"}),
        ("call_tool", {"name": "alpha__wide", "arguments": {"property_2999": 3}}),
    ],
)
async def test_long_definitions_are_rendered_beside_the_event_loop(
    name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[threading.Thread] = set()

    def noted(value: Any) -> str:
        threads.add(threading.current_thread())
        return compact_json(value)

    monkeypatch.setattr(render, "compact_json", noted)
    monkeypatch.setattr(refusing, "compact_json", noted)
    fixture = Fixture("alpha")
    fixture.tools["wide"] = ("A wide tool.", schema(**{f"property_{number}": "string" for number in range(3_000)}))
    async with serve(fixture) as served, served.client() as client:
        assert "property_2999" in words(await client.call_tool(name, arguments))
    assert threads
    assert threading.main_thread() not in threads


async def test_a_burst_of_refused_calls_renders_the_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Any] = []

    def noted(value: Any) -> str:
        rendered.append(value)
        return compact_json(value)

    monkeypatch.setattr(refusing, "compact_json", noted)
    fixture, shown = Fixture("alpha"), list[str]()
    fixture.tools = {"echo": ("Echo.", schema(text="string", only_in_this_test="string"))}

    async def call(client: Any) -> None:
        shown.append(words(await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": 3}})))

    async with serve(fixture) as served, served.client() as client, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(call, client)
    assert len(rendered) == 1
    assert len(set(shown)) == 1
    assert "arguments.text: 3 is not of type 'string'" in shown[0]
    assert '"only_in_this_test"' in shown[0]
