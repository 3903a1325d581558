"""search_tools and describe_tools: finding tools among those in reach, and the words of the answer."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias, get_args

import anyio.to_thread

from shortlist.access.catalog import ScopedCatalog, called_so, did_you_mean
from shortlist.catalog.toolsets import toolsets_for_intent
from shortlist.disclosure.budget import estimate_tokens, fit
from shortlist.disclosure.render import Detail, Entry, describe_text, entries_text, entry_of, entry_row, entry_text
from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.gateway.callers import Workspace, in_reach, known_corrections
from shortlist.gateway.python_tools import python_tools
from shortlist.gateway.recording import FinishedSearch
from shortlist.gateway.tools import (
    DEFAULT_LIMIT,
    INTEGER,
    MAX_NAMES,
    MAX_QUERIES,
    STRING,
    STRINGS,
    DescribeRequest,
    McpResult,
    MetaTool,
    SearchRequest,
    ToolArguments,
    ToolCall,
    describe_request,
    rendered,
    search_request,
    text_result,
)
from shortlist.models import Filters, Hit, Json, Query, SearchResult, Tool, ToolId
from shortlist.text.conversation import relation_of
from shortlist.text.queries import ask_of
from shortlist.text.tokens import one_line

LABELS = {"servers": "server", "categories": "category", "tags": "tag"}
"""What tools can be limited to by name, and what one of each is called."""
CIRCLE_SEARCHES = 3
"""After so many searches with the same hits and no call in between, the answer says to stop searching."""
SHOWN_QUERY = 80
SHOWN_SERVERS = 30
CLOSEST = 3
OVERHEAD_TOKENS = 40
"""What the lines around the hits cost."""


async def _search(call: ToolCall, request: SearchRequest) -> McpResult:
    answer = await _search_tools(call, request) if "tools" in request.kinds else None
    if answer is not None and request.kinds == ("tools",):
        return answer
    from shortlist.gateway.kinds import with_kinds  # noqa: PLC0415 - most searches are for tools alone

    return await with_kinds(call, request, answer)


async def _search_tools(call: ToolCall, request: SearchRequest) -> McpResult:
    state, seen = call.state, call.seen
    starting = state.connecting(seen)
    narrowing = await _narrowing(call, request)
    workspace = state.workspaces.for_circles(seen.caller)
    queries = [_query(call, text, request, narrowing, workspace) for text in request.queries]
    found_all = [in_reach(await state.search.search(query), seen.tools, request.offset) for query in queries]
    down = state.down()
    results = [_working_first(result, seen.tools, down) for result in found_all] if down else found_all
    found = frozenset(hit.tool.id for result in results for hit in result.hits)
    if starting and not all(map(_fits, results)):
        from shortlist.gateway.arrivals import after_arrival  # noqa: PLC0415 - only at a cold start

        later = await after_arrival(call, starting)
        if later is not None:
            return await _search_tools(later, request)
    # Repeating a search while a server is still starting is not a loop.
    if workspace is not None and not starting and workspace.circles(found, CIRCLE_SEARCHES):
        return _break_circle(call, request, found, workspace)
    around = await _surroundings(call, request, results, narrowing.notes)
    hits = (hit.tool for result in results for hit in result.hits)
    answer = await rendered(hits, partial(search_answer, request, results, around))
    finished = FinishedSearch(
        answer=answer, limit=request.limit, offset=request.offset, mode=request.mode, filters=_asked(request)
    )
    state.recording.searched(seen.caller, finished, results)
    return answer


def _asked(request: SearchRequest) -> dict[str, Json]:
    """Return the limits that the caller set itself."""
    asked = {
        "servers": request.servers and sorted(request.servers),
        "toolsets": request.toolsets and sorted(request.toolsets),
        "category": request.category,
        "tags": request.tags and sorted(request.tags),
        "intent": request.intent,
        "only": request.only or None,
        "read_only": request.read_only,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _working_first(result: SearchResult, tools: ScopedCatalog, down: frozenset[str]) -> SearchResult:
    """Rank tools of servers that do not answer below the others, and below near-duplicates that work."""
    if not any(hit.tool.server in down for hit in result.hits):
        return result
    ordered = sorted((_working(hit, tools, down) for hit in result.hits), key=lambda hit: hit.tool.server in down)
    ranks = [hit.rank for hit in result.hits]
    return replace(result, hits=tuple(hit._replace(rank=rank) for hit, rank in zip(ordered, ranks, strict=True)))


def _working(hit: Hit, tools: ScopedCatalog, down: frozenset[str]) -> Hit:
    """Return a hit whose tool works, where its family has one."""
    spare = next((i for i in hit.family if tools[i].server not in down), None)
    if hit.tool.server not in down or spare is None:
        return hit
    return hit._replace(tool=tools[spare], family=(hit.tool.id, *(i for i in hit.family if i != spare)))


def _query(
    call: ToolCall, text: str, request: SearchRequest, narrowing: "SearchLimits", workspace: Workspace | None
) -> Query:
    tools = call.seen.tools
    recent = tuple(i for i in workspace.tools if i in tools) if workspace else ()
    return Query(
        text=text,
        limit=request.offset + request.limit,
        mode=request.mode,
        filters=narrowing.filters,
        preferred=narrowing.preferred,
        recent_tools=recent,
        recent_servers=tuple(dict.fromkeys(tools[i].server for i in recent)),
        relation=relation_of(ask_of(text).text, called=bool(recent)),
        collapse=True,
        pipeline=call.seen.variant.pipeline,
        asker=call.state.asker(call.seen.caller),
    )


class SearchLimits(NamedTuple):
    """What a search is limited to, what it prefers, and what the answer says about both."""

    filters: Filters
    preferred: tuple[Filters, ...] = ()
    notes: tuple[str, ...] = ()


async def _narrowing(call: ToolCall, request: SearchRequest) -> SearchLimits:
    """Turn what a search names into preferences, or into limits where the caller says `only`."""
    tools = call.seen.tools
    hints = [*await _labels(call, request), *await _intent(call, request)]
    notes = [note for filters, note in hints if filters is None]
    named = [(filters, note) for filters, note in hints if filters is not None]
    members = _members(call, sorted(request.toolsets)) if request.toolsets is not None else None
    hard = Filters(read_only=request.read_only)
    if not request.only:
        if named:
            said = ", ".join(note for _, note in named)
            notes.append(f"Preferred: {said}. Other tools were searched too; pass only: true to leave them out.")
        return SearchLimits(tools.within(hard, members), tuple(filters for filters, _ in named), tuple(notes))
    for filters, _ in named:
        hard = replace(hard, **{key: getattr(filters, key) for key in LABELS if getattr(filters, key) is not None})
        if filters.among is not None:
            members = filters.among if members is None else members & filters.among
    if named:
        notes.append(f"Searched only: {', '.join(note for _, note in named)}.")
    return SearchLimits(tools.within(hard, members), (), tuple(notes))


Hint: TypeAlias = tuple[Filters | None, str]
"""What a hint points at and how the answer names it; a sentence where it points at nothing here."""


async def _labels(call: ToolCall, request: SearchRequest) -> list[Hint]:
    """Read the servers, the category and the tags that a search names, whatever their case."""
    tools, hints, category = call.seen.tools, list[Hint](), frozenset(filter(None, (request.category,)))
    known = {"servers": (*tools.servers, *call.state.connecting(call.seen))} if request.servers else {}
    if request.category or request.tags:
        known |= await anyio.to_thread.run_sync(lambda: tools.labels)
    for label, names in zip(LABELS, (request.servers, category, request.tags), strict=True):
        if not names:
            continue
        meant = called_so(names, known[label])
        for name in sorted(names - meant.keys()):
            similar = did_you_mean(name, known[label], lists=label == "servers")
            problem = f"No {LABELS[label]} {name!r}. {similar}".rstrip()
            if request.only:
                raise InvalidInput(problem)
            hints.append((None, problem))
        if meant:
            limit: dict[str, Json] = {label: frozenset().union(*meant.values())}
            word = "category" if label == "categories" else label
            hints.append((Filters(**limit), f"{word} {', '.join(sorted(limit[label]))}"))
    return hints


async def _intent(call: ToolCall, request: SearchRequest) -> list[Hint]:
    if request.intent is None:
        return []
    intents = call.state.settings.intents
    meant = await anyio.to_thread.run_sync(toolsets_for_intent, request.intent, call.seen.tools.toolsets, intents)
    if not (members := _members(call, meant)):
        return [(None, f"The intent {request.intent!r} matches no toolset here: everything was searched.")]
    return [(Filters(among=members), f"intent {request.intent}")]


def _members(call: ToolCall, toolsets: Iterable[str]) -> frozenset[ToolId]:
    return frozenset(tool_id for name in toolsets for tool_id in call.state.toolset(call.seen, name).tools)


def _break_circle(call: ToolCall, request: SearchRequest, found: frozenset[ToolId], workspace: Workspace) -> McpResult:
    query = request.queries[0]
    names = [call.seen.tools.name(tool_id) for tool_id in sorted(found)]
    answer = circle_answer(query, names, workspace.times(found))
    call.state.recording.circle_broken(call.seen.caller, query, answer)
    return answer


async def _surroundings(
    call: ToolCall, request: SearchRequest, results: Sequence[SearchResult], notes: tuple[str, ...]
) -> "Surroundings":
    said = dict.fromkeys(note for result in results for note in result.notes)
    waiting = call.state.connecting(call.seen)
    still = (f"Still connecting, their tools are not searched yet: {', '.join(waiting)}.",) if waiting else ()
    return Surroundings(
        name_of=call.seen.tools.name,
        note_of=lambda hit: call.state.tool_note(hit.tool),
        servers=call.seen.tools.servers,
        notes=(*notes, *said, *still),
        suggestions=_suggestions(call, results),
        explanations=await _explanations(call, results) if request.explain else {},
        toon=call.seen.toon,
        show=python_tools(call.seen).entry if request.detail == "python" else None,
    )


def _suggestions(call: ToolCall, results: Sequence[SearchResult]) -> tuple[str, ...]:
    """Offer to load what was found, where loading is a way to call it."""
    seen = call.seen
    if seen.mode != "dynamic":
        return ()
    fitting = (hit.tool for result in results if result.confidence.level != "none" for hit in result.hits)
    hits = [tool for tool in fitting if not call.state.is_bound(seen, tool.id)]
    if not hits:
        return ()
    toolsets = seen.tools.toolsets
    offered = [name for name in dict.fromkeys(tool.server for tool in hits) if name in toolsets]
    call.state.recording.suggested(seen.caller, offered)
    sets = ", ".join(f"{name!r} ({len(toolsets[name].tools)} tools)" for name in offered)
    first = seen.tools.name(hits[0].id)
    return (f"Not loaded yet: load_tools(names=[{first!r}]), or load_toolset of {sets}.",)


async def _explanations(call: ToolCall, results: Sequence[SearchResult]) -> dict[ToolId, str]:
    explain = call.state.seams.explain
    if explain is None:
        return {}
    tools = call.seen.tools
    return {
        hit.tool.id: await explain(result.query, hit.tool.id, known_corrections(result, tools))
        for result in results
        for hit in result.hits
    }


async def _describe(call: ToolCall, request: DescribeRequest) -> McpResult:
    """Return whole schemas; an unknown name gets a suggestion beside the others' schemas."""
    found: list[ToolId] = []
    parts: list[str] = []
    for name in request.names:
        try:
            tool = await _named(call, name)
        except ToolNotFound as error:
            parts.append(str(error))
            continue
        found.append(tool.id)
        described = python_tools(call.seen).described if request.detail == "python" else _whole_text(call)
        parts.append("\n".join([await rendered([tool], partial(described, tool)), *_extras(call, tool)]))
    answer = text_result("\n\n".join(parts), is_error=not found)
    call.state.recording.described(call.seen.caller, found, answer)
    return answer


