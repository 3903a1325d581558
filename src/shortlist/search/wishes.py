"""A request with several wishes: each is searched for, and every wish is served before one is served twice."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shortlist.models import Confidence, Hit, Query, SearchResult, ToolId, WishServed
from shortlist.text.conversation import relation_of
from shortlist.text.queries import Wish

CLEAR = 0.25
"""The chance of being right that the first tool of a part needs for the part to count as a wish of its own."""
SURER = 0.05
"""How much surer the first tool for the whole request must be than that of any wish for it to be one wish: on training
requests with one right tool this halves what taking them apart loses."""
WHOLE = 2.0
"""How much the chance of a tool by the whole request counts beside its chance by one wish, once each has a tool."""
SHORT = 6
"""A part of so many words ("tell #dev about it") counts as a wish even where no tool is a clear match for it. Parts
that are all so short and have a tool each are several wishes, even where the whole request is surer of one of them."""


def answer_each(query: Query, wishes: Sequence[Wish], search: Callable[[Query], SearchResult]) -> list[SearchResult]:
    """Search for each wish; one that says little, or is unclear, by the servers of the wishes beside it."""
    found: list[SearchResult] = []
    for number, wish in enumerate(wishes):
        asked = _query_of(query, wish, is_first=not number)
        if wish.says_little and found and found[-1].hits:
            before = found[-1].hits[0].tool
            asked = replace(asked, relation="continues", recent_tools=(before.id,), recent_servers=(before.server,))
        found.append(search(asked))
    sure = [n for n, answer in enumerate(found) if answer.hits and answer.confidence.level == "high"]
    open_wishes = (n for n, wish in enumerate(wishes) if n not in sure and not wish.says_little)
    for unclear in (n for n in open_wishes if sure and found[n].query.relation != "continues"):
        near = sorted(sure, key=lambda n: (abs(n - unclear), n))
        servers = tuple(dict.fromkeys(found[n].hits[0].tool.server for n in near))
        found[unclear] = search(replace(query, text=wishes[unclear].query, relation="beside", recent_servers=servers))
    return found


def _query_of(query: Query, wish: Wish, *, is_first: bool) -> Query:
    """Search for one wish of a request; whether it continues a chat is its own matter, not that of the others.

    In "archive it and list my tasks" the chat says what "it" is, and has nothing to do with the tasks. A later wish
    points at the wish before it.
    """
    asked = replace(query, text=wish.query)
    if query.relation not in ("new", "continues") or not query.recent_servers:
        return asked
    continues = (is_first or not wish.about) and relation_of(wish.text, called=True) == "continues"
    return replace(asked, relation="continues" if continues else "new")


def serve_each(whole: SearchResult, wishes: Sequence[Wish], answers: Sequence[SearchResult]) -> SearchResult:
    """Merge the answers to the wishes of a request into the answer to the whole.

    Each wish is served once, the clear ones first and of these the one whose tool the whole request ranks highest;
    then whatever tool is likeliest to be the right one that its wish, or the whole request, still lacks. What looked
    like several wishes and is served by one tool stays as it was.
    """
    parts = [(wish, answer) for wish, answer in zip(wishes, answers, strict=True) if answer.hits]
    clear = [(wish, answer) for wish, answer in parts if _is_clear(answer.confidence)]
    asked = [part for part in parts if part in clear or len(part[0].text.split()) <= SHORT]
    firsts = {answer.hits[0].tool.id for _, answer in asked}
    one_tool_does_all = whole.confidence.level == "high" and whole.hits[0].tool.id not in firsts
    if not clear or len(firsts) < 2 or one_tool_does_all or _is_surer(whole, parts):
        return whole
    place = {hit.tool.id: hit.rank for hit in whole.hits}
    taken: dict[ToolId, Hit] = {}
    for part in (clear, [each for each in asked if each not in clear]):
        offered = [hit for wish, answer in part if (hit := _next(wish, answer, taken)) is not None]
        for hit in sorted(offered, key=lambda hit: place.get(hit.tool.id, len(place) + 1)):
            taken.setdefault(hit.tool.id, hit)
    for hit in _by_chance(asked, whole):
        taken.setdefault(hit.tool.id, hit)
    merged = list(taken.values())
    served = tuple(WishServed(wish.text, answer.confidence, answer.hits[0].tool.id) for wish, answer in asked)
    first = next(answer.confidence for wish, answer in asked if wish.text == merged[0].wish)
    return replace(whole, hits=_falling(merged[: len(whole.hits)]), confidence=first, wishes=served)


def _is_surer(whole: SearchResult, parts: Sequence[tuple[Wish, SearchResult]]) -> bool:
    """Return whether the whole request is surer of its tool than any wish, and not just of the tool of one wish."""
    surest = max(answer.confidence.probability for _, answer in parts)
    firsts = {answer.hits[0].tool.id for _, answer in parts}
    each_has_its_own = whole.hits[0].tool.id in firsts and len(firsts) == len(parts)
    are_plain = all(
        len(wish.text.split()) <= SHORT and answer.confidence.level in ("high", "medium") for wish, answer in parts
    )
    return whole.confidence.probability > surest + SURER and not (each_has_its_own and are_plain)


def _is_clear(confidence: Confidence) -> bool:
    return confidence.level != "none" and confidence.probability >= CLEAR


def _next(wish: Wish, answer: SearchResult, taken: Mapping[ToolId, Hit]) -> Hit | None:
    """Return the best tool of a wish that is not there yet."""
    found = next((hit for hit in answer.hits if hit.tool.id not in taken), None)
    return None if found is None else found._replace(wish=wish.text)


def _by_chance(parts: Sequence[tuple[Wish, SearchResult]], whole: SearchResult) -> list[Hit]:
    """Return the hits of all wishes and of the whole request, those with the greatest chance to be right first.

    The scores of one answer are log-odds: the chance of a hit is its share of the odds.
    """
    found: dict[ToolId, Hit] = {}
    chances: dict[ToolId, float] = {}
    answers = [(answer.hits, wish.text, 1.0) for wish, answer in parts]
    for hits, wish, weight in (*answers, (whole.hits, "", WHOLE)):
        odds = [math.exp(hit.score - hits[0].score) for hit in hits]
        for hit, each in zip(hits, odds, strict=True):
            chance, tool = weight * each / sum(odds), hit.tool.id
            if chance > chances.get(tool, 0.0):
                chances[tool] = chance
                found[tool] = hit._replace(wish=wish) if wish else found.get(tool, hit)
    return sorted(found.values(), key=lambda hit: -chances[hit.tool.id])


def _falling(hits: list[Hit]) -> tuple[Hit, ...]:
    """Rank the hits anew; no score exceeds the one before, since scores of different wishes are not comparable."""
    found: list[Hit] = []
    for rank, hit in enumerate(hits, 1):
        score = min(hit.score, found[-1].score) if found else hit.score
        found.append(hit._replace(rank=rank, score=score))
    return tuple(found)
