"""What the gateway holds, and the one place that decides who may see what."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from rapidfuzz import process

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.toolsets import CoUse
from shortlist.config.settings import Settings, TokenSettings
from shortlist.errors import InvalidConfig, InvalidInput, ToolNotFound
from shortlist.gateway.exchange import Exchange
from shortlist.gateway.recording import Recording
from shortlist.gateway.results import Results
from shortlist.gateway.snapshot import Options, Snapshot, served_as, take_snapshot
from shortlist.gateway.uris import SeenUris
from shortlist.gateway.workspaces import Caller, Key, Workspaces, activity_key
from shortlist.models import Json, Query, SearchResult, Server, Tool, ToolId
from shortlist.telemetry.events import RecordEvent, record_nothing
from shortlist.telemetry.experiments.plan import Assign, Variant, as_configured
from shortlist.upstream.errors import UpstreamUnavailable
from shortlist.upstream.events import CallOptions, Notified, Peer, UpstreamStatus
from shortlist.upstream.events import State as UpstreamState

SUGGESTED_NAMES = 3
SIMILAR_ENOUGH = 60
SHORTEST_GUESS = 3
STILL_STARTING = "it is still starting and its tools are not known yet; try again shortly"


class ToolSearch(Protocol):
    """What the gateway needs of search. An update may take effect a little later."""

    @property
    def catalog(self) -> Catalog: ...

    async def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...


class Upstreams(Protocol):
    """What the gateway asks of the servers behind it."""

    def status(self) -> Mapping[str, UpstreamStatus]: ...

    def states(self) -> Mapping[str, UpstreamState]: ...

    def peer(self, server: str) -> Peer | None:
        """Give what a server said about itself, without looking at the others; None until it has."""
        ...

    async def request(
        self, server: str, method: str, params: Mapping[str, Json] = ..., *, options: CallOptions = ...
    ) -> dict[str, Json]: ...

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = ...) -> None: ...

    async def watch(self, server: str, uris: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class ListChanged:
    """The tools that are listed have changed: in one workspace, or for everybody."""

    workspace: Key | None = None


Change: TypeAlias = ListChanged | Notified
OnChange: TypeAlias = Callable[[Change], None]


Report: TypeAlias = Callable[[Mapping[str, Json], frozenset[ToolId] | None], str]
"""From the arguments of a tool, and the tools that its caller may see, to its answer; may take a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What others may plug in: a record of events, what is known about use, a place to save the catalog."""

    record: RecordEvent = record_nothing
    co_use: CoUse | None = None
    save: Callable[[Server, Sequence[Tool]], None] | None = None
    explain: Callable[[Query, ToolId], Awaitable[str]] | None = None
    reports: Mapping[str, Report] = field(default_factory=dict)
    """What get_stats and get_ab_test_report answer, by the name of the tool."""
    variant: Assign = as_configured
    """Which variant of a running experiment a workspace is served."""
    stale: frozenset[str] = field(default_factory=frozenset)
    """Servers whose tools come from a saved catalog until they connect."""


NO_SEAMS = Seams()
NO_OPTIONS = Options()


class State:
    """The catalog as it is served, the workspaces over it, and everything that decides what a caller sees."""

    def __init__(
        self, settings: Settings, search: ToolSearch, upstreams: Upstreams, options: Options, seams: Seams
    ) -> None:
        _check(settings, options)
        limits = settings.limits
        self.settings = settings
        self.search = search
        self.catalog = search.catalog
        self.upstreams = upstreams
        self.options = options
        self.seams = seams
        self.recording = Recording(seams.record, arguments=settings.telemetry.arguments != "omit")
        self.stale = set(seams.stale)
        self.workspaces = Workspaces(seconds=limits.workspace_seconds, most=limits.workspaces)
        self.results = Results(
            characters=limits.result_characters,
            seconds=limits.result_seconds,
            most=limits.results,
            most_bytes=limits.results_bytes,
        )
        self.uris = SeenUris()
        self.in_flight: dict[str, list[Exchange]] = {}
        """The requests that each server is working on, oldest first."""
        self._arrival: dict[ToolId, int] = {}
        self._listeners: list[OnChange] = []
        self.snapshot = self._take_snapshot()
        self._views: dict[Variant, Snapshot] = {}
        """What workspaces with a variant are served instead."""

    def variant(self, caller: Caller) -> Variant:
        """Say how a caller's workspace is served in the experiment that runs, if one does."""
        return self.seams.variant(caller.name, activity_key(caller))

    def view(self, caller: Caller) -> Snapshot:
        """Give what a caller is served: the snapshot, or as its variant changes it."""
        variant = self.variant(caller)
        if variant.mode is None and variant.preset is None:
            return self.snapshot
        if variant not in self._views:
            self._views[variant] = self._view(variant)
        return self._views[variant]

    def find(self, caller: Caller, name: str) -> Tool:
        """Give the tool of a wire name, an id, or a bare name that is unique; raises where it may not be seen."""
        snapshot = self.snapshot
        tool_id = snapshot.names.by_name.get(name) or (name if name in snapshot.catalog.tools else None)
        if tool_id is not None and self.may_see(caller, tool_id):
            return snapshot.catalog.tools[tool_id]
        bare = [i for i in snapshot.by_own_name(name) if self.may_see(caller, i)]
        if len(bare) == 1:
            return snapshot.catalog.tools[bare[0]]
        if bare:
            raise ToolNotFound(name, suggestions=[snapshot.name(tool_id) for tool_id in bare[:SUGGESTED_NAMES]])
        for server in self.connecting(caller):
            if name.startswith((f"{server}__", f"{server}/")):
                raise UpstreamUnavailable(server, STILL_STARTING)
        raise ToolNotFound(name, suggestions=self._similar(caller, name))

    def may_see(self, caller: Caller, tool_id: ToolId) -> bool:
        """Decide whether a caller may find, describe, load and call a tool."""
        visible = self.visible(caller)
        return tool_id in self.snapshot.catalog.tools and (visible is None or tool_id in visible)

    def visible(self, caller: Caller) -> frozenset[ToolId] | None:
        """Give all that a caller may see; None means everything."""
        return self.snapshot.visible(self._token(caller))

    def may_use_server(self, caller: Caller, server: str) -> bool:
        """Decide whether a caller may use a server's prompts and resources: where it may see the whole server."""
        token = self._token(caller)
        if token is None or not token.limited:
            return server not in self.options.exclude
        return server in (token.servers or ()) and server not in self.options.exclude

    def visible_servers(self, caller: Caller) -> tuple[str, ...]:
        """Name the servers of which a caller may see some tool."""
        visible, members = self.visible(caller), self.snapshot.catalog.members
        return tuple(
            name
            for name in self.snapshot.catalog.servers
            if members.get(name) and (visible is None or not visible.isdisjoint(members[name]))
        )

    def bound(self, caller: Caller) -> dict[ToolId, None]:
        """Give the tools that are listed for a caller, in order: bound for everybody, then loaded."""
        workspace = self.workspaces.of(caller)
        loaded = tuple(workspace.loaded) if workspace else ()
        visible, tools = self.visible(caller), self.snapshot.catalog.tools
        return {
            tool_id: None
            for tool_id in (*self.view(caller).bound, *loaded)
            if tool_id in tools and (visible is None or tool_id in visible)
        }

    def is_bound(self, caller: Caller, tool_id: ToolId) -> bool:
        """Say whether a tool is listed for a caller, without making the list."""
        if tool_id not in self.view(caller).bound_ids:
            workspace = self.workspaces.of(caller)
            if workspace is None or tool_id not in workspace.loaded:
                return False
        return self.may_see(caller, tool_id)

    def connecting(self, caller: Caller) -> tuple[str, ...]:
        """Name the servers that are still starting and whose tools are not known yet."""
        members = self.snapshot.catalog.members
        return tuple(
            name
            for name, state in self.upstreams.states().items()
            if state == "connecting" and not members.get(name) and self.may_use_server(caller, name)
        )

    def toolset(self, name: str) -> tuple[ToolId, ...]:
        """Give the tools of a toolset; raises where there is none of that name."""
        found = self.snapshot.toolsets.get(name)
        if found is None and self.upstreams.states().get(name) == "connecting":
            raise UpstreamUnavailable(name, STILL_STARTING)
        if found is None:
            raise InvalidInput(f"No toolset {name!r}. {did_you_mean(name, tuple(self.snapshot.toolsets))}")
        return found.tools

    def server_note(self, server: str) -> str:
        """Say what a caller should know about a server before using it; nothing when it is ready."""
        if server in self.stale:
            return "stale: from the saved catalog"
        state = self.upstreams.states().get(server)
        return "" if state is None or state == "ready" else f"server {state.replace('_', ' ')}"

    def renew(self, catalog: Catalog) -> None:
        """Derive everything anew from a catalog and the settings, and tell if what is listed changed."""
        before = self._listed()
        self.catalog = catalog
        self.search.update(catalog)
        self.snapshot = self._take_snapshot()
        self._views = {variant: self._view(variant) for variant in self._views}
        if self._listed() != before:
            self.announce(ListChanged())

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """Tell a listener what clients should hear of; gives the way to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def announce(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    def _token(self, caller: Caller) -> TokenSettings | None:
        return self.settings.tokens.get(caller.name) if caller.has_token else None

    def _similar(self, caller: Caller, name: str) -> tuple[str, ...]:
        if len(name) < SHORTEST_GUESS:
            return ()
        visible = self.visible(caller)
        names = [n for n, i in self.snapshot.names.by_name.items() if visible is None or i in visible]
        found = process.extract(name[:200], names, limit=SUGGESTED_NAMES, score_cutoff=SIMILAR_ENOUGH)
        return tuple(match for match, _, _ in found)

    def _listed(self) -> list[tuple[str, str]]:
        """Give what every client's list is made of, short enough to compare."""
        hashes = self.snapshot.catalog.hashes
        return [
            each
            for view in (self.snapshot, *self._views.values())
            for each in ((view.menu or "", ""), *((view.name(i), hashes[i]) for i in view.bound))
        ]

    def _take_snapshot(self) -> Snapshot:
        return self._in_order(take_snapshot(self.catalog, self.settings, self.options, self.seams.co_use))

    def _view(self, variant: Variant) -> Snapshot:
        options = replace(
            self.options,
            mode=variant.mode or self.options.mode,
            dynamic=self.options.dynamic and variant.mode is None,
            preset=variant.preset or self.options.preset,
        )
        return self._in_order(served_as(self.snapshot, self.settings, options))

    def _in_order(self, snapshot: Snapshot) -> Snapshot:
        for tool_id in snapshot.bound:
            self._arrival.setdefault(tool_id, len(self._arrival))
        # What was listed keeps its place and what is new comes last, so that prompt caches survive.
        ordered = tuple(sorted(snapshot.bound, key=self._arrival.__getitem__))
        return replace(snapshot, bound=ordered, bound_ids=frozenset(ordered))


def _check(settings: Settings, options: Options) -> None:
    """Refuse names that mean nothing before anything is served: what is misspelled is not bound, or not hidden."""
    preset, presets = options.preset or settings.preset, (*settings.presets, "default", "full")
    if preset is not None and preset not in presets:
        raise InvalidConfig(f"No preset {preset!r}. {did_you_mean(preset, presets)}")
    toolsets = tuple(dict.fromkeys((*settings.servers, *settings.toolsets)))
    for name in (*options.toolsets, *options.exclude):
        if name not in toolsets:
            raise InvalidConfig(f"No toolset {name!r}. {did_you_mean(name, toolsets)}")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Offer the name that looks most like this one, or all there are."""
    similar = process.extractOne(name, known, score_cutoff=SIMILAR_ENOUGH)
    if similar:
        return f"Did you mean {similar[0]!r}?"
    more = " …" if len(known) > 20 else ""
    return f"There are {', '.join(known[:20])}{more}." if known else "There are none."
