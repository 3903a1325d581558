"""The common shape of the peers we rebuilt: score every tool, return the best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.baselines.lexical import Scores, best


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores every tool and returns the best above the floor."""

    name: str
    ids: Sequence[str]
    score: Callable[[str], Scores]
    floor: float = 0.0

    def rank(self, query: str, limit: int) -> list[str]:
        return best(self.ids, self.score(query), limit, self.floor)
