"""What each retriever made of the hits, worked out for those who ask: most callers want the tools alone."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from shortlist.models import Scores, Signal


class Placed(NamedTuple):
    """One retriever's scores of the hits, and of the candidates that they came from."""

    scores: Scores
    among: Scores

    def signal(self, hit: int) -> Signal:
        """Place a hit among the candidates: these are the best of every arm, so a rank that matters is exact."""
        score = self.scores[hit]
        return Signal(float(score), int(np.count_nonzero(self.among > score)) + 1 if score > 0 else None)


class HitSignals(Mapping[str, Signal]):
    """The signals of one hit by the retrievers' names."""

    __slots__ = ("_hit", "_placed")

    def __init__(self, placed: Mapping[str, Placed], hit: int) -> None:
        self._placed = placed
        self._hit = hit

    def __getitem__(self, name: str) -> Signal:
        return self._placed[name].signal(self._hit)

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)

    def __repr__(self) -> str:
        return repr(dict(self))
