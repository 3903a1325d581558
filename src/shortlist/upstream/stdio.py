"""A child process as a transport: bounded messages, captured stderr, and a process group that always ends."""

import math
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import PIPE

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectReceiveStream, ObjectSendStream, Process
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from shortlist.config.settings import StdioTransport
from shortlist.upstream.framing import LineSplitter, Oversized, read_line, write_line
from shortlist.upstream.stderr import LINE_CHARACTERS, StderrLog

EXIT_SECONDS = 2.0
"""How long a server may take to leave by itself once its stdin is closed, and again after SIGTERM."""
NOTICE_SECONDS = 0.1
"""How long a notification may wait for a child that does not read: a call that ran out of time waits for its cancel."""
_POLL_SECONDS = 0.01
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)


class CommandNotFound(OSError):
    """The command of a server is not on the PATH that the server gets."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"command {command!r} is not on PATH; install it, or give its full path as 'command' "
            "(PATH can be set in the server's 'env')"
        )


@asynccontextmanager
async def open_stdio(transport: StdioTransport, *, log: StderrLog, limit: int) -> AsyncIterator[TransportStreams]:
    """Start the child and give its message streams; on leaving, its process group is ended and reaped."""
    process = await _spawn(transport)
    stdin, stdout, stderr = _pipes(process)
    inbox, outbox = _Inbox(stdout, log, limit), _Outbox(stdin)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_stderr, stderr, log)
            try:
                yield inbox, outbox
            finally:
                with anyio.CancelScope(shield=True):
                    left_first = inbox.ended
                    tasks.start_soon(_drain, stdout)
                    await _end(process)
                    if left_first:
                        log.note(f"[exited with code {process.returncode}]")
                tasks.cancel_scope.cancel()
    finally:
        log.end()


async def _spawn(transport: StdioTransport) -> Process:
    environment = dict(transport.environment)
    command = shutil.which(transport.command, path=environment.get("PATH"))
    if command is None:
        raise CommandNotFound(transport.command)
    return await anyio.open_process(
        [command, *transport.args],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment,
        cwd=transport.directory,
        start_new_session=True,
    )


class _Inbox(ObjectReceiveStream[SessionMessage | Exception]):
    """Reads the child when a message is asked for: a task and a queue between would make every call wait for them."""

    def __init__(self, stdout: ByteReceiveStream, log: StderrLog, limit: int) -> None:
        self._stdout = stdout
        self._log = log
        self._splitter = LineSplitter(limit)
        self._lines: deque[bytes | Oversized] = deque()
        self.ended = False

    async def receive(self) -> SessionMessage:
        if self._lines:
            await anyio.lowlevel.checkpoint()  # a child that never stops talking leaves the others their turn
        while True:
            while self._lines:
                if message := self._message(self._lines.popleft()):
                    return message
            self._lines.extend(self._splitter.feed(await self._chunk()))

    def _message(self, line: bytes | Oversized) -> SessionMessage | None:
        message = read_line(line, self._splitter.limit) if line else None
        if line and message is None:
            self._log.note(_stray(line))
        return message

    async def _chunk(self) -> bytes:
        try:
            return await self._stdout.receive()
        except _GONE:
            self.ended = True
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Leave stdout open: the child is heard out when it is ended."""


class _Outbox(ObjectSendStream[SessionMessage]):
    """Writes messages whole, whoever is cancelled meanwhile: what the child does not read yet is kept for it."""

    def __init__(self, stdin: ByteSendStream) -> None:
        self._stdin = stdin

    async def send(self, item: SessionMessage) -> None:
        seconds = NOTICE_SECONDS if isinstance(item.message, JSONRPCNotification) else math.inf
        try:
            with anyio.move_on_after(seconds):
                await self._stdin.send(write_line(item))
        except _GONE:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        await _close(self._stdin)


async def _drain(stdout: ByteReceiveStream) -> None:
    """Hear the child out: blocked on a full pipe it could not see its stdin close."""
    with anyio.CancelScope(shield=True), suppress(*_GONE):  # until `_end` closes it
        async for _ in stdout:
            pass


def _stray(line: bytes | Oversized) -> str:
    if isinstance(line, Oversized):
        return f"[stdout] dropped a line of {line.size} bytes"
    return f"[stdout, not a message] {line[:LINE_CHARACTERS].decode('utf-8', 'replace')}"


async def _read_stderr(stderr: ByteReceiveStream, log: StderrLog) -> None:
    with suppress(*_GONE):
        async for chunk in stderr:
            log.write(chunk)


def _pipes(process: Process) -> tuple[ByteSendStream, ByteReceiveStream, ByteReceiveStream]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise RuntimeError("the child was started without pipes")
    return process.stdin, process.stdout, process.stderr


async def _end(process: Process) -> None:
    """Close stdin, wait, then signal the group: also what the server itself started must go."""
    if process.stdin is not None:
        with anyio.move_on_after(0.5):
            await _close(process.stdin)
    await _exited(process, EXIT_SECONDS)
    if _signal_group(process, signal.SIGTERM):
        with anyio.move_on_after(EXIT_SECONDS):
            while _signal_group(process, 0):
                await anyio.sleep(_POLL_SECONDS)
        _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    await _exited(process, EXIT_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            await _close(pipe)
    _close_transport(process)


async def _exited(process: Process, seconds: float) -> None:
    # `wait` also waits for the pipes to end, which a grandchild can hold open.
    with anyio.move_on_after(seconds):
        while process.returncode is None:
            await anyio.sleep(_POLL_SECONDS)


def _signal_group(process: Process, number: int) -> bool:
    """Signal every process of the child's group; say whether there may be one left."""
    if sys.platform == "win32":
        if process.returncode is None and number:
            process.terminate()
        return process.returncode is None
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return process.returncode is None  # macOS says so of zombies
    return True


async def _close(stream: ByteSendStream | ByteReceiveStream) -> None:
    with suppress(*_GONE):
        await stream.aclose()


def _close_transport(process: Process) -> None:
    # Without this asyncio warns at collection while a descendant holds a pipe end; nothing public reaches it.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()
