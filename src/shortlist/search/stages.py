"""What happens to a ranking after fusion. Fused scores are log-odds-like, so a boost is added, not multiplied."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index
from shortlist.models import Ranking, Scores, ToolId
from shortlist.search.features import spelled_rows
from shortlist.search.request import Request, rank
from shortlist.text.tokens import compact, split_identifier

SPELLED_BOOST = 4.0
"""Who types a name means it; more than any other evidence adds up to, save a whole sentence about something else."""
COMPLETION_BOOST = 30.0
"""For a name typed to its last letter, in proportion for the others: a beginning says nothing else about them."""
RECENT_SERVER_BOOST = 0.4
"""The server just used is likelier to be used again; small enough that a clear match elsewhere wins."""
TOGETHER_BOOST = 0.6
"""For a tool always called after one just called; in proportion for one sometimes called."""
SAME_TOOL_OVERLAP = 0.6
"""Equal names and this share of equal terms: one tool offered by several servers."""
REMEMBERED_NAMES = 10_000
"""Many servers offer tools of the same few names, and the same tools are found again and again."""
DIVERSITY = 0.35
"""How much likeness to a tool already chosen takes away, where several different tools are wanted."""

Together = Callable[[ToolId], Mapping[ToolId, float]]
"""How often other tools were called after this one, as shares."""


class SpelledNames:
    """Puts what the query spells before what it resembles; of names that were begun, the nearest to their end."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        spelled = spelled_rows(self._index, request)
        if not spelled:
            return ranking
        typed = np.array([spelled.get(row, 0.0) for row in ranking.rows.tolist()], np.float32)
        boost = SPELLED_BOOST * (typed > 0) + COMPLETION_BOOST * typed * (typed < 1)
        return _reordered(ranking, ranking.scores + boost, self._index)


class ServerContext:
    """Lifts the tools of servers that this caller used last."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        recent = request.query.recent_servers
        if not recent or not len(ranking):
            return ranking
        strength = {server: RECENT_SERVER_BOOST / (1 + age) for age, server in reversed(list(enumerate(recent)))}
        servers = self._index.facets.servers
        boost = np.array([strength.get(servers[row], 0.0) for row in ranking.rows.tolist()], np.float32)
        return _reordered(ranking, ranking.scores + boost, self._index)


class CoUse:
    """Lifts what is usually called after the tools that this caller called last."""

    def __init__(self, index: Index, together: Together) -> None:
        self._index = index
        self._together = together

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        shares: dict[ToolId, float] = {}
        for called in request.query.recent_tools:
            for other, share in self._together(called).items():
                shares[other] = max(shares.get(other, 0.0), share)
        if not shares:
            return ranking
        boost = [TOGETHER_BOOST * shares.get(self._index.ids[row], 0.0) for row in ranking.rows.tolist()]
        return _reordered(ranking, ranking.scores + np.array(boost, np.float32), self._index)


class Diversity:
    """Picks greedily, each time less of what is there already, for queries that need several different tools."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        dense = self._index.dense
        if not request.query.diverse or dense is None or len(ranking) < 3:
            return ranking
        vectors = dense.vectors(ranking.rows.tolist())
        order = _spread(ranking.scores, vectors @ vectors.T, request.query.limit)
        return replace(ranking, rows=ranking.rows[order], scores=ranking.scores[order])


@dataclass(frozen=True, slots=True)
class _Offer:
    """What tells whether a row offers the same tool as another."""

    server: str
    spelled: str
    parts: tuple[str, ...]
    terms: frozenset[int]

    def is_same_tool(self, other: "_Offer") -> bool:
        if self.server == other.server or not self._is_same_name(other):
            return False
        common = len(self.terms & other.terms)
        return common >= SAME_TOOL_OVERLAP * min(len(self.terms), len(other.terms))

    def _is_same_name(self, other: "_Offer") -> bool:
        if self.spelled == other.spelled:
            return True
        left, right = self.parts, other.parts
        return len(left) > 1 and len(right) > 1 and (left[1:] == right or right[1:] == left)


class Families:
    """Shows one of several near-duplicates; the others are its family."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        if not request.query.collapse:
            return ranking
        families = self._families(ranking, request.query.limit)
        kept = np.isin(ranking.rows, list(families))
        return Ranking(ranking.rows[kept], ranking.scores[kept], families)

    def _families(self, ranking: Ranking, limit: int) -> dict[int, list[int]]:
        """Gather rows behind the best one that offers the same tool, until `limit` different tools are found."""
        heads: dict[int, _Offer] = {}
        families: dict[int, list[int]] = {}
        for row in ranking.rows.tolist():
            offer = self._offer(row)
            head = next((head for head, shown in heads.items() if shown.is_same_tool(offer)), None)
            if head is not None:
                families[head].append(row)
            elif len(heads) >= limit:
                break
            else:
                heads[row], families[row] = offer, []
        return families

    def _offer(self, row: int) -> _Offer:
        tool = self._index.tool(row)
        return _Offer(tool.server, *_spelling(tool.name), frozenset(self._index.lexical.terms_of(row).tolist()))


@lru_cache(maxsize=REMEMBERED_NAMES)
def _spelling(name: str) -> tuple[str, tuple[str, ...]]:
    return compact(name), tuple(split_identifier(name))


def _reordered(ranking: Ranking, scores: Scores, index: Index) -> Ranking:
    return rank(scores.astype(np.float32), ranking.rows, index.ids, len(ranking))


def _spread(scores: Scores, likeness: NDArray[np.float32], limit: int) -> list[int]:
    span = max(float(scores.max() - scores.min()), 1e-6)
    chosen, rest = [0], list(range(1, len(scores)))
    while rest and len(chosen) < limit:
        best = max(rest, key=lambda i: (float(scores[i]) / span - DIVERSITY * float(likeness[i, chosen].max()), -i))
        chosen.append(best)
        rest.remove(best)
    return chosen + rest
