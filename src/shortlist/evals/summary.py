"""A run in figures: each metric with its interval, abstention, calibration, latency and tokens."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.errors import InvalidInput
from shortlist.evals.calibration import Abstention, abstention, auroc, expected_calibration_error
from shortlist.evals.metrics import LENIENT
from shortlist.evals.runner import Run
from shortlist.evals.significance import Interval, Values, bootstrap, macro

HEADLINE = ("top1", "r@1", "r@3", "r@5", "r@10", "mrr", "ndcg@5", "ndcg@10", "complete@5")
REPORTED = (*HEADLINE, *(LENIENT + name for name in HEADLINE), "toolset")
MACRO = "macro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures over one or more sets; with several, the metrics are macro averages."""

    dataset: str
    split: str = ""
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


def summarise(runs: Sequence[Run], *, dataset: str = "", split: str = "") -> Summary:
    """Sum up one run, or the macro average over several of the same pipeline."""
    records = [record for run in runs for record in run.records]
    stated, correct = _joined([r.probabilities() for r in runs]), _joined([r.correct() for r in runs])
    matches = _joined([run.match_probabilities() for run in runs])
    times = _joined([run.milliseconds() for run in runs])
    return Summary(
        dataset=dataset or runs[0].dataset,
        split=split,
        pipeline=runs[0].pipeline,
        queries=len(records),
        metrics={name: bootstrap(_strata(runs, name)) for name in REPORTED},
        abstention=abstention([r.level == "none" for r in records], [r.answerable for r in records]),
        calibration_error=expected_calibration_error(stated, correct),
        auroc=auroc(stated, correct > 0),
        match_auroc=auroc(matches, np.array([record.answerable for record in records], dtype=bool)),
        milliseconds_p50=_quantile(times, 0.5),
        milliseconds_p95=_quantile(times, 0.95),
        tokens=macro([run.tokens() for run in runs]),
    )


def summarise_each(runs: Sequence[Run]) -> tuple[Summary, ...]:
    """Sum up every set, its splits with their macro average, and the macro average over the sets."""
    found = [summary for run in runs for summary in _set_and_splits(run)]
    if len(runs) > 1:
        found.append(summarise(runs, dataset=MACRO))
    return tuple(found)


def macro_of(runs: Sequence[Run], metric: str) -> float:
    """Give one figure for a gate: the macro average over the sets of a metric with this name."""
    if metric not in REPORTED:
        raise InvalidInput(f"No metric {metric!r}. There are: {', '.join(REPORTED)}.")
    return macro(_strata(runs, metric))


def _set_and_splits(run: Run) -> tuple[Summary, ...]:
    whole = summarise([run])
    if len(run.splits) < 2:
        return (whole,)
    parts = {split: run.only(split=split) for split in run.splits}
    each = [summarise([part], split=split) for split, part in parts.items()]
    return (whole, *each, summarise(list(parts.values()), split=MACRO))


def _strata(runs: Sequence[Run], metric: str) -> list[Values]:
    return [run.values(metric) for run in runs]


def _joined(parts: Sequence[Values]) -> Values:
    return np.concatenate(parts) if parts else np.empty(0)


def _quantile(values: Values, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan
