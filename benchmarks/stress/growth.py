"""Tells growth from noise: a slope over the means of blocks, with its confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCKS = 6
STUDENT_95 = 2.776
"""The quantile of Student's t distribution for a 95 % interval with four degrees of freedom: six blocks, two fitted."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How much a figure grows in a unit of time or work, and half of its 95 % confidence interval."""

    grown: float
    half: float

    @property
    def is_beyond_noise(self) -> bool:
        return self.grown > self.half

    def __str__(self) -> str:
        return f"{self.grown:+.1f} ± {self.half:.1f}"


@dataclass(frozen=True, slots=True)
class Growth:
    """The slopes of a whole run and of its second half.

    In the first half caches may still fill up, and the allocator takes what it uses again later. A leak shows in both.
    """

    whole: Slope
    second_half: Slope

    @property
    def is_beyond_noise(self) -> bool:
        return self.whole.is_beyond_noise and self.second_half.is_beyond_noise


def growth(at: Sequence[float], values: Sequence[float]) -> Growth | None:
    """Fit the slopes of a figure; None where there are too few samples to tell anything."""
    if len(values) < 4 * BLOCKS:
        return None
    middle = len(values) // 2
    return Growth(_slope(at, values), _slope(at[middle:], values[middle:]))


def _slope(at: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit one slope to the means of blocks: samples that follow one another are alike, and would promise too much."""
    parts = np.array_split(np.column_stack((at, values)), BLOCKS)
    places, means = np.array([part.mean(axis=0) for part in parts]).T
    spread = places - places.mean()
    grown = float(spread @ means / (spread @ spread))
    left = means - means.mean() - grown * spread
    return Slope(grown, STUDENT_95 * float(np.sqrt(left @ left / (BLOCKS - 2) / (spread @ spread))))
