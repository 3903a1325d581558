"""HTTP connections within limits: how many there are, how a request's head may be, and what a client leaves unread."""

import asyncio
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from shortlist.config.settings import Limits

RESERVED_DESCRIPTORS = 256
"""Kept for servers, files and databases; connections are refused before these are used up."""
MOST_DESCRIPTORS = 8_192
SPARE_CONNECTIONS = 64
"""Accepted beyond the limit for probes alone: a gateway that is busy must not be restarted for it."""
PROBES = (b"/healthz", b"/readyz")
UNREAD_SECONDS = 60.0
"""A client that takes nothing of a response for this long is disconnected."""
UNREAD_CHECK_SECONDS = 1.0
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 200
"""What a request's line, headers and trailers may take together: work on headers grows with the square of them."""
FREE_CHUNKS, LEAST_CHUNK_BYTES = 1_000, 16
"""In a body of more chunks, one must have this many bytes on average: the parser takes a step for each."""
PIPELINED_REQUESTS = 100
"""Requests that may wait on a connection for the first to be answered; with more, it is closed."""
IDLE_SECONDS = 75
"""How long a connection may rest between two requests; clients with shorter limits close it themselves."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a connection is closed: the limit, as the metrics name it, and what the client reads."""

    limit: str
    status: str
    text: str

    @property
    def response(self) -> bytes:
        head = f"HTTP/1.1 {self.status}\r\ncontent-type: text/plain\r\nretry-after: 1\r\nconnection: close\r\n"
        return f"{head}content-length: {len(self.text)}\r\n\r\n{self.text}".encode()


_BUSY = _Refusal("connections", "503 Service Unavailable", "Too many open connections (limits.connections is reached).")
_LARGE = _Refusal(
    "headers",
    "431 Request Header Fields Too Large",
    f"The headers of a request may be {HEAD_FIELDS} in number and {HEAD_BYTES:,} bytes in all.",
)
_CONTRADICTORY = _Refusal("host", "400 Bad Request", "The request line and the Host header name different hosts.")
_LATE = _Refusal(
    "request_seconds", "408 Request Timeout", "The request took too long to arrive (limits.request_seconds)."
)
_ENDING = PlainTextResponse("The gateway is shutting down.", 503, {"Connection": "close"})
_CHOPPED = _Refusal("chunks", "400 Bad Request", "The body comes in too many chunks of a few bytes.")
_PIPELINED = _Refusal("pipelined", "503 Service Unavailable", "Too many requests wait on this connection.")


