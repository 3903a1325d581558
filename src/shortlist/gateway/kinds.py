"""Search over what is not a tool: prompts, resources, resource templates, and servers that could be installed.

They are documents of an index beside that of the tools, made by the same search, so that a search for tools is not
changed by them. A caller finds the prompts and resources of a server only where it may use them. Lists are asked for
when somebody first searches for a kind, and again after a server says that they changed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import wire_name
from shortlist.errors import ShortlistError
from shortlist.gateway.ports import ToolSearch
from shortlist.gateway.router import PROMPTS, RESOURCES, TEMPLATES, ListedKind, admitted, listed_items, to_uri
from shortlist.gateway.state import GatewayState
from shortlist.gateway.tools import FoundKind, McpResult, SearchRequest, ToolCall, text_result
from shortlist.models import Filters, Json, Query, SearchResult, Tool
from shortlist.text.tokens import one_line
from shortlist.upstream.events import CallOptions, Notified

LIST_SECONDS = 10.0
DESCRIPTION = 120
LISTED: Mapping[FoundKind, ListedKind] = {"prompts": PROMPTS, "resources": RESOURCES, "templates": TEMPLATES}
_CHANGES: Mapping[str, tuple[FoundKind, ...]] = {
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
_HEADS: Mapping[FoundKind, str] = {
    "prompts": "Prompts, for your client's prompts/get",
    "resources": "Resources, for your client's resources/read",
    "templates": "Resource templates: fill in the braces, then resources/read",
    "servers": "Servers that could be installed; their tools cannot be called before",
}


class KindIndex:
    """The documents of one gateway that are not tools, by server and kind, and the search over them."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._known: dict[tuple[str, FoundKind], tuple[Tool, ...]] = {}
        self._searches: dict[bool, ToolSearch] = {}
        """Servers to install are thousands, and apart from the few prompts and resources."""
        self._refreshing = anyio.Lock()
        state.on_change(self._forget)

    def _forget(self, change: object) -> None:
        """Ask again for lists that a server says have changed."""
        if isinstance(change, Notified) and change.method in _CHANGES:
            for kind in _CHANGES[change.method]:
                self._known.pop((change.server, kind), None)

    async def search(self, call: ToolCall, kind: FoundKind, query: Query) -> SearchResult | None:
        """Search one kind within the caller's reach; None where there is nothing of that kind."""
        servers = await self._refresh(call, kind)
        if not servers:
            return None
        filters = Filters(categories=frozenset({kind}), servers=frozenset(servers))
        found = await self._searches[kind == "servers"].search(replace(query, filters=filters))
        return replace(found, hits=tuple(hit for hit in found.hits if hit.tool.server in servers))

    async def _refresh(self, call: ToolCall, kind: FoundKind) -> list[str]:
        """Return the servers whose documents of a kind are in reach, after listing those that are not known yet."""
        async with self._refreshing:
            before = dict(self._known)
            servers = [""] if kind == "servers" else _able(call, LISTED[kind])
            async with anyio.create_task_group() as tasks:
                for server in servers:
                    if (server, kind) not in self._known:
                        tasks.start_soon(self._list, call, server, kind)
            group = kind == "servers"
            if self._known != before or group not in self._searches:
                members = (tools for (_, each), tools in self._known.items() if (each == "servers") == group)
                catalog = Catalog.of(tool for tools in members for tool in tools)
                make = self._state.seams.search_others or search_over
                self._searches[group] = await anyio.to_thread.run_sync(make, catalog)
            return [server for server in servers if self._known.get((server, kind))]

    async def _list(self, call: ToolCall, server: str, kind: FoundKind) -> None:
        if kind == "servers":
            self._known[server, kind] = tuple(await anyio.to_thread.run_sync(self._state.seams.installable))
            return
        ask = partial(self._state.upstreams.request, server, options=CallOptions(caller=call.exchange))
        with anyio.move_on_after(LIST_SECONDS):
            try:
                items = await listed_items(ask, LISTED[kind])
            except ShortlistError:
                return  # asked again by the next search
            served = await admitted(self._state, server, LISTED[kind], items)
            self._known[server, kind] = tuple(document_of(server, kind, item) for item in served)


def _able(call: ToolCall, listed: ListedKind) -> list[str]:
    """Return the connected servers that offer a kind of thing and are wholly in the caller's reach."""
    state, tools = call.state, call.seen.tools
    return [
        name
        for name in (state.upstreams.states if listed.capability in tools.scope.actions else ())
        if (peer := state.upstreams.peer(name)) is not None
        and listed.capability in peer.capabilities
        and tools.has_server(name)
    ]


