"""What is known of each candidate and of the query: the inputs of fusion and confidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index
from shortlist.index.lexical import NAME_BIT, SATURATION
from shortlist.search.request import Request, Signals
from shortlist.search.retrievers import LexicalRetriever, Option
from shortlist.text.documents import FIELDS
from shortlist.text.queries import QueryTerm
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
        words, cosines = signals.get("lexical"), signals.get("dense")
        nothing = np.zeros(len(rows), np.float32)
        lexical = nothing if words is None else words[rows]
        dense = nothing if cosines is None else self._cosines(cosines[rows], rows, lexical)
        matched, asked, unknown = self._matches(request, rows) if words is not None else _unread(len(rows))
        by_words, by_vectors = _ranked(np.array([lexical, dense]))
        candidates = np.array(
            [
                lexical / max(by_words.best, 1e-6),
                lexical / max(asked * (SATURATION + 1), 1e-6),
                matched[0] / max(asked, 1e-6),
                matched[1] / max(asked, 1e-6),
                matched[2] / np.maximum(self._index.lexical.name_sizes[rows], 1),
                matched[3] / max(asked, 1e-6),
                by_words.ranks,
                dense,
                dense - max(by_vectors.best, -1.0),
                nothing if cosines is None else _standard(dense, cosines, request.mask),
                by_vectors.ranks,
                (dense - by_vectors.worst) / max(by_vectors.best - by_vectors.worst, 1e-6),
                nothing if words is None else self._exact(request, rows),
            ],
            np.float32,
        ).T
        query = np.array(
            [
                1.0,
                float(candidates[:, 2].max(initial=0)),
                unknown,
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

    def _matches(self, request: Request, rows: NDArray[np.int64]) -> tuple[Matrix, float, float]:
        """Add up, for each candidate, the idf of what it mentions: anywhere, in its name, in its server's."""
        terms, found = request.analysed.terms, self._lexical.look_up(request)
        own = [asked.weight * self._index.lexical.idf(asked.term) for asked in terms]
        anywhere, in_name, in_server = _best(terms, found, rows, self._index.lexical.size)
        gains = np.array(own, np.float32)
        matched = np.array([gains @ anywhere, gains @ in_name, in_name.sum(axis=0), gains @ in_server])
        unknown = sum(asked.weight for asked, options in zip(terms, found, strict=True) if not options)
        return matched, sum(own), unknown / sum(asked.weight for asked in terms) if terms else 1.0

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


def _best(
    terms: Sequence[QueryTerm], found: list[tuple[Option, ...]], rows: NDArray[np.int64], size: int
) -> NDArray[np.float32]:
    """Give for each term and candidate what its best option is worth: anywhere, in the name, in the server's.

    All terms at once: with a hundred candidates it is the number of calls that takes the time.
    """
    best = np.zeros((3, len(terms) * len(rows)), np.float32)
    flat = [(at, terms[at].weight, option) for at, options in enumerate(found) for option in options]
    if flat:
        place = np.full(size, -1)
        place[rows] = np.arange(len(rows))
        column = place[np.concatenate([option.postings.rows for _, _, option in flat])]
        here = np.flatnonzero(column >= 0)
        which = np.repeat(np.arange(len(flat)), [len(option.postings.rows) for _, _, option in flat])[here]
        worth = np.array([option.weight / weight for _, weight, option in flat], np.float32)[which]
        cells = np.array([at * len(rows) for at, _, _ in flat])[which] + column[here]
        fields = np.concatenate([option.postings.fields for _, _, option in flat])[here]
        np.maximum.at(best[0], cells, worth)
        for layer, bit in enumerate((NAME_BIT, _SERVER_BIT), 1):
            there = np.flatnonzero(fields & bit)
            np.maximum.at(best[layer], cells[there], worth[there])
    return best.reshape(3, len(terms), len(rows))


def _unread(count: int) -> tuple[Matrix, float, float]:
    """Stand for a query whose words nobody looked at: an ablation, or a search by meaning alone."""
    return np.zeros((4, count), np.float32), 0.0, 0.0


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
    better = count - np.array([each.searchsorted(arm, side="right") for each, arm in zip(rising, arms, strict=True)])
    ranks = np.where(arms > 0, 1 / (1 + better), 0).astype(np.float32)
    firsts = ranks.argmax(axis=1).tolist()
    ends = rising[:, [0, max(count - 2, 0), count - 1]].tolist()
    return [
        _Arm(rank, first, worst, best, best - second)
        for rank, first, (worst, second, best) in zip(ranks, firsts, ends, strict=True)
    ]


def _standard(dense: Matrix, cosines: Matrix | None, mask: NDArray[np.bool_] | None) -> Matrix:
    if cosines is None or not len(dense):
        return np.zeros(len(dense), np.float32)
    every = cosines if mask is None else cosines[mask]
    wide = every.astype(np.float64)  # sums that do not depend on the order of the rows
    mean = float(wide.sum()) / len(wide)
    variance = float(wide @ wide) / len(wide) - mean * mean  # numpy's own takes five times as long
    standard: Matrix = (dense - mean) / (4 * math.sqrt(max(variance, 1e-6)))
    return standard


def named(names: Sequence[str], values: Matrix) -> dict[str, float]:
    """Put the names to the numbers, for explanations."""
    return dict(zip(names, values.tolist(), strict=True))
