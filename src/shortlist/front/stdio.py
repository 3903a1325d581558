"""Serves one client over stdin and stdout, which the event loop reads and writes itself.

The SDK's transport hands every line to a thread and waits for it, once to read and twice to write: a fourth of what a
call through the gateway costs. It stays for what the loop cannot wait for: consoles, files, Windows.
"""

import asyncio
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, JSONRPCNotification, jsonrpc_message_adapter
from pydantic_core import from_json

from shortlist.config.settings import Limits
from shortlist.errors import InvalidInput
from shortlist.front.streams import with_json
from shortlist.large import LARGE_BYTES, beside
from shortlist.upstream.framing import (
    BYTE_ORDER_MARK,
    UNUSABLE_ID,
    LineSplitter,
    Message,
    Oversized,
    error_message,
    has_unusable_id,
    id_of_unreadable_request,
    read_client_line,
    read_line,
    refusal,
    well_formed,
)
from shortlist.upstream.guardian import pipe_file

Streams: TypeAlias = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]

STDIN, STDOUT, STDERR = 0, 1, 2
FLUSH_SECONDS = 1.0
"""How long a client that closed its end may take to read the last answers."""
CHUNK_BYTES = 64 * 1024
UNREAD_MESSAGES = 1_000
UNREAD_BYTES = 16 * 1024 * 1024
"""How much a client may leave unread; beyond either, the gateway stops reading from the client."""
INVALID = (
    "This is not a valid JSON-RPC 2.0 request. Check `jsonrpc`, `id`, `method` and `params`, "
    "and that it is JSON with at most 200 levels."
)

logger = logging.getLogger(__name__)


def check_front() -> None:
    """Raise where stdin or stdout is closed; call this first, since the next opened file takes a closed one's place."""
    for name, stream in (("stdin", sys.stdin), ("stdout", sys.stdout)):
        if stream is None:
            raise InvalidInput(
                f"{name} is closed, so there is no client to serve: a client starts `shortlist serve` itself and keeps "
                "both stdin and stdout open. Without one, serve over HTTP: `shortlist serve --http 127.0.0.1:8765`."
            )


def open_front(limits: Limits) -> AbstractAsyncContextManager[Streams]:
    """Return the message streams of the client that started this process; nothing else reads or writes them.

    A message over `message_bytes` is dropped while it arrives, and answered with an error. A client that leaves more
    than `unread_bytes` unread is disconnected.
    """
    return _open_pipes(limits) if _are_pipes() else stdio_server()


def _are_pipes() -> bool:
    if sys.platform == "win32":
        return False
    ends = os.fstat(STDIN), os.fstat(STDOUT)
    # One socket for both is left out: the loop would take what it can read from stdout for its end.
    return all(stat.S_ISFIFO(e.st_mode) or stat.S_ISSOCK(e.st_mode) for e in ends) and not os.path.samestat(*ends)


@asynccontextmanager
async def _open_pipes(limits: Limits) -> AsyncIterator[Streams]:
    loop = asyncio.get_running_loop()
    stdin, stdout = os.dup(STDIN), pipe_file(loop, os.dup(STDOUT), "wb")
    _divert(STDIN, os.open(os.devnull, os.O_RDONLY))
    _divert(STDOUT, os.dup(STDERR))  # output printed by mistake, here or in a child, must not look like a message
    os.set_blocking(stdin, False)
    writing, flow = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stdout)
    outbox = _Outbox(asyncio.StreamWriter(writing, flow, None, loop), limits.unread_bytes)
    try:
        yield _Inbox(partial(_read_pipe, stdin), outbox, limits.message_bytes), outbox
    finally:
        os.close(stdin)
        await outbox.flush()


async def _read_pipe(stdin: int) -> bytes:
    while True:
        await anyio.wait_readable(stdin)
        try:
            return os.read(stdin, CHUNK_BYTES)
        except BlockingIOError:
            continue


@asynccontextmanager
async def open_socket(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits
) -> AsyncIterator[Streams]:
    """Return the message streams of a client that is connected by a socket; see `open_front`."""
    outbox = _Outbox(writer, limits.unread_bytes)
    try:
        yield _Inbox(partial(reader.read, CHUNK_BYTES), outbox, limits.message_bytes), outbox
    finally:
        await outbox.flush()


def _divert(descriptor: int, instead: int) -> None:
    os.dup2(instead, descriptor)
    os.close(instead)


