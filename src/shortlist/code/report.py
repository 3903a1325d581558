"""What a program did: its output, its value, and each inner call as done, failed or not started."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeAlias

CallState: TypeAlias = Literal["done", "failed", "not started"]
MAX_LISTED = 40
"""Calls that a report lists one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerCall:
    """One call of a program; `why` says what went wrong."""

    name: str
    line: int | None
    state: CallState
    milliseconds: float = 0.0
    why: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"- {place}{self.name}: {self.state}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a program did not reach its end, and the line it had reached."""

    reason: str
    line: int | None = None
    source: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f" at line {self.line}: {self.source.strip()}" if self.line else ""
        return f"The program failed{place}\n{self.reason}" + (f"\n{self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramReport:
    """The whole result of a run."""

    printed: str
    value: str | None
    """The value of the last expression as JSON; None where there is none."""
    calls: tuple[InnerCall, ...]
    milliseconds: float
    failure: Failure | None = None

    def text(self) -> str:
        """Return output, value, failure and calls as a model reads them."""
        failure = str(self.failure) if self.failure is not None else ""
        return "\n".join(filter(None, (self.printed.rstrip("\n"), self.value, failure, self.calls_text())))

    def calls_text(self) -> str:
        """Count the calls by state, and list them where one did not succeed."""
        if not self.calls:
            return "No tool was called."
        states: tuple[CallState, ...] = ("done", "failed", "not started")
        counted = {state: sum(call.state == state for call in self.calls) for state in states}
        head = f"Calls: {', '.join(f'{n} {state}' for state, n in counted.items() if n)}"
        if counted["done"] == len(self.calls) and self.failure is None:
            return f"{head}."
        groups = [(each, len(list(same))) for each, same in groupby(self.calls, key=self._listed)]
        shown = groups if len(groups) <= MAX_LISTED else _most_telling(groups)
        lines = [f"{call}{f', {times} times' if times > 1 else ''}" for call, times in shown]
        more = len(groups) - len(shown)
        return "\n".join([f"{head}.", *lines, *([f"… and {more} more"] if more else [])])

    def _listed(self, call: InnerCall) -> InnerCall:
        """Return a call without its time, and without a reason that the program failed for as well."""
        told = " ".join(self.failure.reason.split()) if self.failure is not None else ""
        return replace(call, milliseconds=0.0, why="" if told.startswith(call.why) else call.why)


def _most_telling(groups: Sequence[tuple[InnerCall, int]]) -> list[tuple[InnerCall, int]]:
    """Return those that failed first, then the others, as many as are listed, in the program's order."""
    ranked = sorted(range(len(groups)), key=lambda i: (groups[i][0].state != "failed", i))[:MAX_LISTED]
    return [groups[i] for i in sorted(ranked)]
