"""The front over stdin and stdout, read and written by the event loop itself.

The SDK's transport hands every line to a thread and waits for it, once to read and twice to write: a fourth of what a
call through the gateway costs. It stays for what the loop cannot wait for: consoles, files, Windows.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeAlias

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from shortlist.upstream.framing import write_line

Streams: TypeAlias = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]

STDIN, STDOUT, STDERR = 0, 1, 2
FLUSH_SECONDS = 1.0
"""How long a client that closed its end may take to read the last answers."""


def open_front() -> AbstractAsyncContextManager[Streams]:
    """Give the message streams of the client that started this process; nothing else reads or writes them."""
    return _open_pipes() if _are_pipes() else stdio_server()


def _are_pipes() -> bool:
    if sys.platform == "win32":
        return False
    ends = os.fstat(STDIN), os.fstat(STDOUT)
    # One socket for both is left out: the loop would take what it can read from stdout for its end.
    return all(stat.S_ISFIFO(e.st_mode) or stat.S_ISSOCK(e.st_mode) for e in ends) and not os.path.samestat(*ends)


@asynccontextmanager
async def _open_pipes() -> AsyncIterator[Streams]:
    stdin, stdout = os.fdopen(os.dup(STDIN), "rb"), os.fdopen(os.dup(STDOUT), "wb")
    _divert(STDIN, os.open(os.devnull, os.O_RDONLY))
    _divert(STDOUT, os.dup(STDERR))  # what is printed by mistake, here or in a child, is no message
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=sys.maxsize)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    writing, flow = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stdout)
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    try:
        yield _Inbox(reader), _Outbox(writer)
    finally:
        reading.close()
        writer.close()
        with anyio.move_on_after(FLUSH_SECONDS, shield=True), suppress(OSError):  # a client may be gone by now
            await writer.wait_closed()


def _divert(descriptor: int, instead: int) -> None:
    os.dup2(instead, descriptor)
    os.close(instead)


class _Inbox(ObjectReceiveStream[SessionMessage | Exception]):
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> SessionMessage | Exception:
        line = await self._reader.readline()
        if not line:
            raise anyio.EndOfStream
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace"), by_name=False))
        except ValueError as error:
            return error

    async def aclose(self) -> None:
        """Leave the pipe open until its last answers are written."""


class _Outbox(ObjectSendStream[SessionMessage]):
    """Writes messages whole, whoever is cancelled meanwhile."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage) -> None:
        self._writer.write(write_line(item))
        try:
            await self._writer.drain()
        except OSError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        self._writer.close()
