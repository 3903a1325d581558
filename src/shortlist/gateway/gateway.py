"""What may be found, described, loaded and called, by whom; everything MCP is translated elsewhere."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

import anyio
import anyio.to_thread
from rapidfuzz import process

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.toolsets import CoUse, toolsets_for_intent
from shortlist.config.settings import Settings, TokenSettings
from shortlist.disclosure.render import bound_definition, compact_json, describe_text
from shortlist.errors import InvalidInput, ShortlistError, ToolNotFound
from shortlist.gateway.answers import Surroundings, circle_answer, search_answer, text_result
from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.instructions import instructions_of
from shortlist.gateway.metatools import (
    ALIASES,
    META_NAMES,
    SearchRequest,
    menu_definitions,
    names_argument,
    object_argument,
    read_request,
    search_request,
    text_argument,
)
from shortlist.gateway.results import (
    Results,
    page_notice,
    paged_result,
    text_of_result,
)
from shortlist.gateway.rounds import OpenCalls, is_input_required, relay
from shortlist.gateway.snapshot import Options, Snapshot, check_options, take_snapshot
from shortlist.gateway.validation import Check, check_arguments
from shortlist.gateway.workspaces import Caller, Key, Workspace, Workspaces, workspace_key
from shortlist.models import Filters, Hit, Json, Query, SearchResult, Server, Tool, ToolId
from shortlist.telemetry.events import (
    CatalogChanged,
    Called,
    CircleBroken,
    Described,
    Loaded,
    Outcome,
    Record,
    Searched,
    Unloaded,
    record_nothing,
)
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import CallOptions, Notified, StateChanged, ToolsChanged, UpstreamEvent, UpstreamStatus

CIRCLE_SEARCHES = 3
"""So often the same hits are shown without a call in between."""
SUGGESTED_NAMES = 3
SIMILAR_ENOUGH = 55
SCHEMA_CHARACTERS = 6_000
"""How much of a schema a refused call shows."""
IN_THREAD_CHARACTERS = 500_000
"""Larger results are cut into pages beside the event loop."""

Result: TypeAlias = dict[str, Any]


class ToolSearch(Protocol):
    """What the gateway asks of search."""

    @property
    def catalog(self) -> Catalog: ...

    def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...


class Upstreams(Protocol):
    """What the gateway asks of the servers behind it."""

    def status(self) -> Mapping[str, UpstreamStatus]: ...

    async def request(
        self, server: str, method: str, params: Mapping[str, Json] = ..., *, options: CallOptions = ...
    ) -> dict[str, Json]: ...


@dataclass(frozen=True, slots=True)
class ListChanged:
    """The tools that are listed have changed: in one workspace, or for everybody."""

    workspace: Key | None = None


Change: TypeAlias = ListChanged | Notified
OnChange: TypeAlias = Callable[[Change], None]
MetaTool: TypeAlias = Callable[[Exchange, Mapping[str, Json], Round], Awaitable[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What others may plug in: a record of events, and what is known about use."""

    record: Record = record_nothing
    co_use: CoUse | None = None
    save: Callable[[Server, Sequence[Tool]], None] | None = None
    explain: Callable[[Query, ToolId], str] | None = None
    stale: frozenset[str] = field(default_factory=frozenset)
    """Servers whose tools come from a saved catalog until they connect."""