def _whole_text(call: ToolCall) -> Callable[[Tool], str]:
    return lambda tool: describe_text(tool, call.seen.tools.name(tool.id))


async def _named(call: ToolCall, name: str) -> Tool:
    """Resolve a name, also as programs write it where programs are offered."""
    if call.seen.menu == "code" and (tool := python_tools(call.seen).find(name)) is not None:
        return tool
    return await call.state.find(call.seen, name)


def _extras(call: ToolCall, tool: Tool) -> list[str]:
    note, co_use = call.state.tool_note(tool), call.state.seams.co_use
    partners = sorted(i for i in co_use(tool.id) if i in call.seen.tools) if co_use else []
    names = ", ".join(map(call.seen.tools.name, partners))
    return [*([f"note: {note}"] if note else []), *([f"often used with: {names}"] if names else [])]


def _discover(arguments: ToolArguments) -> ToolArguments:
    compact = arguments.get("compact")
    kept = {key: arguments[key] for key in ("query", "intent", "category", "limit") if key in arguments}
    return kept if compact in (None, True) else {**kept, "detail": "standard"}


SEARCH = MetaTool(
    name="search_tools",
    description="Find tools by what they do. Search before saying that something cannot be done, and rephrase once if "
    "nothing fits. Then use call_tool.",
    properties={
        "query": {**STRING, "description": "The action in plain words, e.g. 'create a GitHub issue'"},
        "queries": {**STRINGS, "description": f"Several searches at once, at most {MAX_QUERIES}"},
        "limit": {**INTEGER, "default": DEFAULT_LIMIT},
        "detail": {"enum": list(get_args(Detail)), "default": "compact"},
        "servers": {**STRINGS, "description": "Preferred servers"},
        "intent": {**STRING, "description": "e.g. web_research, data_analysis"},
        "only": {"type": "boolean", "description": "Nothing but these servers or this intent"},
        "kinds": {**STRINGS, "description": "tools (default), prompts, resources, templates, servers"},
        "max_tokens": INTEGER,
    },
    reads=True,
    parse=search_request,
    handle=_search,
    aliases={"discover_tools": _discover},
    menus=("search", "dynamic"),
)
DESCRIBE = MetaTool(
    name="describe_tools",
    description="Full schemas of tools that were found.",
    properties={"names": {**STRINGS, "maxItems": MAX_NAMES}},
    required=("names",),
    reads=True,
    parse=describe_request,
    handle=_describe,
    menus=("search", "dynamic"),
)


