"""The fast path of a legacy `tools/call` over HTTP: parsed once, answered in the task of its request, written once.

The SDK passes every request through four queues and six tasks. Here the call runs where its request arrived, and most
answers are written at once. When the call takes long, or something is to be sent before its answer, its response
becomes an event stream that the SDK's session writes to, and that its client can resume. Whatever is unusual is left
to the SDK.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.runner import ServerRunner, modern_error_data
from mcp.server.streamable_http import (
    REQUEST_CANCELLED,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.shared.dispatcher import CallOptions, coerce_request_id
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import (
    JSONRPCDispatcher,
    _InFlight,
    _JSONRPCDispatchContext,
    progress_token_from_params,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCResponse
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from shortlist.front.server import CALL, DualServer, usual_call
from shortlist.front.streams import PING, PING_SECONDS, STREAM_HEADERS, encode_event
from shortlist.large import written

WATCH_SECONDS = 0.25
"""A call that takes longer is cancelled when its client disconnects and does not come back."""
STREAM_SECONDS = 5.0
"""When the response of a call that is still watched becomes a stream. Clients read an answer of megabytes as JSON, but
not as an event: the SDK's stop at 1 MiB."""
SESSION_ENDED = "The session ended before the call did."
RESUMABLE_VERSION = "2025-11-25"
"""From this version on a client gets an event id before the answer, and can resume."""
_SESSION = b"mcp-session-id"
_DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)


