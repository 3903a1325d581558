"""What a client may take: connections, half-open requests and calls are bounded, and the others are served."""

import asyncio
import gc
import logging
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from benchmarks.stress.client import RawClient
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from shortlist.cli.listening import listen
from shortlist.config.settings import Limits
from shortlist.front import connections, resumption
from shortlist.front.connections import (
    FREE_CHUNKS,
    HEAD_BYTES,
    HEAD_FIELDS,
    PIPELINED_REQUESTS,
    RESERVED_DESCRIPTORS,
    GuardedProtocol,
    descriptor_limit,
    guarded_protocol,
)
from shortlist.front.http import MAX_BODY_BYTES, build_app
from shortlist.front.requests import SHUTTING_DOWN, Admission
from shortlist.front.server import RelayedCalls
from shortlist.front.streams import encode_event
from shortlist.upstream.framing import MOST_VALUES
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, serve, words
from tests.gateway.test_http import connect

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])
HALF_A_REQUEST = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def _healthy(_: Any) -> PlainTextResponse:
    return PlainTextResponse("ok")


@asynccontextmanager
async def listening(
    served: Served, limits: Limits, routes: Sequence[Route] = ()
) -> AsyncIterator[tuple[int, Admission]]:
    """Serve over HTTP within limits; yield the port."""
    state = served.front.gateway.state
    state.everything = replace(state.everything, settings=replace(state.settings, limits=limits))
    admission = Admission(limits)
    served.front.surround(admission)
    ports: list[str] = []
    app = build_app(served.front, "127.0.0.1", [Route("/healthz", _healthy), *routes], refused=admission.refused)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await listen(app, "127.0.0.1", 0, ports.append, admission=admission)

        tasks.start_soon(run)
        with anyio.fail_after(DEADLINE_SECONDS):
            while not ports:
                await anyio.sleep(0.01)
        yield int(ports[0].rpartition(":")[2]), admission
        tasks.cancel_scope.cancel()


async def ask(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def status(reader: asyncio.StreamReader) -> int:
    with anyio.fail_after(DEADLINE_SECONDS):
        return int((await reader.readline()).split()[1])


async def test_half_open_requests_leave_the_others_served_and_are_ended() -> None:
    limits = Limits(arriving_requests=20, request_seconds=1.0)
    async with serve(Fixture("alpha")) as served, listening(served, limits) as (port, admission):
        opened = [await ask(port, HALF_A_REQUEST) for _ in range(40)]
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/healthz")).text == "ok"
        assert sorted([await status(reader) for reader, _ in opened]) == [408] * 20 + [503] * 20
        assert admission.refused == {"request_seconds": 20, "arriving_requests": 20}
        for _, writer in opened:
            writer.close()


async def test_a_client_that_does_not_finish_its_headers_is_disconnected() -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits(request_seconds=0.2)) as (port, admission):
        reader, writer = await ask(port, b"POST /mcp HTTP/1.1\r\nHost: 127")
        assert await status(reader) == 408
        assert (await reader.read()).endswith(b"(limits.request_seconds).")
        assert admission.refused == {"request_seconds": 1}
        writer.close()


async def test_a_connection_beyond_the_limit_takes_the_place_of_one_that_never_made_a_request() -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits(connections=3)) as (port, admission):
        idle = await ask(port, HEALTH)
        assert await status(idle[0]) == 200
        await idle[0].readuntil(b"\r\n\r\nok")
        waiting = [await ask(port, b""), await ask(port, b"POST /mcp HTTP/1.1\r\nHost: 127")]
        came = []
        for displaced, _ in waiting:
            came.append(await ask(port, HEALTH))
            assert await status(came[-1][0]) == 200
            assert await status(displaced) == 503
        with anyio.fail_after(DEADLINE_SECONDS):
            came.append(await ask(port, HEALTH))
            assert await status(came[-1][0]) == 200
            assert await idle[0].read() == b""  # closed silently: it would take a 503 for its next request's response
        assert admission.refused == {"connections": 3}
        for _, writer in (*came, *waiting, idle):
            writer.close()


