"""Explains why a tool ranks where it does for a text or a chat."""

from dataclasses import replace

from shortlist.library.choosing import cautious, is_new_topic, standing_alone
from shortlist.library.messages import Context
from shortlist.models import Query, ToolId
from shortlist.search.explain import Explanation, asked_line, chat_lines, first_hit
from shortlist.search.searcher import Searcher


def explain_turn(searcher: Searcher, context: Context, asked: Query, tool: ToolId | None) -> Explanation | None:
    """Explain a tool, or the first hit, as a filter finds it for a turn; None where nothing is found."""
    alone = standing_alone(context, asked)
    if alone is not None and is_new_topic(searcher.search(alone)):
        asked = alone
    found = searcher.explained(asked, first_hit if tool is None else lambda _: (tool,))
    if not found.explanations:
        return None
    taken = context.asked.taken if asked.relation != "new" else ""
    reading = [asked_line(context.asked.text, context.pasted)] if context.is_chat or context.pasted else []
    if context.is_chat:
        reading += chat_lines(asked, taken)
    why = found.explanations[0]
    sure = cautious(why.confidence, found.result, context)
    if sure != why.confidence:
        reading.append("high confidence was lowered: the request depends on earlier messages, or stands beside a paste")
    return replace(why, reading=tuple(reading), confidence=sure, taken=taken)