# The words of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an answer says beside the hits."""

    name_of: Callable[[ToolId], str]
    note_of: Callable[[Hit], str]
    servers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    explanations: Mapping[ToolId, str] = field(default_factory=dict)
    toon: bool = False
    show: Callable[[Hit], Entry] | None = None
    """How a hit is shown where it is not at a level of detail."""


def search_answer(request: SearchRequest, results: Sequence[SearchResult], around: Surroundings) -> dict[str, Json]:
    """Return the tools/call result of a search: text, or structured content for programs."""
    entries = _entries(request, results, around)
    budget = None if request.max_tokens is None else max(request.max_tokens - OVERHEAD_TOKENS * len(results), 0)
    kept, left_out = _within(budget, entries)
    if request.format == "json":
        return _structured(results, kept, left_out, around)
    toon = request.format == "toon" or (around.toon and request.format is None)
    lines = [
        *_heads(results, around),
        entries_text(kept, toon=toon),
        *_left_out(entries, kept, left_out, request),
        *(around.explanations[i] for i in around.explanations),
        *_spelling(results),
        *around.notes,
        *around.suggestions,
    ]
    return text_result("\n".join(line for line in lines if line))


def circle_answer(query: str, names: Sequence[str], times: int) -> dict[str, Json]:
    """Return an answer that says to stop searching."""
    return text_result(
        f"You have searched {times} times and found the same tools: {', '.join(names)}. "
        f"Searching again for {one_line(query, SHOWN_QUERY)!r} will not change that. Use call_tool on one of "
        "them, describe_tools to read their schemas, or tell the user that no connected tool fits."
    )


