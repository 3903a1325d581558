"""Words and vectors in one ranking: the two default retrievers, and how much what they find counts for a query."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shortlist.index.index import Index
from shortlist.index.lexical import UNREAD, Matches
from shortlist.index.ports import NOTHING, Candidates, Rows
from shortlist.index.postings import SATURATION
from shortlist.models import Scores, ToolId
from shortlist.search.pipeline import DEPTH, Evidence, Found, Fused, Matrix, Request, rank, spelled_rows
from shortlist.text.queries import QueryTerm

NO_VECTORS = NOTHING._replace(deviation=1e-3)
RRF_DAMPING = 60
"""The constant of the reciprocal rank fusion paper."""

CANDIDATE_FEATURES = (
    "lexical",  # the arm's score against the best one's
    "lexical_share",  # … against what a perfect match would have
    "coverage",  # the share of what was asked, by how telling it is, that the tool mentions at all
    "name_recall",  # the share of what was asked that stands in the name
    "name_precision",  # the share of the name that was asked for
    "server",  # the share of what was asked that names the server
    "lexical_rank",  # 1 for the first, 1/2 for the second …
    "cosine",
    "cosine_gap",  # how far behind the nearest
    "cosine_score",  # in standard deviations of the whole catalog's cosines
    "cosine_rank",
    "cosine_place",  # between the farthest candidate, 0, and the nearest, 1
    "exact",  # the query spells this name
)
QUERY_FEATURES = (
    "always",
    "coverage_best",  # of any candidate: is what was asked in this catalog at all
    "unknown",  # the share of the words that the catalog does not have
    "lexical_margin",  # first to second, of the first
    "cosine_best",
    "cosine_margin",
    "agreement",  # the arms put the same tool first
    "overlap",  # share of the arms' first ten in common
    "length",  # log of the words
    "identifier",  # it is, or holds, something spelled like a name
    "size",  # log of the number of tools
)


_NO_MATCH, _TENTH = np.array(0, np.float32), np.array(0.1, np.float32)
"""As arrays: numpy takes as long to read a number as to compare a hundred with it."""


class LexicalRetriever:
    """BM25F over the fields; a word that has stand-ins counts once, by the best of them."""

    def __init__(self, index: Index) -> None:
        self._lexical = index.lexical

    def retrieve(self, request: Request, limit: int) -> Candidates:
        return self._lexical.retrieve(self.look_up(request), limit, request.among)

    def score(self, request: Request, rows: Rows) -> Scores:
        return self._lexical.score(self.look_up(request), rows)

    def look_up(self, request: Request) -> Matches:
        """Return what answers the terms of a request."""
        found: Matches | None = request.kept.get(self)
        if found is None:
            found = request.kept[self] = self._lexical.match(request.analysed.terms, self.stand_ins)
        return found

    def stand_ins(self, asked: QueryTerm) -> tuple[tuple[str, float], ...]:
        """Return the terms to look for that the catalog has, with their weights: the word and what may stand for it."""
        frequency = self._lexical.frequency
        known = tuple((t, w) for t, w in asked.instead if frequency(t)) if asked.instead else ()
        return ((asked.term, asked.weight), *known) if frequency(asked.term) else known


class DenseRetriever:
    """Cosine similarity between the query's vectors and every tool's."""

    def __init__(self, index: Index) -> None:
        self._vectors = index.dense

    def retrieve(self, request: Request, limit: int) -> Candidates:
        if self._vectors is None or request.vectors is None:
            return NO_VECTORS
        return self._vectors.retrieve(request.vectors, limit, request.among)

    def score(self, request: Request, rows: Rows) -> Scores:
        if self._vectors is None or request.vectors is None:
            return np.zeros(len(rows), np.float32)
        return self._vectors.score(request.vectors, rows)


class FeatureReader:
    """Reads the evidence off the index for the candidates of a request."""

    def __init__(self, index: Index, lexical: LexicalRetriever) -> None:
        self._index = index
        self._lexical = lexical

    def __call__(self, request: Request, candidates: Found) -> Evidence:
        rows, words, cosines = candidates.rows, candidates.signals.get("lexical"), candidates.signals.get("dense")
        nothing = np.zeros(len(rows), np.float32)
        lexical = nothing if words is None else words
        dense = nothing if cosines is None else self._cosines(cosines, rows, lexical)
        found = UNREAD if words is None else self._lexical.look_up(request)
        seen = _Seen(found, _ranked(lexical), _ranked(dense), candidates.spreads.get("dense", (0.0, 1.0)))
        lines = _lines(seen, found.gains(rows, self._index.size))
        if words is not None and (spelled := spelled_rows(self._index, request)):
            lines[-1] = np.isin(rows, list(spelled))
        return Evidence(rows, lines.T, self._query(request, seen, lines))

    def _query(self, request: Request, seen: "_Seen", lines: Matrix) -> Matrix:
        """Describe the query, and how clearly each retriever answers it."""
        by_words, by_vectors, count = seen.by_words, seen.by_vectors, lines.shape[1]
        return np.array(
            (
                1.0,
                lines[2].item(lines[2].argmax()) if count else 0.0,
                seen.found.unknown,
                by_words.margin / max(by_words.best, 1e-6) if count > 1 else 1.0,
                max(by_vectors.best, 0.0),
                by_vectors.margin if count > 1 else 0.5,
                by_words.best > 0 and by_words.first == by_vectors.first,
                np.count_nonzero(np.minimum(by_words.ranks, by_vectors.ranks) >= _TENTH) / 10,
                math.log1p(request.analysed.words) / 4,
                bool(request.analysed.identifiers),
                math.log10(max(len(self._index), 1)) / 4,
            ),
            np.float32,
        )

    def _cosines(self, cosines: Matrix, rows: Rows, lexical: Matrix) -> Matrix:
        """Let words stand for a vector that is still to come: the best match by words counts as the nearest."""
        waiting = self._index.dense.waiting(rows) if self._index.dense else None
        if waiting is None or waiting.all():
            return cosines
        low, high = cosines[~waiting].min(), cosines[~waiting].max()
        guessed = low + (high - low) * lexical / max(float(lexical.max()), 1e-6)
        filled: Matrix = np.where(waiting, guessed, cosines).astype(np.float32)
        return filled


class _Arm(NamedTuple):
    """The candidates as one arm sees them, and how clear its first is."""

    scores: Matrix
    ranks: Matrix
    """1 for the best, 1/2 for the next …; equal scores share a rank, and no match has none."""
    first: int
    worst: float
    best: float
    margin: float


def _ranked(scores: Matrix) -> _Arm:
    count = len(scores)
    if not count:
        return _Arm(scores, scores, 0, 0.0, 0.0, 0.0)
    rising = scores.copy()
    rising.sort()
    ranks = _reciprocals(count)[rising.searchsorted(scores, "right")]
    ranks[scores <= _NO_MATCH] = _NO_MATCH
    best = rising.item(-1)
    return _Arm(scores, ranks, int(ranks.argmax()), rising.item(0), best, best - rising.item(max(count - 2, 0)))


@lru_cache(maxsize=256)
def _reciprocals(count: int) -> Matrix:
    """Return 1 / rank by how many of so many scores are no better."""
    return np.concatenate([[0], 1 / np.arange(count, 0, -1)], dtype=np.float32)


class _Seen(NamedTuple):
    """What the features are made of."""

    found: Matches
    by_words: _Arm
    by_vectors: _Arm
    usual: tuple[float, float]
    """The mean and standard deviation of all cosines."""


def _lines(seen: _Seen, gains: Matrix) -> Matrix:
    """Write a line for each of the candidates' features: what was read, less a level, in parts of a span.

    All at once: with a hundred candidates it is the number of calls that takes the time.
    """
    (found, by_words, by_vectors, (mean, deviation)), dense = seen, seen.by_vectors.scores
    lines = np.zeros((len(CANDIDATE_FEATURES), len(dense)), np.float32)
    lines[0:2], lines[2:6], lines[6] = by_words.scores, gains, by_words.ranks
    lines[7:10], lines[10], lines[11] = dense, by_vectors.ranks, dense
    level = (0, 0, 0, 0, 0, 0, 0, 0, max(by_vectors.best, -1.0), mean, 0, by_vectors.worst, 0)
    most, asked = max(found.telling * (SATURATION + 1), 1e-6), max(found.telling, 1e-6)
    reach = max(by_vectors.best - by_vectors.worst, 1e-6)
    span = (max(by_words.best, 1e-6), most, asked, asked, 1, asked, 1, 1, 1, 4 * deviation, 1, reach, 1)
    levels_and_spans = np.array((*level, *span), np.float32).reshape(2, -1, 1)
    lines -= levels_and_spans[0]
    lines /= levels_and_spans[1]
    return lines


def named(names: Sequence[str], values: Matrix) -> dict[str, float]:
    """Return the numbers by their names, for explanations."""
    return dict(zip(names, values.tolist(), strict=True))


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

    def __call__(self, request: Request, found: Found) -> Fused:
        rows, evidence = found.rows, self._reader(request, found)
        weights = self._weights.for_query(evidence)
        logits = evidence.candidates.dot(weights)
        return Fused(rank(logits, rows.astype(np.int32), self._ids, len(rows)), evidence, weights, logits)


class WeightedFusion:
    """Scores stretched to 0…1 among the candidates and mixed by fixed weights."""

    def __init__(self, weights: Mapping[str, float], ids: list[ToolId]) -> None:
        self._weights = weights
        self._ids = ids

    def __call__(self, _: Request, found: Found) -> Fused:
        rows, signals = found.rows, found.signals
        mixed = np.zeros(len(rows), np.float32)
        for name, weight in _present(self._weights, signals):
            mixed += np.float32(weight) * _stretched(signals[name])
        return Fused(rank(mixed, rows.astype(np.int32), self._ids, len(rows)))


class RankFusion:
    """Weighted reciprocal rank fusion."""

    def __init__(self, weights: Mapping[str, float], ids: list[ToolId]) -> None:
        self._weights = weights
        self._ids = ids

    def __call__(self, _: Request, found: Found) -> Fused:
        rows, signals = found.rows, found.signals
        total = np.zeros(len(rows), np.float32)
        for name, weight in _present(self._weights, signals):
            total += np.float32(weight) * self._reciprocal(signals[name], rows)
        return Fused(rank(total, rows.astype(np.int32), self._ids, len(rows)))

    def _reciprocal(self, scores: Scores, rows: Rows) -> Scores:
        ranking = rank(scores, np.arange(len(rows), dtype=np.int32), [self._ids[row] for row in rows], len(rows))
        given = np.zeros(len(rows), np.float32)
        given[ranking.rows] = 1 / (RRF_DAMPING + 1 + np.arange(len(rows), dtype=np.float32))
        given[scores <= 0] = 0
        return given


class SingleArm:
    """Ranks one signal as it is; what it does not match is left out."""

    def __init__(self, name: str, ids: list[ToolId]) -> None:
        self._name = name
        self._ids = ids

    def __call__(self, request: Request, found: Found) -> Fused:
        scores = found.signals[self._name]
        kept = scores > 0
        rows = found.rows[kept].astype(np.int32)
        return Fused(rank(scores[kept], rows, self._ids, max(DEPTH, request.query.limit)))


def _stretched(scores: Scores) -> Scores:
    if not len(scores):
        return scores
    low, high = float(scores.min()), float(scores.max())
    stretched: Scores = (scores - low) / max(high - low, 1e-9)
    return stretched


def _present(weights: Mapping[str, float], signals: Mapping[str, Scores]) -> list[tuple[str, float]]:
    """Return the weights of the signals there are: an ablation leaves some out."""
    return [(name, weight) for name, weight in weights.items() if name in signals]
