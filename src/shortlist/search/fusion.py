"""From several signals to one ranking."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.models import Ranking, Scores, ToolId
from shortlist.search.features import CANDIDATE_FEATURES, QUERY_FEATURES, Evidence, FeatureReader, Matrix
from shortlist.search.request import Request, Signals, candidates, rank

DEPTH = 50
"""How many of each arm's best are compared; deeper ones were never the right ones on the training sets."""
RRF_DAMPING = 60
"""The constant of the reciprocal rank fusion paper."""


class Fused(NamedTuple):
    """A ranking and, where the fusion looked closer, what it saw and what each part of it gave."""

    ranking: Ranking
    evidence: Evidence | None = None
    weights: Matrix | None = None
    logits: Matrix | None = None
    """The score of each candidate, in the order of the evidence."""


Fuse: TypeAlias = Callable[[Request, Signals], Fused]


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """How much each feature counts, given what the query is like."""

    theta: Matrix

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "FusionWeights":
        """Read the part of a fitted file that is about fusion."""
        if tuple(raw["candidate_features"]) != CANDIDATE_FEATURES or tuple(raw["query_features"]) != QUERY_FEATURES:
            raise ValueError("the fusion weights are of another version")
        return cls(np.array(raw["theta"], np.float32))

    def for_query(self, evidence: Evidence) -> Matrix:
        weights: Matrix = self.theta.dot(evidence.query)
        return weights


class AdaptiveFusion:
    """A weighted sum of features whose weights depend on the query.

    An identifier trusts the words, a sentence the vectors; so does a query that one arm answers clearly and the
    other does not. Linear in the candidate's features, so every hit's score is a list of parts.
    """

    def __init__(self, reader: FeatureReader, weights: FusionWeights, ids: list[ToolId]) -> None:
        self._reader = reader
        self._weights = weights
        self._ids = ids

    def __call__(self, request: Request, signals: Signals) -> Fused:
        rows = candidates(signals, request.mask, max(DEPTH, request.query.limit))
        evidence = self._reader(request, signals, rows)
        weights = self._weights.for_query(evidence)
        logits = evidence.candidates.dot(weights)
        return Fused(rank(logits, rows.astype(np.int32), self._ids, len(rows)), evidence, weights, logits)


class WeightedFusion:
    """Scores stretched to 0…1 among the candidates and mixed by fixed weights."""

    def __init__(self, weights: Mapping[str, float], ids: list[ToolId]) -> None:
        self._weights = weights
        self._ids = ids

    def __call__(self, request: Request, signals: Signals) -> Fused:
        rows = candidates(signals, request.mask, max(DEPTH, request.query.limit))
        mixed = np.zeros(len(rows), np.float32)
        for name, weight in _present(self._weights, signals):
            mixed += np.float32(weight) * _stretched(signals[name][rows])
        return Fused(rank(mixed, rows.astype(np.int32), self._ids, len(rows)))


class RankFusion:
    """Weighted reciprocal rank fusion."""

    def __init__(self, weights: Mapping[str, float], ids: list[ToolId]) -> None:
        self._weights = weights
        self._ids = ids

    def __call__(self, request: Request, signals: Signals) -> Fused:
        rows = candidates(signals, request.mask, max(DEPTH, request.query.limit))
        total = np.zeros(len(rows), np.float32)
        for name, weight in _present(self._weights, signals):
            total += np.float32(weight) * self._reciprocal(signals[name][rows], rows)
        return Fused(rank(total, rows.astype(np.int32), self._ids, len(rows)))

    def _reciprocal(self, scores: Scores, rows: NDArray[np.int64]) -> Scores:
        ranking = rank(scores, np.arange(len(rows), dtype=np.int32), [self._ids[row] for row in rows], len(rows))
        given = np.zeros(len(rows), np.float32)
        given[ranking.rows] = 1 / (RRF_DAMPING + 1 + np.arange(len(rows), dtype=np.float32))
        given[scores <= 0] = 0
        return given


class SingleArm:
    """One signal, ranked as it is; what it does not match is not in the answer."""

    def __init__(self, name: str, ids: list[ToolId]) -> None:
        self._name = name
        self._ids = ids

    def __call__(self, request: Request, signals: Signals) -> Fused:
        scores = signals[self._name]
        rows = np.flatnonzero(scores > 0)
        return Fused(rank(scores[rows], rows.astype(np.int32), self._ids, max(DEPTH, request.query.limit)))


def _stretched(scores: Scores) -> Scores:
    if not len(scores):
        return scores
    low, high = float(scores.min()), float(scores.max())
    stretched: Scores = (scores - low) / max(high - low, 1e-9)
    return stretched


def _present(weights: Mapping[str, float], signals: Signals) -> list[tuple[str, float]]:
    """Give the weights of the signals there are: an ablation leaves some out."""
    return [(name, weight) for name, weight in weights.items() if name in signals]