async def test_while_every_connection_has_a_request_probes_are_answered_and_others_refused() -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits(connections=2)) as (port, admission):
        opened = [await ask(port, HALF_A_REQUEST) for _ in range(2)]
        for _ in range(3):
            probe, _ = await ask(port, HEALTH)
            assert await status(probe) == 200
            with anyio.fail_after(DEADLINE_SECONDS):
                assert (await probe.read()).endswith(b"ok")  # and closed
        refused, _ = await ask(port, HALF_A_REQUEST)
        assert await status(refused) == 503
        assert admission.refused == {"connections": 1}
        for _, writer in opened:
            writer.close()


async def test_what_clients_leave_unread_is_bounded_and_the_one_that_reads_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "UNREAD_CHECK_SECONDS", 0.05)
    size, most = 20_000_000, 50_000_000  # of each response the kernel takes some megabytes
    async with serve(Fixture("alpha")) as served, unread(served, most, size) as (port, admission):
        silent = [await ask(port, LARGE) for _ in range(8)]
        with anyio.fail_after(DEADLINE_SECONDS):
            while not admission.refused["unread_bytes"]:
                await anyio.sleep(0.02)
            reader, _ = await ask(port, LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert len(await reader.read()) > size
        assert admission.refused["unread_bytes"] < len(silent)
        for _, writer in silent:
            writer.transport.abort()


async def test_a_client_that_takes_nothing_of_a_response_is_disconnected_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "UNREAD_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.3)
    async with serve(Fixture("alpha")) as served, unread(served, 10**9, 20_000_000) as (port, admission):
        for data in (LARGE, LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
            before = admission.refused["unread_seconds"]
            _, writer = await ask(port, data)
            with anyio.fail_after(DEADLINE_SECONDS):
                while admission.refused["unread_seconds"] == before:
                    await anyio.sleep(0.02)
            writer.transport.abort()


@asynccontextmanager
async def unread(served: Served, most: int, size: int) -> AsyncIterator[tuple[int, Admission]]:
    """Serve large responses, of which clients may leave so many bytes unread."""

    async def large(_: Any) -> PlainTextResponse:
        return PlainTextResponse("x" * size)

    async with listening(served, Limits(unread_bytes=most), [Route("/large", large)]) as listened:
        yield listened


async def test_nothing_waits_for_an_idle_connection_that_its_client_has_reset() -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, _):
        reader, writer = await ask(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with anyio.fail_after(DEADLINE_SECONDS):
            await reader.readuntil(b"\r\n\r\nok")
            mine = writer.get_extra_info("sockname")
            [kept] = [each for each in gc.get_objects() if isinstance(each, GuardedProtocol) and each.client == mine]
            assert kept.timeout_keep_alive_task is not None
            writer.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            writer.transport.abort()
            while kept in kept.connections:
                await anyio.sleep(0.01)
        assert kept.timeout_keep_alive_task is None


@eras
async def test_calls_of_one_client_beyond_its_limit_are_refused_with_the_reason(era: Era) -> None:
    alpha = Fixture("alpha")
    async with (
        serve(alpha) as served,
        listening(served, Limits(calls_per_client=1)) as (port, admission),
        connect(f"http://127.0.0.1:{port}/mcp", era) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.call_tool, "call_tool", {"name": "alpha__wait", "arguments": {}})
        with anyio.fail_after(DEADLINE_SECONDS):
            await alpha.waiting.wait()
            with pytest.raises(Exception, match=r"limits\.calls_per_client"):
                await client.call_tool("search_tools", {"query": "add"})
        assert admission.refused["calls_per_client"] == 1
        tasks.cancel_scope.cancel()


@eras
async def test_a_gateway_that_shuts_down_answers_running_calls_and_refuses_new_ones(era: Era) -> None:
    alpha = Fixture("alpha")
    release = anyio.Event()

    async def wait(*_: Any) -> Any:
        alpha.waiting.set()
        await release.wait()
        return await alpha.tool_echo(None, None, {"text": "done"})

    alpha.tool_wait = wait  # type: ignore[method-assign]
    answers: list[str] = []
    async with (
        serve(alpha) as served,
        listening(served, Limits()) as (port, admission),
        connect(f"http://127.0.0.1:{port}/mcp", era) as client,
        connect(f"http://127.0.0.1:{port}/mcp", era) as other,
        anyio.create_task_group() as tasks,
    ):

        async def call() -> None:
            answers.append(words(await client.call_tool("call_tool", {"name": "alpha__wait", "arguments": {}})))

        tasks.start_soon(call)
        with anyio.fail_after(DEADLINE_SECONDS):
            await alpha.waiting.wait()
            tasks.start_soon(admission.close, DEADLINE_SECONDS)
            while not admission.is_closing:
                await anyio.sleep(0)
            with pytest.raises(Exception, match=SHUTTING_DOWN):
                await other.call_tool("search_tools", {"query": "add"})
            release.set()
    assert answers == ["done"]


async def test_the_call_of_a_legacy_client_that_vanished_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "VANISHED_SECONDS", 0.1)
    alpha = Fixture("alpha")
    async with serve(alpha) as served, listening(served, Limits()) as (port, _):
        url, info = f"http://127.0.0.1:{port}/mcp", {"name": "t", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        headers = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http:
            opened = await http.post(url, json=_message(1, "initialize", hello))
            mine = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=mine)
            inner = {"name": "alpha__wait", "arguments": {}}
            call = _message(2, "tools/call", {"name": "call_tool", "arguments": inner})
            async with http.stream("POST", url, json=call, headers=mine):
                with anyio.fail_after(DEADLINE_SECONDS):
                    await alpha.waiting.wait()
        with anyio.fail_after(DEADLINE_SECONDS):
            await alpha.cancelled.wait()


def _message(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_an_event_is_written_as_the_standard_says() -> None:
    event = {"id": "7", "event": "message", "data": "one\ntwo", "retry": 1_000}
    assert encode_event(event) == b"id: 7\r\nevent: message\r\nretry: 1000\r\ndata: one\r\ndata: two\r\n\r\n"
    assert encode_event({"id": "8", "data": ""}) == b"id: 8\r\ndata: \r\n\r\n"


async def test_tools_of_a_server_that_does_not_answer_are_marked_and_come_last() -> None:
    async with serve(Fixture("alpha"), Fixture("beta")) as served, served.client("modern") as client:
        before = words(await client.call_tool("search_tools", {"query": "add two numbers", "limit": 2}))
        first = "alpha" if before.index("alpha__add") < before.index("beta__add") else "beta"
        upstreams = served.front.gateway.state.upstreams
        states = {**upstreams.states, first: "down"}
        served.front.gateway.state.upstreams = Overlaid(upstreams, states)
        after = words(await client.call_tool("search_tools", {"query": "add two numbers please", "limit": 2}))
        other = "beta" if first == "alpha" else "alpha"
        assert after.index(f"{other}__add") < after.index(f"{first}__add")
        assert "server down" in after


def test_connections_leave_descriptors_for_servers_and_files() -> None:
    assert guarded_protocol(Limits(connections=10**9), Counter()).most <= descriptor_limit() - RESERVED_DESCRIPTORS
    assert guarded_protocol(Limits(connections=7), Counter()).most == 7


def test_the_page_about_limits_names_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")
    assert [each.name for each in fields(Limits) if f"`{each.name}`" not in page] == []


def test_kept_results_and_resumable_streams_together_take_128_mebibytes_at_most() -> None:
    limits = Limits()
    assert limits.results_bytes + limits.resumption_bytes <= 128 * 1024 * 1024


@eras
async def test_a_result_is_relayed_with_fields_that_no_model_knows(era: Era) -> None:
    alpha = Fixture("alpha")

    async def odd(*_: Any) -> Any:
        return {"content": [{"type": "text", "text": "odd", "unknown": 1}], "surprise": [1, None]}

    alpha.tool_echo = odd  # type: ignore[assignment, method-assign]
    async with serve(alpha) as served, listening(served, Limits()) as (port, _):
        served.front.server.middleware.append(RelayedCalls(served.front.server))
        client = RawClient(port, era)
        await client.open()
        answer = await client.call("call_tool", {"name": "alpha__echo", "arguments": {"text": "hi"}})
        client.close()
    assert answer["result"]["content"][0]["text"] == "odd"


async def test_a_call_as_a_task_counts_as_a_call() -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, admission):
        client = RawClient(port, "legacy")
        await client.open()
        await admission.close(0)
        call = {"name": "call_tool", "arguments": {"name": "alpha__echo", "arguments": {"text": "hi"}}, "task": {}}
        answer = await client.request("tools/call", call)
        client.close()
    assert SHUTTING_DOWN in answer["error"]["message"]


class Overlaid:
    """Real servers, of which one is said to be in another state."""

    def __init__(self, inner: Any, states: Any) -> None:
        self._inner, self._states = inner, states

    @property
    def states(self) -> Any:
        return self._states

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def head(*more: str, target: str = "/healthz", host: str = "127.0.0.1") -> bytes:
    return "\r\n".join([f"POST {target} HTTP/1.1", f"Host: {host}", *more, "", ""]).encode()


LARGE_HEADS = {
    "many headers": head(*(f"X-{number}: y" for number in range(HEAD_FIELDS + 1))),
    "a long header": head("X-A: " + "y" * HEAD_BYTES),
    "a header without an end": head("X-A: " + "y" * 4 * HEAD_BYTES)[:-4],
    "a long path": head(target="/" + "y" * HEAD_BYTES),
    "many trailers": head("Transfer-Encoding: chunked", target="/mcp")
    + b"1\r\n{\r\n0\r\n"
    + b"".join(b"X-%d: y\r\n" % number for number in range(HEAD_FIELDS + 1)),
    "a trailer without an end": head("Transfer-Encoding: chunked", target="/mcp")
    + b"1\r\n{\r\n0\r\nX-A: "
    + b"y" * 4 * HEAD_BYTES,
}


@pytest.mark.parametrize("name", LARGE_HEADS)
async def test_a_request_with_a_large_head_is_refused_at_once_and_the_others_are_served(name: str) -> None:
    limits = Limits(request_seconds=10 * DEADLINE_SECONDS)
    async with serve(Fixture("alpha")) as served, listening(served, limits) as (port, admission):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LARGE_HEADS[name])
        # What the gateway no longer reads resets the connection, maybe before its answer is read.
        with anyio.fail_after(DEADLINE_SECONDS), suppress(ConnectionError):
            assert (await reader.readline()).split()[1] == b"431"
        writer.close()
        reader, writer = await ask(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert await status(reader) == 200
        assert admission.refused == {"headers": 1}
        writer.close()


async def test_requests_that_follow_one_another_are_weighed_one_by_one() -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, _):
        one = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"y" * (HEAD_BYTES // 2) + b"\r\n\r\n"
        reader, writer = await ask(port, one * 4)
        for _ in range(4):
            assert await status(reader) == 200
            with anyio.fail_after(DEADLINE_SECONDS):
                await reader.readuntil(b"\r\n\r\nok")
        writer.close()


async def test_a_body_that_declares_too_many_bytes_is_refused_before_it_comes() -> None:
    async with (
        serve(Fixture("alpha")) as served,
        listening(served, Limits(request_seconds=10_000.0)) as (port, admission),
    ):
        reader, writer = await ask(port, head(f"Content-Length: {MAX_BODY_BYTES + 1}", target="/mcp"))
        assert await status(reader) == 413
        assert admission.refused == {"body": 1}
        writer.close()


async def test_a_body_with_too_many_values_is_refused_without_being_parsed() -> None:
    body = b"[" + b"[]," * MOST_VALUES + b"0]"
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, admission):
        reader, writer = await ask(port, head(f"Content-Length: {len(body)}", target="/mcp") + body)
        assert await status(reader) == 413
        assert admission.refused == {"body": 1}
        writer.close()


