"""Ranks tools by one vector of a whole chat, which is one of the readings that a chat is ranked by."""

import numpy as np

from shortlist.index.embedders import Vectors
from shortlist.index.index import Index
from shortlist.index.ports import Among
from shortlist.models import Hit, Query, SearchResult
from shortlist.search.families import Deprecated
from shortlist.search.fusion import NO_MATCH
from shortlist.search.pipeline import rank

SHARPNESS = np.float32(20)
"""What the cosines of a whole chat are multiplied by to be logarithms of shares, as in the training of the encoder."""


def nearest(query: Query, vector: Vectors, index: Index, among: Among) -> SearchResult:
    """Return the tools nearest to a vector; none while tools wait for theirs: they would seem to be far from all."""
    hits: tuple[Hit, ...] = ()
    if index.dense is not None and not index.waiting and index.dense.dimensions == len(vector):
        near = index.dense.retrieve(vector[None], query.limit, among)
        ranking = rank(near.scores * SHARPNESS, near.rows, index.ids, query.limit)
        ranking = Deprecated(index).behind_successors(ranking)
        hits = tuple(Hit(index.tool(row), score, place) for place, (row, score) in enumerate(ranking, 1))
    return SearchResult(query=query, hits=hits, confidence=NO_MATCH)
