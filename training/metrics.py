"""How well vectors rank: top-1, recall at 5 and nDCG at 10, per set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from training.prepared import RankingSet

Vectors: TypeAlias = NDArray[np.float32]
Embed: TypeAlias = Callable[[Sequence[str], bool], Vectors]
"""Texts and whether they are queries, to unit vectors."""

DEPTH = 10
QUERY_CHUNK = 512
SINGLE_CATALOG = (
    "azure_mcp",
    "azure_mcp_jan2026",
    "mcptoolbenchpp",
    "mcpbench",
    "mcpproxy_golden",
    "stackone_270",
    "portkey_120",
    "nodebench_175",
    "metatool/heldout_tools",
    "toolret_apigen",
    "sealtools_out_domain",
)


@dataclass(frozen=True, slots=True)
class Score:
    """Means over the queries of one set, in percent."""

    top1: float
    ndcg10: float
    recall5: float
    queries: int

    def __str__(self) -> str:
        return f"{self.top1:5.1f} {self.ndcg10:5.1f} {self.recall5:5.1f}  ({self.queries})"


def rank(queries: Vectors, documents: Vectors, depth: int = DEPTH) -> NDArray[np.int64]:
    """Return the numbers of the best documents of each query; ties go to the lower number."""
    rows = []
    for start in range(0, len(queries), QUERY_CHUNK):
        scores = queries[start : start + QUERY_CHUNK] @ documents.T
        rows.append(top_of(scores, depth))
    return np.concatenate(rows) if rows else np.zeros((0, depth), np.int64)


def top_of(scores: Vectors, depth: int) -> NDArray[np.int64]:
    depth = min(depth, scores.shape[1])
    best = np.sort(np.argpartition(-scores, depth - 1, axis=1)[:, :depth], axis=1)
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def judged(ranking: NDArray[np.int64], golds: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.float64]:
    """Return top-1, nDCG@10 and R@5 of each query; any member of a group counts the group once."""
    rows = [_judged(row.tolist(), groups) for row, groups in zip(ranking, golds, strict=True)]
    return np.array(rows, np.float64).reshape(-1, 3)


def _judged(row: Sequence[int], groups: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    owner = {number: index for index, group in enumerate(groups) for number in group}
    found: set[int] = set()
    gain, within_five = 0.0, 0
    for position, number in enumerate(row[:DEPTH]):
        group = owner.get(number)
        if group is not None and group not in found:
            found.add(group)
            gain += 1 / np.log2(position + 2)
            within_five += position < 5
    ideal = sum(1 / np.log2(position + 2) for position in range(min(DEPTH, len(groups))))
    return float(bool(row) and row[0] in owner), gain / ideal, within_five / len(groups)


def score_of(rows: NDArray[np.float64]) -> Score:
    top1, ndcg, recall = (100 * rows.mean(axis=0)).tolist()
    return Score(top1, ndcg, recall, len(rows))


def evaluate(sets: Sequence[RankingSet], embed: Embed, *, lenient: bool) -> Mapping[str, Score]:
    """Score every set and each of its splits by dense ranking alone."""
    scores: dict[str, Score] = {}
    for each in sets:
        ranking = rank(embed(each.queries, True), embed(each.texts, False))
        rows = judged(ranking, each.groups if lenient else each.golds)
        scores[each.name] = score_of(rows)
        splits = np.array(each.splits)
        for split in sorted(set(each.splits)) if len(set(each.splits)) > 1 else ():
            scores[f"{each.name}/{split}"] = score_of(rows[splits == split])
    return scores


def macro(scores: Mapping[str, Score], names: Sequence[str]) -> Score:
    kept = [scores[name] for name in names if name in scores]
    if not kept:
        return Score(float("nan"), float("nan"), float("nan"), 0)
    top1, ndcg10, recall5 = np.mean([(s.top1, s.ndcg10, s.recall5) for s in kept], axis=0).tolist()
    return Score(top1, ndcg10, recall5, sum(s.queries for s in kept))


def development_macro(scores: Mapping[str, Score]) -> Score:
    """Average the held-out sources, each once; this number alone chooses models."""
    return macro(scores, [name for name in scores if "/" not in name])


def table(scores: Mapping[str, Score]) -> str:
    return "\n".join(f"{name:40} {score}" for name, score in scores.items())