class Gateway:
    """One catalog over all servers; an async context manager that owns the calls left open between round trips."""

    def __init__(
        self,
        settings: Settings,
        search: ToolSearch,
        upstreams: Upstreams,
        *,
        options: Options = Options(),
        seams: Seams = Seams(),
    ) -> None:
        check_options(settings, options)
        limits = settings.limits
        self.settings = settings
        self.workspaces = Workspaces(seconds=limits.workspace_seconds, most=limits.workspaces)
        self._search = search
        self._upstreams = upstreams
        self._options = options
        self._seams = seams
        self._stale = set(seams.stale)
        self._results = Results(characters=limits.result_characters, seconds=limits.result_seconds, most=limits.results)
        self._arrival: dict[ToolId, int] = {}
        self._listeners: list[OnChange] = []
        self._tasks = anyio.create_task_group()
        self.open_calls = OpenCalls(self._tasks)
        self.snapshot = self._take_snapshot()
        self._meta: Mapping[str, MetaTool] = {
            "search_tools": self._search_tools,
            "describe_tools": self._describe_tools,
            "call_tool": self._call_tool,
            "read_result": self._read_result,
            "list_toolsets": self._list_toolsets,
            "load_toolset": self._load_toolset,
            "load_tools": self._load_tools,
            "unload_toolset": self._unload_toolset,
        }

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    # What a client sees.

    def instructions(self, caller: Caller) -> str:
        """Say when to search, and name the servers; the same bytes while the catalog is the same."""
        return instructions_of(self.snapshot, self._visible_servers(caller))

    def list_tools(self, caller: Caller) -> list[dict[str, Json]]:
        """Give the definitions that this caller's client shows: the menu, what is bound, and at the end what is loaded."""
        snapshot = self.snapshot
        menu = menu_definitions(snapshot.menu) if snapshot.menu else []
        return menu + [bound_definition(snapshot.catalog.tools[i], snapshot.name(i)) for i in self._bound(caller)]

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Json], turn: Round) -> Result:
        """Answer a `tools/call`: a bound tool by its own name, one of the gateway's, or any that may be found."""
        tool_id = self.snapshot.names.by_name.get(name)
        if tool_id is not None and tool_id in self._bound(exchange.caller):
            return await self._relay(exchange, self.find(exchange.caller, name), arguments, turn, native=True)
        if self.snapshot.plain:
            return await self._relay_unknown(exchange, name, arguments, turn)
        target, translate = ALIASES.get(name, (name, dict))
        if target in META_NAMES:
            return await self._meta[target](exchange, translate(arguments), turn)
        return await self._call_found(exchange, name, arguments, turn)

    # Who may see what: the one place.

    def find(self, caller: Caller, name: str) -> Tool:
        """Give the tool of a wire name, an id, or a bare name that is unique; raises where it may not be seen."""
        snapshot = self.snapshot
        tool_id = snapshot.names.by_name.get(name) or (name if name in snapshot.catalog.tools else None)
        if tool_id is not None and self.may_see(caller, tool_id):
            return snapshot.catalog.tools[tool_id]
        bare = [t for t in snapshot.catalog.tools.values() if t.name == name and self.may_see(caller, t.id)]
        if len(bare) == 1:
            return bare[0]
        if bare:
            raise ToolNotFound(name, suggestions=[snapshot.name(tool.id) for tool in bare[:SUGGESTED_NAMES]])
        raise ToolNotFound(name, suggestions=self._similar(caller, name))

    def may_see(self, caller: Caller, tool_id: ToolId) -> bool:
        visible = self.snapshot.visible(self._token(caller))
        return tool_id in self.snapshot.catalog.tools and (visible is None or tool_id in visible)

    def may_see_server(self, caller: Caller, server: str) -> bool:
        """Say whether a caller may use a server's prompts and resources: where it may see the whole server."""
        token = self._token(caller)
        if token is None or (token.servers is None and token.toolsets is None):
            return True
        return server in (token.servers or ())

    def _token(self, caller: Caller) -> TokenSettings | None:
        return self.settings.tokens.get(caller.name) if caller.has_token else None

    def _visible_servers(self, caller: Caller) -> tuple[str, ...]:
        visible = self.snapshot.visible(self._token(caller))
        tools = self.snapshot.catalog.tools
        if visible is None:
            return tuple(name for name, held in self.snapshot.catalog.by_server.items() if held)
        return tuple(sorted({tools[tool_id].server for tool_id in visible if tool_id in tools}))

    def _bound(self, caller: Caller) -> tuple[ToolId, ...]:
        workspace = self.workspaces.of(caller)
        loaded = tuple(workspace.loaded) if workspace else ()
        ids = dict.fromkeys((*self.snapshot.bound, *loaded)) if loaded else self.snapshot.bound
        return tuple(tool_id for tool_id in ids if self.may_see(caller, tool_id))

    def _similar(self, caller: Caller, name: str) -> tuple[str, ...]:
        visible = self.snapshot.visible(self._token(caller))
        names = [n for n, i in self.snapshot.names.by_name.items() if visible is None or i in visible]
        found = process.extract(name[:200], names, limit=SUGGESTED_NAMES, score_cutoff=SIMILAR_ENOUGH)
        return tuple(match for match, _, _ in found)

    # search_tools

    async def _search_tools(self, exchange: Exchange, arguments: Mapping[str, Json], _: Round) -> Result:
        caller, request = exchange.caller, search_request(arguments)
        filters, notes = self._filters(caller, request)
        workspace = self.workspaces.of(caller)
        results = [self._search.search(self._query(text, request, filters, workspace)) for text in request.queries]
        results = [replace(r, hits=r.hits[request.offset :]) for r in results]
        found = frozenset(hit.tool.id for result in results for hit in result.hits)
        if workspace is not None and workspace.circles(found, CIRCLE_SEARCHES):
            return self._break_circle(caller, request, found, workspace)
        answer = search_answer(request, results, self._surroundings(caller, request, results, notes))
        self._record_searches(caller, results, answer)
        return answer

    def _query(self, text: str, request: SearchRequest, filters: Filters, workspace: Workspace | None) -> Query:
        recent = tuple(workspace.tools) if workspace else ()
        tools = self.snapshot.catalog.tools
        return Query(
            text=text,
            limit=request.offset + request.limit,
            mode=request.mode,
            filters=filters,
            recent_tools=recent,
            recent_servers=tuple(dict.fromkeys(tools[i].server for i in recent if i in tools)),
            collapse=True,
        )

    def _filters(self, caller: Caller, request: SearchRequest) -> tuple[Filters, tuple[str, ...]]:
        among = self.snapshot.visible(self._token(caller))
        notes: list[str] = []
        if request.toolsets is not None:
            among = _both(among, self._members(self._known_toolsets(request.toolsets)))
        if request.intent is not None:
            meant = toolsets_for_intent(request.intent, self.snapshot.toolsets, self.settings.intents)
            narrowed = _both(among, self._members(meant))
            if narrowed:
                among = narrowed
            else:
                notes.append(f"The intent {request.intent!r} matches no toolset here: everything was searched.")
        filters = Filters(
            servers=self._known_servers(caller, request.servers),
            categories=frozenset({request.category}) if request.category else None,
            read_only=request.read_only,
            among=among,
        )
        return filters, tuple(notes)

    def _members(self, toolsets: Iterable[str]) -> frozenset[ToolId]:
        return frozenset(i for name in toolsets for i in self.snapshot.toolsets[name].tools)

    def _known_toolsets(self, names: frozenset[str]) -> frozenset[str]:
        for name in sorted(names):
            self._toolset(name)
        return names

    def _known_servers(self, caller: Caller, names: frozenset[str] | None) -> frozenset[str] | None:
        if names is None:
            return None
        known = self._visible_servers(caller)
        for name in sorted(names - set(known)):
            raise InvalidInput(f"No server {name!r}. {_did_you_mean(name, known)}")
        return names

    def _break_circle(
        self, caller: Caller, request: SearchRequest, found: frozenset[ToolId], workspace: Workspace
    ) -> Result:
        query = request.queries[0]
        self._seams.record(CircleBroken(caller=caller.name, workspace=workspace_key(caller), query=query))
        names = [self.snapshot.name(tool_id) for tool_id in sorted(found)]
        return circle_answer(query, names, sum(1 for s in workspace.searches if s == found))

    def _surroundings(
        self,
        caller: Caller,
        request: SearchRequest,
        results: Sequence[SearchResult],
        notes: tuple[str, ...],
    ) -> Surroundings:
        status = self._upstreams.status()
        said = dict.fromkeys(note for result in results for note in result.notes)
        return Surroundings(
            name_of=self.snapshot.name,
            note_of=lambda hit: self._server_note(hit.tool.server, status),
            servers=self._visible_servers(caller),
            notes=(*notes, *said),
            suggestions=self._suggestions(caller, results),
            explanations=self._explanations(results) if request.explain else {},
            toon=self._options.toon,
        )

    def _server_note(self, server: str, status: Mapping[str, UpstreamStatus]) -> str:
        state = status[server].state if server in status else "ready"
        if server in self._stale:
            return "stale: from the saved catalog"
        return "" if state == "ready" else f"server {state.replace('_', ' ')}"

    def _suggestions(self, caller: Caller, results: Sequence[SearchResult]) -> tuple[str, ...]:
        """Offer to load what was found, where loading is a way to call it."""
        if self.snapshot.mode != "dynamic":
            return ()
        bound = set(self._bound(caller))
        hits = [h.tool for r in results if r.confidence.level != "none" for h in r.hits if h.tool.id not in bound]
        if not hits:
            return ()
        servers = dict.fromkeys(tool.server for tool in hits)
        sets = ", ".join(
            f"{name} ({len(self.snapshot.toolsets[name].tools)} tools)"
            for name in servers
            if name in self.snapshot.toolsets
        )
        first = self.snapshot.name(hits[0].id)
        return (f"Not loaded yet: load_tools(names=[{first!r}]), or load_toolset of {sets}.",)

    def _explanations(self, results: Sequence[SearchResult]) -> dict[ToolId, str]:
        explain = self._seams.explain
        if explain is None:
            return {}
        return {hit.tool.id: explain(result.query, hit.tool.id) for result in results for hit in result.hits}

    def _record_searches(self, caller: Caller, results: Sequence[SearchResult], answer: Result) -> None:
        characters = sum(len(block["text"]) for block in answer["content"])
        for result in results:
            self._seams.record(
                Searched(
                    caller=caller.name,
                    workspace=workspace_key(caller),
                    query=result.query.text,
                    hits=tuple((hit.tool.id, hit.score) for hit in result.hits),
                    confidence=result.confidence.level,
                    milliseconds=result.milliseconds,
                    tokens=characters // 4 // len(results),
                )
            )

    # describe_tools

    async def _describe_tools(self, exchange: Exchange, arguments: Mapping[str, Json], _: Round) -> Result:
        found: list[Tool] = []
        parts: list[str] = []
        for name in names_argument(arguments):
            try:
                tool = self.find(exchange.caller, name)
            except ToolNotFound as error:
                parts.append(str(error))
                continue
            found.append(tool)
            parts.append(describe_text(tool, self.snapshot.name(tool.id), self._extras(tool)))
        self._seams.record(
            Described(
                caller=exchange.caller.name,
                workspace=workspace_key(exchange.caller),
                tools=tuple(tool.id for tool in found),
            )
        )
        return text_result("\n\n".join(parts), is_error=not found)

    def _extras(self, tool: Tool) -> list[str]:
        note = self._server_note(tool.server, self._upstreams.status())
        partners = sorted(self._seams.co_use(tool.id)) if self._seams.co_use else []
        names = ", ".join(self.snapshot.name(i) for i in partners if i in self.snapshot.catalog.tools)
        return [*([f"note: {note}"] if note else []), *([f"often used with: {names}"] if names else [])]

    # call_tool

    async def _call_tool(self, exchange: Exchange, arguments: Mapping[str, Json], turn: Round) -> Result:
        name = text_argument(arguments, "name")
        own, _ = ALIASES.get(name, (name, dict))
        if own in META_NAMES and name not in self.snapshot.names.by_name:
            if own == "call_tool":
                raise InvalidInput("call_tool cannot call itself. Give the name of a tool that search_tools found.")
            return await self.call(exchange, name, object_argument(arguments, "arguments"), turn)
        return await self._call_found(exchange, name, object_argument(arguments, "arguments"), turn)

    async def _call_found(self, exchange: Exchange, name: str, arguments: Mapping[str, Json], turn: Round) -> Result:
        """Call a tool that the client has no schema of: checked before it is sent, paged when it is large."""
        tool = self.find(exchange.caller, name)
        check = check_arguments(tool, arguments)
        if check.violations:
            self._record_call(exchange.caller, tool, "invalid_arguments", 0.0, native=False)
            return self._refusal(tool, check)
        result = await self._relay(exchange, tool, arguments, turn, native=False)
        if check.unchecked:
            result = _with_note(result, f"[The arguments were not checked: {check.unchecked}.]")
        return await self._paged(exchange.caller, result)

    def _refusal(self, tool: Tool, check: Check) -> Result:
        name = self.snapshot.name(tool.id)
        schema = compact_json(tool.input_schema)
        if len(schema) > SCHEMA_CHARACTERS:
            schema = f"{schema[:SCHEMA_CHARACTERS]}… (describe_tools shows all of it)"
        wrong = "\n".join(f"- {violation}" for violation in check.violations)
        return text_result(
            f"{name} was NOT invoked: its arguments do not fit its schema.\n{wrong}\nSchema: {schema}",
            is_error=True,
        )

    async def _relay(
        self, exchange: Exchange, tool: Tool, arguments: Mapping[str, Json], turn: Round, *, native: bool
    ) -> Result:
        started = perf_counter()
        outcome: Outcome = "failed"
        try:
            result = await self._send_call(exchange, tool.server, tool.name, arguments, turn)
            outcome = "input_required" if is_input_required(result) else "error" if result.get("isError") else "ok"
            return result
        finally:
            self._record_call(exchange.caller, tool, outcome, (perf_counter() - started) * 1000, native=native)
            workspace = self.workspaces.of(exchange.caller)
            if workspace is not None:
                workspace.called(tool.id)

    async def _relay_unknown(self, exchange: Exchange, name: str, arguments: Mapping[str, Json], turn: Round) -> Result:
        """Let the only server say itself that it has no such tool."""
        return await self._send_call(exchange, next(iter(self.settings.servers)), name, arguments, turn)

    async def _send_call(
        self, exchange: Exchange, server: str, name: str, arguments: Mapping[str, Json], turn: Round
    ) -> Result:
        params = {"name": name, "arguments": dict(arguments)}
        return await self.request(exchange, server, "tools/call", params, turn)

    async def request(
        self, exchange: Exchange, server: str, method: str, params: Mapping[str, Json], turn: Round
    ) -> Result:
        """Relay a request to a server, through as many round trips as it takes."""

        async def send(asker: Exchange, more: Mapping[str, Json]) -> dict[str, Json]:
            options = CallOptions(meta=turn.meta or None, on_progress=asker.progress, caller=asker)
            return await self._upstreams.request(server, method, {**params, **more}, options=options)

        status = self._upstreams.status().get(server)
        return await relay(exchange, turn, send, era=status.era if status else None, open_calls=self.open_calls)

    async def _paged(self, caller: Caller, result: Result) -> Result:
        if is_input_required(result):
            return result
        text = text_of_result(result)
        if len(text) <= self._results.characters:
            return result
        owner = _owner(caller)
        if len(text) > IN_THREAD_CHARACTERS:
            handle = await anyio.to_thread.run_sync(self._results.keep, owner, text)
        else:
            handle = self._results.keep(owner, text)
        return paged_result(result, self._results.page(owner, handle), handle)

    def _record_call(self, caller: Caller, tool: Tool, outcome: Outcome, milliseconds: float, *, native: bool) -> None:
        self._seams.record(
            Called(
                caller=caller.name,
                workspace=workspace_key(caller),
                tool=tool.id,
                outcome=outcome,
                milliseconds=milliseconds,
                native=native,
            )
        )

    # read_result

    async def _read_result(self, exchange: Exchange, arguments: Mapping[str, Json], _: Round) -> Result:
        request, owner = read_request(arguments), _owner(exchange.caller)
        if request.query is None:
            page = self._results.page(owner, request.handle, request.offset)
            notice = {"type": "text", "text": page_notice(page, request.handle)}
            return {"content": [{"type": "text", "text": page.text}, notice]}
        passages = self._results.passages(owner, request.handle, request.query)
        if not passages:
            return text_result(f"Nothing in the result matches {request.query!r}. Read it with offset=0.")
        return text_result("\n\n".join(f"[offset {p.offset}]\n{p.text}" for p in passages))

    # Toolsets

    async def _list_toolsets(self, exchange: Exchange, _: Mapping[str, Json], __: Round) -> Result:
        visible = self.snapshot.visible(self._token(exchange.caller))
        bound = set(self._bound(exchange.caller))
        lines = []
        for toolset in self.snapshot.toolsets.values():
            tools = [i for i in toolset.tools if visible is None or i in visible]
            if tools:
                loaded = sum(1 for tool_id in tools if tool_id in bound)
                state = f", {loaded} loaded" if loaded else ""
                description = f": {_short(toolset.description)}" if toolset.description else ""
                lines.append(f"{toolset.name} ({len(tools)} tools{state}){description}")
        return text_result("\n".join(lines) or "No toolsets: no server is connected.")

    async def _load_toolset(self, exchange: Exchange, arguments: Mapping[str, Json], _: Round) -> Result:
        toolset = text_argument(arguments, "toolset")
        tools = [i for i in self._toolset(toolset) if self.may_see(exchange.caller, i)]
        return self._load(exchange.caller, arguments, tools, toolset)

    async def _load_tools(self, exchange: Exchange, arguments: Mapping[str, Json], _: Round) -> Result:
        names = names_argument(arguments, most=50)
        return self._load(exchange.caller, arguments, [self.find(exchange.caller, n).id for n in names], "")

    def _load(self, caller: Caller, arguments: Mapping[str, Json], tools: Sequence[ToolId], toolset: str) -> Result:
        started = perf_counter()
        owner, handle = self._workspace_for(caller, arguments)
        workspace = self.workspaces.of(owner)
        assert workspace is not None  # `_workspace_for` makes one where there was none
        new = workspace.load((i for i in tools if i not in self.snapshot.bound), toolset)
        milliseconds = (perf_counter() - started) * 1000
        self._seams.record(
            Loaded(
                caller=caller.name,
                workspace=workspace_key(owner),
                toolset=toolset,
                tools=new,
                milliseconds=milliseconds,
            )
        )
        if new:
            self._announce(ListChanged(workspace_key(owner)))
        return text_result(self._loaded_text(tools, new, toolset, handle))

    def _loaded_text(self, tools: Sequence[ToolId], new: Sequence[ToolId], toolset: str, handle: str | None) -> str:
        what = f"toolset {toolset!r}" if toolset else "tools"
        names = ", ".join(self.snapshot.name(i) for i in (new or tools))
        status = "loaded" if new else "already_loaded"
        lines = [f"{status}: {what}: {names}", "Call them directly, or through call_tool if they are not listed yet."]
        if handle is not None:
            lines.append(
                f"workspace: {handle} (pass it as `workspace`, or connect to /mcp/w/{handle} to list its tools)"
            )
        return "\n".join(lines)

    def _workspace_for(self, caller: Caller, arguments: Mapping[str, Json]) -> tuple[Caller, str | None]:
        """Find the workspace to load into; a modern client that names none is given a new handle."""
        named = arguments.get("workspace")
        if isinstance(named, str) and named.strip():
            return replace(caller, handle=named.strip()), None
        if workspace_key(caller) is not None:
            return caller, None
        handle = self.workspaces.mint(caller)
        return replace(caller, handle=handle), handle

    async def _unload_toolset(self, exchange: Exchange, arguments: Mapping[str, Json], _: Round) -> Result:
        caller, toolset = exchange.caller, text_argument(arguments, "toolset")
        tools = self._toolset(toolset)
        named = arguments.get("workspace")
        owner = replace(caller, handle=named.strip()) if isinstance(named, str) and named.strip() else caller
        workspace = self.workspaces.of(owner)
        gone = workspace.unload(tools) if workspace else ()
        if not gone:
            return text_result(self._not_unloaded(toolset, tools), is_error=True)
        key = workspace_key(owner)
        self._seams.record(Unloaded(caller=caller.name, workspace=key, toolset=toolset, tools=gone))
        self._announce(ListChanged(key))
        return text_result(f"unloaded: toolset {toolset!r}: {', '.join(self.snapshot.name(i) for i in gone)}")

    def _not_unloaded(self, toolset: str, tools: Sequence[ToolId]) -> str:
        if set(tools) & set(self.snapshot.bound):
            return (
                f"refused: toolset {toolset!r} is bound by this gateway's preset or always_load, for every client. "
                "It can only be changed in the configuration."
            )
        return f"not_loaded: toolset {toolset!r} has no loaded tools here. list_toolsets shows what is loaded."

    def _toolset(self, name: str) -> tuple[ToolId, ...]:
        toolset = self.snapshot.toolsets.get(name)
        if toolset is None:
            raise InvalidInput(f"No toolset {name!r}. {_did_you_mean(name, tuple(self.snapshot.toolsets))}")
        return toolset.tools

    # What changes underneath.

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """Tell a listener what clients should hear of; gives the way to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the request that caused it, until the gateway closes."""
        self._tasks.start_soon(work)

    def on_upstream(self, event: UpstreamEvent) -> None:
        """Take up what a server reports: its tools, its state, its notifications."""
        if isinstance(event, ToolsChanged):
            self._take_tools(event)
        elif isinstance(event, Notified):
            self._announce(event)
        elif isinstance(event, StateChanged) and event.status.state == "stopped":
            self._stale.discard(event.server)

    def _take_tools(self, event: ToolsChanged) -> None:
        server = self._server(event.server)
        self._stale.discard(event.server)
        catalog = self._search.catalog.with_server(server, event.tools)
        if not self._search.catalog.diff(catalog) and catalog.servers == self._search.catalog.servers:
            return
        self._search.update(catalog)
        self._renew()
        if self._seams.save is not None:
            self._seams.save(server, event.tools)
        self._seams.record(CatalogChanged(server=event.server, tools=len(event.tools), fingerprint=catalog.fingerprint))

    def _server(self, name: str) -> Server:
        settings, status = self.settings.servers.get(name), self._upstreams.status().get(name)
        info = status.peer.info if status and status.peer else {}
        said = status.peer.instructions if status and status.peer else ""
        known = self._search.catalog.servers.get(name, Server(name=name))
        return Server(
            name=name,
            title=_text(info.get("title")) or known.title,
            description=(settings.description if settings else "")
            or _text(info.get("description"))
            or said
            or known.description,
            categories=known.categories,
            tags=settings.tags if settings else known.tags,
        )

    def configure(self, settings: Settings) -> None:
        """Take up a new configuration; servers that are gone take their tools with them."""
        self.settings = settings
        catalog = self._search.catalog
        for name in set(catalog.servers) - set(settings.servers):
            catalog = catalog.without_server(name)
        self._search.update(catalog)
        self._renew()

    def _renew(self) -> None:
        before = self._listed()
        self.snapshot = self._take_snapshot()
        if self._listed() != before:
            self._announce(ListChanged())

    def _listed(self) -> tuple[tuple[str, str], ...]:
        """Give what every client's list is made of, short enough to compare."""
        tools = self.snapshot.catalog.tools
        return (
            (self.snapshot.menu or "", ""),
            *((self.snapshot.name(i), tools[i].content_hash) for i in self.snapshot.bound),
        )

    def _take_snapshot(self) -> Snapshot:
        snapshot = take_snapshot(self._search.catalog, self.settings, self._options, self._seams.co_use)
        for tool_id in snapshot.bound:
            self._arrival.setdefault(tool_id, len(self._arrival))
        # What was listed keeps its place and what is new comes last, so that prompt caches survive.
        ordered = tuple(sorted(snapshot.bound, key=self._arrival.__getitem__))
        return replace(snapshot, bound=ordered)

    def _announce(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def error_text(error: ShortlistError) -> Result:
    """Make a result of an error that a model can act on."""
    return text_result(str(error), is_error=True)


def is_for_the_client(error: ShortlistError) -> bool:
    """Say whether an error is a server's own JSON-RPC error, to be relayed as such."""
    return isinstance(error, UpstreamRefused)


def _both(one: frozenset[ToolId] | None, other: frozenset[ToolId]) -> frozenset[ToolId]:
    return other if one is None else one & other


def _owner(caller: Caller) -> str:
    """A result is read by the caller it was made for, in whatever session it comes back."""
    return caller.name


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    similar = process.extractOne(name, known, score_cutoff=SIMILAR_ENOUGH)
    if similar:
        return f"Did you mean {similar[0]!r}?"
    return f"There are {', '.join(known[:20])}{' …' if len(known) > 20 else ''}." if known else "There are none."


def _with_note(result: Result, note: str) -> Result:
    return {**result, "content": [*(result.get("content") or ()), {"type": "text", "text": note}]}


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


__all__ = ["Gateway", "Hit", "ListChanged", "Options", "Seams", "ToolSearch", "Upstreams", "error_text"]
