"""Runs work that may take long in a few processes of its own, which are killed when their time is over.

A thread would not do: it holds the interpreter's lock while it parses or compares large values, and nothing ends it.

Work begins in one of two quick places, and nobody has more than one of them: neither a server nor a caller. What takes
longer than a moment leaves its quick place and goes on in a slow one; where none is free, it ends as soon as somebody
else waits. So nobody waits for the slow work of others for longer than that moment.
"""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

QUICK_PLACES = 2
SLOW_PLACES = 2
"""There are as many processes as places; two at most are kept while there is nothing to do."""
QUICK_SECONDS = 0.25
MOST_BYTES = 1024 * 1024 * 1024
"""The address space of a worker process, where the system can limit it."""


class WorkerFailed(Exception):
    """The work took too long, or no process could do it."""


class WorkerTimedOut(WorkerFailed):
    """The work was begun, and ended when its time was over."""


@dataclass(frozen=True, slots=True)
class WorkOwner:
    """Whose work it is; an empty name is nobody's."""

    server: str = ""
    caller: str = ""

    def overlaps(self, other: "WorkOwner") -> bool:
        return bool(self.server and self.server == other.server) or bool(self.caller and self.caller == other.caller)


async def run_apart(
    function: Callable[[*Arguments], Result], *arguments: *Arguments, seconds: float, owner: WorkOwner
) -> Result:
    """Return what a function of a module returns; waiting for a free process counts as part of its time."""
    places, job = _places(), _Job(owner)
    try:
        with anyio.move_on_after(seconds) as job.scope:
            await places.enter(job)
            return await _work(places, job, function, arguments)
    finally:
        places.leave(job)
    if job.gave_way:
        raise WorkerFailed(f"it takes longer than {QUICK_SECONDS:g} s, and other slow work is running")
    if job.has_begun:
        raise WorkerTimedOut(f"it takes longer than {seconds:g} s")
    raise WorkerFailed(f"other checks took more than {seconds:g} s")


def prepare_with(function: Callable[[], object]) -> None:
    """Let every worker process call a function of a module before its first work."""
    _preparations.append(function)


_preparations: list[Callable[[], object]] = []


# Who may begin


@dataclass(slots=True, eq=False)
class _Job:
    owner: WorkOwner
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    turn: anyio.Event = field(default_factory=anyio.Event)
    timer: asyncio.TimerHandle | None = None
    has_begun: bool = False
    gave_way: bool = False


@dataclass(slots=True)
class _Places:
    """The jobs of one event loop."""

    threads: anyio.CapacityLimiter
    waiting: list[_Job] = field(default_factory=list)
    quick: list[_Job] = field(default_factory=list)
    slow: list[_Job] = field(default_factory=list)
    _turns: Iterable[int] = field(default_factory=count)
    _latest: dict[str, int] = field(default_factory=dict)
    """The latest turn of each server and caller, while any job waits."""

    async def enter(self, job: _Job) -> None:
        """Wait for a quick place."""
        self.waiting.append(job)
        self._fill()
        await job.turn.wait()

    def leave(self, job: _Job) -> None:
        if job.timer is not None:
            job.timer.cancel()
        for jobs in (self.waiting, self.quick, self.slow):
            if job in jobs:
                jobs.remove(job)
        self._fill()

    def time(self, job: _Job) -> None:
        """Ask in a moment whether a job still runs."""
        job.timer = asyncio.get_running_loop().call_later(QUICK_SECONDS, self.tire, job)

    def tire(self, job: _Job) -> None:
        """Let a job that takes long go on in a slow place, if there is one for its server.

        Otherwise it goes on where it is until work of another server or caller waits, and ends then.
        """
        server = job.owner.server
        if len(self.slow) < SLOW_PLACES and not (server and any(server == other.owner.server for other in self.slow)):
            self.quick.remove(job)
            self.slow.append(job)
            if not _idle and len(self.quick) + len(self.slow) < QUICK_PLACES + SLOW_PLACES:
                with suppress(WorkerFailed):
                    _idle.append(_process())  # ready when the next job comes
            self._fill()
        elif any(other.owner != job.owner for other in self.waiting):
            job.gave_way = True
            job.scope.cancel()
        else:
            self.time(job)

    def _fill(self) -> None:
        while len(self.quick) < QUICK_PLACES:
            ready = [job for job in self.waiting if not any(job.owner.overlaps(other.owner) for other in self.quick)]
            if not ready:
                break
            job = min(ready, key=self._last_turn)
            self.waiting.remove(job)
            self.quick.append(job)
            turn = next(iter(self._turns))
            self._latest |= {f"server {job.owner.server}": turn, f"caller {job.owner.caller}": turn}
            job.turn.set()
        if not self.waiting:
            self._latest.clear()

    def _last_turn(self, job: _Job) -> int:
        """Return how recently work of the same server or caller began, so that all take turns."""
        return max(
            self._latest.get(f"server {job.owner.server}", -1), self._latest.get(f"caller {job.owner.caller}", -1)
        )


