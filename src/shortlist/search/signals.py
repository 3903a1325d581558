"""What each retriever made of the hits, worked out for those who ask: most callers want the tools alone."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.models import Scores, Signal


class Placed(NamedTuple):
    """The candidates that the hits came from, and what each retriever made of them."""

    rows: NDArray[np.int64]
    scores: Mapping[str, Scores]

    def signal(self, name: str, row: int) -> Signal:
        """Place a row among the candidates: these are the best of every arm, so a rank that matters is exact."""
        scores = self.scores[name]
        score = float(scores[self.rows == row][0])
        return Signal(score, int(np.count_nonzero(scores > score)) + 1 if score > 0 else None)


class HitSignals(Mapping[str, Signal]):
    """The signals of one hit by the retrievers' names."""

    __slots__ = ("_placed", "_row")

    def __init__(self, placed: Placed, row: int) -> None:
        self._placed = placed
        self._row = row

    def __getitem__(self, name: str) -> Signal:
        return self._placed.signal(name, self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed.scores)

    def __len__(self) -> int:
        return len(self._placed.scores)

    def __repr__(self) -> str:
        return repr(dict(self))
