"""Explains why a tool ranks where it does for a text or a chat."""

from collections.abc import Sequence
from dataclasses import replace

from shortlist.index.embedders import Vectors
from shortlist.library.choosing import cautious, is_new_topic, standing_alone
from shortlist.library.following import follows_a_chat, ranked_by_chat
from shortlist.library.messages import Context
from shortlist.models import Query, SearchResult, ToolId
from shortlist.search.explain import Explanation, asked_lines, chat_lines, first_hit
from shortlist.search.searcher import Searcher


def explain_turn(
    searcher: Searcher, context: Context, asked: Query, tool: ToolId | None, chat: Vectors | None = None
) -> Explanation | None:
    """Explain a tool, or the first hit, as a filter finds it for a turn; None where nothing is found.

    `chat` is the vector of the whole chat, where there is one.
    """
    alone = standing_alone(context, asked)
    if alone is not None and is_new_topic(searcher.search(alone)):
        asked = alone
    by_chat: SearchResult | None = None

    def search(queries: Sequence[Query], whole: Query) -> tuple[list[SearchResult], SearchResult | None]:
        return [*map(searcher.search, queries)], searcher.nearest(whole, chat) if chat is not None else None

    def chosen(found: SearchResult) -> Sequence[ToolId]:
        nonlocal by_chat
        found = replace(found, confidence=cautious(found.confidence, found, context))
        if follows_a_chat(context, found):
            by_chat = ranked_by_chat(found, context, search)
        return first_hit(by_chat or found) if tool is None else (tool,)

    found = searcher.explained(asked, chosen)
    if not found.explanations:
        return None
    taken = context.asked.taken if asked.relation != "new" else ""
    why = found.explanations[0]
    sure = by_chat.confidence if by_chat is not None else cautious(why.confidence, found.result, context)
    is_ranked = by_chat is not None and by_chat.hits != found.result.hits
    is_lowered = not is_ranked and sure != why.confidence
    why = replace(why, confidence=sure, taken=taken)
    reading: list[str] = []
    if context.is_chat or context.pasted:
        reading += asked_lines(context.asked.text, context.pasted, context.ask.other)
    if context.is_chat:
        reading += chat_lines(asked, taken)
    if by_chat is not None and is_ranked:
        reading.append(_chat_line(why))
        hit = next((hit for hit in by_chat.hits if hit.tool.id == why.tool), None)
        why = replace(why, rank=hit.rank if hit else None, score=hit.score if hit else None)
    if is_lowered:
        reading.append("high confidence was lowered: the request depends on earlier messages, or stands beside a paste")
    return replace(why, reading=tuple(reading))


def _chat_line(why: Explanation) -> str:
    """Say that the place comes from several readings of the chat, and which it has in the one shown here."""
    place = f"rank {why.rank}" if why.rank else "not found"
    return f"ranked by the chat as a whole; the scores below are those of the request as it was read ({place})"
