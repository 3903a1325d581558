"""Messages of many values or megabytes: read and written beside the event loop, or refused before they are parsed."""

import json
import threading
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from benchmarks.stress.client import RawClient, Refused

from shortlist import large, validation
from shortlist.access.principal import Principal
from shortlist.config.settings import Limits, MemoryTransport, ServerSettings
from shortlist.front import transport
from shortlist.gateway import calling, state
from shortlist.large import LARGE_BYTES, beside
from shortlist.upstream.framing import CLIENT_VALUES, SMALL_VALUES
from shortlist.workers import WorkOwner, run_apart
from tests.gateway.support import Era, Fixture, serve, words
from tests.gateway.test_limits import eras, listening
from tests.upstream.rough_http import rough_server
from tests.upstream.support import pool_of, text_of, web

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
ROWS = [{"number": number, "text": "some words"} for number in range(5_000)]


class Threads:
    """Notes where JSON is parsed and written, and how much of it at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[bool, int]] = []
        for module, name in ((large, "from_json"), (large, "to_json"), (transport, "from_json")):
            monkeypatch.setattr(module, name, self._noting(getattr(module, name)))

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(given: Any, **options: Any) -> Any:
            done = function(given, **options)
            on_loop = threading.current_thread() is threading.main_thread()
            self.seen.append((on_loop, len(given if isinstance(given, bytes) else done)))
            return done

        return noted

    @property
    def longest_on_loop(self) -> int:
        return max((size for on_loop, size in self.seen if on_loop), default=0)

    @property
    def bytes_beside(self) -> int:
        return sum(size for on_loop, size in self.seen if not on_loop)


@eras
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_large_call_over_http_is_parsed_and_answered_beside_the_event_loop(
    era: Era, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(ROWS)
    limits = Limits(result_characters=1_000_000)
    async with serve(Fixture("alpha"), limits=limits) as served, listening(served, limits) as (port, _):
        client, threads = RawClient(port, era), Threads(monkeypatch)
        await client.open()
        for _ in range(calls):  # the first of a legacy session is parsed and answered by the SDK
            answer = await client.call("alpha__echo", {"text": text, "rows": ROWS})
            assert answer["result"]["content"][0]["text"] == text
        client.close()
    assert threads.longest_on_loop <= LARGE_BYTES
    assert threads.bytes_beside > 3 * calls * len(text)


@eras
async def test_a_request_with_too_many_values_is_refused(era: Era) -> None:
    fixture = Fixture("alpha")
    async with serve(fixture) as served, listening(served, Limits()) as (port, admission):
        client = RawClient(port, era)
        await client.open()
        for method, most in (("tools/call", CLIENT_VALUES), ("ping", SMALL_VALUES)):
            params = {"name": "alpha__echo", "arguments": {"text": "x" * LARGE_BYTES, "rows": [0] * most}}
            with pytest.raises(Refused, match=f"HTTP 413: .*more than {most:,} JSON values"):
                await client.request(method, params)
        client.close()
    assert admission.refused == {"body": 2}
    assert fixture.calls == []


async def test_arguments_are_sent_to_the_worker_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[type] = []
    owners: list[WorkOwner] = []

    async def noted(function: Any, definition: str, arguments: Any, *, seconds: float, owner: WorkOwner) -> Any:
        sent.append(type(arguments))
        owners.append(owner)
        return await run_apart(function, definition, arguments, seconds=seconds, owner=owner)

    monkeypatch.setattr(validation, "run_apart", noted)
    async with serve(Fixture("alpha")) as served, served.client() as client:
        wrong = {"name": "alpha__echo", "arguments": {"text": 3, "rows": ROWS}}
        assert "arguments.text: 3 is not of type 'string'" in words(await client.call_tool("call_tool", wrong))
    assert sent == [bytes]
    assert owners == [WorkOwner("alpha", Principal().key)]  # as whoever owns a result that is cut


async def test_large_structured_content_is_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(Fixture):
        async def tool_echo(self, *_: Any) -> Any:
            return types.CallToolResult(content=[], structured_content={"rows": ROWS})

    monkeypatch.setattr(calling, "text_of_result", None)  # which writes in one step
    async with serve(Rows("alpha")) as served, served.client() as client:
        shown = await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": ""}})
    assert '{"rows":' in words(shown)
    assert "read_result" in words(shown)


async def test_a_result_with_too_many_blocks_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocks(Fixture):
        async def tool_echo(self, *_: Any) -> Any:
            return types.CallToolResult(content=[types.TextContent(text="a")] * 21)

    monkeypatch.setattr(calling, "MOST_BLOCKS", 20)
    async with serve(Blocks("alpha")) as served, served.client() as client:
        shown = await client.call_tool("alpha__echo", {"text": ""})
    assert shown.is_error
    assert "has 21 content blocks; at most 20 are passed on" in words(shown)


@eras
async def test_large_messages_to_and_from_a_server_over_http_are_handled_beside_the_event_loop(
    era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rough_server(era) as rough, pool_of(web("rough", rough.url)) as (pool, _):
        threads = Threads(monkeypatch)
        assert json.loads(text_of(await pool.call_tool("rough", "echo", {"rows": ROWS}))) == {"rows": ROWS}
    assert threads.longest_on_loop <= LARGE_BYTES
    assert threads.bytes_beside > 2 * len(json.dumps(ROWS, separators=(",", ":")))


async def test_a_call_ends_in_its_time_though_its_result_cannot_be_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(Fixture):
        async def tool_echo(self, *_: Any) -> Any:
            return types.CallToolResult(content=[], structured_content={"rows": ROWS})

    monkeypatch.setattr(state, "PREPARE_SECONDS", 0.1)
    fixture, is_free = Rows("alpha"), threading.Event()
    entry = ServerSettings(name="alpha", transport=MemoryTransport(build=lambda: fixture.server), timeout_seconds=0.1)
    async with serve(others={"alpha": entry}) as served, served.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(beside, is_free.wait, 60.0)  # other large messages
        with anyio.fail_after(60):
            shown = await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": ""}})
        is_free.set()
    assert shown.is_error
    assert "tool 'echo' answered, but its result could not be prepared within the timeout of 0.1 s" in words(shown)
