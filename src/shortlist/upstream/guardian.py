"""Starts server processes from a small process beside the gateway, which ends them when the gateway is gone.

The guardian holds one end of a socket. When the other end closes, even because the gateway was killed, it ends every
process group that it started. On Linux it is also the reaper of what those processes leave behind, so a server that
detached itself ends too. Starting processes there also costs the gateway no fork of its own memory.

This file is a module of the gateway and the program of the guardian, which runs on the standard library alone.
"""

import asyncio
import ctypes
import glob
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # as a program it has the standard library alone
    from shortlist.upstream.isolation import IsolatedCommand

_LENGTH = struct.Struct("!I")
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_KEYCTL = {"x86_64": 250, "aarch64": 219}
"""The number of keyctl(2), by machine; its first operation but one opens an empty session keyring."""
TERM_SECONDS = 2.0
"""How long processes may take to end after SIGTERM when the gateway is gone."""
CHUNK_BYTES = 64 * 1024
WATCH_SECONDS = 0.2
"""How often the limits of isolated servers are checked."""
WRAPPERS = 2
"""Processes of bubblewrap around a server."""


@dataclass(slots=True)
class Child:
    """A server process, and our ends of its pipes."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    returncode: int | None = None
    why: str = ""
    """The limit that it exceeded, where the guardian ended it."""
    following: "asyncio.Task[None] | None" = None
    _transports: tuple[asyncio.BaseTransport, ...] = ()

    def close(self) -> None:
        """Close our ends; a descendant may hold the others."""
        for transport in self._transports:
            transport.close()


@dataclass(slots=True)
class Guardian:
    """The gateway's side; the process starts with the first server and ends with `close`."""

    _process: asyncio.subprocess.Process | None = None
    _socket: socket.socket | None = None
    _children: dict[int, Child] = field(default_factory=dict)
    _one_start: asyncio.Lock = field(default_factory=asyncio.Lock)
    _starting: "asyncio.Task[Child] | None" = None
    _reply: "asyncio.Future[dict[str, Any]] | None" = None
    _reading: "asyncio.Task[None] | None" = None

    async def start(self, launch: "IsolatedCommand") -> Child:
        """Start a process in a group of its own; raise OSError with the system's reason."""
        if sys.platform == "win32":
            return await _start_directly(launch.command, launch.environment, launch.directory)
        request = {
            "command": list(launch.command),
            "env": dict(launch.environment),
            "cwd": launch.directory,
            "limits": dict(launch.limits),
            "cleanup": list(launch.cleanup),
        }
        await self._one_start.acquire()
        self._starting = starting = asyncio.create_task(self._start(request))
        starting.add_done_callback(lambda _: self._one_start.release())  # also where it is cancelled before it begins
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_discard)
            raise

    async def _start(self, request: Mapping[str, Any]) -> Child:
        """Start a process to the end: the reply to a request that nobody waits for would be taken for the next one."""
        if self._socket is None:
            await self._begin()
        pipes = _Pipes.open()
        try:
            reply = await self._ask(request, pipes)
        except BaseException:
            _close(pipes.ours)
            raise
        finally:
            _close(pipes.theirs)
        if "error" in reply:
            _close(pipes.ours)
            raise OSError(reply["error"])
        child = await _connected(int(reply["pid"]), pipes)
        self._children[child.pid] = child
        return child

    def forget(self, child: Child) -> None:
        """Stop following a process that has ended."""
        self._children.pop(child.pid, None)

    async def close(self) -> None:
        """End the guardian, and with it whatever is left of its processes."""
        try:
            for task in (self._starting, self._reading):
                if task is not None:  # before its socket is closed, whose number may be used again at once
                    task.cancel()
                    await asyncio.wait([task])
            self._starting = self._reading = None
        finally:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        if self._process is not None:
            await self._process.wait()
            self._process = None

    async def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-IS",
                __file__,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours
        self._reading = asyncio.create_task(self._follow(ours))

    async def _ask(self, request: Mapping[str, Any], pipes: "_Pipes") -> dict[str, Any]:
        if self._socket is None:
            raise OSError("the process that starts servers has exited")
        body, loop = json.dumps(request).encode(), asyncio.get_running_loop()
        self._reply = loop.create_future()
        try:
            socket.send_fds(self._socket, [_LENGTH.pack(len(body))], pipes.theirs)
            await loop.sock_sendall(self._socket, body)
            return await self._reply
        finally:
            self._reply = None

    async def _follow(self, ours: socket.socket) -> None:
        """Read what the guardian reports, until it or the gateway ends."""
        loop, rest = asyncio.get_running_loop(), b""
        try:
            while chunk := await loop.sock_recv(ours, CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except OSError:
            pass
        self._lost(ours)

    def _take(self, message: dict[str, Any]) -> None:
        if "exited" in message:
            child = self._children.pop(message["exited"], None)
            if child is not None:
                child.returncode, child.why = message["code"], message.get("why", "")
        elif self._reply is not None and not self._reply.done():
            self._reply.set_result(message)

    def _lost(self, ours: socket.socket) -> None:
        """Continue without the guardian: count its processes as ended, and let the next start launch a new one."""
        ours.close()
        self._socket = None
        for child in self._children.values():
            child.returncode = -1
        self._children.clear()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(OSError("the process that starts servers ended"))


def _discard(starting: "asyncio.Task[Child]") -> None:
    """End a process whose caller no longer waits for its start."""
    if starting.cancelled() or starting.exception() is not None:
        return
    child = starting.result()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.close()


@dataclass(frozen=True, slots=True)
class _Pipes:
    theirs: tuple[int, int, int]
    ours: tuple[int, int, int]

    @classmethod
    def open(cls) -> "_Pipes":
        opened: list[int] = []
        try:
            for _ in range(3):
                opened.extend(os.pipe())
        except OSError:
            _close(opened)
            raise
        return cls((opened[0], opened[3], opened[5]), (opened[1], opened[2], opened[4]))


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _connected(pid: int, pipes: _Pipes) -> Child:
    loop = asyncio.get_running_loop()
    stdin, stdout, stderr = pipes.ours
    writing, flow = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe_file(loop, stdin, "wb")
    )
    readers, transports = [], [writing]
    for descriptor in (stdout, stderr):
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_read_pipe(lambda p=protocol: p, pipe_file(loop, descriptor, "rb"))  # type: ignore[misc]
        readers.append(reader)
        transports.append(transport)  # type: ignore[arg-type]
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    return Child(pid, writer, readers[0], readers[1], _transports=tuple(transports))


