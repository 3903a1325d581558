"""Runs a program: its calls go to a host, its budgets end it, and a report says exactly what was done."""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from shortlist.code.report import Failure, InnerCall, ProgramReport
from shortlist.code.sandbox import (
    REINSTALL,
    SLEEP,
    Budget,
    Ended,
    Paused,
    ProgramFailed,
    ProgramSession,
    Script,
    Wanted,
    Workers,
    unreached,
)
from shortlist.errors import InvalidInput
from shortlist.models import Json

MAX_PROGRAMS = 8
"""Programs that run at the same time, each in a worker; further ones wait."""
MAX_SOURCE = 20_000
LONG_TURN_SECONDS = 0.05
CALLS_IN_A_ROW = 5
NEVER_AWAITED = "the program ended before it was awaited"
INTERRUPTED = "it was running when the program ended, so whether it took effect is unknown"
MAX_WHY = 200
TOGETHER_SECONDS, TOGETHER_TIMES = 0.001, 10
"""Answers of parallel calls that follow each other this closely are handed to the program at once, since a turn takes
as long; after so many times that, the program gets those that are there."""

CallWork: TypeAlias = Callable[[], Awaitable[Json]]


class ProgramHost(Protocol):
    """What a program can reach."""

    async def prepare(self, calls: Sequence[Wanted]) -> Sequence[CallWork | Exception]:
        """Return for each call how to make it, or why it may not be made. Parallel calls come together."""
        ...


