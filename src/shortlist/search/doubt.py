"""A message whose request is in doubt: what else may be asked is searched, too, and counts as far as it is likely."""

import math
from collections.abc import Mapping
from dataclasses import replace

from shortlist.models import Confidence, Level, OtherAsk, SearchResult, ToolId
from shortlist.search.chances import chances
from shortlist.search.fusion import HIGH, LOW, MEDIUM, NONE_AT_MOST
from shortlist.text.asks import Ask

LEAST = 1e-6
"""The least chance of a tool: scores are the logarithms of chances."""


def as_other(ask: Ask, other: OtherAsk) -> Ask:
    """Read a message as one that asks something else."""
    return ask._replace(text=other.text, pasted="", other=None)


def weighed(result: SearchResult, beside: SearchResult, other: OtherAsk) -> SearchResult:
    """Merge the answers to two readings of a message.

    The chance of a tool is its chance by either reading, weighed by how likely that is. A hit whose `wish` is the
    other reading owes its place to it.
    """
    if not (result.hits and beside.hits):
        return result if result.hits else beside
    ours, theirs = _chances(result, 1 - other.likelihood), _chances(beside, other.likelihood)
    of_ours, of_theirs = ({hit.tool.id: hit for hit in answer.hits} for answer in (result, beside))
    chance = {tool: ours.get(tool, 0.0) + theirs.get(tool, 0.0) for tool in (*ours, *theirs)}
    order = sorted(chance, key=lambda tool: -chance[tool])[: len(result.hits)]
    is_theirs = {tool: theirs.get(tool, 0.0) > ours.get(tool, 0.0) for tool in order}
    most, best = chance[order[0]], result.hits[0].score
    hits = tuple(
        (of_theirs[tool]._replace(wish=other.text) if is_theirs[tool] else of_ours[tool])._replace(
            rank=rank, score=best + math.log(max(chance[tool], LEAST) / max(most, LEAST))
        )
        for rank, tool in enumerate(order, 1)
    )
    present = sum(
        likelihood * answer.confidence.match_probability
        for answer, likelihood in ((result, 1 - other.likelihood), (beside, other.likelihood))
    )
    sure = (beside if is_theirs[order[0]] else result).confidence
    return replace(result, hits=hits, confidence=_judged(sure, most, present))


def _chances(answer: SearchResult, likelihood: float) -> Mapping[ToolId, float]:
    shares = chances([hit.score for hit in answer.hits], answer.confidence)
    return {hit.tool.id: likelihood * share for hit, share in zip(answer.hits, shares, strict=True)}


def _judged(sure: Confidence, right: float, present: float) -> Confidence:
    """Lower the confidence in the first tool as far as something else may be asked."""
    right = min(right, sure.probability)
    if sure.level == "none":
        return replace(sure, probability=min(right, NONE_AT_MOST), match_probability=max(right, present))
    right = max(right, LOW)
    level: Level = "medium" if right >= MEDIUM else "low"
    if right >= HIGH and sure.level == "high":
        level = "high"
    return replace(sure, level=level, probability=right, match_probability=max(right, present))