def pipe_file(loop: asyncio.AbstractEventLoop, descriptor: int, mode: Literal["rb", "wb"]) -> IO[bytes]:
    """Return a pipe as a loop takes it.

    Uvloop closes the descriptor and then the file as well. In between another thread may have opened a file or a
    connection under the same number, which would be closed instead. So there the file must not own its descriptor.
    """
    return os.fdopen(descriptor, mode, 0, closefd=isinstance(loop, asyncio.BaseEventLoop))


async def _start_directly(command: Sequence[str], environment: Mapping[str, str], directory: str | None) -> Child:
    """Start a process without a guardian, where descriptors cannot be passed on."""
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environment), cwd=directory
    )
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise OSError("the process was started without pipes")
    child = Child(process.pid, process.stdin, process.stdout, process.stderr)

    async def follow() -> None:
        child.returncode = await process.wait()

    child.following = asyncio.create_task(follow())
    return child


# The guardian's own program


@dataclass(slots=True)
class _Started:
    """What the guardian started: process groups, and for isolated ones their limits and how to clean up."""

    groups: set[int] = field(default_factory=set)
    limits: dict[int, Mapping[str, int]] = field(default_factory=dict)
    cleanups: dict[int, Sequence[str]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)

    def ended(self, pid: int) -> str:
        """Forget a process, clean up after it, and return why it was ended."""
        self.limits.pop(pid, None)
        _run(self.cleanups.pop(pid, ()))
        return self.reasons.pop(pid, "")

    def enforce(self) -> None:
        """End the processes of a server that exceeds a limit all together."""
        for pid, limits in self.limits.items():
            below = [pid, *_descendants(pid)]
            why = ""
            if len(below) > limits["processes"] + WRAPPERS:
                why = f"it started more than {limits['processes']} processes"
            elif _exceeds(below, limits["memory"]):
                why = f"it used more than {limits['memory'] // 1024 // 1024} MB of memory"
            if why:
                self.reasons[pid] = why
                _kill([pid, *_descendants(pid)], signal.SIGKILL)


