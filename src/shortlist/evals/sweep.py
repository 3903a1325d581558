"""One number of a pipeline over a grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shortlist.evals.contender import Contender
from shortlist.evals.datasets import Dataset
from shortlist.evals.runner import Run, Runner
from shortlist.evals.summary import macro_of

STACKONE_ALPHAS = (0.0, 0.1, 0.2, 0.5, 0.8, 1.0)
"""The grid of StackOne's article: α·BM25 + (1−α)·TF-IDF."""


@dataclass(frozen=True, slots=True)
class Point:
    value: float
    runs: tuple[Run, ...]


Make = Callable[[float], Contender]
"""Build the contender with the swept number set to this value."""


def sweep(runner: Runner, dataset: Dataset, values: Sequence[float], make: Make) -> tuple[Point, ...]:
    return tuple(Point(value, (runner.run(dataset, make(value)),)) for value in values)


def best(points: Sequence[Point], metric: str) -> Point:
    """Return the point with the highest macro average; the first of equals."""
    return max(points, key=lambda point: macro_of(point.runs, metric))