@dataclass(slots=True)
class _Unread:
    """Connections whose clients have not taken all of their responses: bounded in bytes, and in time without progress.

    The bytes wait in the buffers of the transports, which have no bound: a large response is written at once.
    """

    most_bytes: int
    refused: Counter[str]
    _left: dict["GuardedProtocol", tuple[int, float]] = field(default_factory=dict)
    """How many bytes each has left, and when some of them were last taken."""
    _timer: asyncio.TimerHandle | None = None

    def add(self, connection: "GuardedProtocol") -> None:
        if connection not in self._left:
            self._left[connection] = (connection.unread_bytes, connection.loop.time())
            self._check(connection.loop)

    def discard(self, connection: "GuardedProtocol") -> None:
        self._left.pop(connection, None)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection, (before, since) in list(self._left.items()):
            left = connection.unread_bytes
            self._left[connection] = (left, now if left < before else since)
            if not left:
                del self._left[connection]
        total = sum(left for left, _ in self._left.values())
        for connection, (left, since) in sorted(self._left.items(), key=lambda item: item[1][1]):
            if total > self.most_bytes:
                self._abort(connection, "unread_bytes")
            elif now - since >= UNREAD_SECONDS:
                self._abort(connection, "unread_seconds")
            else:
                break
            total -= left
        if self._left and self._timer is None:
            self._timer = loop.call_later(UNREAD_CHECK_SECONDS, self._check_again, loop)

    def _check_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._check(loop)

    def _abort(self, connection: "GuardedProtocol", limit: str) -> None:
        self.refused[limit] += 1
        del self._left[connection]
        connection.transport.abort()


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with bounds on connections, on a request's head, and on what a client does not read.

    When all places are taken, a new connection takes that of the one that has waited longest without a request: first
    of those that never made one, which cost nothing to open and to hold.
    """

    most = 2_000
    head_seconds = 15.0
    refused: ClassVar[Counter[str]] = Counter()
    """How many requests were refused, by limit."""
    unread: ClassVar[_Unread] = _Unread(Limits().unread_bytes, refused)
    new: ClassVar[dict["GuardedProtocol", None]] = {}
    """Connections that have not made a request, the oldest first."""
    idle: ClassVar[dict["GuardedProtocol", None]] = {}
    """Connections between two requests, the one that has waited longest first."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_refused = self._is_spare = False
        self._answered: RequestResponseCycle | None = None
        self._head_bytes = self._head_fields = 0
        self._chunks = self._body_bytes = 0
        self._unparsed = 0
        """Bytes since the parser last reported anything: it keeps a header until the header is complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.most:
            self._make_room()
        if not self._is_refused:
            self.new[self] = None

    def _make_room(self) -> None:
        """Take the place of a connection without a request; where every one has a request, serve probes alone."""
        waiting = next(chain(self.new, self.idle), None)
        if waiting is not None:
            # To a client between two requests, a response would look like that to its next one.
            waiting._refuse(_BUSY, is_told=waiting.cycle is None)
        elif len(self.connections) > self.most + SPARE_CONNECTIONS:
            self._refuse(_BUSY)
        else:
            self._is_spare = True

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread.add(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.unread_bytes:
            self.unread.add(self)
        if self._is_spare:
            self.transport.close()
        elif self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None

    def _leave_waiting(self) -> None:
        self.new.pop(self, None)
        self.idle.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered; uvicorn tells only the one that came last, and that one may wait.

        It also leaves the timer of an idle connection that the client resets, which keeps the last request as long.
        """
        self._head_arrived()
        self._leave_waiting()
        self.unread.discard(self)
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answer a request; the server cancels those that are not answered when it ends, and they are told so."""
        self._answered = cycle

        async def told_of_the_end(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                if not cycle.response_started:
                    await _ENDING(scope, receive, send)

        super()._start_asgi_task(cycle, told_of_the_end)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEAD_BYTES:
            self._refuse()

    def on_message_begin(self) -> None:
        self._head_bytes = self._head_fields = self._chunks = self._body_bytes = self._unparsed = 0
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        self._weigh(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer of a body in chunks."""
        self._head_fields += 1
        self._unparsed = 0
        self._weigh(name, value)
        if not self._is_refused:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._head_arrived()
        self._leave_waiting()
        if self._is_spare and self.url.partition(b"?")[0] not in PROBES:
            self._refuse(_BUSY)
        elif not self._names_one_host():
            self._refuse(_CONTRADICTORY)
        elif len(self.pipeline) >= PIPELINED_REQUESTS:
            self._refuse(_PIPELINED)
        if not self._is_refused:
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        if self._chunks > FREE_CHUNKS and self._body_bytes < LEAST_CHUNK_BYTES * self._chunks:
            self._refuse(_CHOPPED)
        self._chunks += 1

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self._body_bytes += len(body)
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()

    def _weigh(self, *parts: bytes) -> None:
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > HEAD_BYTES or self._head_fields > HEAD_FIELDS:
            self._refuse()

    def _names_one_host(self) -> bool:
        """Return whether a request in absolute form (`GET http://HOST/PATH`) names the host of its Host header.

        By RFC 9112 the first one counts, while everything behind this reads the second.
        """
        _, is_absolute, rest = self.url.partition(b"://")
        if self.url.startswith(b"/") or not is_absolute:
            return True
        named = re.split(rb"[/?#]", rest, maxsplit=1)[0].lower()
        return [value.strip(b" \t").lower() for name, value in self.headers if name == b"host"] == [named]

    def _refuse(self, refusal: _Refusal = _LARGE, *, is_told: bool = True) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._head_arrived()
        self._leave_waiting()
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        # Behind requests that wait, the response would be read as that to the first of them.
        self._end(refusal, is_told=is_told and not is_answering and not self.pipeline)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._end, _LATE)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end(self, refusal: _Refusal, *, is_told: bool = True) -> None:
        self._head_timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.refused[refusal.limit] += 1
            if is_told:
                self.transport.write(refusal.response)
            self.transport.close()
            if self.unread_bytes:
                self.unread.add(self)


def guarded_protocol(limits: Limits, refused: Counter[str]) -> type[GuardedProtocol]:
    """Return the protocol with the limits of a configuration; what it refuses is counted."""
    most = min(limits.connections, max(descriptor_limit() - RESERVED_DESCRIPTORS, 16))
    named = {
        "most": most,
        "head_seconds": limits.request_seconds,
        "refused": refused,
        "unread": _Unread(limits.unread_bytes, refused),
        "new": {},
        "idle": {},
    }
    return type("GuardedProtocol", (GuardedProtocol,), named)


def descriptor_limit() -> int:
    """Raise the limit of open files as far as is sensible, and return it."""
    if sys.platform == "win32":
        return MOST_DESCRIPTORS
    import resource  # noqa: PLC0415 - there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