class _Inbox(ObjectReceiveStream[SessionMessage | Exception]):
    """Reads the client only when a message is wanted, so that further ones wait in the pipe."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], outbox: "_Outbox", limit: int) -> None:
        self._read = read
        self._outbox = outbox
        self._splitter = LineSplitter(limit)
        self._lines: deque[bytes | Oversized] = deque()
        self._ended = False

    async def receive(self) -> SessionMessage | Exception:
        await self._outbox.room()
        if self._lines:
            await anyio.lowlevel.checkpoint()  # who sends many at once is answered meanwhile
        while True:
            while self._lines:
                line = self._lines.popleft()
                if line and (item := await self._item(line)):
                    return item
            self._lines.extend(self._splitter.feed(await self._chunk()))

    async def _item(self, line: bytes | Oversized) -> SessionMessage | Exception | None:
        if isinstance(line, Oversized):
            return await self._refused(line)
        line = line.removeprefix(BYTE_ORDER_MARK)
        value: Any = None
        try:
            if len(line) > LARGE_BYTES:
                value = await beside(read_client_line, line)
                if isinstance(value, Oversized):
                    return await self._refused(value)
                message = jsonrpc_message_adapter.validate_python(value, by_name=False)
            else:
                text = well_formed(line).decode("utf-8", "replace")
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValueError as error:
            number = _id_of_request(line, value)
            if number is None:
                return error
            await self._tell(error_message(number, INVALID_REQUEST, INVALID))
            return None
        if isinstance(message, JSONRPCNotification) and (has_unusable_id(line) if value is None else "id" in value):
            await self._tell(error_message(None, INVALID_REQUEST, UNUSABLE_ID))
            return None
        return SessionMessage(message)

    async def _refused(self, line: Oversized) -> SessionMessage | None:
        """Answer a message that is too large to be read; if it is itself an answer, its request gets the error."""
        logger.warning("not served: the message %s", line.reason)
        if line.is_answer:
            failed = read_line(line)
            return _session_message(failed) if failed is not None else None
        await self._tell(refusal(line))
        return None

    async def _tell(self, message: Message) -> None:
        with suppress(anyio.BrokenResourceError):  # the client is gone, which is seen when it is read
            await self._outbox.send(_session_message(message))

    async def _chunk(self) -> bytes:
        if self._ended:
            raise anyio.EndOfStream
        try:
            chunk = await self._read()
        except OSError as error:
            logger.warning("the client is gone: its messages cannot be read (%s)", error.strerror)
            chunk = b""
        self._ended = not chunk
        return chunk or b"\n"  # a last line may lack its end

    async def aclose(self) -> None:
        """Leave the pipe open until its last answers are written."""


class _Outbox(ObjectSendStream[SessionMessage]):
    """Writes complete messages, even if the caller is cancelled."""

    def __init__(self, writer: asyncio.StreamWriter, most_bytes: int) -> None:
        self._writer = writer
        self._most_bytes = most_bytes
        self._unread = 0

    async def send(self, item: SessionMessage) -> None:
        message = await with_json(item.message)
        if self._writer.is_closing():  # the client is gone; to write would raise what nobody expects
            raise anyio.BrokenResourceError
        self._writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if self._writer.transport.get_write_buffer_size() > self._most_bytes:
            logger.warning("disconnected a client that reads none of its messages (limits.unread_bytes)")
            self._writer.transport.abort()
            raise anyio.BrokenResourceError
        self._unread += 1
        try:
            await self._writer.drain()
        except OSError:
            raise anyio.BrokenResourceError from None
        finally:
            self._unread -= 1

    async def room(self) -> None:
        """Wait for a client that sends without reading its answers."""
        unread_bytes = self._writer.transport.get_write_buffer_size()
        if self._unread >= UNREAD_MESSAGES or unread_bytes > UNREAD_BYTES:
            with suppress(OSError):  # its end is seen when it is read
                await self._writer.drain()

    async def flush(self) -> None:
        self._writer.close()
        with anyio.move_on_after(FLUSH_SECONDS, shield=True), suppress(OSError):  # a client may be gone by now
            await self._writer.wait_closed()

    async def aclose(self) -> None:
        self._writer.close()


def _id_of_request(line: bytes, value: Any) -> int | str | None:
    """Return the id of a request that is not valid, so that its client does not wait for it."""
    try:
        message = value if value is not None or len(line) > LARGE_BYTES else from_json(line.decode("utf-8", "replace"))
    except ValueError:
        message = None
    if message is None:
        return id_of_unreadable_request(line)
    number = message.get("id") if isinstance(message, dict) and "method" in message else None
    return number if isinstance(number, (int, str)) and not isinstance(number, bool) else None


def _session_message(message: Message) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))