def main(descriptor: int) -> None:
    """Start what is asked for and report what ends, until the gateway closes the socket; then end everything."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    started = _Started()
    with socket.socket(fileno=descriptor) as gateway, suppress(OSError):
        while True:
            wait = WATCH_SECONDS if started.limits else None
            ready: list[object] = select.select([gateway, woken], [], [], wait)[0]  # type: ignore[type-var]
            started.enforce()
            if woken in ready:
                os.read(woken, 4096)
                for pid, code in _ended():
                    _say(gateway, {"exited": pid, "code": code, "why": started.ended(pid)})
                started.groups = {group for group in started.groups if _alive(group)}
            if gateway in ready and not _serve(gateway, started):
                break
    _end_all(started.groups)
    for command in started.cleanups.values():
        _run(command)


def _serve(gateway: socket.socket, started: _Started) -> bool:
    """Start one process; return whether the gateway is still there."""
    header, descriptors, _, _ = socket.recv_fds(gateway, _LENGTH.size, 3)
    if len(header) < _LENGTH.size:
        return False
    request = json.loads(_exactly(gateway, _LENGTH.unpack(header)[0]))
    try:
        process = subprocess.Popen(  # noqa: S603 - what the user's configuration says
            request["command"],
            stdin=descriptors[0],
            stdout=descriptors[1],
            stderr=descriptors[2],
            env=request["env"],
            cwd=request["cwd"],
            start_new_session=True,
            preexec_fn=_limiter(request["limits"]),  # noqa: PLW1509 - this process has one thread
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _say(gateway, {"error": str(error)})
    else:
        process.returncode = 0  # reaped below, and not by Popen
        started.groups.add(process.pid)
        if request["limits"]:
            started.limits[process.pid] = request["limits"]
        if request["cleanup"]:
            started.cleanups[process.pid] = request["cleanup"]
        _say(gateway, {"pid": process.pid})
    finally:
        _close(descriptors)
    return True


def _limiter(limits: Mapping[str, int]) -> Callable[[], None] | None:
    """Return what sets the limits of a process before its program starts; its descendants inherit them."""
    if not limits:
        return None
    import resource  # noqa: PLC0415 - not on Windows

    wanted = {resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: limits["memory"], resource.RLIMIT_NOFILE: limits["files"]}
    if os.getuid():  # root is exempt; the guardian counts the processes in any case
        wanted[resource.RLIMIT_NPROC] = limits["processes"] + WRAPPERS
    if "cpu" in limits:
        wanted[resource.RLIMIT_CPU] = limits["cpu"]

    system, keyctl = ctypes.CDLL(None), _KEYCTL.get(os.uname().machine)

    def apply() -> None:
        if keyctl and sys.platform == "linux":  # a namespace does not part a process from the keys of the session
            system.syscall(keyctl, 1, None)
        for kind, value in wanted.items():
            _, hard = resource.getrlimit(kind)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (most, most))

    return apply


def _exceeds(pids: Sequence[int], limit: int) -> bool:
    """Return whether processes together use more memory than a limit; memory that they share counts once."""
    files = sum(_memory_files(pids).values())
    if files + sum(_kilobytes(pid, "status", "VmRSS") for pid in pids) * 1024 <= limit:
        return False  # the usual case, in which what is shared need not be taken apart
    parts = (("status", "RssAnon"), ("smaps_rollup", "Pss_Shmem"))
    own, shared = (sum(_kilobytes(pid, *part) for pid in pids) * 1024 for part in parts)
    return max(files, shared) + own > limit


def _kilobytes(pid: int, file: str, name: str) -> int:
    with suppress(OSError), open(f"/proc/{pid}/{file}") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
    return 0


def _memory_files(pids: Iterable[int]) -> dict[int, int]:
    """Return the bytes of each file in memory alone (memfd) that processes have open, by its number."""
    found: dict[int, int] = {}
    for path in (path for pid in pids for path in glob.iglob(f"/proc/{pid}/fd/*")):
        with suppress(OSError):
            if os.readlink(path).startswith("/memfd:"):
                found[os.stat(path).st_ino] = os.stat(path).st_blocks * 512
    return found


def _kill(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _run(command: Sequence[str]) -> None:
    if command:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)  # noqa: S603


def _exactly(gateway: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = gateway.recv(min(size, CHUNK_BYTES))
        if not part:
            raise OSError("the gateway ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _say(gateway: socket.socket, message: Mapping[str, Any]) -> None:
    gateway.sendall(json.dumps(message).encode() + b"\n")


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _end_all(groups: set[int]) -> None:
    """End every group that was started, and on Linux every process left to us, by force where it takes long."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_all(groups, number)
        deadline = time.monotonic() + TERM_SECONDS
        while time.monotonic() < deadline:
            for _ in _ended():
                pass
            if not any(map(_alive, groups)) and not _descendants(os.getpid()):
                return
            if number == signal.SIGKILL:  # again: what was forked meanwhile is left to us only once its parent ends
                _signal_all(groups, number)
            time.sleep(0.02)


def _signal_all(groups: set[int], number: int) -> None:
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    _kill(_descendants(os.getpid()), number)


def _descendants(pid: int) -> list[int]:
    """Return the processes below one, nearest first, as far as the system tells (Linux)."""
    found = [pid]
    for each in found:  # which grows
        found += _children(each)
    return found[1:]


def _children(pid: int) -> Iterator[int]:
    """Yield the processes that the threads of one have started; each thread has a list of its own."""
    for path in glob.iglob(f"/proc/{pid}/task/*/children"):
        with suppress(OSError), open(path) as file:
            yield from map(int, file.read().split())


if __name__ == "__main__":
    main(int(sys.argv[1]))
