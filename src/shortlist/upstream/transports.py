"""How each kind of transport is opened, and what its HTTP layer noticed beside the messages."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_client_server_memory_streams

from shortlist.config.settings import HttpTransport, MemoryTransport, SseTransport, StdioTransport, Transport
from shortlist.upstream.events import OnPause
from shortlist.upstream.stderr import StderrLog
from shortlist.upstream.stdio import open_stdio

CONNECT_SECONDS = 15.0
_SESSION_HEADER = "mcp-session-id"


@dataclass(slots=True)
class HttpNotes:
    """HTTP answers that end a connection; the SDK's transport turns them into nameless errors."""

    status: int | None = None
    """Of the last refusal (4xx, 5xx)."""
    challenge: str | None = None
    """The WWW-Authenticate header of a 401, or an empty text where it had none."""
    lost: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server wants credentials or has forgotten the session."""
    pauses: dict[str, OnPause] = field(default_factory=dict)
    """By request id, whom to tell when the server ends the stream before the answer."""

    async def ended(self, request: httpx2.Request) -> None:
        """Take note that an event stream came to its end; the SDK reads none that far once it has the answer."""
        try:
            asked = json.loads(request.content).get("id")
        except (httpx2.RequestNotRead, ValueError, AttributeError):
            return
        if isinstance(asked, str) and asked in self.pauses:
            await self.pauses[asked]()

    async def see(self, response: httpx2.Response) -> None:
        if response.status_code < 400:
            return
        self.status = response.status_code
        if response.status_code == 401:
            self.challenge = response.headers.get("www-authenticate", "")
            self.lost.set()
        elif response.status_code == 404 and _SESSION_HEADER in response.request.headers:
            self.lost.set()


def open_transport(
    transport: Transport, *, log: StderrLog, limit: int, notes: HttpNotes
) -> AbstractAsyncContextManager[TransportStreams]:
    """Open what the settings describe; `limit` bounds the bytes of one message."""
    match transport:
        case StdioTransport():
            return open_stdio(transport, log=log, limit=limit)
        case HttpTransport():
            return _open_http(transport, limit, notes)
        case SseTransport():
            return _open_sse(transport, limit, notes)
        case MemoryTransport():
            return _open_memory(transport)


@asynccontextmanager
async def _open_http(transport: HttpTransport, limit: int, notes: HttpNotes) -> AsyncIterator[TransportStreams]:
    async with (
        _http_client(transport.headers, limit, notes) as client,
        streamable_http_client(transport.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


@asynccontextmanager
async def _open_sse(transport: SseTransport, limit: int, notes: HttpNotes) -> AsyncIterator[TransportStreams]:
    def factory(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return _http_client(transport.headers, limit, notes)

    async with sse_client(transport.url, httpx_client_factory=factory) as streams:
        yield streams


def _http_client(headers: Any, limit: int, notes: HttpNotes) -> httpx2.AsyncClient:
    async def bound(response: httpx2.Response) -> None:
        # Event streams are bounded per event by the SDK.
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = _BoundedBody(response.stream, limit)
        elif notes.pauses and response.request.method == "POST":
            response.stream = _WatchedBody(response.stream, partial(notes.ended, response.request))

    # No read timeout: every request has its own, and a stream of events may rest for hours.
    return httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=100, max_keepalive_connections=10),
        event_hooks={"response": [notes.see, bound]},
    )


class _BoundedBody(httpx2.AsyncByteStream):
    """A body whose reading stops once it is over the limit."""

    def __init__(self, body: Any, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > self._limit:
                raise httpx2.StreamError(
                    f"the answer is over the limit of {self._limit:,} bytes (limits.message_bytes)"
                )
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class _WatchedBody(httpx2.AsyncByteStream):
    """A body that tells when it came to its end."""

    def __init__(self, body: Any, on_end: Callable[[], Awaitable[None]]) -> None:
        self._body = body
        self._on_end = on_end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield chunk
        await self._on_end()

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def _open_memory(transport: MemoryTransport) -> AsyncIterator[TransportStreams]:
    server = transport.build()
    async with (
        create_client_server_memory_streams() as (client, (read, write)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.run, read, write, server.create_initialization_options())
        try:
            yield client
        finally:
            tasks.cancel_scope.cancel()
