"""Retrievers of the other modes (by name, by pattern) and those that published hybrids are compared with.

Each is a function from a request to a score for every row; `Exhaustive` makes a retriever of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import re2
from numpy.typing import NDArray
from rapidfuzz import fuzz

from shortlist.errors import InvalidQuery
from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex
from shortlist.index.ports import Candidates, Rows
from shortlist.index.postings import SATURATION
from shortlist.index.vectors import best, masked
from shortlist.models import Scores, ToolId
from shortlist.search.pipeline import DEPTH, Found, Fused, Request, rank
from shortlist.text.tokens import compact, fold, words

FUZZY_CUTOFF = 60.0
MAX_PATTERN_CHARS = 1_000

ScoreAll: TypeAlias = Callable[[Request], Scores]
RRF_DAMPING = 60
"""The constant of the reciprocal rank fusion paper."""


class Exhaustive:
    """Scores every row once per request, and returns the best or any of them."""

    def __init__(self, score_all: ScoreAll) -> None:
        self._score_all = score_all

    def retrieve(self, request: Request, limit: int) -> Candidates:
        scores = self._scores(request)
        rows = best(scores, limit)
        return Candidates(rows, scores[rows], int(np.count_nonzero(scores)))

    def score(self, request: Request, rows: Rows) -> Scores:
        return self._scores(request)[rows]

    def _scores(self, request: Request) -> Scores:
        if self not in request.kept:
            request.kept[self] = masked(self._score_all(request), request.among.rows)
        found: Scores = request.kept[self]
        return found


class TfIdfScores:
    """TF-IDF cosine over all words alike, for comparison."""

    def __init__(self, plain: ExactLexicalIndex) -> None:
        self._plain = plain
        self._norms = self._row_norms()

    def __call__(self, request: Request) -> Scores:
        scores = np.zeros(self._plain.size, np.float32)
        for asked in request.analysed.terms:
            postings = self._plain.postings(asked.term)
            idf = self._plain.idf(asked.term)
            scores[postings.rows] += np.float32(idf * idf) * _log_frequency(postings.weights)
        return scores / self._norms

    def _row_norms(self) -> NDArray[np.float32]:
        squares = np.zeros(self._plain.size, np.float32)
        for term in self._plain.vocabulary:
            postings = self._plain.postings(term)
            squares[postings.rows] += (np.float32(self._plain.idf(term)) * _log_frequency(postings.weights)) ** 2
        return np.sqrt(np.maximum(squares, 1e-9))


class PlainScores:
    """BM25 over all words alike: the arm that published hybrids mix with TF-IDF."""

    def __init__(self, plain: ExactLexicalIndex) -> None:
        self._plain = plain

    def __call__(self, request: Request) -> Scores:
        scores = np.zeros(self._plain.size, np.float32)
        for asked in request.analysed.terms:
            postings = self._plain.postings(asked.term)
            scores[postings.rows] += np.float32(self._plain.idf(asked.term)) * postings.weights
        return scores


class NameScores:
    """Matches on the name of the tool alone."""

    def __init__(self, index: Index, match: Callable[[str], Callable[[str], float]]) -> None:
        self._index = index
        self._match = match

    def __call__(self, request: Request) -> Scores:
        scores = np.zeros(self._index.size, np.float32)
        score = self._match(request.query.text)
        for row in self._index.rows.values():
            scores[row] = score(self._index.tool(row).name)
        return scores


def exact_match(text: str) -> Callable[[str], float]:
    """Accept a name in any spelling of its case and separators."""
    wanted = compact(text)
    return lambda name: float(bool(wanted) and compact(name) == wanted)


def prefix_match(text: str) -> Callable[[str], float]:
    """Prefer the shortest of the names that start so."""
    wanted = compact(text)
    return lambda name: len(wanted) / len(compact(name)) if wanted and compact(name).startswith(wanted) else 0.0


def fuzzy_match(text: str) -> Callable[[str], float]:
    """Tolerate typing errors and word order."""
    wanted = " ".join(fold(text).split())[:200]

    def score(name: str) -> float:
        return (
            max(
                fuzz.token_sort_ratio(wanted, words(name), score_cutoff=FUZZY_CUTOFF),
                fuzz.ratio(compact(wanted), compact(name), score_cutoff=FUZZY_CUTOFF),
            )
            / 100
        )

    return score


class RegexScores:
    """A pattern over names and descriptions, in linear time."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request) -> Scores:
        pattern = _compiled(request.query.text)
        scores = np.zeros(self._index.size, np.float32)
        for row in self._index.rows.values():
            tool = self._index.tool(row)
            found = pattern.search(tool.name) or pattern.search(tool.id)
            scores[row] = 1.0 if found else 0.5 * bool(pattern.search(tool.description))
        return scores


def _compiled(pattern: str) -> "re2._Regexp":
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidQuery(f"A pattern may have {MAX_PATTERN_CHARS} characters; this one has {len(pattern)}.")
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, 8 << 20
    try:
        return re2.compile(pattern, options)
    except (re2.error, ValueError) as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise InvalidQuery(f"{pattern!r} is not a pattern (RE2 syntax, no look-around): {reason}") from None


def _log_frequency(saturated: NDArray[np.float32]) -> NDArray[np.float32]:
    frequency = SATURATION * saturated / (SATURATION + 1 - saturated)
    return 1 + np.log(np.maximum(frequency, math.exp(-1) + 1e-6))


class WeightedFusion:
    """Scores normalised to 0…1 over the candidates and combined with fixed weights."""

    def __init__(self, weights: Mapping[str, float], ids: Sequence[ToolId]) -> None:
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

    def __init__(self, weights: Mapping[str, float], ids: Sequence[ToolId]) -> None:
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
    """Ranks by one signal; rows without a match are dropped."""

    def __init__(self, name: str, ids: Sequence[ToolId]) -> None:
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