@pytest.mark.parametrize("twice", [("Host: evil.example",), ("Authorization: Bearer a", "authorization: Bearer b")])
async def test_a_request_with_two_hosts_or_two_tokens_is_refused(twice: tuple[str, ...]) -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, _):
        reader, writer = await ask(port, head(*twice, "Content-Length: 0"))
        assert await status(reader) == 400
        writer.close()


@pytest.mark.parametrize(
    ("target", "host", "expected"),
    [
        ("http://127.0.0.1/healthz", "127.0.0.1", 200),
        ("HTTP://LocalHost:80/healthz?a=b", "localhost:80", 200),
        ("http://evil.example/healthz", "127.0.0.1", 400),
        ("http://evil.example", "127.0.0.1", 400),
        ("http://127.0.0.1@evil.example/healthz", "127.0.0.1", 400),
        ("http://127.0.0.1:1/healthz", "127.0.0.1", 400),
        ("ftp://evil.example/healthz", "127.0.0.1", 400),
        ("http://evil.example/healthz", "evil.example", 421),
        ("//evil.example/healthz", "127.0.0.1", 404),
        ("evil.example:80", "127.0.0.1", 400),
        ("*", "127.0.0.1", 404),
    ],
)
async def test_a_request_line_that_names_another_host_is_refused(target: str, host: str, expected: int) -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, _):
        request = head(target=target, host=host).replace(b"POST", b"GET")
        reader, writer = await ask(port, request)
        assert await status(reader) == expected
        writer.close()


