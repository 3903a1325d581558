"""The fitted numbers of the scanner: weights for evidence in words, and what becomes of a classified passage."""

import functools
import json
import math
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.trust.concepts import concepts
from shortlist.trust.features import FEATURES, SCALARS
from shortlist.trust.patterns import PATTERNS

Matrix = NDArray[np.float32]
LEAST_WORDS, MOST_WORDS = -8.0, 13.0
"""The bounds of the evidence in words: it does not decide alone, however sure it is."""
CONCEPTS = len(concepts().names)
TOGETHER = slice(CONCEPTS, CONCEPTS + len(PATTERNS))
ACROSS = slice(CONCEPTS + len(PATTERNS), CONCEPTS + 2 * len(PATTERNS))
_FAMILIES = tuple(dict.fromkeys(pattern.family for pattern in PATTERNS.values()))
_FAMILY_OF = np.array([_FAMILIES.index(pattern.family) for pattern in PATTERNS.values()])
_BY_FAMILY = _FAMILY_OF.argsort(kind="stable")
_FAMILY_STARTS = np.searchsorted(_FAMILY_OF[_BY_FAMILY], np.arange(len(_FAMILIES)))
"""The columns of patterns with those of one family side by side, and where each family starts."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """How the scores of a passage by its words and by the classifier become one score, and what it means."""

    words: float
    """How much the evidence in words counts beside the classifier's score."""
    quick: float
    """How much the classifier's quick score counts."""
    least: float
    most: float
    """The bounds of the classifier's slower score, which is often too sure."""
    suspicious: float
    dangerous: float
    reach: float = math.inf
    """What a reading is expected to score at most: passages that would need more are not read."""

    def score(self, read: float, quick: float, words: float) -> float:
        evidence = min(max(words, LEAST_WORDS), MOST_WORDS)
        return self.bounded(read) + self.quick * quick + self.words * evidence

    def bounded(self, read: float) -> float:
        return min(max(read, self.least), self.most)

    def highest(self, quick: float, words: float) -> float:
        """Return the highest score that a passage is expected to have once the classifier has read it."""
        return self.score(min(self.most, self.reach), quick, words)


@dataclass(frozen=True, slots=True)
class Head:
    """Fitted numbers; `training/poison/fit.py` and `calibrate.py` write them to `data/head.json`."""

    rarity: Matrix
    """How rare each feature is among real tools, as a power of ten."""
    words: Matrix
    intercept: float
    suspicious_words: float
    """Thresholds without a classifier."""
    dangerous_words: float
    classifier: str
    """The digest of the classifier's weights, which the mixtures were fitted with."""
    english: Mixture
    foreign: Mixture
    """Of passages in other languages, which the classifier knows less about, and of which real tools have few."""

    def word_scores(self, rows: Matrix) -> Matrix:
        """Return the score of each passage by its words alone."""
        if not len(rows):
            return np.zeros(0, np.float32)
        scores = evidence(rows, self.rarity) @ self.words + self.intercept
        return scores.astype(np.float32)


def evidence(rows: Matrix, rarity: Matrix) -> Matrix:
    """Return how rare the rarest patterns of each passage are among real tools, beside the features themselves.

    The rarity does not depend on the attack that a pattern belongs to, so it carries over to families never seen.
    """
    together, across = rows[:, TOGETHER] * rarity[TOGETHER], rows[:, ACROSS] * rarity[ACROSS]
    by_family = _highest(_per_family(together), 4)
    return np.hstack(
        [
            by_family,
            by_family**2 / 3,
            _highest(_per_family(across), 3),
            _highest(rows[:, :CONCEPTS] * rarity[:CONCEPTS], 3),
            rows[:, :CONCEPTS].sum(1, keepdims=True) / 10,
            _highest(together, 3),
            together.sum(1, keepdims=True) / 10,
            rows[:, -len(SCALARS) :],
            rows[:, : ACROSS.stop],
        ]
    ).astype(np.float32)


def _per_family(values: Matrix) -> Matrix:
    found: Matrix = np.maximum.reduceat(values[:, _BY_FAMILY], _FAMILY_STARTS, axis=1)
    return np.maximum(found, np.float32(0))


def _highest(values: Matrix, count: int) -> Matrix:
    highest: Matrix = -np.sort(-values, axis=1)[:, :count]
    return highest


@functools.cache
def shipped_head() -> Head:
    """Load the fitted numbers that belong to this version's features."""
    raw = json.loads(resources.files("shortlist.trust").joinpath("data/head.json").read_text("utf-8"))
    if tuple(raw.pop("features")) != FEATURES:
        raise ModelError(
            "The scanner's weights belong to other features; run `python -m training.poison.fit`, or reinstall."
        )
    for key in ("rarity", "words"):
        raw[key] = np.array(raw[key], np.float32)
    for key in ("english", "foreign"):
        raw[key] = Mixture(**raw[key])
    return Head(**raw)