_current: RunVar[_Places | None] = RunVar("worker places", None)


def _places() -> _Places:
    places = _current.get()
    if places is None:
        places = _Places(anyio.CapacityLimiter(QUICK_PLACES + SLOW_PLACES))
        _current.set(places)
    return places


# Processes


async def _work(
    places: _Places, job: _Job, function: Callable[[*Arguments], Result], arguments: tuple[*Arguments]
) -> Result:
    process, is_usable = _process(), False
    try:
        await anyio.to_thread.run_sync(process.begin, abandon_on_cancel=True, limiter=places.threads)
        job.has_begun = True
        places.time(job)
        is_done, answer = await anyio.to_thread.run_sync(
            process.ask, function, arguments, abandon_on_cancel=True, limiter=places.threads
        )
        is_usable = is_done and len(_idle) < QUICK_PLACES
    except (EOFError, OSError, pickle.PickleError) as error:
        raise WorkerFailed(f"no worker process could do it ({type(error).__name__})") from None
    finally:
        if is_usable:
            _idle.append(process)
        else:
            process.kill()
    if not is_done:
        raise WorkerFailed(f"it failed ({answer})")
    result: Result = answer
    return result


class _Process:
    """A process that does one piece of work after the other. It ends by itself when the gateway does."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from shortlist.workers import serve; serve()"
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=nowhere
        )
        self._is_preparing = True
        with suppress(OSError):
            for function in _preparations:
                self._send(function, ())

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def begin(self) -> None:
        """Wait until it has prepared itself."""
        if self._is_preparing:
            for _ in _preparations:
                self._receive()
            self._is_preparing = False

    def ask(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """Return whether a function ended, and what it returned, or the name of its error."""
        self._send(function, arguments)
        return self._receive()

    def _send(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        stdin: Any = self._process.stdin
        pickle.dump((function, arguments), stdin)
        stdin.flush()

    def _receive(self) -> tuple[bool, Any]:
        stdout: Any = self._process.stdout
        answer: tuple[bool, Any] = pickle.load(stdout)  # noqa: S301 - of a child
        return answer

    def kill(self) -> None:
        self._process.kill()
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        self._process.wait()
        with suppress(OSError), self._process:  # closes its pipes
            pass


_idle: list[_Process] = []


def _process() -> _Process:
    while _idle:
        process = _idle.pop()
        if process.is_alive:
            return process
        process.kill()
    try:
        return _Process()
    except OSError as error:
        raise WorkerFailed(f"no worker process could be started ({type(error).__name__})") from None


def serve() -> None:
    """Do the work that comes on stdin until that ends; the main function of a worker process."""
    _limit_memory()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a function prints is not an answer
    wanted: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()
    threading.Thread(target=_read, args=(wanted,), daemon=True).start()
    while True:
        function, arguments = wanted.get()
        try:
            answer: tuple[bool, Any] = (True, function(*arguments))
        except Exception as error:
            answer = (False, type(error).__name__)
        pickle.dump(answer, answers)
        answers.flush()
        del function, arguments, answer  # a large result is not kept while there is nothing to do


def _read(wanted: "SimpleQueue[Any]") -> None:
    """Read beside the work, so that the process ends with the gateway, whatever it is doing."""
    try:
        while True:
            wanted.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - of the parent
    except BaseException:
        os._exit(0)


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