class Deadline:
    """The time of a program; it stands still while a person is asked something."""

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.CancelScope()
        self._pauses = 0
        self._left = seconds

    def start(self) -> None:
        """Start the clock: waiting for a worker does not count."""
        self.scope.deadline = anyio.current_time() + self._left

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock."""
        if not self._pauses:
            self._left = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self.scope.deadline = anyio.current_time() + self._left


class Sandbox:
    """Runs programs in worker processes, which start with the first program and end with `close`."""

    def __init__(self) -> None:
        self._workers: Workers | None = None
        self._opening = anyio.Lock()
        self._places = {is_nested: anyio.Semaphore(MAX_PROGRAMS) for is_nested in (False, True)}
        self._threads = anyio.CapacityLimiter(MAX_PROGRAMS * 4)

    async def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            workers, self._workers = self._workers, None
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(workers.close)

    async def run(
        self, script: Script, host: ProgramHost, budget: Budget, deadline: Deadline | None = None
    ) -> ProgramReport:
        """Run a program and report what it did; only cancellation is raised."""
        source = script.source
        if len(source) > MAX_SOURCE:
            raise InvalidInput(f"The program has {len(source):,} characters; {MAX_SOURCE:,} are allowed. Split it.")
        clock = deadline or Deadline(budget.seconds)
        run = _Run(source, host, budget)
        with clock.scope:
            async with self._places[script.is_nested]:
                session = ProgramSession(await self._opened(), script, budget)
                clock.start()
                try:
                    await run.drive(session, self._threads)
                finally:
                    if not session.is_closed:
                        with anyio.CancelScope(shield=True):
                            await anyio.to_thread.run_sync(session.close, limiter=self._threads)
        if clock.scope.cancelled_caught:
            run.failure = Failure(reason=f"It took longer than {budget.seconds:g} s, its budget of time.")
        return run.report()

    async def _opened(self) -> Workers:
        async with self._opening:
            if self._workers is None:
                try:
                    workers = Workers(MAX_PROGRAMS * len(self._places))
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(workers.open)
                except (OSError, RuntimeError) as error:
                    raise InvalidInput(f"Programs cannot run: {error}. {REINSTALL}") from None
                self._workers = workers
            return self._workers


@dataclass(slots=True)
class _Made:
    """A call of a program, while it runs."""

    call: InnerCall
    started: float | None = None
    is_settled: bool = False


class _Run:
    def __init__(self, source: str, host: ProgramHost, budget: Budget) -> None:
        self._source = source
        self._host = host
        self._budget = budget
        self._made: dict[int, _Made] = {}
        self._answers: dict[int, Any] = {}
        self._answered = anyio.Event()
        self._printed = ""
        self._value: str | None = None
        self._began = perf_counter()
        self.failure: Failure | None = None

    async def drive(self, session: ProgramSession, threads: anyio.CapacityLimiter) -> None:
        """Advance the program until it ends. Its calls run beside it, and end with it."""
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    step = await _turn(session, session.start, threads)
                    while isinstance(step, Paused):
                        await self._start(step.calls, tasks)
                        answers = await self._next_answers(step.waiting)
                        step = await _turn(session, partial(session.resume, answers), threads)
                    self._value = step.value
                except ProgramFailed as failed:
                    self.failure = failed.failure
                    tasks.cancel_scope.cancel()
        finally:
            self._note(session.calls)
            self._printed = session.printed

    def _note(self, calls: Sequence[Wanted]) -> list[Wanted]:
        """Remember calls that the program made, and return them without its sleeps."""
        asked = [wanted for wanted in calls if wanted.name != SLEEP]
        for wanted in asked:
            call = InnerCall(name=wanted.name, line=wanted.line, state="not started")
            self._made.setdefault(wanted.number, _Made(call))
        return asked

    async def _start(self, calls: Sequence[Wanted], tasks: anyio.abc.TaskGroup) -> None:
        asked = self._note(calls)
        for wanted, work in zip(asked, await self._host.prepare(asked) if asked else (), strict=True):
            if isinstance(work, Exception):
                self._settle(wanted.number, work)
            else:
                tasks.start_soon(self._call, wanted.number, work)
                await let_others_run(wanted.number)
        for wanted in calls:
            if wanted.name == SLEEP:
                tasks.start_soon(self._sleep, wanted)
                await let_others_run(wanted.number)

    async def _call(self, number: int, work: CallWork) -> None:
        made = self._made[number]
        made.started = perf_counter()
        answer: Any
        try:
            answer = await work()
        except Exception as error:  # raised inside the program, which may catch it
            answer = error
        self._settle(number, answer)

    async def _sleep(self, wanted: Wanted) -> None:
        seconds = wanted.positional[0] if wanted.positional else wanted.named.get("delay", 0)
        await anyio.sleep(min(max(float(seconds), 0.0), self._budget.seconds))
        self._answer(wanted.number, None)

    def _settle(self, number: int, answer: Any) -> None:
        made = self._made[number]
        made.is_settled = True
        took = (perf_counter() - made.started) * 1000 if made.started is not None else 0.0
        if isinstance(answer, Exception):
            made.call = replace(made.call, state="failed", milliseconds=took, why=_why(answer))
        else:
            made.call = replace(made.call, state="done", milliseconds=took)
        self._answer(number, answer)

    def _answer(self, number: int, answer: Any) -> None:
        self._answers[number] = answer
        self._answered.set()

    async def _next_answers(self, waiting: frozenset[int]) -> Mapping[int, Any]:
        """Wait until a call that the program waits for has ended, and a moment for those that end with it."""
        while not waiting & self._answers.keys():
            await self._wait()
        with anyio.move_on_after(TOGETHER_SECONDS * TOGETHER_TIMES):
            while waiting - self._answers.keys():
                with anyio.move_on_after(TOGETHER_SECONDS) as moment:
                    await self._wait()
                if moment.cancelled_caught:
                    break
        return {number: self._answers.pop(number) for number in waiting & self._answers.keys()}

    async def _wait(self) -> None:
        self._answered = anyio.Event()
        await self._answered.wait()

    def report(self) -> ProgramReport:
        calls = [self._ended(made) for made in self._made.values()]
        if self.failure is not None:
            seen = {(call.name, call.line) for call in calls}
            calls += [InnerCall(name=n, line=line, state="not started") for n, line in unreached(self._source, seen)]
        return ProgramReport(
            printed=self._printed,
            value=self._value,
            calls=tuple(calls),
            milliseconds=(perf_counter() - self._began) * 1000,
            failure=self.failure,
        )

    def _ended(self, made: _Made) -> InnerCall:
        if made.is_settled:
            return made.call
        if made.started is not None:
            took = (perf_counter() - made.started) * 1000
            return replace(made.call, state="failed", milliseconds=took, why=INTERRUPTED)
        return replace(made.call, why=NEVER_AWAITED if self.failure is None else "")


async def _turn(
    session: ProgramSession, work: Callable[[], Paused | Ended], threads: anyio.CapacityLimiter
) -> Paused | Ended:
    """Run a turn of the program in a thread; kill its worker where the wait for it is cancelled.

    A worker that computes for long gets a lower priority than the gateway.
    """
    outcome: Paused | Ended | ProgramFailed | None = None

    async def watch() -> None:
        try:
            await anyio.sleep(LONG_TURN_SECONDS)
            session.slow_down()
            await anyio.sleep_forever()
        finally:
            if outcome is None:
                session.kill()

    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        try:
            outcome = await anyio.to_thread.run_sync(work, limiter=threads)
        except ProgramFailed as failed:
            outcome = failed
        watching.cancel_scope.cancel()
    if isinstance(outcome, (Paused, Ended)):
        return outcome
    await anyio.lowlevel.checkpoint_if_cancelled()  # then its worker was killed, and that is no failure of its own
    raise outcome or ProgramFailed(Failure(reason="The program was stopped."))


async def let_others_run(number: int) -> None:
    """Serve other callers between a few calls of a program: a hundred at once would keep them waiting."""
    if number % CALLS_IN_A_ROW == 0:
        await anyio.lowlevel.checkpoint()


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MAX_WHY]