def _entries(request: SearchRequest, results: Sequence[SearchResult], around: Surroundings) -> tuple[Entry, ...]:
    """Merge the hits of all queries into one map, each tool once, best ranks first."""
    merged: dict[ToolId, Hit] = {}
    for hit in sorted((hit for r in results if _fits(r) for hit in r.hits), key=lambda hit: hit.rank):
        merged.setdefault(hit.tool.id, hit)
    if request.detail == "python" and around.show is not None:
        return tuple(around.show(hit)._replace(note=around.note_of(hit)) for hit in merged.values())
    detail: Detail = "compact" if request.detail == "python" else request.detail
    return tuple(entry_of(hit, detail, around.name_of, around.note_of(hit)) for hit in merged.values())


def _fits(result: SearchResult) -> bool:
    return result.confidence.level != "none"


def _within(budget: int | None, entries: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], int]:
    if budget is None:
        return entries, 0
    return fit(entries, budget, lambda entry: estimate_tokens(entry_text(entry)))


def _heads(results: Sequence[SearchResult], around: Surroundings) -> list[str]:
    if len(results) == 1:
        return [_head(results[0], around), *_wishes(results[0], around)]
    lines = []
    for number, result in enumerate(results, 1):
        found = ", ".join(around.name_of(hit.tool.id) for hit in result.hits)
        asked = one_line(result.query.text, SHOWN_QUERY)
        lines.append(
            f"{number}. {asked!r}: {found} ({_confidence(result)})"
            if _fits(result)
            else f"{number}. {_no_match(result, around)}"
        )
    return lines


