"""A message whose request is in doubt: what else may be asked is searched, too, and counts as far as it is likely."""

import math
from collections.abc import Mapping
from dataclasses import replace

from shortlist.models import Confidence, Hit, Level, OtherAsk, SearchResult, ToolId
from shortlist.search.chances import chances
from shortlist.search.fusion import HIGH, LOW, MEDIUM, NONE_AT_MOST
from shortlist.text.asks import Ask

LEAST = 1e-6
"""The least chance of a tool: scores are the logarithms of chances."""


def as_other(ask: Ask, other: OtherAsk) -> Ask:
    """Read a message as one that asks something else."""
    return ask._replace(text=other.text, pasted="", is_clear=True, asks=True, other=None)


def weighed(result: SearchResult, beside: SearchResult, other: OtherAsk, limit: int) -> SearchResult:
    """Merge the answers to two readings of a message; `other` of a hit says that it owes its place to the second.

    The chance of a tool is its chance by either reading, weighed by how likely that is. A request for several things
    keeps its answer: its tools are served one for each, whatever their chances.
    """
    if result.wishes or not beside.hits:
        return replace(result, hits=result.hits[:limit])
    leaders = {member: hit.tool.id for hit in result.hits for member in (hit.tool.id, *hit.family)}
    ours, theirs = _chances(result, 1 - other.likelihood, {}), _chances(beside, other.likelihood, leaders)
    chance = {tool: ours.get(tool, 0.0) + theirs.get(tool, 0.0) for tool in (*ours, *theirs)}
    order = sorted(chance, key=lambda tool: -chance[tool])[:limit]
    is_theirs = {tool: tool not in ours or theirs.get(tool, 0.0) > ours[tool] for tool in order}
    of_ours = {hit.tool.id: hit for hit in result.hits}
    of_theirs = {_leader(hit, leaders): hit._replace(wish="", other=other.text) for hit in reversed(beside.hits)}
    best, most = (result.hits or beside.hits)[0].score, max(chance[order[0]], LEAST)
    hits = [(of_theirs if is_theirs[tool] else of_ours)[tool] for tool in order]
    scores = [best + math.log(max(chance[tool], LEAST) / most) for tool in order]
    sure, doubt = (beside, result) if is_theirs[order[0]] else (result, beside)
    present = sum(
        likelihood * answer.confidence.match_probability
        for answer, likelihood in ((result, 1 - other.likelihood), (beside, other.likelihood))
    )
    return replace(
        result,
        hits=tuple(
            hit._replace(rank=rank, score=score) for rank, (hit, score) in enumerate(zip(hits, scores, strict=True), 1)
        ),
        confidence=_judged(sure.confidence, doubt.confidence, chance[order[0]], present),
        steps=(*result.steps, *beside.steps),
        notes=tuple(dict.fromkeys((*result.notes, *beside.notes))),
        did_you_mean={**beside.did_you_mean, **result.did_you_mean},
    )


def _chances(answer: SearchResult, likelihood: float, leaders: Mapping[ToolId, ToolId]) -> dict[ToolId, float]:
    """Return the chances of an answer's tools; near-duplicates count as the one that is shown for them."""
    found: dict[ToolId, float] = {}
    for hit, share in zip(answer.hits, chances([hit.score for hit in answer.hits], answer.confidence), strict=True):
        leader = _leader(hit, leaders)
        found[leader] = found.get(leader, 0.0) + likelihood * share
    return found


def _leader(hit: Hit, leaders: Mapping[ToolId, ToolId]) -> ToolId:
    """Return the tool that stands for a hit and its near-duplicates in the other answer, or the hit's own."""
    return next((leaders[tool] for tool in (hit.tool.id, *hit.family) if tool in leaders), hit.tool.id)


def _judged(sure: Confidence, doubt: Confidence, right: float, present: float) -> Confidence:
    """Lower the confidence of the reading that found the first tool as far as the other one may be meant."""
    right = min(right, sure.probability)
    if sure.level == "none" or (right < LOW and doubt.level == "none"):
        right = min(right, NONE_AT_MOST)
        return replace(sure, level="none", probability=right, match_probability=max(right, present))
    right = max(right, LOW)
    level: Level = "medium" if right >= MEDIUM else "low"
    if right >= HIGH and sure.level == "high":
        level = "high"
    return replace(sure, level=level, probability=right, match_probability=max(right, present))
