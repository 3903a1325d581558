"""How sure the answer is: the chance that the first hit is right, and that there is a right one at all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.models import Confidence, Level
from shortlist.search.features import CANDIDATE_FEATURES, QUERY_FEATURES, Evidence, Matrix

HIGH, MEDIUM = 0.75, 0.4
"""Where `high` and `medium` begin, as the chance that the first hit is right."""
SURE = 0.8
"""A first hit this likely is never withheld as `none`: a web search, say, has few words of what it may find."""
FARTHEST = 4.0
"""How far from the usual a feature may take part, in standard deviations."""

CONFIDENCE_FEATURES = (
    *(f"first_{name}" for name in CANDIDATE_FEATURES),
    *QUERY_FEATURES,
    "share",  # the first hit's part of all the belief
    "runner_up",  # the second's
    "spread",  # how many hits share the belief, as an entropy
    "gap",  # the first's score less the second's
    "parameters",  # the first hit says what it takes: one that does not is often as vague as others beside it
    "at_large",  # how near the tools of other catalogs come
)
_EXACT, _UNKNOWN, _COVERAGE, _AGREEMENT, _SHARE = map(
    CONFIDENCE_FEATURES.index, ("first_exact", "unknown", "first_coverage", "agreement", "share")
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Two logistic regressions over the features and their products; fitted on training sets, measured on others.

    The first row of each is for the first hit being right, the second for there being a right one.
    """

    centre: Matrix
    spread: Matrix
    weights: Matrix
    pairs: Matrix
    """By regression and feature, what the other features add to its weight."""
    bias: Matrix
    none_below: float
    """The chance of a match under which the answer is `none`, unless its first hit is sure."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Calibration":
        """Read the part of a fitted file that is about confidence."""
        if tuple(raw["features"]) != CONFIDENCE_FEATURES:
            raise ValueError("the calibration is of another version")
        arrays = {name: np.array(raw[name], np.float32) for name in ("centre", "spread", "weights", "pairs", "bias")}
        return cls(**arrays, none_below=float(raw["none_below"]))

    def judge(self, features: Matrix, proven: float = 0.0) -> Confidence:
        """Judge an answer by its first hit; `proven` is how sure it is from use that the hit is a match."""
        right, there = self.chances(features)
        present = 1 - (1 - there) * (1 - proven)
        level = self._level(right, present)
        right, present = (min(right, present), present) if level == "none" else (right, max(right, present))
        return Confidence(
            level=level,
            probability=right,
            match_probability=present,
            reasons=_reasons(features.tolist()),
        )

    def chances(self, features: Matrix) -> tuple[float, float]:
        """Give the chance that the first hit is right where any is, and that any is."""
        usual = ((features - self.centre) / self.spread).clip(-FARTHEST, FARTHEST)
        right, there = ((self.weights + self.pairs.dot(usual)).dot(usual) + self.bias).tolist()
        return _chance(right), _chance(there)

    def _level(self, right: float, present: float) -> Level:
        if present < self.none_below and right < SURE:
            return "none"
        return "high" if right >= HIGH else "medium" if right >= MEDIUM else "low"


def _chance(score: float) -> float:
    return 1 / (1 + math.exp(-min(max(score, -30.0), 30.0)))


NOTHING = Confidence(
    level="none", probability=0.0, match_probability=0.0, reasons=("no tool matches, or none passes the filters",)
)


def confidence_features(
    evidence: Evidence, logits: Matrix, first_row: int, *, parameters: bool, at_large: float
) -> Matrix:
    """Describe the first hit, the query, how the belief is spread over the candidates, and what others offer."""
    first = evidence.rows.tolist().index(first_row)
    behind = logits - logits[logits.argmax()]
    odds = np.exp(behind)
    total = sum(odds.tolist())
    entropy = math.log(total) - float(odds.dot(behind)) / total
    share, second, gap = float(odds[first]) / total, 0.0, 3.0
    if len(logits) > 1:
        odds[first] = -1.0
        runner_up = int(odds.argmax())
        second, gap = float(odds[runner_up]) / total, float(behind[first] - behind[runner_up])
    spread = (share, second, entropy, min(max(gap, -5.0), 5.0), parameters, at_large)
    return np.array((*evidence.candidates[first].tolist(), *evidence.query.tolist(), *spread), np.float32)


def _reasons(features: list[float]) -> tuple[str, ...]:
    found = []
    if features[_EXACT]:
        found.append("the query spells its name")
    if features[_UNKNOWN] > 0.34:
        found.append(f"{features[_UNKNOWN]:.0%} of the words are unknown here")
    if features[_COVERAGE] < 0.34:
        found.append(f"it mentions {features[_COVERAGE]:.0%} of what was asked")
    if features[_AGREEMENT]:
        found.append("words and meaning agree on it")
    if features[_SHARE] < 0.4:
        found.append("others are nearly as good")
    return tuple(found)