@dataclass(frozen=True, slots=True, eq=False)
class OpenSession:
    """A session whose calls are served here."""

    server: DualServer
    transport: StreamableHTTPServerTransport
    connection: Connection
    keep: Callable[[str, bytes | None], str]
    """Keeps an event for a client that resumes, and returns its id."""
    vanished: Callable[[Any], None]
    """Told the id of a request whose client disconnected."""
    running: set[anyio.CancelScope] = field(default_factory=set)

    @property
    def is_ending(self) -> bool:
        idle = self.transport.idle_scope
        return self.transport.is_terminated or (idle is not None and idle.cancel_called)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep a session from ending as idle while it serves a call, as the SDK does for what it serves itself."""
        transport, idle = self.transport, self.transport.idle_scope
        transport._requests_in_flight += 1
        if idle is not None:
            idle.deadline = math.inf
        try:
            yield
        finally:
            transport._requests_in_flight -= 1
            if idle is not None and transport._idle_timeout is not None and not transport._requests_in_flight:
                idle.deadline = anyio.current_time() + transport._idle_timeout

    def end(self) -> None:
        """End the calls of a session that ends."""
        for scope in tuple(self.running):
            scope.cancel()


async def serve_legacy_call(session: OpenSession, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
    """Answer a `tools/call`; return False, without having sent anything, for every other request."""
    request = Request(scope, receive)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
    if session.is_ending or content_type != "application/json":
        return False
    if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return False
    message = usual_call(body)
    if message is None or check_accept_headers(request) != (True, True):
        return False
    with session.in_use():
        await _Call(session, request, send, message).run()
    return True


class _Call:
    """One call: its context, its answer, and the stream that its response becomes where it must."""

    def __init__(self, session: OpenSession, request: Request, send: Send, message: dict[str, Any]) -> None:
        self._session = session
        self._transport = session.transport
        self._dispatcher: JSONRPCDispatcher[Any] = session.connection.outbound  # type: ignore[assignment]
        self._receive, self._send = request.receive, send
        self._id = message["id"]
        self._stream = str(self._id)
        self._params: dict[str, Any] = message["params"]
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        self._is_resumable = version is not None and is_version_at_least(version, RESUMABLE_VERSION)
        self._context = _Dispatch(
            transport=_DUPLEX,
            _dispatcher=self._dispatcher,
            _request_id=self._id,
            message_metadata=ServerMessageMetadata(
                request_context=request, close_sse_stream=self._let_go if self._is_resumable else None
            ),
            _progress_token=progress_token_from_params(self._params),
            open_stream=self._open,
        )
        self._scope = anyio.CancelScope()
        self._writing = asyncio.Lock()
        self._priming = b""
        self._is_stream = self._is_complete = self._is_answered = False
        self._forwarding: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Make the call and write its answer."""
        timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._open)
        self._session.running.add(self._scope)
        try:
            if self._is_resumable:  # kept before anything else is, so that all of it comes after this when resumed
                priming = {"id": self._session.keep(self._stream, None), "retry": self._transport._retry_interval}
                self._priming = encode_event(priming)
            answer = await self._answer()
            timer.cancel()
            await self._finish(answer)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._finish(_error(self._id, CONNECTION_CLOSED, "The gateway ended before the call did."))
            raise
        finally:
            timer.cancel()
            self._session.running.discard(self._scope)
            for task in (self._watching, self._forwarding):
                if task is not None:
                    task.cancel()
            del self._context  # it refers to this call, and a cycle would wait for the garbage collector

    async def _answer(self) -> dict[str, Any]:
        key, flying = coerce_request_id(self._id), self._dispatcher._in_flight
        flight = flying[key] = _InFlight(scope=self._scope, dctx=self._context)  # where the client's cancel finds it
        try:
            with self._scope:
                result = await self._session.server.relayed(self._request_context())
                return {"jsonrpc": "2.0", "id": self._id, "result": result}
        except Exception as error:
            failed = modern_error_data(error).model_dump(mode="json", exclude_none=True)
            return {"jsonrpc": "2.0", "id": self._id, "error": failed}
        finally:
            self._context.close()
            if flying.get(key) is flight:
                del flying[key]
        if self._context.cancel_requested.is_set():
            return _error(self._id, REQUEST_CANCELLED, "Request cancelled")
        return _error(self._id, CONNECTION_CLOSED, SESSION_ENDED)

    def _request_context(self) -> ServerRequestContext[Any, Any]:
        connection, meta = self._session.connection, self._params.get("_meta")
        runner: ServerRunner[Any] = ServerRunner(self._session.server, connection, {})
        return runner._make_context(self._context, CALL, self._params, meta, connection.protocol_version)

    # The response

    async def _finish(self, answer: dict[str, Any]) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        if self._forwarding is not None or self._stream in self._transport._request_streams:
            await self._write_to_session(answer)  # behind what was sent before it
            if self._forwarding is not None:
                await self._forwarding
            return
        await self._write_whole(await written(answer))

    async def _write_whole(self, data: bytes) -> None:
        """Write the answer as the whole response."""
        if self._context.cancel_requested.is_set():  # a client of the SDK that is closing fails on JSON, not on events
            await self._write(encode_event({"event": "message", "data": data}), is_last=True)
            return
        self._is_complete = True
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data)), self._session_header]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def _write_to_session(self, answer: dict[str, Any]) -> None:
        if "result" in answer:
            await self._dispatcher._write_result(self._id, answer["result"])
        else:
            await self._dispatcher._write_error(self._id, ErrorData.model_validate(answer["error"]))

    def _open(self) -> None:
        """Let the session write to this response, unless it is answered or its client reads another one."""
        streams = self._transport._request_streams
        if self._is_answered or self._forwarding is not None or self._stream in streams:
            return
        streams[self._stream] = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        loop = asyncio.get_running_loop()
        self._forwarding = loop.create_task(self._forward(streams[self._stream][1]))
        self._watching = loop.create_task(self._watch_client())

    async def _forward(self, events: MemoryObjectReceiveStream[EventMessage]) -> None:
        """Write what the session sends for this call, up to its answer."""
        is_answer = False
        try:
            async for each in events:
                data = each.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                is_answer = isinstance(each.message, JSONRPCResponse | JSONRPCError)
                if is_answer and not self._is_stream:
                    await self._write_whole(data)
                    return
                await self._write(encode_event({"id": each.event_id, "event": "message", "data": data}))
                if is_answer:
                    break
        except anyio.ClosedResourceError:
            pass  # the client was let go, and resumes with another request
        finally:
            self._unregister(events)
        last = b""
        if self._transport.is_terminated and not is_answer:  # nothing that the session sends arrives any more
            ended = _error(self._id, CONNECTION_CLOSED, SESSION_ENDED)
            last = encode_event({"event": "message", "data": await written(ended)})
        await self._write(last, is_last=True)

    def _unregister(self, events: MemoryObjectReceiveStream[EventMessage]) -> None:
        streams = self._transport._request_streams
        if self._stream in streams and streams[self._stream][1] is events:
            self._transport.close_sse_stream(self._stream)

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        async with self._writing:
            if not self._is_stream:
                self._is_stream = True
                headers = [*STREAM_HEADERS, self._session_header]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                data = self._priming + data
            if data or is_last:
                self._is_complete = self._is_complete or is_last
                await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    @property
    def _session_header(self) -> tuple[bytes, bytes]:
        return _SESSION, (self._transport.mcp_session_id or "").encode()

    async def _let_go(self) -> None:
        """End the stream while the call goes on; the client resumes it when it wants to."""
        self._open()
        self._transport.close_sse_stream(self._stream)

    async def _watch_client(self) -> None:
        """Report a client that disconnects, and keep its connection from looking idle to proxies."""
        while not self._is_complete:
            with anyio.move_on_after(PING_SECONDS if self._is_stream else STREAM_SECONDS):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                if not self._is_complete:
                    self._transport.close_sse_stream(self._stream)
                    self._session.vanished(self._id)
                return
            if not self._is_complete:
                await self._write(PING)


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


@dataclass
class _Dispatch(_JSONRPCDispatchContext[TransportContext]):
    """The SDK's context of a request, whose response becomes a stream before anything else is sent for it."""

    open_stream: Callable[[], None] = field(default=lambda: None, kw_only=True)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if not self._closed:
            self.open_stream()
        await super().notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self._closed:
            self.open_stream()
        return await super().send_raw_request(method, params, opts)
