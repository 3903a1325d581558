"""The two default retrievers: words (BM25F) and vectors (cosine)."""

from functools import lru_cache

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex, Matches
from shortlist.index.ports import NOTHING, Candidates, Rows
from shortlist.models import Scores
from shortlist.search.pipeline import Request
from shortlist.text.queries import QueryTerm

TYPO_WEIGHT = 0.7
"""A corrected word is less certain than one that stands in the catalog as it was typed."""
MIN_TYPO_LENGTH = 4
MAX_CORRECTIONS = 3
NO_VECTORS = NOTHING._replace(deviation=1e-3)


class Speller:
    """Finds the catalog's nearest words for one it does not have; first letters are rarely mistyped."""

    def __init__(self, index: ExactLexicalIndex) -> None:
        self._index = index
        self.corrections = lru_cache(maxsize=2_000)(self._corrections)

    def __call__(self, term: str) -> tuple[str, ...]:
        """Return the most common among the nearest words of the catalog."""
        return self.corrections(term)

    def _corrections(self, term: str) -> tuple[str, ...]:
        if len(term) < MIN_TYPO_LENGTH or not term.isalpha():
            return ()
        reach = 1 if len(term) < 6 else 2
        near = [
            (distance, -self._index.frequency(word), word)
            for length in range(len(term) - reach, len(term) + reach + 1)
            for word, distance, _ in process.extract(
                term,
                self._index.vocabulary.alike(term[0], length),
                scorer=DamerauLevenshtein.distance,
                score_cutoff=reach,
                limit=None,
            )
            if self._index.frequency(word)
        ]
        closest = min(near, default=(0,))[0]
        return tuple(word for distance, _, word in sorted(near)[:MAX_CORRECTIONS] if distance == closest)


class LexicalRetriever:
    """BM25F over the fields; a word that has stand-ins counts once, by the best of them."""

    def __init__(self, index: Index) -> None:
        self._lexical = index.lexical
        self.speller = Speller(index.lexical)

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
        """Return the terms to look for, with their weights: the word, its synonyms, or its likely spellings."""
        frequency = self._lexical.frequency
        known = tuple((t, w) for t, w in asked.instead if frequency(t)) if asked.instead else ()
        if frequency(asked.term):
            return ((asked.term, asked.weight), *known)
        return known or tuple((t, asked.weight * TYPO_WEIGHT) for t in self.speller(asked.term))


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
