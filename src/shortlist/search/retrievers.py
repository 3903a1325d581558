"""The two default retrievers: words (BM25F) and vectors (cosine)."""

import numpy as np

from shortlist.index.index import Index
from shortlist.index.lexical import Matches
from shortlist.index.ports import NOTHING, Candidates, Rows
from shortlist.models import Scores
from shortlist.search.pipeline import Request
from shortlist.text.queries import QueryTerm

NO_VECTORS = NOTHING._replace(deviation=1e-3)


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
