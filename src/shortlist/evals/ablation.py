"""The contribution of each part of a pipeline: the whole compared with the whole without it, per segment."""

from collections.abc import Mapping
from dataclasses import dataclass

from shortlist.evals.compare import Delta, align, delta
from shortlist.evals.contender import Contender
from shortlist.evals.datasets import Dataset
from shortlist.evals.metrics import LENIENT
from shortlist.evals.runner import Run, Runner

SHOWN = (*(LENIENT + name for name in ("r@1", "r@3", "r@5", "mrr")), "toolset")
JUDGED_BY = LENIENT + "mrr"
FULL = "full"
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pipeline variant on one segment; `change` is against the full pipeline."""

    part: str
    segment: str
    queries: int
    values: Mapping[str, float]
    change: Delta


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A query whose first right hit moved when a part was off; rank infinity is a miss."""

    part: str
    case: str
    rank: float
    rank_without: float


@dataclass(frozen=True, slots=True)
class Ablation:
    full: Run
    without: Mapping[str, Run]

    def rows(self, segment: str = ALL) -> tuple[Row, ...]:
        named = {FULL: self.full, **self.without}
        return tuple(self._row(part, run, segment) for part, run in named.items())

    @property
    def segments(self) -> tuple[str, ...]:
        return (ALL, *(self.full.segments if len(self.full.segments) > 1 else ()))

    def moved(self) -> tuple[Moved, ...]:
        """List the queries that each part helps or hurts."""
        return tuple(move for part, run in self.without.items() for move in _moves(part, self.full, run))

    def _row(self, part: str, run: Run, segment: str) -> Row:
        wanted = "" if segment == ALL else segment
        pair = align(self.full.only(segment=wanted), run.only(segment=wanted))
        values = {name: float(pair.after.values(name).mean()) for name in SHOWN if pair.after.answerable}
        return Row(
            part=part,
            segment=segment,
            queries=len(pair.after.records),
            values=values,
            change=delta(JUDGED_BY, [pair]),
        )


def ablate(runner: Runner, dataset: Dataset, full: Contender, without: Mapping[str, Contender]) -> Ablation:
    """Run the full pipeline and each variant that lacks the part it is named after."""
    runs = {part: runner.run(dataset, variant) for part, variant in without.items()}
    return Ablation(runner.run(dataset, full), runs)


def _moves(part: str, full: Run, other: Run) -> list[Moved]:
    both = zip(full.answerable, other.answerable, strict=True)
    ranks = [(a.id, _rank(a.metrics[JUDGED_BY]), _rank(b.metrics[JUDGED_BY])) for a, b in both]
    return [Moved(part=part, case=i, rank=x, rank_without=y) for i, x, y in ranks if x != y]


def _rank(reciprocal: float) -> float:
    return round(1 / reciprocal) if reciprocal else float("inf")
