"""What search asks of an index: candidates with the statistics that fusion needs, and scores of given rows.

The exact indexes of this package (`index.lexical`, `index.vectors`) are the default. Another one, approximate or on
another machine, has to return the same scores for the rows it finds.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.models import Filters, Scores
from shortlist.text.queries import QueryTerm

Rows: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


class Among(NamedTuple):
    """What may answer, in two forms: as filters an index can push down, and as a bitmap of rows."""

    filters: Filters = Filters()
    size: int = 0
    """How many rows there are."""
    rows: Mask | None = None
    """None where every row may answer."""


class Candidates(NamedTuple):
    """The best rows of one index for a query, and what is known about all the others."""

    rows: Rows
    scores: Scores
    matched: int = 0
    """How many rows match at all."""
    mean: float = 0.0
    deviation: float = 1.0
    """Mean and standard deviation of the scores of every row that may answer."""
    every: Scores | None = None
    """The score of each row, if the index already has it, so that `score` need not be called."""


class LexicalIndex(Protocol):
    """Scores rows by the words of a query."""

    def match(self, terms: Sequence[QueryTerm], stand_ins: Any) -> Any:
        """Look up the terms of a query once; the result is what `retrieve` and `score` take."""
        ...

    def retrieve(self, query: Any, limit: int, among: Among) -> Candidates: ...

    def score(self, query: Any, rows: Rows) -> Scores: ...


class VectorIndex(Protocol):
    """Scores rows by the vectors of a query: that of the whole, and one for each part of it."""

    @property
    def model_id(self) -> str: ...

    def retrieve(self, query: NDArray[np.float32], limit: int, among: Among) -> Candidates: ...

    def score(self, query: NDArray[np.float32], rows: Rows) -> Scores: ...


NOTHING = Candidates(np.empty(0, np.int64), np.empty(0, np.float32))
