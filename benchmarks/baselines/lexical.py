"""Term weights in an inverted index, as small as numpy allows: what the rebuilt lexical peers stand on."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class TermIndex:
    """For each term the rows that contain it and what it adds to their score."""

    postings: Mapping[str, tuple[Rows, Scores]]
    size: int

    @classmethod
    def counted(cls, documents: Sequence[Sequence[str]]) -> Self:
        """With the plain frequency of each term as its weight."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row, document in enumerate(documents):
            for term, count in Counter(document).items():
                found[term].append((row, count))
        columns = {term: np.array(pairs, dtype=np.float64).T for term, pairs in found.items()}
        return cls({term: (rows.astype(np.intp), counts) for term, (rows, counts) in columns.items()}, len(documents))

    def weighted(self, weight: Callable[[Rows, Scores], Scores]) -> Self:
        """Replace the frequencies by what `weight` makes of each term's rows and frequencies."""
        postings = {term: (rows, weight(rows, counts)) for term, (rows, counts) in self.postings.items()}
        return replace(self, postings=postings)

    def scores(self, terms: Iterable[str]) -> Scores:
        """Sum over the terms; a repeated one counts again."""
        total = np.zeros(self.size)
        for term in terms:
            if term in self.postings:
                rows, weights = self.postings[term]
                total[rows] += weights
        return total

    def matched(self, terms: Iterable[str]) -> Scores:
        """How many of these terms each row contains."""
        total = np.zeros(self.size)
        for term in terms:
            if term in self.postings:
                total[self.postings[term][0]] += 1
        return total

    def frequency(self, term: str) -> int:
        """How many rows contain the term."""
        return len(self.postings[term][0]) if term in self.postings else 0


def okapi(documents: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75) -> TermIndex:
    """BM25 with the idf that is never negative, ln(1 + (N - n + 0.5) / (n + 0.5))."""
    lengths = np.array([len(document) for document in documents], dtype=np.float64)
    relative = lengths / max(float(lengths.sum()) / max(len(lengths), 1), 1.0)

    def weight(rows: Rows, counts: Scores) -> Scores:
        idf = math.log(1 + (len(documents) - len(rows) + 0.5) / (len(rows) + 0.5))
        return idf * counts * (k1 + 1) / (counts + k1 * (1 - b + b * relative[rows]))

    return TermIndex.counted(documents).weighted(weight)


@dataclass(frozen=True, slots=True)
class CosineIndex:
    """TF-IDF vectors of unit length: scores are cosines."""

    index: TermIndex
    idf: Mapping[str, float]

    def scores(self, terms: Sequence[str]) -> Scores:
        weights = {term: count * self.idf[term] for term, count in Counter(terms).items() if term in self.idf}
        norm = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        total = np.zeros(self.index.size)
        for term, weight in weights.items():
            rows, values = self.index.postings[term]
            total[rows] += values * (weight / norm)
        return total


def tfidf(documents: Sequence[Sequence[str]]) -> CosineIndex:
    """Frequency times the smoothed idf ln((N + 1) / (n + 1)) + 1."""
    index = TermIndex.counted(documents)
    idf = {term: math.log((index.size + 1) / (len(rows) + 1)) + 1 for term, (rows, _) in index.postings.items()}
    squares = np.zeros(index.size)
    for term, (rows, counts) in index.postings.items():
        squares[rows] += (counts * idf[term]) ** 2
    norms = np.sqrt(squares)
    postings = {term: (rows, counts * idf[term] / norms[rows]) for term, (rows, counts) in index.postings.items()}
    return CosineIndex(TermIndex(postings, index.size), idf)


def best(ids: Sequence[str], scores: Scores, limit: int, floor: float = 0.0) -> list[str]:
    """Ids above the floor by falling score; equal scores keep the catalog's order."""
    rows = np.flatnonzero(scores > floor)
    return [ids[row] for row in rows[np.argsort(-scores[rows], kind="stable")][: max(limit, 0)]]
