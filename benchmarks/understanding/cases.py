"""The development data as values, and how an answer is scored."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.understanding.row import DATA

from shortlist.library.results import FilterResult

Wishes = Sequence[frozenset[str]]
"""For each thing asked for, the tools that are right."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer and whether it was right."""

    ids: tuple[str, ...]
    level: str
    wishes: tuple[frozenset[str], ...]

    def hit(self, first: int) -> float:
        """Whether every wish has a right tool among the first hits."""
        return float(all(wish.intersection(self.ids[:first]) for wish in self.wishes))

    @property
    def is_wrong_with_high_confidence(self) -> bool:
        return self.level == "high" and not frozenset().union(*self.wishes).intersection(self.ids[:1])


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]


def wishes_of(case: dict[str, Any]) -> tuple[frozenset[str], ...]:
    return tuple(map(frozenset, case["wishes"])) if "wishes" in case else (frozenset(case["gold"]),)


def outcome(found: FilterResult, wishes: Iterable[frozenset[str]]) -> Outcome:
    return Outcome(tuple(tool.id for tool in found.tools), found.confidence.level, tuple(wishes))


def percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / max(len(values), 1)
