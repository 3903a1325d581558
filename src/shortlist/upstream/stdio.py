"""A child process as a channel: bounded messages, captured stderr, and a process group that always ends."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import anyio.to_thread

from shortlist.config.settings import StdioTransport
from shortlist.large import written
from shortlist.upstream.errors import ConnectionFailed
from shortlist.upstream.events import OnPause
from shortlist.upstream.framing import LineSplitter, Message, Oversized, encode, read_line_beside
from shortlist.upstream.guardian import Child, Guardian
from shortlist.upstream.isolation import isolated
from shortlist.upstream.stderr import LINE_CHARACTERS, StderrLog
from shortlist.upstream.wire import Deliver

EXIT_SECONDS = 2.0
"""How long a server may take to exit once its stdin is closed, and again after SIGTERM."""
ANSWER_SECONDS = 0.5
"""How long a server that has closed its stdin may take to send answers before it is started anew."""
CHUNK_BYTES = 64 * 1024
UNREAD_BYTES = 1024 * 1024
"""What may wait for a child that does not read; beyond that notifications to it are dropped."""
LINES_AT_ONCE = 50
"""After so many messages of one child the others get their turn."""
FLOOD_PAUSE_SECONDS = 0.02
"""A server that writes what nobody needs waits for so long: more is then read at once, and most of that is left out."""
_POLL_SECONDS = 0.01


class CommandNotFound(OSError):
    """The command of a server is not on the PATH that the server gets."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"command {command!r} is not on PATH; install it, or give its full path as 'command' "
            "(PATH can be set in the server's 'env')"
        )


class StdioChannel:
    """Messages of a child, one to a line."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, log: StderrLog, limit: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._log = log
        self._splitter = LineSplitter(limit)
        self._unsent = asyncio.Event()
        """Set when a message could not be written."""
        self.ended = False

    async def run(self, deliver: Deliver) -> None:
        """Deliver every line that is a message until the child closes its stdout, or its stdin while it is written."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_when_deaf, tasks.cancel_scope)
            with suppress(OSError):  # the same as its end
                while chunk := await self._stdout.read(CHUNK_BYTES):
                    messages = await self._take_all(chunk, deliver)
                    if messages == 0 and b"\n" in chunk:
                        await anyio.sleep(FLOOD_PAUSE_SECONDS)
            tasks.cancel_scope.cancel()
        self.ended = True

    async def _end_when_deaf(self, scope: anyio.CancelScope) -> None:
        """End a connection on which nothing can be sent, after answers on their way have had time to come."""
        await self._unsent.wait()
        await anyio.sleep(ANSWER_SECONDS)
        scope.cancel()

    async def _take_all(self, chunk: bytes, deliver: Deliver) -> int:
        """Deliver the lines that a chunk completes, and keep none of them; return how many were messages."""
        messages = 0
        for number, line in enumerate(self._splitter.feed(chunk), 1):
            messages += await self._take(line, deliver)
            if number % LINES_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
        return messages

    async def _take(self, line: bytes | Oversized, deliver: Deliver) -> bool:
        """Deliver a line, or log it where it is not a message; return whether it was one."""
        message = await read_line_beside(line)
        if message is None:
            self._log.note(_stray(line))
            return False
        deliver(message)
        return True

    async def send(self, message: Message, headers: Mapping[str, str], on_pause: OnPause | None = None) -> None:  # noqa: ARG002
        """Write a complete message, even if the caller is cancelled, and wait for a child that reads slowly."""
        data = await written(message) + b"\n"
        if self._stdin.is_closing():
            self._unsent.set()
            raise ConnectionFailed("the connection ended", sent=False)
        self._stdin.write(data)
        try:
            await self._stdin.drain()
        except OSError:
            self._unsent.set()
            raise ConnectionFailed("the connection ended before it answered") from None

    def post(self, message: Message, headers: Mapping[str, str]) -> None:  # noqa: ARG002 - a pipe has no headers
        """Write a notification without waiting; dropped where the child has not read for long."""
        data = encode(message) + b"\n"
        if not self._stdin.is_closing() and self._stdin.transport.get_write_buffer_size() < UNREAD_BYTES + len(data):
            self._stdin.write(data)


@asynccontextmanager
async def open_stdio(
    transport: StdioTransport, *, log: StderrLog, limit: int, guardian: Guardian
) -> AsyncIterator[StdioChannel]:
    """Start the child and yield its channel; on leaving, its process group is ended and reaped."""
    child = await _start(transport, guardian)
    channel = StdioChannel(child.stdin, child.stdout, log, limit)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_stderr, child.stderr, log)
            try:
                yield channel
            finally:
                with anyio.CancelScope(shield=True):
                    left_first = channel.ended
                    tasks.start_soon(_drain, child.stdout)
                    await _end(child)
                    guardian.forget(child)
                    if child.why:
                        log.note(f"[ended: {child.why}]")
                    if left_first:
                        log.note(f"[exited with code {child.returncode}]")
                tasks.cancel_scope.cancel()
    finally:
        log.end()


async def _start(transport: StdioTransport, guardian: Guardian) -> Child:
    environment = dict(transport.environment)
    command = shutil.which(transport.command, path=environment.get("PATH"))
    if command is None:
        raise CommandNotFound(transport.command)
    parts = (transport.isolation, [command, *transport.args], environment, transport.directory)
    return await guardian.start(await anyio.to_thread.run_sync(isolated, *parts))


async def _drain(stdout: asyncio.StreamReader) -> None:
    """Read what the child still writes: blocked on a full pipe it could not see its stdin close."""
    with suppress(OSError):
        while await stdout.read(CHUNK_BYTES):
            pass


def _stray(line: bytes | Oversized) -> str:
    if isinstance(line, Oversized):
        return f"[stdout] dropped a line of {line.size} bytes"
    return f"[stdout, not a message] {line[:LINE_CHARACTERS].decode('utf-8', 'replace')}"


async def _read_stderr(stderr: asyncio.StreamReader, log: StderrLog) -> None:
    with suppress(OSError):
        while chunk := await stderr.read(CHUNK_BYTES):
            if not log.write(chunk):
                await anyio.sleep(FLOOD_PAUSE_SECONDS)


async def _end(child: Child) -> None:
    """Close stdin, wait, then signal the group: what the server itself started must end too."""
    child.stdin.close()
    await _exited(child, EXIT_SECONDS)
    if _signal_group(child, signal.SIGTERM):
        with anyio.move_on_after(EXIT_SECONDS):
            while _signal_group(child, 0):
                await anyio.sleep(_POLL_SECONDS)
        _signal_group(child, getattr(signal, "SIGKILL", signal.SIGTERM))
    await _exited(child, EXIT_SECONDS)
    child.close()


async def _exited(child: Child, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        while child.returncode is None:
            await anyio.sleep(_POLL_SECONDS)


def _signal_group(child: Child, number: int) -> bool:
    """Signal every process of the child's group; return whether one may be left."""
    if sys.platform == "win32":
        if child.returncode is None and number:
            os.kill(child.pid, number)
        return child.returncode is None
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return child.returncode is None  # macOS says so of zombies
    return True
