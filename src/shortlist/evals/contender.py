"""What an evaluation runs: anything that ranks tools for a query, and what it was fitted on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from shortlist.errors import TunedOnReportedSplit
from shortlist.evals.datasets import Dataset
from shortlist.models import Level, ToolId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """An answer as the metrics see it."""

    ids: tuple[ToolId, ...]
    level: Level
    probability: float
    """How likely the first tool is right."""
    match_probability: float
    """How likely the catalog has a right tool at all."""
    milliseconds: float


NOTHING_FOUND = Ranked(ids=(), level="none", probability=0.0, match_probability=0.0, milliseconds=0.0)


Ranker: TypeAlias = Callable[[str, int], Ranked]
"""From a query and a limit to the tools, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A ranker with a name; `fitted_on` lists sets (`train/authored`) or splits (`golden:train`)."""

    pipeline: str
    embedder: str = ""
    fitted_on: frozenset[str] = frozenset()
    rank: Ranker

    @property
    def name(self) -> str:
        return f"{self.pipeline}@{self.embedder}" if self.embedder else self.pipeline


def refuse_if_fitted(fitted_on: Iterable[str], dataset: Dataset) -> None:
    """Raise when a reported split, or the whole set it belongs to, took part in fitting."""
    base = dataset.name.partition(":")[0]
    reported = {base, *(f"{base}:{split}" for split in dataset.splits)}
    used = sorted(reported & {name.removeprefix("eval/") for name in fitted_on})
    if used:
        raise TunedOnReportedSplit(
            f"This pipeline was fitted on {', '.join(used)}, so a score on it says nothing about new "
            f"queries. Report another split with {base}:SPLIT or --split."
        )
