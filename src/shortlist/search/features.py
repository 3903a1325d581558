"""What is known of each candidate and of the query: the inputs of fusion and confidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index
from shortlist.index.lexical import SATURATION
from shortlist.search.matches import GAINS, UNREAD, Matches
from shortlist.search.request import Request, Signals
from shortlist.search.retrievers import LexicalRetriever
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


_EACH_GAIN = np.arange(len(GAINS))


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
        words, cosines = signals.get("lexical"), signals.get("dense")
        nothing = np.zeros(len(rows), np.float32)
        lexical = nothing if words is None else words[rows]
        dense = nothing if cosines is None else self._cosines(cosines[rows], rows, lexical)
        found = UNREAD if words is None else self._lexical.look_up(request)
        gained = _gained(found, rows, self._index.lexical.size)
        shares = gained / max(found.telling, 1e-6)
        by_words, by_vectors = _ranked(np.concatenate([lexical, dense]).reshape(2, -1))
        candidates = (
            np.concatenate(
                [
                    lexical / max(by_words.best, 1e-6),
                    lexical / max(found.telling * (SATURATION + 1), 1e-6),
                    shares[0],
                    shares[1],
                    gained[2] / self._index.lexical.name_sizes[rows],
                    shares[3],
                    by_words.ranks,
                    dense,
                    dense - max(by_vectors.best, -1.0),
                    nothing if cosines is None else _standard(dense, cosines, request.mask),
                    by_vectors.ranks,
                    (dense - by_vectors.worst) / max(by_vectors.best - by_vectors.worst, 1e-6),
                    nothing if words is None else self._exact(request, rows),
                ],
                dtype=np.float32,
            )
            .reshape(len(CANDIDATE_FEATURES), len(rows))
            .T
        )
        query = np.array(
            [
                1.0,
                float(shares[0].max(initial=0)),
                found.unknown,
                by_words.margin / max(by_words.best, 1e-6) if len(rows) > 1 else 1.0,
                max(by_vectors.best, 0.0),
                by_vectors.margin if len(rows) > 1 else 0.5,
                float(by_words.best > 0 and by_words.first == by_vectors.first),
                np.count_nonzero((by_words.ranks >= 0.1) & (by_vectors.ranks >= 0.1)) / 10,
                math.log1p(request.analysed.words) / 4,
                float(bool(request.analysed.identifiers)),
                math.log10(max(len(self._index), 1)) / 4,
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

    def _exact(self, request: Request, rows: NDArray[np.int64]) -> Matrix:
        spelled = spelled_rows(self._index, request)
        if not spelled:
            return np.zeros(len(rows), np.float32)
        return np.isin(rows, list(spelled)).astype(np.float32)


def spelled_rows(index: Index, request: Request) -> dict[int, float]:
    """Find the tools whose name the query spells: whole, or, as in `analyze_`, typed up to the share that is given."""
    found = {row: 1.0 for name in request.analysed.identifiers for row in index.names.get(name, ())}
    text = request.query.text.strip()
    if text.endswith(("_", "-", ".")) and " " not in text and (typed := compact(text)):
        begun = {name: rows for name, rows in index.names.items() if name.startswith(typed)}
        found |= {row: len(typed) / len(name) for name, rows in begun.items() for row in rows}
    return found


def _gained(found: Matches, rows: NDArray[np.int64], size: int) -> Matrix:
    """Add up for each candidate what the matches give, a line for each of `GAINS`.

    All at once: with a hundred candidates it is the number of calls that takes the time.
    """
    lines = np.full(size, -1)
    lines[rows] = np.arange(0, len(GAINS) * len(rows), len(GAINS))
    at = lines[found.rows]
    (here,) = (at >= 0).nonzero()
    cells = at[here, None] + _EACH_GAIN
    summed = np.bincount(cells.ravel(), found.gains[here].ravel(), len(GAINS) * len(rows))
    return summed.astype(np.float32).reshape(len(rows), len(GAINS)).T


class _Arm(NamedTuple):
    """The candidates as one arm sees them, and how clear its first is."""

    ranks: Matrix
    """1 for the best, 1/2 for the next …; equal scores share a rank, and no match has none."""
    first: int
    worst: float
    best: float
    margin: float


def _ranked(arms: Matrix) -> list[_Arm]:
    """Rank the candidates by each arm, both at once: with a hundred of them it is the calls that take the time."""
    count = arms.shape[1]
    if not count:
        return [_Arm(arm, 0, 0.0, 0.0, 0.0) for arm in arms]
    rising = np.sort(arms, axis=1)
    as_good = np.array([each.searchsorted(arm, side="right") for each, arm in zip(rising, arms, strict=True)])
    ranks = (arms > 0) / (count + 1 - as_good)
    firsts = ranks.argmax(axis=1).tolist()
    worst, second, best = (rising[:, end].tolist() for end in (0, max(count - 2, 0), count - 1))
    return [_Arm(ranks[at], firsts[at], worst[at], best[at], best[at] - second[at]) for at in range(len(arms))]


def _standard(dense: Matrix, cosines: Matrix | None, mask: NDArray[np.bool_] | None) -> Matrix:
    if cosines is None or not len(dense):
        return np.zeros(len(dense), np.float32)
    every = cosines if mask is None else cosines[mask]
    wide = every.astype(np.float64)  # sums that do not depend on the order of the rows
    mean = float(np.add.reduce(wide)) / len(wide)
    variance = float(wide @ wide) / len(wide) - mean * mean  # numpy's own takes five times as long
    standard: Matrix = (dense - mean) / (4 * math.sqrt(max(variance, 1e-6)))
    return standard


def named(names: Sequence[str], values: Matrix) -> dict[str, float]:
    """Put the names to the numbers, for explanations."""
    return dict(zip(names, values.tolist(), strict=True))
