"""The credential of a caller stays at the border: it reaches no server, over any transport."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream

from shortlist.config.settings import (
    ClaimRule,
    HttpTransport,
    MemoryTransport,
    NoTransport,
    ServerSettings,
    SseTransport,
    StdioTransport,
    Transport,
)
from tests.access.issuer import IdentityProvider, trusted
from tests.gateway.support import Era, Fixture, serve
from tests.gateway.test_border import border_of
from tests.gateway.test_http import connect, listening
from tests.upstream.support import ENVIRONMENT, SERVERS, http_server

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
Received = Callable[[], str]


@asynccontextmanager
async def recorded(port: int) -> AsyncIterator[tuple[int, bytearray]]:
    """Forward connections to a port, and record every byte that is sent to it."""
    received = bytearray()

    async def pump(source: ByteReceiveStream, target: ByteSendStream, record: bool) -> None:
        try:
            async for chunk in source:
                if record:
                    received.extend(chunk)
                await target.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def forward(client: SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as both:
            both.start_soon(pump, client, server, True)
            await pump(server, client, False)
            both.cancel_scope.cancel()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, forward)
        yield listener.listeners[0].extra(SocketAttribute.local_port), received
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def over_http(_: Path) -> AsyncIterator[tuple[Transport, Received]]:
    with http_server() as base:
        async with recorded(int(base.rpartition(":")[2])) as (port, received):
            yield HttpTransport(url=f"http://127.0.0.1:{port}/mcp"), lambda: received.decode("latin-1")


@asynccontextmanager
async def over_sse(_: Path) -> AsyncIterator[tuple[Transport, Received]]:
    with http_server("sse") as base:
        async with recorded(int(base.rpartition(":")[2])) as (port, received):
            yield SseTransport(url=f"http://127.0.0.1:{port}/sse"), lambda: received.decode("latin-1")


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncIterator[tuple[Transport, Received]]:
    seen = folder / "stdin"
    command = f"env > {folder / 'env'}; exec tee {seen} | exec {sys.executable} {SERVERS / 'modern.py'} stdio"
    yield (
        StdioTransport(command="sh", args=("-c", command), environment=ENVIRONMENT),
        lambda: seen.read_text("utf-8") + (folder / "env").read_text("utf-8"),
    )


@asynccontextmanager
async def in_memory(_: Path) -> AsyncIterator[tuple[Transport, Received]]:
    fixture, received = Fixture("upstream"), list[str]()
    answer = fixture.server.get_request_handler("tools/call")
    assert answer is not None

    async def record(context: Any, params: Any) -> Any:
        received.append(f"{params!r} {context.meta!r}")
        return await answer.handler(context, params)

    fixture.server.add_request_handler("tools/call", answer.params_type, record)
    yield MemoryTransport(build=lambda: fixture.server), lambda: "\n".join(received)


WAYS: dict[type, Callable[[Path], AbstractAsyncContextManager[tuple[Transport, Received]]]] = {
    HttpTransport: over_http,
    SseTransport: over_sse,
    StdioTransport: over_stdio,
    MemoryTransport: in_memory,
}


def test_every_transport_is_walked() -> None:
    assert set(WAYS) == set(get_args(Transport)) - {NoTransport}  # which sends nothing


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("kind", WAYS)
async def test_a_callers_token_reaches_no_server(kind: type, era: Era, tmp_path: Path) -> None:
    provider = IdentityProvider()
    token = provider.token()
    async with WAYS[kind](tmp_path) as (transport, received):
        servers = {"upstream": ServerSettings(name="upstream", transport=transport)}
        async with (
            serve(others=servers, oauth=trusted(ClaimRule())) as served,
            listening(served, border_of(served, provider)) as base,
            connect(f"{base}/mcp", era, token) as client,
        ):
            call = {"name": "upstream__echo", "arguments": {"text": "open sesame"}}
            answer = await client.call_tool("call_tool", call)
            assert not answer.is_error, answer
            got = received()
    assert "open sesame" in got  # what the server received was recorded
    for part in (token, *token.split(".")):
        assert part not in got
