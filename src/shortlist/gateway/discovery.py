"""search_tools and describe_tools."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shortlist.catalog.toolsets import toolsets_for_intent
from shortlist.disclosure.render import describe_text
from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.gateway.answers import Surroundings, circle_answer, search_answer, text_result
from shortlist.gateway.metatools import SearchRequest, defaults_of, names_argument, search_request
from shortlist.gateway.state import State, did_you_mean
from shortlist.gateway.workspaces import Caller, Workspace
from shortlist.models import Filters, Hit, Json, Query, SearchResult, Tool, ToolId

CIRCLE_SEARCHES = 3
"""So often the same hits are shown without a call in between."""


class Discovery:
    """Finds tools for a caller, among those it may see."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def search(self, caller: Caller, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Answer search_tools."""
        variant = self._state.variant(caller)
        request = search_request(arguments, defaults_of(variant))
        filters, notes = self._filters(caller, request)
        workspace = self._state.workspaces.for_circles(caller)
        plain = [self._query(text, request, filters, workspace) for text in request.queries]
        asker = self._state.settings.asker(caller.name)
        queries = [replace(query, pipeline=variant.pipeline, asker=asker) for query in plain]
        results = [await self._state.search.search(query) for query in queries]
        results = [replace(result, hits=self._current(result.hits)[request.offset :]) for result in results]
        found = frozenset(hit.tool.id for result in results for hit in result.hits)
        waits = bool(self._state.connecting(caller))  # who asks again until a server has come is no circle
        if workspace is not None and not waits and workspace.circles(found, CIRCLE_SEARCHES):
            return self._break_circle(caller, request, found, workspace)
        answer = search_answer(request, results, await self._surroundings(caller, request, results, notes))
        self._state.recording.searched(caller, request, results, answer)
        return answer

    async def describe(self, caller: Caller, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Answer describe_tools; a name that is unknown gets a suggestion beside the others' schemas."""
        found: list[ToolId] = []
        parts: list[str] = []
        for name in names_argument(arguments):
            try:
                tool = self._state.find(caller, name)
            except ToolNotFound as error:
                parts.append(str(error))
                continue
            found.append(tool.id)
            parts.append(describe_text(tool, self._state.snapshot.name(tool.id), self._extras(tool)))
        answer = text_result("\n\n".join(parts), is_error=not found)
        self._state.recording.described(caller, found, answer)
        return answer

    def _query(self, text: str, request: SearchRequest, filters: Filters, workspace: Workspace | None) -> Query:
        recent = tuple(workspace.tools) if workspace else ()
        tools = self._state.snapshot.catalog.tools
        return Query(
            text=text,
            limit=request.offset + request.limit,
            mode=request.mode,
            filters=filters,
            recent_tools=recent,
            recent_servers=tuple(dict.fromkeys(tools[i].server for i in recent if i in tools)),
            collapse=True,
        )

    def _current(self, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        """Drop what is gone from the catalog and not yet from the index."""
        return tuple(hit for hit in hits if hit.tool.id in self._state.snapshot.catalog.tools)

    def _filters(self, caller: Caller, request: SearchRequest) -> tuple[Filters, tuple[str, ...]]:
        among = self._state.visible(caller)
        notes: tuple[str, ...] = ()
        if request.toolsets is not None:
            among = _both(among, self._members(sorted(request.toolsets)))
        if request.intent is not None:
            meant = toolsets_for_intent(request.intent, self._state.snapshot.toolsets, self._state.settings.intents)
            narrowed = _both(among, self._members(meant))
            among = narrowed or among
            if not narrowed:
                notes = (f"The intent {request.intent!r} matches no toolset here: everything was searched.",)
        filters = Filters(
            servers=self._known_servers(caller, request.servers),
            categories=frozenset({request.category}) if request.category else None,
            read_only=request.read_only,
            among=among,
        )
        return filters, notes

    def _members(self, toolsets: Iterable[str]) -> frozenset[ToolId]:
        return frozenset(tool_id for name in toolsets for tool_id in self._state.toolset(name))

    def _known_servers(self, caller: Caller, names: frozenset[str] | None) -> frozenset[str] | None:
        if names is None:
            return None
        known = self._state.visible_servers(caller)
        for name in sorted(names - {*known, *self._state.connecting(caller)}):
            raise InvalidInput(f"No server {name!r}. {did_you_mean(name, known)}")
        return names

    def _break_circle(
        self, caller: Caller, request: SearchRequest, found: frozenset[ToolId], workspace: Workspace
    ) -> dict[str, Json]:
        query, state = request.queries[0], self._state
        names = [state.snapshot.name(tool_id) for tool_id in sorted(found)]
        answer = circle_answer(query, names, workspace.times(found))
        state.recording.circle_broken(caller, query, answer)
        return answer

    async def _surroundings(
        self, caller: Caller, request: SearchRequest, results: Sequence[SearchResult], notes: tuple[str, ...]
    ) -> Surroundings:
        said = dict.fromkeys(note for result in results for note in result.notes)
        return Surroundings(
            name_of=self._state.snapshot.name,
            note_of=lambda hit: self._state.server_note(hit.tool.server),
            servers=self._state.visible_servers(caller),
            notes=(*notes, *said, *self._waiting(caller)),
            suggestions=self._suggestions(caller, results),
            explanations=await self._explanations(results) if request.explain else {},
            toon=self._state.options.toon,
        )

    def _waiting(self, caller: Caller) -> tuple[str, ...]:
        names = self._state.connecting(caller)
        return (f"Still connecting, their tools are not searched yet: {', '.join(names)}.",) if names else ()

    def _suggestions(self, caller: Caller, results: Sequence[SearchResult]) -> tuple[str, ...]:
        """Offer to load what was found, where loading is a way to call it."""
        snapshot = self._state.view(caller)
        if snapshot.mode != "dynamic":
            return ()
        fitting = (hit.tool for result in results if result.confidence.level != "none" for hit in result.hits)
        hits = [tool for tool in fitting if not self._state.is_bound(caller, tool.id)]
        if not hits:
            return ()
        offered = [name for name in dict.fromkeys(tool.server for tool in hits) if name in snapshot.toolsets]
        self._state.recording.suggested(caller, offered)
        sets = ", ".join(f"{name!r} ({len(snapshot.toolsets[name].tools)} tools)" for name in offered)
        first = snapshot.name(hits[0].id)
        return (f"Not loaded yet: load_tools(names=[{first!r}]), or load_toolset of {sets}.",)

    async def _explanations(self, results: Sequence[SearchResult]) -> dict[ToolId, str]:
        explain = self._state.seams.explain
        if explain is None:
            return {}
        return {hit.tool.id: await explain(result.query, hit.tool.id) for result in results for hit in result.hits}

    def _extras(self, tool: Tool) -> list[str]:
        state = self._state
        note = state.server_note(tool.server)
        partners = sorted(state.seams.co_use(tool.id)) if state.seams.co_use else []
        names = ", ".join(state.snapshot.name(i) for i in partners if i in state.snapshot.catalog.tools)
        return [*([f"note: {note}"] if note else []), *([f"often used with: {names}"] if names else [])]


def _both(one: frozenset[ToolId] | None, other: frozenset[ToolId]) -> frozenset[ToolId]:
    return other if one is None else one & other
