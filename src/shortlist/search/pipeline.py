"""A search as a value: retrievers, one fusion, stages; the trace and the ablation come for free."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from shortlist.errors import InvalidInput
from shortlist.models import Ranking, Scores, Step
from shortlist.search.fusion import Fuse, Fused
from shortlist.search.request import Request, Retriever, Signals

Stage: TypeAlias = Callable[[Request, Ranking], Ranking]


class Outcome(NamedTuple):
    """What a pipeline found, each signal as the retrievers gave it, and the ranking after every stage."""

    ranking: Ranking
    signals: Signals
    fused: Fused
    after: Mapping[str, Ranking]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Retrievers and stages by name, in order."""

    name: str
    retrievers: Mapping[str, Retriever]
    fuse: Fuse
    stages: Mapping[str, Stage]
    fitted_on: frozenset[str] = frozenset()

    def run(self, request: Request) -> Outcome:
        """Ask every retriever, fuse, and pass the ranking through the stages."""
        steps: list[Step] = []
        signals: dict[str, Scores] = {}
        for name, retrieve in self.retrievers.items():
            started = perf_counter()
            signals[name] = scores = retrieve(request)
            steps.append(_step(name, started, int(np.count_nonzero(scores))))
        started = perf_counter()
        fused = self.fuse(request, signals)
        steps.append(_step("fuse", started, len(fused.ranking)))
        ranking, after = fused.ranking, {}
        for name, stage in self.stages.items():
            started = perf_counter()
            after[name] = ranking = stage(request, ranking)
            steps.append(_step(name, started, len(ranking)))
        return Outcome(ranking[: request.query.limit], signals, fused, after, tuple(steps))

    def without(self, *names: str) -> Self:
        """Give the same pipeline less some of its parts."""
        unknown = set(names) - {*self.retrievers, *self.stages}
        if unknown:
            raise InvalidInput(f"{self.name!r} has no part {sorted(unknown)}: it has {self.parts}.")
        return replace(
            self,
            name=f"{self.name}-{'-'.join(names)}" if names else self.name,
            retrievers={name: r for name, r in self.retrievers.items() if name not in names},
            stages={name: s for name, s in self.stages.items() if name not in names},
        )

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.retrievers, *self.stages)


def _step(name: str, started: float, found: int) -> Step:
    return Step(name, (perf_counter() - started) * 1000, found)
