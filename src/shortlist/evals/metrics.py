"""Ranking metrics of one query: each group of acceptable tools counts once, and a miss has rank infinity."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from shortlist.models import ToolId

Groups: TypeAlias = Sequence[frozenset[ToolId]]
"""What a query needs: one member of each group."""

Marks: TypeAlias = tuple[int, ...]
"""Per position of a ranking: 1 where it meets a group that no earlier position met."""

Metric: TypeAlias = Callable[[Marks, int], float]
"""From the marks and the number of groups to a value between 0 and 1."""


def strict_groups(gold: Iterable[ToolId]) -> Groups:
    return tuple(frozenset((tool_id,)) for tool_id in gold)


def marks(ranked: Sequence[ToolId], groups: Groups) -> Marks:
    """Mark the positions that meet a group for the first time; a repeated id meets nothing."""
    unmet = list(groups)
    seen: set[ToolId] = set()
    found = []
    for tool_id in ranked:
        group = None if tool_id in seen else next((each for each in unmet if tool_id in each), None)
        if group is not None:
            unmet.remove(group)
        seen.add(tool_id)
        found.append(int(group is not None))
    return tuple(found)


def first_rank(found: Marks) -> float:
    return float(found.index(1) + 1) if 1 in found else math.inf


def reciprocal_rank(found: Marks, _wanted: int) -> float:
    return 1 / first_rank(found)


def top_1(found: Marks, _wanted: int) -> float:
    return float(sum(found[:1]))


def recall(k: int) -> Metric:
    return lambda found, wanted: sum(found[:k]) / wanted


def completeness(k: int) -> Metric:
    """Build the metric that is 1 only when every group is met within the first k."""
    return lambda found, wanted: float(sum(found[:k]) == wanted)


def ndcg(k: int) -> Metric:
    """Build nDCG@k with binary gains; the ideal puts one tool of every group first."""

    def measure(found: Marks, wanted: int) -> float:
        return _discounted(found[:k]) / _discounted((1,) * min(k, wanted))

    return measure


def _discounted(gains: Marks) -> float:
    return sum(gain / math.log2(position + 2) for position, gain in enumerate(gains))


METRICS: Mapping[str, Metric] = {
    "top1": top_1,
    "r@1": recall(1),
    "r@3": recall(3),
    "r@5": recall(5),
    "r@10": recall(10),
    "mrr": reciprocal_rank,
    "ndcg@5": ndcg(5),
    "ndcg@10": ndcg(10),
    "complete@5": completeness(5),
    "complete@10": completeness(10),
}

LENIENT = "lenient_"
"""Prefix of a metric that accepts any member of a group; without it only the gold tools count."""


def measure(ranked: Sequence[ToolId], gold: Sequence[ToolId], groups: Groups) -> dict[str, float]:
    """Return every metric, strict and lenient; nothing for a query that no tool answers."""
    if not gold:
        return {}
    strict = _all(ranked, strict_groups(gold))
    lenient = _all(ranked, groups or strict_groups(gold))
    return strict | {LENIENT + name: value for name, value in lenient.items()}


def _all(ranked: Sequence[ToolId], groups: Groups) -> dict[str, float]:
    found = marks(ranked, groups)
    return {name: metric(found, len(groups)) for name, metric in METRICS.items()}
