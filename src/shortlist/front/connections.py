"""HTTP connections within limits: how many there are, and how long a client may take to send a request's head."""

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shortlist.config.settings import Limits

RESERVED_DESCRIPTORS = 256
"""Kept for servers, files and databases; connections are refused before these are used up."""
MOST_DESCRIPTORS = 8_192
IDLE_SECONDS = 75
"""How long a connection may rest between two requests; clients with shorter limits close it themselves."""


def _response(status: str, text: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\nretry-after: 1\r\nconnection: close\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n{text}".encode()


_BUSY = _response("503 Service Unavailable", "Too many open connections (limits.connections is reached).")
_LATE = _response("408 Request Timeout", "The request took too long to arrive (limits.request_seconds).")


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with a bound on connections, and on the time that a request's head may take."""

    most = 2_000
    head_seconds = 15.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._is_refused = True
            self._end(_BUSY)
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_arrived()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._end, _LATE)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end(self, response: bytes) -> None:
        self._head_timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()


def guarded_protocol(limits: Limits) -> type[GuardedProtocol]:
    """Return the protocol with the limits of a configuration."""
    most = min(limits.connections, max(descriptor_limit() - RESERVED_DESCRIPTORS, 16))
    return type("GuardedProtocol", (GuardedProtocol,), {"most": most, "head_seconds": limits.request_seconds})


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
