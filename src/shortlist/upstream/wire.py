"""Raw JSON-RPC with one server: objects in and out, in the protocol era that was negotiated.

The SDK's session validates results against its own models and the server's output schemas. A gateway relays them
unchanged, so requests and answers are parsed once and matched by id here, without a model in between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from math import isfinite
from typing import Any, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp import MCPError
from mcp.shared._otel import inject_trace_context
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    jsonrpc_message_adapter,
)

from shortlist.config.settings import MemoryTransport
from shortlist.fairness import Allowance
from shortlist.models import Json
from shortlist.upstream.errors import ConnectionFailed
from shortlist.upstream.events import Era, OnPause, OnProgress
from shortlist.upstream.framing import Message
from shortlist.version import own_version

logger = logging.getLogger(__name__)

PING = "ping"
UNCANCELLABLE = ("initialize", "server/discover")
MAX_ASKED = 64
"""Requests of one server that may wait for their answers; further ones are refused."""
ASKED_PER_SECOND = 50.0
"""How many requests of one server are answered; bursts may be larger."""
REFUSALS_PER_SECOND = 10.0
"""How many are refused; to answer every request of a server that floods would take as long as to serve it."""
MAX_PROGRESS = 64
"""Progress notifications of one call that may wait for a slow client; the oldest are dropped."""
_ENVELOPE = (
    PROTOCOL_VERSION_META_KEY,
    CLIENT_INFO_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    LOG_LEVEL_META_KEY,
)
_NEVER_RELAYED = "progressToken"
"""A token belongs to one connection; the wire uses the request's own id."""

HeaderMap: TypeAlias = Mapping[tuple[str, ...], str]
"""Which arguments of a tool a modern HTTP server expects to be repeated in headers."""
Deliver: TypeAlias = Callable[[Message], None]


class Channel(Protocol):
    """Carries messages to and from one server."""

    async def run(self, deliver: Deliver) -> None:
        """Deliver the server's messages until it is gone."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:
        """Send a message; where requests have a response of their own, return after delivering the answer.

        Raise ConnectionFailed when the message could not be sent, or its answer cannot arrive any more.
        """
        ...

    def post(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send a notification without waiting for a server that does not read."""
        ...


class Ears(Protocol):
    """Receives what the server asks and announces, unchanged."""

    async def asked(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]: ...

    def notified(self, method: str, params: Mapping[str, Json]) -> None: ...


@dataclass(slots=True)
class _Pending:
    """A request that waits for its answer, and the progress that its caller has not been told yet."""

    answer: "asyncio.Future[dict[str, Json]]"
    on_progress: OnProgress | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    progress: deque[tuple[float, float | None, str | None]] = field(default_factory=lambda: deque(maxlen=MAX_PROGRESS))
    is_telling: bool = False


