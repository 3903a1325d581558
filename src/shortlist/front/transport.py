"""A legacy HTTP session that runs one task while it is idle, and whose open event stream adds none.

The SDK's transport passes messages through two queues with a task behind each, and writes the stream that a client
listens on with four tasks. Thousands of idle sessions are mostly that. Here what a session sends is written by its
sender, and the request of a listening client only waits for it to leave.
"""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
import mcp.server.runner
import mcp.server.streamable_http
import mcp.server.streamable_http_manager
from mcp.server.runner import ServerRunner
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    LAST_EVENT_ID_HEADER,
    EventMessage,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.shared.dispatcher import OnNotify, OnRequest
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import Send

from shortlist.front.sessions import SESSION_HEADER
from shortlist.front.streams import PING, PING_SECONDS, STREAM_HEADERS, encode_event, with_json
from shortlist.large import ParsedBytes

logger = logging.getLogger(__name__)


class LeanTransport(StreamableHTTPServerTransport):
    """The SDK's transport of one session, without its queues."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield where the session reads its messages, and where it writes them."""
        if self._idle_timeout is not None:
            self.idle_scope = anyio.CancelScope()
        arriving, leaving = Arriving(), Leaving(self)
        streams: Any = arriving, leaving
        self._read_stream_writer = self._read_stream = streams[0]
        self._write_stream = self._write_stream_reader = streams[1]
        try:
            yield arriving, leaving
        finally:
            for stream in tuple(self._request_streams):
                await self._clean_up_memory_streams(stream)
            arriving.close()
            leaving.close()

    async def deliver(self, sent: SessionMessage) -> None:
        """Keep a message for a client that resumes, and write it to the response that it belongs to."""
        stream, message = self._stream_of(sent), await with_json(sent.message)
        event = await self._event_store.store_event(stream, message) if self._event_store is not None else None
        if (found := self._request_streams.get(stream)) is None:
            return  # the client may resume, and gets it then
        try:
            await found[0].send(EventMessage(message, event))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if self._request_streams.get(stream) is found:
                del self._request_streams[stream]

    def _stream_of(self, sent: SessionMessage) -> str:
        """Return the stream of an answer, or of what is sent for a request; the standalone one for everything else."""
        message, metadata = sent.message, sent.metadata
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            return str(message.id)
        if isinstance(metadata, ServerMessageMetadata) and metadata.related_request_id is not None:
            return str(metadata.related_request_id)
        return GET_STREAM_KEY

    async def _handle_get_request(self, request: Request, send: Send) -> None:
        """Open the standalone stream; leave one that resumes another, or is refused, to the SDK."""
        resumes, _, accepts_events = (LAST_EVENT_ID_HEADER in request.headers, *check_accept_headers(request))
        if resumes or not accepts_events or GET_STREAM_KEY in self._request_streams:
            await super()._handle_get_request(request, send)
        elif await self._validate_request_headers(request, send):
            stream = StandaloneStream(send, self.mcp_session_id or "")
            streams: Any = (stream, stream)
            self._request_streams[GET_STREAM_KEY] = streams
            try:
                await stream.run(request)
            finally:
                if self._request_streams.get(GET_STREAM_KEY) is streams:
                    del self._request_streams[GET_STREAM_KEY]


class StandaloneStream:
    """The response on which a client hears what belongs to none of its requests."""

    __slots__ = ("_ping", "_pinging", "_scope", "_send", "_session")

    def __init__(self, send: Send, session: str) -> None:
        self._send = send
        self._session = session
        self._scope = anyio.CancelScope()
        self._ping: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None

    async def run(self, request: Request) -> None:
        """Hold the response open until the client leaves or the stream is closed."""
        headers = [*STREAM_HEADERS, (SESSION_HEADER.encode(), self._session.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        self._ping_later()
        try:
            with self._scope:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
        finally:
            self.close()
            if self._ping is not None:
                self._ping.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(self, event: EventMessage) -> None:
        """Write a message of the session."""
        if self._scope.cancel_called:
            raise anyio.ClosedResourceError
        data = event.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        await self._write(encode_event({"id": event.event_id, "event": "message", "data": data}))

    def close(self) -> None:
        self._scope.cancel()

    async def aclose(self) -> None:
        self.close()

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _ping_later(self) -> None:
        self._ping = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping_now)

    def _ping_now(self) -> None:
        """Keep the connection from looking idle to proxies; one whose client reads nothing gets no second ping."""
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.get_running_loop().create_task(self._write(PING))
        self._ping_later()


class Arriving:
    """The messages of a client that its session has not read yet, each with the context of its request."""

    __slots__ = ("_is_closed", "_items", "_read", "_waiting", "last_context")

    def __init__(self) -> None:
        self._items: deque[tuple[contextvars.Context, Any]] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._read: Any = None
        self._is_closed = False
        self.last_context: contextvars.Context | None = None
        """The context of the message that was read last, as the SDK's streams name it."""

    async def send(self, item: Any) -> None:
        if self._is_closed:
            raise anyio.ClosedResourceError
        self._items.append((contextvars.copy_context(), item))
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if isinstance(self._read, SessionMessage):
            self._read.metadata = None  # the reader still refers to the message, and would keep its whole request alive
        while not self._items:
            if self._is_closed:
                raise StopAsyncIteration
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self.last_context, self._read = self._items.popleft()
        return self._read

    def close(self) -> None:
        self._is_closed = True
        self._wake()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Leaving:
    """What a session sends, written by whoever sends it."""

    __slots__ = ("_transport",)

    def __init__(self, transport: LeanTransport) -> None:
        self._transport: LeanTransport | None = transport

    async def send(self, item: SessionMessage) -> None:
        if self._transport is None:
            raise anyio.ClosedResourceError
        await self._transport.deliver(item)

    def close(self) -> None:
        self._transport = None  # it refers to this, and a cycle would wait for the garbage collector

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class LeanRunner(ServerRunner[Any]):
    """The SDK's runner of one session, which caches methods of its own, and so would wait for the garbage collector.

    A full collection is rare, and a session lives long enough to be left to one, with all that belongs to it.
    """

    @property
    def on_request(self) -> OnRequest:
        return self._on_request

    @property
    def on_notify(self) -> OnNotify:
        return self._on_notify


BODY: contextvars.ContextVar[ParsedBytes | None] = contextvars.ContextVar("shortlist.body", default=None)
"""The large body of the request that the current task serves, which the SDK would parse again in one step."""


class ReadBodies:
    """The parser of the SDK's transport, for bodies that may have been read already."""

    @staticmethod
    def from_json(data: bytes) -> Any:
        read = BODY.get()
        return read.value if read is not None and len(read) == len(data) else from_json(data)


def use_lean_transport() -> None:
    """Let the SDK's sessions run on these: it names the classes in its modules and nowhere else."""
    vars(mcp.server.streamable_http)["pydantic_core"] = ReadBodies
    vars(mcp.server.streamable_http_manager)["StreamableHTTPServerTransport"] = LeanTransport
    vars(mcp.server.runner)["ServerRunner"] = LeanRunner