async def test_requests_beyond_the_limit_of_a_connection_end_it_and_the_others_are_served() -> None:
    alpha, one = Fixture("alpha"), b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with serve(alpha) as served, listening(served, Limits()) as (port, admission):
        client = RawClient(port, "modern")
        await client.open()
        await client.send("tools/call", {"name": "call_tool", "arguments": {"name": "alpha__wait", "arguments": {}}})
        assert client._writer is not None
        assert client._reader is not None
        client._writer.write(one * (PIPELINED_REQUESTS + 1))
        # What the gateway no longer reads may reset the connection instead of ending it.
        with anyio.fail_after(DEADLINE_SECONDS), suppress(ConnectionError):
            assert await client._reader.read() == b""
        reader, writer = await ask(port, one)
        assert await status(reader) == 200
        assert admission.refused == {"pipelined": 1}
        writer.close()
        client.close()


@pytest.mark.parametrize("path", [b"/mcp", b"/healthz", b"/nothing"])
async def test_a_body_in_too_many_short_chunks_is_refused_on_any_path(path: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, admission):
        reader, writer = await ask(port, head + b"1\r\n \r\n" * (FREE_CHUNKS + 100))
        with anyio.fail_after(DEADLINE_SECONDS), suppress(ConnectionError):
            await reader.read()
        assert admission.refused == {"chunks": 1}
        writer.close()
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}' + b" " * 32_000
        chunks = b"".join(b"10\r\n" + body[n : n + 16].ljust(16) + b"\r\n" for n in range(0, len(body), 16))
        reader, writer = await ask(port, head + chunks + b"0\r\n\r\n")
        assert await status(reader) in {200, 400, 404, 405, 406}
        assert admission.refused == {"chunks": 1}
        writer.close()