class Wire:
    """One open connection; until `speak` is called it speaks the legacy era without a version."""

    def __init__(self, channel: Channel, ears: Ears, capabilities: Mapping[str, Json]) -> None:
        self.capabilities = dict(capabilities)
        self.header_maps: Mapping[str, HeaderMap] = {}
        self.closed = anyio.Event()
        self._channel = channel
        self._ears = ears
        self._version: str | None = None
        self._era: Era = "legacy"
        self._ids = count(1)
        self._pending: dict[int | str, _Pending] = {}
        self._asked = 0
        self._questions, self._refusals = Allowance(ASKED_PER_SECOND), Allowance(REFUSALS_PER_SECOND)
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Deliver the server's messages until its stream ends; then fail the requests that still wait."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                await self._channel.run(self._take)
                self._close()
                tasks.cancel_scope.cancel()
        finally:
            self._close()

    @property
    def in_flight(self) -> int:
        """Return how many requests wait for their answers."""
        return len(self._pending)

    def speak(self, protocol_version: str, era: Era) -> None:
        """Use a negotiated version from now on."""
        self._version, self._era = protocol_version, era

    async def send(
        self,
        method: str,
        params: Mapping[str, Json],
        *,
        on_progress: OnProgress | None = None,
        on_pause: OnPause | None = None,
        request_id: str | None = None,
    ) -> dict[str, Json]:
        """Send a request and return its raw result; cancelling the caller cancels it at the server too.

        Raises MCPError with the server's own code, message and data, or ConnectionFailed.
        """
        if self.closed.is_set():
            raise ConnectionFailed("the connection ended", sent=False)
        number: int | str = request_id if request_id is not None else next(self._ids)
        pending = _Pending(asyncio.get_running_loop().create_future(), on_progress)
        self._pending[number] = pending
        message: Message = {"jsonrpc": "2.0", "id": number, "method": method}
        if body := self._stamped(params, progress_token=number if on_progress is not None else None):
            message["params"] = body
        try:
            with pending.scope:
                await self._channel.send(message, self._headers(method, params), on_pause)
                return await pending.answer
        except asyncio.CancelledError:
            if method not in UNCANCELLABLE and (pending.answer.cancelled() or not pending.answer.done()):
                self._cancel(number)
            raise
        finally:
            self._pending.pop(number, None)
            if pending.answer.done() and not pending.answer.cancelled():
                pending.answer.exception()  # read, so that asyncio does not report an error that nobody waited for
        raise ConnectionFailed("the connection ended before it answered")

    def _cancel(self, number: int | str) -> None:
        params = {"requestId": number, "reason": "the caller cancelled the request or its time is over"}
        method = "notifications/cancelled"
        self._channel.post({"jsonrpc": "2.0", "method": method, "params": params}, self._headers(method, params))

    async def notify(self, method: str, params: Mapping[str, Json]) -> None:
        message: Message = {"jsonrpc": "2.0", "method": method}
        if stamped := self._stamped(params):
            message["params"] = stamped
        try:
            await self._channel.send(message, self._headers(method, params))
        except ConnectionFailed as error:
            logger.debug("dropped %s: %s", method, error)

    def envelope(self, protocol_version: str) -> dict[str, Json]:
        """Return the `_meta` that every modern request carries."""
        return {
            PROTOCOL_VERSION_META_KEY: protocol_version,
            CLIENT_INFO_META_KEY: client_info(),
            CLIENT_CAPABILITIES_META_KEY: self.capabilities,
        }

    def _stamped(self, params: Mapping[str, Json], progress_token: int | str | None = None) -> dict[str, Json]:
        meta = dict(params.get("_meta") or {})
        meta.pop(_NEVER_RELAYED, None)
        if self._era == "modern" and self._version is not None:
            asked = {key: meta[key] for key in (CLIENT_CAPABILITIES_META_KEY,) if key in meta}
            meta |= self.envelope(self._version) | asked
        elif self._version is not None:
            meta = {key: value for key, value in meta.items() if key not in _ENVELOPE}
        if progress_token is not None:
            meta[_NEVER_RELAYED] = progress_token
        inject_trace_context(meta)
        rest = {key: value for key, value in params.items() if key != "_meta"}
        return rest | {"_meta": meta} if meta else rest

    def _headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
        """Return what HTTP transports repeat in headers; the others ignore it."""
        if self._version is None:
            envelope = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
            return {MCP_PROTOCOL_VERSION_HEADER: envelope, MCP_METHOD_HEADER: method} if envelope else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self._version}
        if self._era == "legacy":
            return headers
        headers[MCP_METHOD_HEADER] = method
        named = params.get("taskId" if method.startswith("tasks/") else NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[MCP_NAME_HEADER] = encode_header_value(named)
        if method == "tools/call" and (mirrored := self.header_maps.get(str(named))):
            headers |= mcp_param_headers(mirrored, params.get("arguments") or {})
        return headers

    # What the server sends

    def _take(self, message: Message) -> None:
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            params = message.get("params")
            params = params if isinstance(params, dict) else {}
            if number is None:
                self._notified(method, params)
            else:
                self._requested(number, method, params)
        elif (pending := self._waiting(number)) is not None:
            _settle(pending.answer, message)
        else:
            logger.debug("dropped a message that answers no request that waits")

    def _notified(self, method: str, params: dict[str, Json]) -> None:
        if method == "notifications/progress":
            self._progressed(params)
            return
        try:
            self._ears.notified(method, params)
        except Exception:  # a foreign message never ends the connection
            logger.exception("the notification %r could not be handled", method)

    def _waiting(self, number: Any) -> _Pending | None:
        """Return the request of an id; some servers answer 7 with "7" or 7.0."""
        if isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) < 18:
            number = int(number)
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        return self._pending.get(number) if isinstance(number, (int, str)) and number is not True else None

    def _progressed(self, params: Mapping[str, Json]) -> None:
        pending, progress = self._waiting(params.get("progressToken")), _number(params.get("progress"))
        if pending is None or pending.on_progress is None or progress is None:
            return
        text = params.get("message")
        pending.progress.append((progress, _number(params.get("total")), text if isinstance(text, str) else None))
        if not pending.is_telling and self._tasks is not None:
            pending.is_telling = True
            self._tasks.start_soon(self._tell_progress, pending, pending.on_progress)

    async def _tell_progress(self, pending: _Pending, on_progress: OnProgress) -> None:
        try:
            while pending.progress:
                await on_progress(*pending.progress.popleft())
        except Exception as error:  # a client that left does not end the connection to the server
            logger.debug("progress was not delivered: %r", error)
        finally:
            pending.is_telling = False

    def _requested(self, number: Any, method: str, params: dict[str, Json]) -> None:
        if self._tasks is None or not isinstance(number, (int, str)):
            return
        if self._asked >= MAX_ASKED or not self._questions.spend():
            if not self._refusals.spend():
                return
            reason = f"at most {MAX_ASKED} requests at a time and {ASKED_PER_SECOND:g} in a second are answered"
            error = {"code": INTERNAL_ERROR, "message": reason}
            self._channel.post({"jsonrpc": "2.0", "id": number, "error": error}, self._reply_headers())
            return
        self._asked += 1
        self._tasks.start_soon(self._reply, number, method, params)

    async def _reply(self, number: int | str, method: str, params: dict[str, Json]) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": number}
        try:
            answer["result"] = {} if method == PING else await self._ears.asked(method, params)
        except MCPError as error:
            answer["error"] = error.error.model_dump(mode="json", exclude_none=True)
        except Exception:  # our own bug must not end the connection
            logger.exception("a server's request %r could not be answered", method)
            answer["error"] = {"code": INTERNAL_ERROR, "message": "Internal error"}
        try:
            await self._channel.send(answer, self._reply_headers())
        except ConnectionFailed as error:
            logger.debug("the answer to %s was not delivered: %s", method, error)
        finally:
            self._asked -= 1  # only now: answers to a server that does not read would pile up

    def _reply_headers(self) -> dict[str, str]:
        return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version is not None else {}

    def _close(self) -> None:
        self.closed.set()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(ConnectionFailed("the connection ended before it answered"))
                pending.scope.cancel()  # over HTTP the caller may still be reading the response


