"""The sandbox: Monty's interpreter in worker processes, advanced from one pause to the next.

A program has no files, sockets, environment or host modules. It sees `tools`, `search` and `describe`, and what it
calls is collected until all of its tasks wait; then the caller answers. Monty is driven by its synchronous pool, in
threads: its asynchronous one can crash the interpreter when the process ends. A turn that must end early is ended by
killing the worker, which the pool replaces.
"""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from pydantic_monty import (
    ClassInstance,
    FunctionSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
    OSPolicy,
    ResourceLimits,
)

from shortlist.code.naming import ROOT
from shortlist.code.report import Failure
from shortlist.code.values import Room, TooLarge, json_text, plain

FUNCTIONS = ("search", "describe")
"""What a program may call beside tools."""
SLEEP = "asyncio.sleep"
COMPUTE_SECONDS = 5.0
"""What a program may compute; waiting for tools does not count."""
ARGUMENT_ROOM = Room(values=5_000, characters=1_000_000)
"""What one call may send."""
RESULT_ROOM = Room(values=100_000, characters=4_000_000)
"""What the last value of a program may hold."""
MAX_NAME = 200
MAX_REASON, MAX_LINE = 2_000, 500
NICENESS = 5
"""The priority of a worker that computes for long; the gateway answers other callers meanwhile."""
TURNS_PER_CALL = 10
SPARE_TURNS = 1_000
MODULES = (
    "asyncio, base64, collections, copy, csv, dataclasses, datetime, decimal, functools, hashlib, itertools, json, "
    "math, random, re, time, typing"
)
REINSTALL = "Tell the operator of this gateway: the sandbox has to be installed again, with its extra `code`."
_CALL = re.compile(rf"\b{ROOT}\.(\w+\.\w+)\s*\(")
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_HINTS: Mapping[str, str] = {
    "yield": "Build a list and return it instead of a generator.",
    "class inheritance": "Use functions, dictionaries and plain classes without a base.",
    "'del'": "Assign None instead, or build a new value without the entry.",
    "async with": "Use asyncio.gather(...) for calls that run at the same time.",
    "async for": "Await a list first, then use an ordinary loop.",
    "async comprehensions": "Use asyncio.gather(...) over a list.",
    "exception groups": "Use an ordinary try/except.",
    "type aliases": "Leave the alias out; annotations are not needed.",
    "No module named": f"Available modules: {MODULES}. Use tools for everything else; `tools` needs no import.",
    "module 'asyncio' has no attribute": "Of asyncio there are gather, run and sleep: await asyncio.gather(a, b).",
    "is not supported in this environment": "Programs have no files, network, environment or input. Use tools.",
    "Permission denied": "Programs have no files. Use tools.",
    "can't be awaited": "Only calls of tools, search and describe are awaited.",
    "not subscriptable": "Await the call first: (await tools.server.tool(...))[...].",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one program may use."""

    calls: int = 100
    seconds: float = 60.0
    memory: int = 32 * 1024 * 1024
    output: int = 200_000
    """Characters that it may print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A program's source, and the values that some of its names have from the start."""

    source: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    is_nested: bool = False
    """Another program waits for it, so it does not wait for the places that such programs hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call that a program made and waits for."""

    number: int
    name: str
    """`server.tool`, `search`, `describe` or `asyncio.sleep`."""
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """All tasks of a program wait: for calls that are new, and for earlier ones."""

    calls: tuple[Wanted, ...]
    waiting: frozenset[int]


@dataclass(frozen=True, slots=True)
class Ended:
    """A program reached its end; `value` is that of its last expression as JSON, None where there is none."""

    value: str | None


Answers: TypeAlias = Mapping[int, Any]
"""Values of calls by number; an exception is raised inside the program."""


class ProgramFailed(Exception):
    """A program did not reach its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class BudgetSpent(ProgramFailed):
    """A program used more than it may."""


class Workers:
    """The pool of worker processes; a context manager. Everything here blocks, so call it in threads."""

    def __init__(self, most: int) -> None:
        self._pool = Monty(min_processes=1, max_processes=most)

    def open(self) -> None:
        self._pool.__enter__()

    def close(self) -> None:
        self._pool.__exit__(None, None, None)

    def checkout(self, budget: Budget) -> MontySession:
        """Check out a worker for one program."""
        limits = ResourceLimits(
            max_feed_duration_secs=min(COMPUTE_SECONDS, budget.seconds),
            max_memory=budget.memory,
            max_suspensions=budget.calls * TURNS_PER_CALL + SPARE_TURNS,
        )
        return self._pool.checkout(limits=limits, os_policy=OSPolicy(sleep="call_host")).__enter__()


class _Namespace:
    """Stands for `tools` and for a server inside the sandbox; it has nothing of its own."""


class ProgramSession:
    """One program in one worker."""

    def __init__(self, workers: Workers, script: Script, budget: Budget) -> None:
        self._workers = workers
        self._session: MontySession | None = None
        self.pid: int | None = None
        """The process of its worker."""
        self.is_closed = False
        self._is_slow = False
        self._source = script.source
        self._inputs = script.inputs
        self._budget = budget
        self._printed: list[str] = []
        self._size = 0
        self._is_full = False
        self._snapshot: Any = None
        self._made = 0
        self.calls: list[Wanted] = []
        """What the program called in its latest turn."""
        self._root = ClassInstance(_Namespace())
        self._paths: dict[UUID, str] = {self._root.id: ""}
        self._spaces: dict[str, ClassInstance] = {}

    @property
    def printed(self) -> str:
        return "".join(self._printed)

    def start(self) -> Paused | Ended:
        """Run until every task of the program waits, or until it ends."""
        try:
            session = self._session = self._workers.checkout(self._budget)
        except (MontyError, OSError, RuntimeError) as error:
            raise ProgramFailed(Failure(reason=f"Its worker did not start: {error}", hint=REINSTALL)) from None
        self.pid = session.worker_pid
        inputs = {**self._inputs, ROOT: self._root}
        return self._advance(lambda: session.feed_start(self._source, inputs=inputs, print_callback=self._print))

    def resume(self, answers: Answers) -> Paused | Ended:
        """Hand answers to the program and run on."""
        settled = {number: _settled(value) for number, value in answers.items()}
        return self._advance(lambda: self._snapshot.resume(settled))

    def slow_down(self) -> None:
        """Let the worker yield to the gateway from now on; it ends with the program."""
        if self.pid is not None:
            self._is_slow = True
            _lower_priority(self.pid)

    def kill(self) -> None:
        """End a running turn now; the pool replaces the worker."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, _KILL)

    def close(self) -> None:
        """Return the worker to the pool; a program that ended has done so already."""
        self.is_closed = True
        if self._is_slow:  # nobody but root can undo that, so the pool starts another one
            self.kill()
        if self._session is not None:
            with contextlib.suppress(MontyError):
                self._session.__exit__(None, None, None)
            self._session = None

    def _advance(self, turn: Callable[[], Any]) -> Paused | Ended:
        self.calls = []
        try:
            snapshot = turn()
            while isinstance(snapshot, (FunctionSnapshot, NameLookupSnapshot)):
                snapshot = self._answered(snapshot)
            if isinstance(snapshot, MontyComplete):
                value = _written(snapshot.output)
                self.close()
                return Ended(value)
        except MontyError as error:
            raise self._failed(error) from None
        self._snapshot = snapshot
        return Paused(tuple(self.calls), frozenset(snapshot.pending_call_ids))

    def _answered(self, snapshot: FunctionSnapshot | NameLookupSnapshot) -> Any:
        return self._named(snapshot) if isinstance(snapshot, NameLookupSnapshot) else self._called(snapshot)

    def _named(self, snapshot: NameLookupSnapshot) -> Any:
        """Answer a name: a server of `tools`, a tool of a server. Whether it exists is decided when it is called."""
        name = snapshot.variable_name
        if snapshot.object_id is None:
            return snapshot.resume(value=_function(name)) if name in FUNCTIONS else snapshot.resume()
        parent = self._paths.get(snapshot.object_id)
        if parent is None or len(name) > MAX_NAME:
            return snapshot.resume()
        if parent:
            return snapshot.resume(value=_function(f"{parent}.{name}"))
        if name not in self._spaces:
            self._spaces[name] = ClassInstance(_Namespace())
            self._paths[self._spaces[name].id] = name
        return snapshot.resume(value=self._spaces[name])

    def _called(self, snapshot: FunctionSnapshot) -> Any:
        name = str(snapshot.function_name)
        if snapshot.is_os_function and name != SLEEP:
            return snapshot.resume_not_handled()
        if snapshot.object_id is None and "." not in name and name not in FUNCTIONS:
            return snapshot.resume({"exception": NameError(f"name {name!r} is not defined")})
        if snapshot.object_id is not None:
            name = f"{self._paths.get(snapshot.object_id, '')}.{name}".strip(".")
        if len(name) > MAX_NAME * 2:
            return snapshot.resume({"exception": NameError(f"No function has a name of {len(name):,} characters.")})
        try:
            positional, named = plain([snapshot.args, snapshot.kwargs], ARGUMENT_ROOM)
        except TooLarge as error:
            return snapshot.resume({"exception": ValueError(f"{name} was NOT invoked: its arguments hold {error}.")})
        self._made += name != SLEEP
        if self._made > self._budget.calls:
            raise BudgetSpent(Failure(reason=f"It made more than {self._budget.calls} calls, its budget of calls."))
        self.calls.append(
            Wanted(
                number=snapshot.call_id,
                name=name,
                positional=tuple(positional),
                named=named,
                line=self._line(snapshot),
            )
        )
        return snapshot.resume({"future": ...})

    def _line(self, snapshot: FunctionSnapshot) -> int | None:
        place = snapshot.position
        if not place.filename.startswith("<python-input"):
            return None
        return self._source.encode()[: place.start].count(b"\n") + 1

    def _print(self, _: str, text: str) -> None:
        if self._is_full:
            return
        room = self._budget.output - self._size
        self._printed.append(text[:room])
        self._size += len(text)
        if len(text) > room:
            self._is_full = True
            self.kill()

    def _failed(self, error: MontyError) -> ProgramFailed:
        if self._is_full:
            most = self._budget.output
            return BudgetSpent(Failure(reason=f"It printed more than {most:,} characters, its budget of output."))
        if isinstance(error, MontyCrashedError):
            return ProgramFailed(Failure(reason="Its worker ended: it was stopped, or ran out of memory."))
        if not isinstance(error, (MontyRuntimeError, MontySyntaxError)):
            return ProgramFailed(Failure(reason=str(error)))
        reason = error.display("type-msg")[:MAX_REASON]
        frame = next((f for f in reversed(error.traceback()) if f.filename.startswith("<python-input")), None)
        lines = self._source.splitlines()
        line = frame.line if frame is not None and frame.line <= len(lines) else None
        hint = next((hint for words, hint in _HINTS.items() if words in reason), "")
        return ProgramFailed(
            Failure(reason=_plain(reason), line=line, source=lines[line - 1][:MAX_LINE] if line else "", hint=hint)
        )


def _plain(reason: str) -> str:
    """Say what the sandbox lacks without naming its parser."""
    return reason.replace(
        "NotImplementedError: The monty syntax parser does not yet support", "Programs cannot use"
    ).replace("'_Namespace' object", "'tools'")


def _settled(value: Any) -> Any:
    """Return an answer as the sandbox takes it; it knows only exceptions that are built in."""
    if not isinstance(value, Exception):
        return {"return_value": value}
    return {"exception": value if type(value).__module__ == "builtins" else RuntimeError(str(value))}


def _written(value: Any) -> str | None:
    """Write the last value of a program as JSON; None where there is none."""
    try:
        return None if value is None else json_text(value, RESULT_ROOM)
    except TooLarge as error:
        raise ProgramFailed(
            Failure(reason=f"Its last value holds {error}.", hint="Return less, or print what you need of it.")
        ) from None


def _lower_priority(pid: int) -> None:
    """Let the threads of a worker yield to the gateway; where that is not possible, they run as the gateway does."""
    tasks = Path(f"/proc/{pid}/task")
    with contextlib.suppress(OSError):
        for thread in map(int, os.listdir(tasks)) if tasks.exists() else (pid,):
            if sys.platform == "linux":
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
            if sys.platform != "win32":
                os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def _function(name: str) -> Callable[[], None]:
    def called() -> None:
        """Stand for a function of the host: the sandbox hands its calls over by name."""

    called.__name__ = called.__qualname__ = name
    return called


def unreached(source: str, seen: Iterable[tuple[str, int | None]]) -> Sequence[tuple[str, int]]:
    """Return the calls of tools that stand in the source and were never made, with their lines."""
    made = set(seen)
    found = (
        (match.group(1), number)
        for number, line in enumerate(source.splitlines(), 1)
        for match in _CALL.finditer(line.partition("#")[0])
    )
    return [each for each in dict.fromkeys(found) if each not in made]
