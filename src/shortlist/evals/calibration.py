"""Whether a stated probability is true: calibration bins, AUROC and abstention."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.evals.significance import Values

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Queries of similar stated probability, and how often they were right."""

    count: int
    stated: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    """How well "none" separates queries that no tool answers; NaN where there is nothing to count."""

    precision: float
    recall: float
    false_rate: float
    """Share of answerable queries that got "none"."""
    no_match: int


def calibration_bins(probabilities: Values, correct: Values, *, bins: int = BINS) -> tuple[Bin, ...]:
    """Cut the queries, in order of stated probability, into bins of equal mass."""
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return tuple(Bin(len(part), float(probabilities[part].mean()), float(correct[part].mean())) for part in parts)


def expected_calibration_error(probabilities: Values, correct: Values, *, bins: int = BINS) -> float:
    cut = calibration_bins(probabilities, correct, bins=bins)
    total = sum(each.count for each in cut)
    return sum(each.count * abs(each.stated - each.observed) for each in cut) / total if total else math.nan


def auroc(scores: Values, positive: NDArray[np.bool_]) -> float:
    """Return the chance that a positive scores above a negative; a tie counts half."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return math.nan
    rank_sum = float(_average_ranks(scores)[positive].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def abstention(abstained: Sequence[bool], answerable: Sequence[bool]) -> Abstention:
    said_none, no_match = np.array(abstained, dtype=bool), ~np.array(answerable, dtype=bool)
    return Abstention(
        precision=_share(no_match[said_none]),
        recall=_share(said_none[no_match]),
        false_rate=_share(said_none[~no_match]),
        no_match=int(no_match.sum()),
    )


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else math.nan


def _average_ranks(scores: Values) -> Values:
    """Rank from 1 upwards; equal scores share the mean of their ranks."""
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Values = (last - (counts - 1) / 2)[group]
    return ranks
