"""How sure a difference is: bootstrap intervals and the paired randomisation test, both seeded.

Both take strata, one array of per-query values for each set. One stratum gives the plain mean; several give
the macro average, resampled or flipped within each set.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]

DRAWS = 2_000
FLIPS = 10_000
SEED = 20_260_101
CELLS_AT_ONCE = 2_000_000
"""Bounds the memory of a resampling: 16 MB of indices at a time."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the bounds between which 95 % of its resamples lie."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


UNKNOWN = Interval(math.nan, math.nan, math.nan)


def macro(strata: Sequence[Values]) -> float:
    """Average the means of the sets that have values."""
    means = [float(values.mean()) for values in strata if len(values)]
    return float(np.mean(means)) if means else math.nan


def bootstrap(strata: Sequence[Values], *, draws: int = DRAWS, seed: int = SEED) -> Interval:
    """Return the macro mean of one metric with its interval."""
    columns = [values[:, np.newaxis] for values in strata]
    return next(iter(bootstrap_columns(columns, draws=draws, seed=seed)), UNKNOWN)


def bootstrap_columns(strata: Sequence[Values], *, draws: int = DRAWS, seed: int = SEED) -> tuple[Interval, ...]:
    """Bootstrap several metrics, one in each column, on the same resamples; nothing where there is no row."""
    filled = [values for values in strata if len(values)]
    if not filled:
        return ()
    rng = np.random.default_rng(seed)
    resampled = np.mean([_resampled_means(values, draws, rng) for values in filled], axis=0)
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    means = np.mean([values.mean(axis=0) for values in filled], axis=0)
    return tuple(map(Interval, means.tolist(), low.tolist(), high.tolist()))


def paired_p_value(differences: Sequence[Values], *, flips: int = FLIPS, seed: int = SEED) -> float:
    """Return the two-sided p-value of a mean (or macro mean) difference under random sign flips."""
    shares = _shares(differences)
    if not len(shares):
        return 1.0
    rng = np.random.default_rng(seed)
    seen = abs(shares.sum()) * (1 - 1e-9)  # a flip that only rounds differently is as extreme
    extreme = sum(int((np.abs(_flipped_sums(shares, rows, rng)) >= seen).sum()) for rows in _chunks(flips, len(shares)))
    return (extreme + 1) / (flips + 1)


def _shares(differences: Sequence[Values]) -> Values:
    """Weigh each query by its share of the macro mean; queries without a difference cannot move it."""
    filled = [values for values in differences if len(values)]
    shares = [values / (len(values) * len(filled)) for values in filled]
    joined: Values = np.concatenate(shares) if shares else np.empty(0)
    return np.compress(joined != 0, joined)


def _flipped_sums(shares: Values, rows: int, rng: np.random.Generator) -> Values:
    kept = rng.integers(0, 2, size=(rows, len(shares)), dtype=np.int8)
    sums: Values = 2 * (kept @ shares) - shares.sum()
    return sums


def _resampled_means(values: Values, draws: int, rng: np.random.Generator) -> Values:
    """Return the column means of each resample: how often each row was drawn, times the rows."""
    size = len(values)
    parts = [_drawn_counts(rows, size, rng) @ values / size for rows in _chunks(draws, size)]
    return np.concatenate(parts)


def _drawn_counts(rows: int, size: int, rng: np.random.Generator) -> Values:
    drawn = rng.integers(size, size=(rows, size)) + size * np.arange(rows)[:, np.newaxis]
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)


def _chunks(rows: int, width: int) -> Iterator[int]:
    """Split a count of rows so that rows × width stays within CELLS_AT_ONCE."""
    at_once = max(1, CELLS_AT_ONCE // max(1, width))
    for start in range(0, rows, at_once):
        yield min(at_once, rows - start)
