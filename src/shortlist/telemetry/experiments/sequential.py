"""Statistics that stay valid at every look, however often an experiment is looked at.

Effects are judged by a confidence sequence: intervals that all contain the true effect at once with the stated
probability. Reading it at any look is the mixture sequential probability ratio test (mSPRT) of Robbins
with a normal mixture, in the asymptotic form of Waudby-Smith et al. (2024). `docs/decisions/0003-sequential-test.md`
explains the choice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

TIGHTEST_AT = 1_000
"""The intervals are tuned to be narrowest at this many units, and a little wider elsewhere."""
_PLANNED_ALPHA = 0.05
MIXTURE = (-2 * math.log(_PLANNED_ALPHA) + math.log(1 - 2 * math.log(_PLANNED_ALPHA))) / TIGHTEST_AT
"""The variance of the mixture per unit (ρ²): what makes an interval at level 0.05 narrowest at TIGHTEST_AT."""
UNSEEN = 1.0
"""One extra event (tool, token, millisecond) in the variance: zero errors in 50 units do not prove zero errors."""
MISMATCH_PRIOR = 100.0
"""The weight of the planned shares: as if 100 units had been seen in them."""


@dataclass(frozen=True)
class RatioSample:
    """One variant's part of a ratio metric: each unit's numerator and denominator.

    The unit is what was randomised. Events of one unit depend on each other, so the variance is taken between units
    (the delta method for the ratio of two means). A plain mean has denominators of one.
    """

    numerators: FloatArray
    denominators: FloatArray

    @classmethod
    def of(
        cls, numerators: Sequence[float] | FloatArray, denominators: Sequence[float] | FloatArray | float
    ) -> "RatioSample":
        """Keep the units with a positive denominator; a single number is the denominator of all."""
        above = np.asarray(numerators, np.float64)
        below = np.broadcast_to(np.asarray(denominators, np.float64), above.shape)
        counted = below > 0
        return cls(above[counted], below[counted])

    @property
    def units(self) -> int:
        return len(self.denominators)

    @cached_property
    def value(self) -> float:
        """The ratio of the sums; NaN without units."""
        below = float(self.denominators.sum())
        return float(self.numerators.sum()) / below if below else math.nan

    @cached_property
    def variance(self) -> float:
        """The estimated variance of `value`; NaN for fewer than two units."""
        if self.units < 2:
            return math.nan
        residuals = self.numerators - self.value * self.denominators
        spread = (float(residuals @ residuals) + UNSEEN**2) / float(self.denominators.sum()) ** 2
        return spread * self.units / (self.units - 1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with bounds that hold at every look, and the always-valid p-value of the null hypothesis."""

    value: float
    low: float
    high: float
    p_value: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


UNKNOWN = Estimate(math.nan, -math.inf, math.inf, 1.0)


def mean(sample: RatioSample, alpha: float) -> Estimate:
    """Estimate one variant's value."""
    return estimate(sample.value, sample.variance, sample.units, alpha)


def difference(treatment: RatioSample, control: RatioSample, alpha: float) -> Estimate:
    """Estimate by how much the treatment's value exceeds the control's."""
    return estimate(
        treatment.value - control.value,
        treatment.variance + control.variance,
        treatment.units + control.units,
        alpha,
    )


def estimate(value: float, variance: float, units: int, alpha: float) -> Estimate:
    """Bound a value with an estimated variance, at level `alpha` over all looks together."""
    if not math.isfinite(variance):
        return UNKNOWN
    seen = units * MIXTURE
    radius = math.sqrt(variance * (1 + 1 / seen) * math.log((1 + seen) / alpha**2))
    return Estimate(value, value - radius, value + radius, _p_value(value, variance, seen))


def _p_value(value: float, variance: float, seen: float) -> float:
    """Return the level at which the interval just reaches zero: one over the mixture likelihood ratio."""
    log_ratio = value**2 / variance * seen / (2 * (1 + seen)) - math.log(1 + seen) / 2
    return min(1.0, math.exp(-log_ratio))


def mismatch(variants: Sequence[int], shares: Sequence[float]) -> float:
    """Return the always-valid p-value of the sample-ratio check: units are assigned in the planned shares.

    The sequential multinomial test of Lindon and Malek (2020): the likelihood of the assignments under shares near
    the planned ones, divided by that under the planned ones, at its highest so far.
    """
    if not len(variants):
        return 1.0
    came = np.eye(len(shares))[np.asarray(variants)]
    before = np.vstack([np.zeros(len(shares)), came.cumsum(axis=0)[:-1]])
    planned = np.asarray(shares, np.float64)
    expected = (MISMATCH_PRIOR * planned + before) / (MISMATCH_PRIOR + np.arange(len(variants)))[:, np.newaxis]
    log_ratios = np.cumsum(np.log((came * expected / planned).sum(axis=1)))
    return min(1.0, math.exp(-float(log_ratios.max())))