def _settle(answer: "asyncio.Future[dict[str, Json]]", message: Message) -> None:
    """Complete a request with its result or its error; what is neither becomes an error too."""
    if answer.done():
        return
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict):
        answer.set_result(result)
    elif isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
        known = code if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31 else INTERNAL_ERROR
        answer.set_exception(MCPError(known, text if isinstance(text, str) else "it gave no reason", error.get("data")))
    else:
        answer.set_exception(MCPError(INTERNAL_ERROR, "the answer has neither a result object nor an error"))


def _number(value: Any) -> float | None:
    """Return a value as a number that JSON can say; None for anything else, infinity and NaN included."""
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:
        return None
    return number if number is not None and isfinite(number) else None


class MemoryChannel:
    """A server of the SDK inside this process."""

    def __init__(
        self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage], tasks: TaskGroup
    ) -> None:
        self._read = read
        self._write = write
        self._tasks = tasks

    async def run(self, deliver: Deliver) -> None:
        async for item in self._read:
            if isinstance(item, SessionMessage):
                deliver(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:  # noqa: ARG002
        try:
            await self._write.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionFailed("the connection ended", sent=False) from None

    def post(self, message: Message, headers: Mapping[str, str]) -> None:
        self._tasks.start_soon(self._tell, message, headers)

    async def _tell(self, message: Message, headers: Mapping[str, str]) -> None:
        with suppress(ConnectionFailed):
            await self.send(message, headers)


@asynccontextmanager
async def open_memory(transport: MemoryTransport) -> AsyncIterator[MemoryChannel]:
    """Run a server of the SDK in this process."""
    server = transport.build()
    async with (
        create_client_server_memory_streams() as (client, (read, write)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.run, read, write, server.create_initialization_options())
        try:
            yield MemoryChannel(*client, tasks)
        finally:
            tasks.cancel_scope.cancel()


@cache
def client_info() -> dict[str, Json]:
    """Return the client name and version to send to servers; an uninstalled checkout has version 0."""
    return {"name": "shortlist", "version": own_version()}