def _head(result: SearchResult, around: Surroundings) -> str:
    if not _fits(result):
        return _no_match(result, around)
    count = len(result.hits)
    return f"{count} tool{'' if count == 1 else 's'}, confidence {_confidence(result)}:"


def _wishes(result: SearchResult, around: Surroundings) -> list[str]:
    """Describe which hit belongs to which wish, and how to search for each separately."""
    if not result.wishes or not _fits(result):
        return []
    lines = []
    for wish in result.wishes:
        names = [around.name_of(hit.tool.id) for hit in result.hits if hit.wish == wish.text]
        lines.append(f"- {one_line(wish.text, SHOWN_QUERY)}: {', '.join(names) or 'no confident match'}")
    return [*lines, "Several wishes were found in this query; queries: [...] searches for each by itself."]


def _confidence(result: SearchResult) -> str:
    return f"{result.confidence.level} {_chance(result, 2):.2f}"


def _chance(result: SearchResult, decimals: int) -> float:
    from shortlist.search.fusion import shown_chance  # noqa: PLC0415 - needs numpy, which a gateway starts without

    return shown_chance(result.confidence, decimals)


def _no_match(result: SearchResult, around: Surroundings) -> str:
    closest = [around.name_of(hit.tool.id) for hit in result.hits[:CLOSEST]]
    shown = ", ".join(around.servers[:SHOWN_SERVERS])
    more = len(around.servers) - SHOWN_SERVERS
    servers = f"{shown} and {more} more" if more > 0 else shown
    return (
        f"No confident match for {one_line(result.query.text, SHOWN_QUERY)!r}."
        + (f" Closest: {', '.join(closest)}." if closest else "")
        + (f" Connected servers: {servers}." if servers else " No server is connected.")
    )


def _left_out(entries: tuple[Entry, ...], kept: tuple[Entry, ...], left_out: int, request: SearchRequest) -> list[str]:
    if not left_out:
        return []
    names = ", ".join(entry.name for entry in entries[len(kept) :])
    return [f"Left out to stay within {request.max_tokens} tokens: {names}."]


def _spelling(results: Sequence[SearchResult]) -> list[str]:
    found = {unknown: known for result in results for unknown, known in result.did_you_mean.items()}
    if not found:
        return []
    return ["Searched for " + ", ".join(f"{k!r} instead of {u!r}" for u, k in found.items()) + "."]


def _structured(
    results: Sequence[SearchResult], kept: Sequence[Entry], left_out: int, around: Surroundings
) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "queries": [
            {
                "query": result.query.text,
                "confidence": result.confidence.level,
                "probability": _chance(result, 4),
                "tools": [around.name_of(hit.tool.id) for hit in result.hits],
                "fits": _fits(result),
                **({"wishes": {hit.tool.id: hit.wish for hit in result.hits if hit.wish}} if result.wishes else {}),
            }
            for result in results
        ],
        "tools": {entry.name: entry_row(entry) for entry in kept},
        "left_out": left_out,
        "notes": [*around.notes, *around.suggestions],
        "explanations": {around.name_of(i): text for i, text in around.explanations.items()},
    }
    return {**text_result(json.dumps(answer, ensure_ascii=False)), "structuredContent": answer}
