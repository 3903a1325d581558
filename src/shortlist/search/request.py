"""A query made ready for the retrievers: read once, embedded once, filtered once."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.embedders import Vectors
from shortlist.models import Query, Ranking, Scores, ToolId
from shortlist.text.queries import AnalysedQuery

LARGE = 5_000
"""Of fewer scores the first are found sooner without a floor."""
BLOCKS = 4
"""How many blocks there are for each score that is sought: more give a closer floor, fewer are read faster."""


class Request(NamedTuple):
    """What every retriever and stage is given."""

    query: Query
    analysed: AnalysedQuery
    mask: NDArray[np.bool_] | None = None
    """The rows that may answer; None where all may."""
    vectors: Vectors | None = None
    """The query's vector and, where it asks for several things, one for each of them."""


Retriever: TypeAlias = Callable[[Request], Scores]
Signals: TypeAlias = Mapping[str, Scores]
"""Each retriever's score for every row."""


def rank(scores: Scores, rows: NDArray[np.int32], ids: list[ToolId], limit: int) -> Ranking:
    """Order rows by score; ties break on the id, also where the limit cuts through them."""
    if limit < len(rows):
        threshold = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        kept = scores >= threshold
        scores, rows = scores[kept], rows[kept]
    order = (-scores).argsort(kind="stable")
    scores, rows = scores[order], rows[order]
    for tied in _ties(scores):
        rows[tied] = sorted(rows[tied].tolist(), key=ids.__getitem__)
    return Ranking(rows[:limit], scores[:limit]) if limit < len(rows) else Ranking(rows, scores)


def _ties(falling: Scores) -> list[slice]:
    """Find the runs of equal scores among ordered ones."""
    equal = falling[1:] == falling[:-1]
    if not np.count_nonzero(equal):
        return []
    edges = np.flatnonzero(np.diff(equal, prepend=False, append=False))
    return [slice(start, end + 1) for start, end in edges.reshape(-1, 2).tolist()]


def _score_at(scores: Scores, depth: int) -> float:
    """Give the score of the last of the first `depth`; zero where fewer match.

    Of many scores the best of each block comes first: as many as are sought reach the floor that these set, so what is
    below it need not be looked at again.
    """
    if len(scores) > LARGE:
        blocks = BLOCKS * depth
        bests = scores[: len(scores) // blocks * blocks].reshape(blocks, -1).max(axis=1)
        floor = np.partition(bests, -depth)[-depth]
        scores = scores[scores >= floor] if floor > 0 else scores[scores > 0]
    if len(scores) < depth:
        return 0.0
    scores = scores.copy()
    scores.partition(-depth)
    return scores.item(-depth)


def candidates(signals: Signals, mask: NDArray[np.bool_] | None, depth: int) -> NDArray[np.int64]:
    """Give the rows in the first `depth` of any signal and what ties with the last of them.

    All that may answer where they are few, and never fewer than `depth` of them: what no signal knows fills up.
    """
    size = len(next(iter(signals.values())))
    allowed = size if mask is None else int(np.count_nonzero(mask))
    if allowed <= 2 * depth:
        return np.arange(size) if mask is None else np.flatnonzero(mask)
    chosen = np.zeros(size, np.bool_)
    for scores in signals.values():
        last = _score_at(scores, depth)
        chosen |= scores >= last if last > 0 else scores > 0
    if mask is not None:
        chosen &= mask
    rows = np.flatnonzero(chosen)
    if len(rows) >= depth:
        return rows
    left = np.flatnonzero(~chosen if mask is None else mask & ~chosen)
    return np.sort(np.concatenate([rows, left[: depth - len(rows)]]))
