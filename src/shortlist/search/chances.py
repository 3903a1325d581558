"""Converts scores of a ranking to probabilities."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from shortlist.models import Confidence


def chances(scores: Sequence[float], confidence: Confidence) -> list[float]:
    """Return the chance of each hit to be the right one.

    The first has its calibrated probability. What is left of the chance that the catalog has a right tool at all
    is shared by the others in proportion to their odds, which is what fused scores are; none exceeds one before it.
    """
    if not scores:
        return []
    odds = np.exp(np.asarray(scores[1:], np.float64) - scores[0])
    left = max(confidence.match_probability - confidence.probability, 0.0)
    rest = odds * (left / odds.sum()) if len(odds) else odds
    return list(accumulate([confidence.probability, *rest.tolist()], min))
