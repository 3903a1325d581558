"""A child process as a transport: bounded messages, captured stderr, and a process group that always ends."""

import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import PIPE

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from shortlist.config.settings import StdioTransport
from shortlist.upstream.framing import LineSplitter, Oversized, read_line
from shortlist.upstream.stderr import LINE_CHARACTERS, StderrLog

EXIT_SECONDS = 2.0
"""How long a server may take to leave by itself once its stdin is closed, and again after SIGTERM."""
_POLL_SECONDS = 0.01
_QUEUED_MESSAGES = 64
"""Room for the cancel of a timed-out call while the child does not read."""
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, ConnectionError, OSError)


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
    inbox_writer, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, outbox_reader = anyio.create_memory_object_stream[SessionMessage](_QUEUED_MESSAGES)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_stdout, process, inbox_writer, log, limit)
            tasks.start_soon(_read_stderr, process, log)
            tasks.start_soon(_write_stdin, process, outbox_reader)
            try:
                yield inbox, outbox
            finally:
                with anyio.CancelScope(shield=True):
                    left_first = inbox_writer.statistics().open_send_streams == 0
                    outbox.close()
                    inbox.close()
                    await _end(process)
                    if left_first:
                        log.note(f"[exited with code {process.returncode}]")
                tasks.cancel_scope.cancel()
    finally:
        log.end()
        for stream in (inbox_writer, inbox, outbox, outbox_reader):
            stream.close()


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


async def _read_stdout(
    process: Process, inbox: MemoryObjectSendStream[SessionMessage | Exception], log: StderrLog, limit: int
) -> None:
    splitter = LineSplitter(limit)
    stdout = _open(process.stdout)
    with suppress(*_GONE):
        async with inbox:
            async for chunk in stdout:
                for line in splitter.feed(chunk):
                    message = read_line(line, limit) if line else None
                    if message is not None:
                        await inbox.send(message)
                    elif line:
                        log.note(_stray(line))
    with suppress(*_GONE):
        # Nobody listens any more; a child blocked on a full pipe could not see its stdin close.
        async for _ in stdout:
            pass


def _stray(line: bytes | Oversized) -> str:
    if isinstance(line, Oversized):
        return f"[stdout] dropped a line of {line.size} bytes"
    return f"[stdout, not a message] {line[:LINE_CHARACTERS].decode('utf-8', 'replace')}"


async def _read_stderr(process: Process, log: StderrLog) -> None:
    with suppress(*_GONE):
        async for chunk in _open(process.stderr):
            log.write(chunk)


async def _write_stdin(process: Process, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
    stdin: ByteSendStream | None = process.stdin
    if stdin is None:
        raise RuntimeError("the child was started without stdin")
    with suppress(*_GONE):
        async with outbox:
            async for item in outbox:
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(data.encode() + b"\n")
    await _close(stdin)


def _open(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    if stream is None:
        raise RuntimeError("the child was started without pipes")
    return stream


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
