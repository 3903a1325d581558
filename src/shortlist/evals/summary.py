"""A run in figures: each metric with its interval, abstention, calibration, latency and tokens."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.errors import InvalidInput
from shortlist.evals.calibration import Abstention, abstention, auroc, expected_calibration_error
from shortlist.evals.metrics import LENIENT
from shortlist.evals.runner import Run
from shortlist.evals.significance import UNKNOWN, Interval, Values, bootstrap_columns, macro

HEADLINE = ("top1", "r@1", "r@3", "r@5", "r@10", "mrr", "ndcg@5", "ndcg@10", "complete@5")
REPORTED = (*HEADLINE, *(LENIENT + name for name in HEADLINE), "toolset")
MACRO = "macro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures over one or more sets; with several, the metrics are macro averages."""

    dataset: str
    part: str = ""
    """A split or segment; empty for the whole set."""
    pipeline: str
    queries: int
    metrics: Mapping[str, Interval]
    abstention: Abstention
    calibration_error: float
    auroc: float
    """How well the probability separates right first hits from wrong ones."""
    match_auroc: float
    """How well the match probability separates queries that a tool answers from those that none does."""
    milliseconds_p50: float
    milliseconds_p95: float
    tokens: float


def summarise(runs: Sequence[Run], *, dataset: str = "", part: str = "") -> Summary:
    """Sum up one run, or the macro average over several of the same pipeline."""
    records = [record for run in runs for record in run.records]
    stated, correct = _joined([r.probabilities() for r in runs]), _joined([r.correct() for r in runs])
    matches = _joined([run.match_probabilities() for run in runs])
    times = _joined([run.milliseconds() for run in runs])
    return Summary(
        dataset=dataset or runs[0].dataset,
        part=part,
        pipeline=runs[0].pipeline,
        queries=len(records),
        metrics=_intervals(runs),
        abstention=abstention([r.level == "none" for r in records], [r.answerable for r in records]),
        calibration_error=expected_calibration_error(stated, correct),
        auroc=auroc(stated, correct > 0),
        match_auroc=auroc(matches, np.array([record.answerable for record in records], dtype=bool)),
        milliseconds_p50=_quantile(times, 0.5),
        milliseconds_p95=_quantile(times, 0.95),
        tokens=macro([run.tokens() for run in runs]),
    )


def summarise_each(runs: Sequence[Run]) -> tuple[Summary, ...]:
    """Sum up every set, its splits and segments with their macro averages, and the macro average over the sets."""
    found = [summary for run in runs for summary in _set_and_parts(run)]
    if len(runs) > 1:
        found.append(summarise(runs, dataset=MACRO))
    return tuple(found)


def macro_of(runs: Sequence[Run], metric: str) -> float:
    """Return one figure for a gate: the macro average over the sets of a metric with this name."""
    if metric not in REPORTED:
        raise InvalidInput(f"No metric {metric!r}. There are: {', '.join(REPORTED)}.")
    return macro(_strata(runs, metric))


def _set_and_parts(run: Run) -> list[Summary]:
    splits = {name: run.only(split=name) for name in run.splits}
    segments = {name: run.only(segment=name) for name in run.segments}
    found = [summarise([run]), *_parts(splits, "splits")]
    return found if run.splits == run.segments else [*found, *_parts(segments, "segments")]


def _parts(parts: Mapping[str, Run], kind: str) -> list[Summary]:
    """Sum up each part and their macro average; a single part is the whole."""
    if len(parts) < 2:
        return []
    each = [summarise([part], part=name) for name, part in parts.items()]
    return [*each, summarise(list(parts.values()), part=f"{MACRO} over {kind}")]


def _intervals(runs: Sequence[Run]) -> dict[str, Interval]:
    tables = [np.stack([run.values(name) for name in REPORTED], axis=1) for run in runs]
    found = bootstrap_columns(tables) or (UNKNOWN,) * len(REPORTED)
    return dict(zip(REPORTED, found, strict=True))


def _strata(runs: Sequence[Run], metric: str) -> list[Values]:
    return [run.values(metric) for run in runs]


def _joined(parts: Sequence[Values]) -> Values:
    return np.concatenate(parts) if parts else np.empty(0)


def _quantile(values: Values, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan
