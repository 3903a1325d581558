"""Servers over stdio that several gateways share: one of them runs the process, the others reach it through that one.

A lease decides which gateway runs a server. The others hold one HTTP request to it open and send messages over it in
both directions, one to a line. So a shared server is a connection like any other: it is listed, watched and asked
over it, and a request that was on its way when the connection ended is not sent again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import anyio

from shortlist.config.settings import StdioTransport
from shortlist.config.variables import SAFE_VARIABLES
from shortlist.errors import UpstreamError
from shortlist.large import written
from shortlist.upstream.errors import (
    ConnectionFailed,
    UpstreamBusy,
    UpstreamNeedsAuth,
    UpstreamNotSent,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from shortlist.upstream.events import OnPause
from shortlist.upstream.framing import LineSplitter, Message, encode, read_line_beside
from shortlist.upstream.wire import Channel, Deliver

ATTACH_PATH = "/replicas/servers"
ATTACH_SECONDS = 2.0
"""How long a gateway may take to accept a connection to one of its servers."""
RETRY_SECONDS = 0.25
"""How often a lease is looked at while its holder cannot be reached: it starts the server, or the lease expires."""
ROOM_BYTES = 64 * 1024
"""What a message may have beyond the limit of the server's own messages."""
FAILURES: Mapping[str, type[UpstreamError]] = {
    kind.__name__: kind
    for kind in (UpstreamUnavailable, UpstreamNotSent, UpstreamBusy, UpstreamTimeout, UpstreamNeedsAuth)
}
"""How a request can fail at the gateway that runs the server."""


async def _confirmed() -> None:
    """Do nothing: a gateway that reaches the server through another one is not the one to ask."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one server, held by this gateway or by another."""

    key: str
    url: str | None
    """Where the gateway that runs the server is reached; None where this one runs it."""
    authorization: str = field(repr=False)
    """Proves to that gateway that this one belongs to the same store."""
    confirm: Callable[[], Awaitable[None]] = field(default=_confirmed, repr=False)
    """Look again who holds it, where this process was stopped for so long that it may have expired."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when it was released, has expired, or another gateway holds it."""


class Leases(Protocol):
    """Decides which gateway runs a server."""

    def taken(self, server: str, recipe: str) -> AbstractAsyncContextManager[Lease]:
        """Take the lease of a server if it is free; what is held by this gateway is released at the end.

        Gateways share a server only if they would start it by the same recipe. Raise OSError where it is not known who
        holds the lease.
        """
        ...


def recipe_of(transport: StdioTransport) -> str:
    """Return what identifies a process beside its server's name: everything that starts it but the user's own paths."""
    own = sorted((name, value) for name, value in transport.environment.items() if name not in SAFE_VARIABLES)
    parts = (transport.command, transport.args, own, transport.directory, asdict(transport.isolation))
    return json.dumps(parts)


@asynccontextmanager
async def open_leased(
    leases: Leases,
    server: str,
    transport: StdioTransport,
    limit: int,
    start: Callable[[], AbstractAsyncContextManager[Channel]],
) -> AsyncIterator[Channel]:
    """Start the server where its lease is free, else reach it through the gateway that runs it."""
    recipe = recipe_of(transport)
    while True:
        async with leases.taken(server, recipe) as lease:
            if lease.url is None:
                async with start() as channel:
                    yield HeldChannel(channel, lease)
                return
            streams = await _attach(server, lease)
            if streams is not None:
                try:
                    yield ForwardedChannel(server, *streams, limit, lease)
                finally:
                    streams[1].close()
                return
        await anyio.sleep(RETRY_SECONDS)


async def _attach(server: str, lease: Lease) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Open a connection to a server of another gateway; return None where that gateway is gone or no longer runs it."""
    parts = urlsplit(lease.url or "")
    writer: asyncio.StreamWriter | None = None
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        with anyio.fail_after(ATTACH_SECONDS):
            secure = True if parts.scheme == "https" else None
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=secure)
            writer.write(
                f"POST {parts.path}{ATTACH_PATH} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
                f"Authorization: {lease.authorization}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            )
            writer.write(_chunk(encode({"server": server, "key": lease.key})))
            head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] == [b"200"]:
            return reader, writer
    if writer is not None:
        writer.close()
    return None


def _chunk(data: bytes) -> bytes:
    line = data + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


class HeldChannel:
    """A server that this gateway runs; it ends with the lease."""

    def __init__(self, inner: Channel, lease: Lease) -> None:
        self.post = inner.post
        self._inner = inner
        self._lease = lease

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:
        await self._lease.confirm()
        if self._lease.ended.is_set():
            raise ConnectionFailed("another gateway runs it now", sent=False)
        await self._inner.send(message, headers, on_pause)

    async def run(self, deliver: Deliver) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_at_end, self._lease, tasks.cancel_scope)
            await self._inner.run(deliver)
            tasks.cancel_scope.cancel()


class ForwardedChannel:
    """A server that another gateway runs."""

    def __init__(
        self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int, lease: Lease
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._splitter = LineSplitter(limit + ROOM_BYTES)
        self._lease = lease
        self._waiting: dict[int | str, asyncio.Future[None]] = {}

    async def run(self, deliver: Deliver) -> None:
        """Deliver what the server sends until its gateway is gone or no longer has the lease."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_at_end, self._lease, tasks.cancel_scope)
            with suppress(OSError, asyncio.IncompleteReadError, ValueError):
                while chunk := await self._chunk():
                    for line in self._splitter.feed(chunk):
                        message = await read_line_beside(line)
                        if message is not None:
                            self._take(message, deliver)
            tasks.cancel_scope.cancel()

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:size]

    def _take(self, message: Message, deliver: Deliver) -> None:
        waiting = self._waiting.get(message.get("id", "")) if "method" not in message else None
        failure = FAILURES.get(str(message.get("failed")))
        if failure is None:
            deliver(message)
        if waiting is not None and not waiting.done():
            if failure is not None:
                waiting.set_exception(failure(self._server, str(message.get("reason"))))
            else:
                waiting.set_result(None)

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:  # noqa: ARG002
        """Write a message; of a request, wait for its answer."""
        if self._writer.is_closing() or self._lease.ended.is_set():
            raise ConnectionFailed("the gateway that runs it has stopped", sent=False)
        number = message.get("id") if "method" in message else None
        left = anyio.current_effective_deadline() - anyio.current_time()
        timed = {**message, "seconds": left} if number is not None and left < float("inf") else message
        answered = asyncio.get_running_loop().create_future()
        if number is not None:
            self._waiting[number] = answered
        try:
            self._writer.write(_chunk(await written(timed)))
            await self._writer.drain()
            if number is not None:
                await answered
        except OSError:
            raise ConnectionFailed("the gateway that runs it stopped before it answered") from None
        finally:
            self._waiting.pop(number or "", None)

    def post(self, message: Message, headers: Mapping[str, str]) -> None:  # noqa: ARG002 - as over a pipe
        if not self._writer.is_closing():
            self._writer.write(_chunk(encode(message)))


async def cancel_at_end(lease: Lease, scope: anyio.CancelScope) -> None:
    """Cancel a scope when a lease ends."""
    await lease.ended.wait()
    scope.cancel()