def document_of(server: str, kind: FoundKind, item: Mapping[str, Any]) -> Tool:
    """Return a prompt, resource or template as a document; `definition` keeps how it is used."""
    name = str(item.get("name") or "")
    own = str(item.get(LISTED[kind].renamed))
    arguments = [each for each in item.get("arguments") or () if isinstance(each, dict)]
    properties = {str(each.get("name")): {"description": each.get("description") or ""} for each in arguments}
    use = wire_name(server, own) if kind == "prompts" else to_uri(server, own)
    return Tool(
        id=f"{server}/{kind}:{own}",
        name=name or own,
        server=server,
        title=str(item.get("title") or ""),
        description=str(item.get("description") or ""),
        category=kind,
        keywords=(kind,) if kind == "prompts" else (own, kind),
        definition=json.dumps({"name": name, "use": use, "inputSchema": {"type": "object", "properties": properties}}),
    )


def installable_server(name: str, title: str, description: str, tools: int = 0) -> Tool:
    """Return a server of a registry that is not connected, as a document; `tools` is 0 where nobody says how many."""
    return Tool(
        id=f"/servers:{name}",
        name=title or name,
        description=description,
        category="servers",
        keywords=(name, "servers"),
        definition=json.dumps({"name": name, "use": f"shortlist add {name}", "tools": tools}),
    )


_indexes: WeakKeyDictionary[GatewayState, KindIndex] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Found:
    kind: FoundKind
    results: tuple[SearchResult, ...]


async def with_kinds(call: ToolCall, request: SearchRequest, answer: McpResult | None) -> McpResult:
    """Add the hits of other kinds below those of the tools; servers that are not connected come last."""
    state = call.state
    if state not in _indexes:
        _indexes[state] = KindIndex(state)
    found = [await _search_kind(call, request, kind) for kind in _HEADS if kind in request.kinds]
    lines = [line for each in found for line in _lines(each)]
    if answer is None:
        answer = text_result("\n".join(lines) if lines else _nothing(request))
    elif lines:
        answer = {**answer, "content": [*answer["content"], {"type": "text", "text": "\n".join(lines)}]}
    if request.format != "json":
        return answer
    rows = {each.kind: [_row(hit.tool) for result in each.results for hit in result.hits] for each in found}
    return {**answer, "structuredContent": {**(answer.get("structuredContent") or {}), "kinds": rows}}


async def _search_kind(call: ToolCall, request: SearchRequest, kind: FoundKind) -> _Found:
    queries = (Query(text=text, limit=request.limit, mode=request.mode) for text in request.queries)
    results = [await _indexes[call.state].search(call, kind, query) for query in queries]
    return _Found(kind, tuple(result for result in results if result is not None and _fits(result)))


def _fits(result: SearchResult) -> bool:
    return bool(result.hits) and result.confidence.level != "none"


def _lines(found: _Found) -> Iterable[str]:
    shown = {hit.tool.id: hit.tool for result in found.results for hit in result.hits}
    if not shown:
        return
    yield f"{_HEADS[found.kind]}:"
    for tool in shown.values():
        row = _row(tool)
        arguments = f"({', '.join(row['arguments'])})" if row["arguments"] else ""
        said = f": {row['description']}" if row["description"] else ""
        named = "" if row["name"] in row["use"] else f" ({row['name']})"
        if found.kind == "servers":
            yield f"- not connected: {row['name']}{_counted(row)}; ask your user to run `{row['use']}`{said}"
        else:
            yield f"- {row['use']}{arguments}{named}{said}"


def _counted(row: Mapping[str, Json]) -> str:
    tools = row.get("tools")
    return f", {tools} tool{'' if tools == 1 else 's'}" if tools else ""


def _row(tool: Tool) -> dict[str, Json]:
    raw = json.loads(tool.definition)
    properties = (raw.get("inputSchema") or {}).get("properties") or {}
    return {
        **({"tools": raw["tools"]} if raw.get("tools") else {}),
        "name": one_line(tool.title or tool.name, DESCRIPTION),
        "use": one_line(raw["use"], 400),
        "arguments": [one_line(name, 64) for name in properties],
        "description": one_line(tool.description, DESCRIPTION),
    }


def _nothing(request: SearchRequest) -> str:
    asked = ", ".join(request.kinds)
    return f"No confident match among {asked} for {one_line(request.queries[0], 80)!r}. Rephrase, or search for tools."


def search_over(catalog: Catalog) -> ToolSearch:
    """Return a search by words and by the static model, which embeds thousands of short documents in a moment."""
    from shortlist.index.choosing import static_model  # noqa: PLC0415 - half of a start
    from shortlist.search.engine import Engine  # noqa: PLC0415
    from shortlist.search.searcher import Searcher  # noqa: PLC0415

    searcher = Searcher(catalog, static_model())
    searcher.prepare()
    return Engine.over(searcher)
