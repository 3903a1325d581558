"""Accuracy by catalog size: gold tools among a growing number of real ones, and which pipeline to use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shortlist.evals.cases import Case
from shortlist.evals.contender import Contender
from shortlist.evals.datasets import Dataset
from shortlist.evals.metrics import LENIENT
from shortlist.evals.runner import Run, Runner
from shortlist.evals.significance import SEED, Interval, Values, bootstrap, paired_p_value
from shortlist.models import Tool, ToolId

SIZES = (10, 50, 100, 200, 500, 1_000, 2_792, 10_000, 25_759)
JUDGED_BY = LENIENT + "top1"
MOST_DRAWS = 10
TOOLS_IN_ALL_DRAWS = 1_000
"""Small catalogs hold few cases, so they are drawn again until about this many tools took part."""
CERTAIN = 0.05

Build: TypeAlias = Callable[[Mapping[ToolId, Tool]], Mapping[str, Contender]]
"""Index these tools and return their rankers by name."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A catalog of some size, and the cases that it can answer."""

    tools: frozenset[ToolId]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """One pipeline at one size; the accuracy is the macro average over the splits."""

    size: int
    pipeline: str
    queries: int
    accuracy: Interval
    milliseconds_p50: float
    strata: Mapping[str, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The fastest pipeline that is not significantly worse than the most accurate one."""

    size: int
    pipeline: str
    most_accurate: str


def draw_samples(
    pool: Sequence[ToolId], cases: Sequence[Case], sizes: Sequence[int], *, seed: int = SEED
) -> Iterator[Sample]:
    """Draw nested catalogs: at most half gold while there are others, and each holds all smaller ones."""
    rng = np.random.default_rng(seed)
    answerable = [case for case in cases if case.answerable]
    shuffled = [answerable[i] for i in rng.permutation(len(answerable))]
    present = frozenset(pool)
    gold = [each for each in dict.fromkeys(i for case in shuffled for i in case.gold) if each in present]
    others = sorted(present - set(gold))
    crowd = [others[i] for i in rng.permutation(len(others))]
    for size in sizes:
        yield _sample(gold, crowd, size, answerable)


def _sample(gold: Sequence[ToolId], crowd: Sequence[ToolId], size: int, cases: Sequence[Case]) -> Sample:
    golden = min(len(gold), max(size // 2, size - len(crowd)))
    tools = frozenset((*gold[:golden], *crowd[: size - golden]))
    return Sample(tools, tuple(case for case in cases if tools.issuperset(case.gold)))


def measure_size(runner: Runner, dataset: Dataset, build: Build, size: int) -> tuple[SizePoint, ...]:
    """Run every pipeline on the same samples of one size."""
    runs: dict[str, list[Run]] = {}
    for sample in samples_of_size(tuple(runner.tools), dataset.cases, size):
        tools = {tool_id: runner.tools[tool_id] for tool_id in sorted(sample.tools)}
        smaller = replace(runner, tools=tools)
        asked = replace(dataset, cases=sample.cases)
        for name, contender in build(tools).items():
            runs.setdefault(name, []).append(smaller.run(asked, contender))
    return tuple(_point(name, min(size, len(runner.tools)), found) for name, found in runs.items())


def samples_of_size(pool: Sequence[ToolId], cases: Sequence[Case], size: int) -> Iterator[Sample]:
    """Draw a size as often as it takes to ask enough; the nth draws of all sizes are nested."""
    draws = 1 if size >= len(pool) else max(1, min(MOST_DRAWS, TOOLS_IN_ALL_DRAWS // size))
    for draw in range(draws):
        yield from draw_samples(pool, cases, [size], seed=SEED + draw)


def advise(points: Sequence[SizePoint]) -> tuple[Advice, ...]:
    """Recommend a pipeline for each catalog size."""
    sizes = dict.fromkeys(point.size for point in points)
    return tuple(_advice([point for point in points if point.size == size]) for size in sizes)


def _advice(points: Sequence[SizePoint]) -> Advice:
    best = max(points, key=lambda point: point.accuracy.mean)
    equals = [point for point in points if not _worse(point, best)]
    fastest = min(equals, key=lambda point: point.milliseconds_p50)
    return Advice(size=best.size, pipeline=fastest.pipeline, most_accurate=best.pipeline)


def _worse(point: SizePoint, best: SizePoint) -> bool:
    differences = [best.strata[split] - values for split, values in point.strata.items()]
    return point.accuracy.mean < best.accuracy.mean and paired_p_value(differences) < CERTAIN


def _point(name: str, size: int, runs: Sequence[Run]) -> SizePoint:
    strata = _strata(runs)
    times = np.concatenate([run.milliseconds() for run in runs])
    return SizePoint(
        size=size,
        pipeline=name,
        queries=sum(len(values) for values in strata.values()),
        accuracy=bootstrap(list(strata.values())),
        milliseconds_p50=float(np.median(times)) if len(times) else float("nan"),
        strata=strata,
    )


def _strata(runs: Sequence[Run]) -> dict[str, Values]:
    splits = sorted({split for run in runs for split in run.splits})
    return {split: np.concatenate([run.only(split=split).values(JUDGED_BY) for run in runs]) for split in splits}