async def test_a_client_that_leaves_with_requests_waiting_cancels_the_one_that_runs_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alpha, one = Fixture("alpha"), b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with serve(alpha) as served, listening(served, Limits()) as (port, admission):
        client = RawClient(port, "modern")
        await client.open()
        await client.send("tools/call", {"name": "call_tool", "arguments": {"name": "alpha__wait", "arguments": {}}})
        assert client._writer is not None
        client._writer.write(one * 5)
        with anyio.fail_after(DEADLINE_SECONDS):
            await alpha.waiting.wait()
            client.close()
            await alpha.cancelled.wait()
            while admission.running:
                await anyio.sleep(0.01)
        reader, writer = await ask(port, one)
        assert await status(reader) == 200
        writer.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@eras
async def test_half_an_emoji_in_arguments_costs_itself_and_nothing_else(era: Era) -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, _):
        client = RawClient(port, era)
        await client.open()
        answer = await client.call("call_tool", {"name": "alpha__echo", "arguments": {"text": "cut \ud83d"}})
        client.close()
    assert answer["result"]["content"][0]["text"] == "cut ?"


class Asking(Overlaid):
    """Real servers that answer every call with questions in no form that a client knows."""

    async def request(self, *_: Any, **__: Any) -> Any:
        return {"resultType": "input_required", "inputRequests": 5}


@eras
async def test_questions_that_cannot_be_read_are_refused_with_the_name_of_the_server(era: Era) -> None:
    async with serve(Fixture("alpha")) as served, listening(served, Limits()) as (port, _):
        state = served.front.gateway.state
        state.upstreams = Asking(state.upstreams, state.upstreams.states)
        client = RawClient(port, era)
        await client.open()
        answer = await client.call("call_tool", {"name": "alpha__echo", "arguments": {"text": "hi"}})
        client.close()
    assert "'alpha' asks for input" in answer["error"]["message"]
