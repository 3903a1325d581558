"""From a chat to the query that is searched, and from what is found to the tools that are handed out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shortlist.library.messages import Context
from shortlist.library.options import FilterOptions
from shortlist.library.results import ScoredTool
from shortlist.library.view import Narrowing, View
from shortlist.models import Confidence, Query, SearchResult, ToolId
from shortlist.search.chances import chances
from shortlist.search.fusion import as_asked, with_other_words
from shortlist.search.pipeline import DEPTH
from shortlist.text.conversation import Asked
from shortlist.text.tokens import terms

MIXED_WITH_EARLIER = ("continues", "repeats", "corrects")
"""Relations whose query mixes the words of the last turn with those of earlier ones."""
MIN_NAME = 4
"""The letters that must be written of a server's name."""
_NAME = re.compile(r"[\w-]+")
CHAT_DEPTH = 200
"""How many tools of each reading of a chat are compared."""
RECALLED = 3
"""Tools called last that stay within reach, as far as they take no more than a third of the places."""


def query_of(context: Context, view: View, options: FilterOptions, narrowing: Narrowing) -> Query:
    """Search for what a chat needs now, given its earlier calls."""
    called = [tool_id for name in context.called for tool_id in sorted(view.resolve(name))]
    servers = [*dict.fromkeys(view.catalog.tools[tool_id].server for tool_id in called)]
    text = context.text
    if context.asked.relation == "corrects":
        named, servers = _named(context.asked, view), _corrected(servers, context.asked, view)
        text = f"{context.asked.taken} ({named[0]})" if _only_names(context.asked, named) else text
    return Query(
        text=text,
        limit=max(options.limit, CHAT_DEPTH if context.is_chat else DEPTH),  # chances are shared by as many
        filters=narrowing.filters,
        recent_servers=tuple(server for server in servers if server),
        recent_tools=tuple(called),
        relation=context.asked.relation,
        beside_paste=bool(context.pasted),
        other=context.ask.other,
        diverse=options.diverse,
    )


def standing_alone(context: Context, asked: Query) -> Query | None:
    """Return the query for the last message alone, if it may be a new topic; `is_new_topic` decides by its answer."""
    return replace(asked, text=context.asked.text, relation="new") if context.asked.may_stand_alone else None


def is_new_topic(alone: SearchResult) -> bool:
    """Return whether the answer to the last message alone shows that the topic changed without a word about it."""
    return alone.confidence.level == "high"


def cautious(confidence: Confidence, found: SearchResult, context: Context) -> Confidence:
    """Lower a high confidence also if the query has words of earlier turns."""
    if found.query.relation in MIXED_WITH_EARLIER:
        confidence = with_other_words(confidence)
    return as_read(confidence, found, context)


def as_read(confidence: Confidence, found: SearchResult, context: Context) -> Confidence:
    """Lower a high confidence for a few words in another language that leave the chat, or beside a paste."""
    if context.asked.is_short_gloss and _leaves_the_chat(found, found.query):
        confidence = with_other_words(confidence)
    return as_asked(confidence, context.ask)  # what is searched is the request alone, without what it stood in


def _leaves_the_chat(found: SearchResult, asked: Query) -> bool:
    """Return whether tools were called before, and what was found first is not of their servers."""
    return bool(asked.recent_servers and found.hits) and found.hits[0].tool.server not in asked.recent_servers


def _named(asked: Asked, view: View) -> list[str]:
    """Return the servers that a correction names."""
    return named_servers(asked.text, view.catalog.servers)


def named_servers(text: str, servers: Iterable[str]) -> list[str]:
    """Return the servers that a text names."""
    words = {word for word in _NAME.findall(text.lower()) if len(word) >= MIN_NAME}
    return [name for name in servers if any(_begins(name.lower(), word) for word in words)]


def _begins(name: str, word: str) -> bool:
    """Return whether a word is a server's name, the first word or more than half of it.

    "google" is the server `google-calendar`; "files" is not the server `filesystem`.
    """
    return name.startswith(word) and (2 * len(word) > len(name) or not name[len(word)].isalnum())


def _corrected(servers: Sequence[str], asked: Asked, view: View) -> list[str]:
    """Return the servers that a correction names; else those called before, less what it rejects."""
    return _named(asked, view) or [server for server in servers if server.lower() not in asked.rejected]


def _only_names(asked: Asked, named: Sequence[str]) -> bool:
    """Return whether a correction names another server and adds nothing else: the request is the one before."""
    known = {*terms(asked.taken), *(term for name in named for term in terms(name))}
    return bool(named and asked.taken) and known.issuperset(terms(asked.text))


def recalled(asked: Query, narrowing: Narrowing, limit: int) -> tuple[ToolId, ...]:
    """Return the tools called last that may still be used: a chat often needs one of them again."""
    filters = narrowing.filters
    allowed = [
        tool_id
        for tool_id in asked.recent_tools
        if tool_id not in filters.exclude and (filters.among is None or tool_id in filters.among)
    ]
    return tuple(allowed[: min(RECALLED, limit // 3)])


def choose(
    found: SearchResult, view: View, always: tuple[ToolId, ...], options: FilterOptions
) -> tuple[ScoredTool, ...]:
    """Return the best tools up to the limit; always-included tools replace the lowest-ranked ones."""
    scores = chances([hit.score for hit in found.hits], found.confidence)
    ranked = {hit.tool.id: (score, hit.rank) for hit, score in zip(found.hits, scores, strict=True)}
    least = options.min_score if options.min_score is not None else 0.0
    must = [tool_id for tool_id in always if tool_id in view.catalog.hashes]
    others = [tool_id for tool_id, (score, _) in ranked.items() if score >= least and tool_id not in must]
    wanted = {*must, *others[: max(options.limit - len(must), 0)]}
    order = [*(tool_id for tool_id in ranked if tool_id in wanted), *(i for i in must if i not in ranked)]
    wish = {hit.tool.id: hit.wish for hit in found.hits}
    chosen = [_scored(view, tool_id, *ranked.get(tool_id, (0.0, None))) for tool_id in order]
    return tuple(replace(tool, wish=wish.get(tool.id, "")) if found.wishes else tool for tool in chosen)


def _scored(view: View, tool_id: ToolId, score: float, rank: int | None) -> ScoredTool:
    return ScoredTool(
        tool=view.catalog.tools[tool_id],
        name=view.names.by_id[tool_id],
        score=score,
        rank=rank,
        original=view.originals.get(tool_id),
    )
