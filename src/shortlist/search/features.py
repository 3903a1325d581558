"""What is known of each candidate and of the query: the inputs of fusion and confidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index
from shortlist.index.lexical import NAME_BIT, SATURATION
from shortlist.models import Scores
from shortlist.search.request import Request, Signals
from shortlist.search.retrievers import LexicalRetriever
from shortlist.text.documents import FIELDS
from shortlist.text.tokens import compact

Matrix: TypeAlias = NDArray[np.float32]

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
_SERVER_BIT = np.uint16(1 << FIELDS.index("server"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """The candidates of one query with all that is known of them."""

    rows: NDArray[np.int64]
    candidates: Matrix
    query: Matrix


class FeatureReader:
    """Reads the evidence off the index for the candidates of a request."""

    def __init__(self, index: Index, lexical: LexicalRetriever) -> None:
        self._index = index
        self._lexical = lexical

    def __call__(self, request: Request, signals: Signals, rows: NDArray[np.int64]) -> Evidence:
        words = signals.get("lexical")
        lexical = np.zeros(len(rows), np.float32) if words is None else words[rows]
        cosines = signals.get("dense")
        dense = np.zeros(len(rows), np.float32) if cosines is None else self._cosines(cosines[rows], rows, lexical)
        matched, asked, unknown = self._matches(request, rows) if words is not None else _unread(len(rows))
        lexical_rank, dense_rank = _reciprocal_ranks(lexical), _reciprocal_ranks(dense)
        exact = self._exact(request, rows) if words is not None else np.zeros(len(rows), np.float32)
        candidates = np.stack(
            [
                lexical / max(float(lexical.max(initial=0)), 1e-6),
                lexical / max(asked * (SATURATION + 1), 1e-6),
                matched[0] / max(asked, 1e-6),
                matched[1] / max(asked, 1e-6),
                matched[2] / np.maximum(self._index.lexical.name_sizes[rows], 1),
                matched[3] / max(asked, 1e-6),
                lexical_rank,
                dense,
                dense - dense.max(initial=-1),
                _standard(dense, cosines, request.mask),
                dense_rank,
                _place(dense),
                exact,
            ],
            axis=1,
        )
        query = np.array(
            [
                1.0,
                float(candidates[:, 2].max(initial=0)),
                unknown,
                _margin(lexical, relative=True),
                float(dense.max(initial=0)),
                _margin(dense, relative=False),
                _agreement(lexical_rank, dense_rank),
                _overlap(lexical_rank, dense_rank),
                np.log1p(request.analysed.words) / 4,
                float(bool(request.analysed.identifiers)),
                np.log10(max(len(self._index), 1)) / 4,
            ],
            np.float32,
        )
        return Evidence(rows, candidates, query)

    def _cosines(self, cosines: Matrix, rows: NDArray[np.int64], lexical: Matrix) -> Matrix:
        """Let words stand for a vector that is still to come: the best match by words counts as the nearest."""
        waiting = self._index.dense.waiting(rows) if self._index.dense else None
        if waiting is None or waiting.all():
            return cosines
        low, high = cosines[~waiting].min(), cosines[~waiting].max()
        guessed = low + (high - low) * lexical / max(float(lexical.max()), 1e-6)
        filled: Matrix = np.where(waiting, guessed, cosines).astype(np.float32)
        return filled

    def _matches(self, request: Request, rows: NDArray[np.int64]) -> tuple[Matrix, float, float]:
        """Add up, for each candidate, the idf of what it mentions: anywhere, in its name, in its server's."""
        lexical = self._index.lexical
        place = np.full(lexical.size, -1, np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        matched = np.zeros((4, len(rows)), np.float32)
        asked = unknown = total = 0.0
        for term in request.analysed.terms:
            weighted = self._lexical.stand_ins(term)
            own = term.weight * lexical.idf(term.term)
            asked += own
            total += term.weight
            if not weighted:
                unknown += term.weight
                continue
            best = np.zeros((3, len(rows)), np.float32)
            for word, weight in weighted:
                postings = lexical.postings(word)
                at = place[postings.rows]
                kept = at >= 0
                at, fields = at[kept], postings.fields[kept]
                value = np.float32(weight / term.weight)
                best[0, at] = np.maximum(best[0, at], value)
                best[1, at] = np.maximum(best[1, at], value * ((fields & NAME_BIT) > 0))
                best[2, at] = np.maximum(best[2, at], value * ((fields & _SERVER_BIT) > 0))
            matched[0] += own * best[0]
            matched[1] += own * best[1]
            matched[2] += best[1]
            matched[3] += own * best[2]
        return matched, asked, unknown / total if total else 1.0

    def _exact(self, request: Request, rows: NDArray[np.int64]) -> Matrix:
        named = {row for name in request.analysed.identifiers for row in self._index.names.get(name, ())}
        named |= self._started(request.query.text.strip())
        if not named:
            return np.zeros(len(rows), np.float32)
        return np.isin(rows, list(named)).astype(np.float32)

    def _started(self, text: str) -> set[int]:
        """Find the names that begin so, for a name that was typed half: `analyze_`."""
        if not text.endswith(("_", "-", ".")) or " " in text or not (typed := compact(text)):
            return set()
        return {row for name, rows in self._index.names.items() if name.startswith(typed) for row in rows}


def _unread(count: int) -> tuple[Matrix, float, float]:
    """Stand for a query whose words nobody looked at: an ablation, or a search by meaning alone."""
    return np.zeros((4, count), np.float32), 0.0, 0.0


def _reciprocal_ranks(scores: Scores) -> Matrix:
    """Give 1 to the best, 1/2 to the next …; equal scores share a rank, and no match has none."""
    better = len(scores) - np.searchsorted(np.sort(scores), scores, side="right")
    return np.where(scores > 0, 1 / (1 + better), 0).astype(np.float32)


def _standard(dense: Matrix, cosines: Matrix | None, mask: NDArray[np.bool_] | None) -> Matrix:
    if cosines is None or not len(dense):
        return np.zeros(len(dense), np.float32)
    every = cosines if mask is None else cosines[mask]
    standard: Matrix = (dense - every.mean()) / max(float(every.std()), 1e-3) / 4
    return standard


def _place(scores: Matrix) -> Matrix:
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    place: Matrix = (scores - low) / max(float(high - low), 1e-6)
    return place


def _margin(scores: Matrix, *, relative: bool) -> float:
    if len(scores) < 2:
        return 1.0 if relative else 0.5
    second, first = np.partition(scores, len(scores) - 2)[-2:]
    return float((first - second) / max(first, 1e-6)) if relative else float(first - second)


def _agreement(one: Matrix, other: Matrix) -> float:
    return float(len(one) > 0 and one.max() > 0 and one.argmax() == other.argmax())


def _overlap(one: Matrix, other: Matrix) -> float:
    return float(((one >= 0.1) & (other >= 0.1)).sum()) / 10


def named(names: Sequence[str], values: Matrix) -> dict[str, float]:
    """Put the names to the numbers, for explanations."""
    return dict(zip(names, values.tolist(), strict=True))
