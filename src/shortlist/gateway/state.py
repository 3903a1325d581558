"""What the gateway holds: the served view, the workspaces over it, and the parts that others plug in."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Protocol, TypeAlias

import anyio
import anyio.to_thread

from shortlist.access.catalog import ScopedCatalog
from shortlist.access.principal import Principal
from shortlist.catalog.catalog import Catalog
from shortlist.catalog.toolsets import Toolset, UsedWith
from shortlist.config.settings import Action, Mode, SelectionSettings, Settings
from shortlist.errors import ToolNotFound
from shortlist.gateway.callers import Caller, Exchange, Shares, WorkspaceKey, Workspaces, activity_key, workspace_limits
from shortlist.gateway.changes import AccessChanged, GatewayChange, ListChanged, OnChange
from shortlist.gateway.ports import DefinitionGate, EffectReviews, Explain, ItemGate, StartLogin, ToolSearch, Upstreams
from shortlist.gateway.recording import AuditTrail, Recording
from shortlist.gateway.results import Results, SeenUris, result_limits
from shortlist.gateway.rounds import OpenCalls
from shortlist.gateway.task_handles import RelayedTasks
from shortlist.gateway.tasks import BackgroundTasks
from shortlist.gateway.view import (
    NO_OPTIONS,
    MenuName,
    ServedView,
    ServeOptions,
    listing_changes,
    make_view,
    served_as,
    settings_changes,
)
from shortlist.models import PROGRAMS, UNIDENTIFIED, Asker, Json, Server, Tool, ToolId
from shortlist.selection import LanguageModel, configured_model
from shortlist.storage.audit import AuditLog
from shortlist.storage.memory import MemoryResults, MemoryWorkspaces
from shortlist.storage.owned import ResultStore, WorkspaceStore
from shortlist.storage.programs import MemoryPrograms, ProgramStore, StoredProgram
from shortlist.telemetry.events import RecordEvent, record_nothing
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Assign, Variant
from shortlist.upstream.errors import UpstreamTimeout, UpstreamUnavailable

STILL_STARTING = "it is still starting and its tools are not known yet; try again shortly"

logger = logging.getLogger(__name__)

PREPARE_SECONDS = 2.0
"""What the gateway may take at least to inspect and page a result, also where its server used up the whole timeout."""


Report: TypeAlias = Callable[[Mapping[str, Json], frozenset[ToolId] | None], str]
"""Maps a tool's arguments and the tools in its caller's scope to an answer; may be slow."""


class Assigner(Protocol):
    """Serves workspaces the variants of an experiment."""

    @property
    def assign(self) -> Assign | None:
        """Return how to assign a workspace; None while no experiment is running."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What others may plug in: a record of events, what is known about use, a place to save the catalog."""

    record: RecordEvent = record_nothing
    co_use: UsedWith | None = None
    save: Callable[[Server, Sequence[Tool]], None] | None = None
    explain: Explain | None = None
    reports: Mapping[str, Report] = field(default_factory=dict)
    """What get_stats and get_ab_test_report answer, by the name of the tool."""
    experiment: Assigner | None = None
    """Decides which variant of the running experiment a workspace is served."""
    audit: AuditLog | None = None
    stale: frozenset[str] = field(default_factory=frozenset)
    """Servers whose tools come from a saved catalog until they connect."""
    sign_in: StartLogin | None = None
    gate: DefinitionGate | None = None  # None: whatever a server lists is served
    items: ItemGate | None = None
    reviews: EffectReviews | None = None
    workspaces: WorkspaceStore = field(default_factory=MemoryWorkspaces)
    search_others: Callable[[Catalog], ToolSearch] | None = None
    """Makes the search over prompts, resources and servers; may be slow. None: by the static model."""
    installable: Callable[[], Sequence[Tool]] = tuple
    """Servers that could be installed, as documents; may be slow."""
    results: ResultStore | None = None
    """None: a store of its own, in memory."""
    inspect: Callable[[str, Mapping[str, Json]], str] | None = None  # finds what a `results` policy is about
    programs: ProgramStore = field(default_factory=MemoryPrograms)
    replica: str | None = None
    """Begins the ids that only this gateway knows, where several share one store; None where it is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerView:
    """One caller's view for one request: how it is served, and the tools it can reach."""

    caller: Caller
    variant: Variant
    tools: ScopedCatalog
    mode: Mode
    menu: MenuName | None
    plain: bool
    toon: bool
    _bound: tuple[ToolId, ...]
    _bound_ids: frozenset[ToolId]

    @property
    def bound(self) -> tuple[ToolId, ...]:
        """The tools that are listed for this caller without loading any."""
        return tuple(tool_id for tool_id in self._bound if tool_id in self.tools)

    def is_bound(self, tool_id: ToolId) -> bool:
        return tool_id in self._bound_ids and tool_id in self.tools

    def can(self, action: Action) -> bool:
        return action in self.tools.scope.actions


@dataclass(frozen=True, slots=True)
class Reload:
    """What applying a configuration changed, in words, and the names in it that match nothing."""

    changes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class GatewayState:
    """The served view and everything that is kept between requests."""

    def __init__(
        self,
        settings: Settings,
        search: ToolSearch,
        upstreams: Upstreams,
        options: ServeOptions = NO_OPTIONS,
        seams: Seams | None = None,
    ) -> None:
        seams = seams or Seams()
        self.everything = make_view(settings, options, search.catalog, co_use=seams.co_use)
        """The view without any scope: for the owner's own commands and for metrics, never for what answers a client."""
        limits = settings.limits
        self.search = search
        self.upstreams = upstreams
        self.seams = seams
        self.audit = AuditTrail(seams.audit, settings.audit)
        self.recording = Recording(seams.record, arguments=settings.telemetry.arguments)
        self.stale = set(seams.stale)
        self.doubts: dict[str, Mapping[str, str]] = {}
        """By server, what tools are suspected of by name: set with every admission, and read for a stale server."""
        self.read_only: dict[str, frozenset[str]] = {}
        """By server, the names of tools that a review found to be read-only; kept like `doubts`."""
        self.programs: Mapping[ToolId, StoredProgram] = {}
        """The saved programs that are offered."""
        self.arriving: set[str] = set()
        """Servers whose tools were reported and are not part of the view yet."""
        self.changed = anyio.Event()
        """Set and replaced when the tools of a server are part of the view, and when its state changes."""
        self.workspaces = Workspaces(seams.workspaces, workspace_limits(limits), is_shared=seams.replica is not None)
        self.shares, self.rooted = Shares(limits), dict[str, WorkspaceKey]()
        self.results = Results(seams.results or MemoryResults(), characters=limits.result_characters)
        self.results.store.limit(result_limits(limits))
        self.uris = SeenUris()
        self.relayed_tasks = RelayedTasks(mark=seams.replica or "")
        self.background = BackgroundTasks()
        self.open_calls = OpenCalls(self.background, seams.replica or "")
        self.in_flight: dict[str, list[Exchange]] = {}
        """The requests that each server is working on, oldest first."""
        self.selection_model = _SelectionModel()
        self.reloaded = Reload(problems=self.everything.problems)
        self._listeners: list[OnChange] = []
        self._served: dict[ServeOptions, ServedView] = {}
        """What connections with options of their own are served instead."""
        self._users: Counter[ServeOptions] = Counter()
        self._variants: dict[tuple[ServeOptions, Variant], ServedView] = {}
        """What workspaces with a variant are served instead."""
        self._renewing = anyio.Lock()
        for problem in self.everything.problems:
            logger.warning("configuration: %s", problem)

    @property
    def settings(self) -> Settings:
        return self.everything.settings

    @contextmanager
    def prepared_in_time(self, server: str, name: str, started: float) -> Iterator[None]:
        """End a call whose result takes longer to prepare than is left of its server's timeout."""
        settings = self.settings.servers.get(server)
        seconds = settings.timeout_seconds if settings is not None else inf
        try:
            with anyio.fail_after(max(seconds - (perf_counter() - started), PREPARE_SECONDS)):
                yield
        except TimeoutError:
            raise UpstreamTimeout(
                server,
                f"tool {name!r} answered, but its result could not be prepared within the timeout of {seconds:g} s. "
                "The tool was called; it was not repeated. Ask it for less.",
            ) from None

    # Who sees what

    @asynccontextmanager
    async def serving(self, options: ServeOptions) -> AsyncIterator[None]:
        """Serve connections with options of their own; raise InvalidConfig where these options cannot be served."""
        self._users[options] += 1
        try:
            async with self._renewing:
                if options not in self._served and options != self.everything.options:
                    self._served[options] = await anyio.to_thread.run_sync(self._derived, options)
            yield
        finally:
            self._users[options] -= 1
            if not self._users[options]:
                del self._users[options]
                self._served.pop(options, None)
                self._variants = {key: view for key, view in self._variants.items() if key[0] != options}

    def _derived(self, options: ServeOptions) -> ServedView:
        present = self.everything
        return make_view(present.settings, options, present.catalog, co_use=self.seams.co_use)

    def view_of(self, caller: Caller) -> ServedView:
        """Return the view that a caller's connection is served."""
        if caller.options is None or caller.options == self.everything.options:
            return self.everything
        return self._served[caller.options]

    async def admit(self, caller: Caller, *, up_to_date: bool = False) -> CallerView:
        """Resolve a caller to its scope, once per request; `up_to_date` includes what it just loaded elsewhere."""
        await self.workspaces.fetch(caller, up_to_date=up_to_date)
        view = self.view_of(caller)
        tools = view.admitted.get(caller.principal)
        if tools is None:
            tools = await anyio.to_thread.run_sync(view.scoped, caller.principal)
        return self._caller_view(caller, view, tools)

    def reach(self, principal: Principal) -> ScopedCatalog:
        """Return the catalog that a principal can reach; the first time may take a moment."""
        return self.everything.scoped(principal)

    def _caller_view(self, caller: Caller, view: ServedView, tools: ScopedCatalog) -> CallerView:
        assign = self.seams.experiment.assign if self.seams.experiment is not None else None
        variant = AS_CONFIGURED if assign is None else assign(caller.name, activity_key(caller))
        if variant.mode is not None or variant.preset is not None:
            key = (view.options, variant)
            if key not in self._variants:
                self._variants[key] = self._served_as(view, variant)
            view = self._variants[key]
        return CallerView(
            caller=caller,
            variant=variant,
            tools=tools,
            mode=view.mode,
            menu=view.menu,
            plain=view.plain,
            toon=view.options.toon,
            _bound=view.bound,
            _bound_ids=view.bound_ids,
        )

    def asker(self, caller: Caller) -> Asker:
        """Return the identity of a caller for learning, and the group it shares exemplars with."""
        if caller.teacher == UNIDENTIFIED:
            return Asker(UNIDENTIFIED, UNIDENTIFIED)
        return self.everything.askers.get(caller.name) or self.settings.asker_of_rule(
            caller.name, caller.principal.issuer, caller.principal.rule
        )

    async def find(self, seen: CallerView, name: str) -> Tool:
        """Resolve a wire name, an id or a unique bare name to a tool in reach.

        A bare name is unique only if the tools of all servers are known: the first to list could take it otherwise.
        """
        try:
            found = seen.tools.find(name)
            if name == found.id or seen.tools.named(name) is not None or not self.unlisted():
                return found
            raise ToolNotFound(name, suggestions=(seen.tools.name(found.id),))
        except ToolNotFound as error:
            if error.suggestions:
                raise
        for server in self.connecting(seen):
            if name.startswith((f"{server}__", f"{server}/")):
                raise UpstreamUnavailable(server, STILL_STARTING)
        raise ToolNotFound(name, suggestions=await anyio.to_thread.run_sync(seen.tools.similar, name))

    def unlisted(self) -> frozenset[str]:
        """Return the configured servers whose tools are not known."""
        return frozenset(self.settings.servers) - self.everything.catalog.servers.keys()

    def toolset(self, seen: CallerView, name: str) -> Toolset:
        """Return a toolset in reach; raise with the reason where it is not known yet, or not at all."""
        if name not in seen.tools.toolsets and name in self.connecting(seen):
            raise UpstreamUnavailable(name, STILL_STARTING)
        return seen.tools.toolset(name)

    def bound(self, seen: CallerView) -> dict[ToolId, None]:
        """Return the tools that are listed for a caller, in order: those bound for everybody, then those it loaded."""
        workspace = self.workspaces.of(seen.caller)
        loaded = tuple(workspace.loaded) if workspace else ()
        return dict.fromkeys((*seen.bound, *(tool_id for tool_id in loaded if tool_id in seen.tools)))

    def is_bound(self, seen: CallerView, tool_id: ToolId) -> bool:
        """Return whether a tool is listed for a caller, without making the list."""
        if seen.is_bound(tool_id):
            return True
        workspace = self.workspaces.of(seen.caller)
        return workspace is not None and tool_id in workspace.loaded and tool_id in seen.tools

    def connecting(self, seen: CallerView) -> tuple[str, ...]:
        """Return the servers that are still starting and whose tools are not known yet."""
        return tuple(
            name
            for name, state in self.upstreams.states.items()
            if (state == "connecting" or name in self.arriving)
            and seen.tools.knows_server(name)
            and name not in seen.tools.servers
        )

    def server_note(self, server: str) -> str:
        """Return what a caller should know about a server before using it; empty when it is ready."""
        state = self.upstreams.states.get(server)
        if server in self.stale and state != "idle":
            return "stale: from the saved catalog"
        return "" if state in (None, "ready", "idle") else f"server {state.replace('_', ' ')}"

    def tool_note(self, tool: Tool) -> str:
        """Return what a caller should know about a tool before using it: its server's state, and any suspicion."""
        return "; ".join(filter(None, (self.server_note(tool.server), self.suspicion(tool))))

    def suspicion(self, tool: Tool) -> str:
        """Return the mark of a tool that the scanner finds suspicious; empty for clean ones."""
        doubts = self.doubts.get(tool.server)
        if doubts is None:
            gate = self.seams.gate
            doubts = self.doubts[tool.server] = gate.doubts(tool.server) if gate is not None else {}
        doubt = doubts.get(tool.name)
        return f"suspicious definition: {doubt.replace('_', ' ')}" if doubt else ""

    def is_reviewed_read_only(self, tool: Tool) -> bool:
        """Return whether a review found that the present definition of a tool only reads."""
        known = self.read_only.get(tool.server)
        if known is None:
            known = self.read_only[tool.server] = self.reviewed_read_only(tool.server)
        return tool.name in known

    def reviewed_read_only(self, server: str) -> frozenset[str]:
        return self.seams.reviews.read_only(server) if self.seams.reviews is not None else frozenset()

    def down(self) -> frozenset[str]:
        """Return the servers whose tools cannot be called now."""
        return frozenset(name for name, state in self.upstreams.states.items() if state in ("down", "failed"))

    # Changes

    async def renew(
        self, change: Callable[[Catalog], Catalog], settings: Settings | None = None
    ) -> tuple[ServedView, ServedView]:
        """Replace the view whole, or leave it whole where this raises; return the views before and after.

        The next view is derived in a worker thread while the present one answers.
        """
        async with self._renewing:
            before, served, earlier = self.everything, dict(self._served), dict(self._variants)
            views = {before.options: before, **served}

            def derived() -> tuple[dict[ServeOptions, ServedView], dict[tuple[ServeOptions, Variant], ServedView]]:
                catalog, chosen = change(before.catalog), settings or before.settings
                made = {
                    options: make_view(chosen, options, catalog, co_use=self.seams.co_use, before=old)
                    for options, old in views.items()
                }
                known = {key: old for key, old in earlier.items() if key[0] in made}
                return made, {key: self._served_as(made[key[0]], key[1], old) for key, old in known.items()}

            made, variants = await anyio.to_thread.run_sync(derived)
            after = made[before.options]
            if after.catalog is not before.catalog:
                self.search.update(after.catalog)
            self.everything, self._served = after, {options: made[options] for options in self._served}
            self._variants = {k: view for k, view in variants.items() if k[0] in {after.options, *self._served}}
            replaced = [(views[options], view) for options, view in made.items()]
            self._tell([*replaced, *((earlier[key], view) for key, view in variants.items())])
            return before, after

    async def configure(self, settings: Settings) -> Reload:
        """Apply a new configuration, or raise InvalidConfig and keep the present one whole."""
        servers = settings.servers

        def changed(catalog: Catalog) -> Catalog:
            for name in set(catalog.servers) - set(servers) - {PROGRAMS}:
                catalog = catalog.without_server(name)
            for name in catalog.servers:
                if (server := self.describe(name, settings, catalog)) != catalog.servers[name]:
                    catalog = catalog.with_server(server, catalog.of_server(name))
            return catalog

        before, after = await self.renew(changed, settings)
        limits = settings.limits
        self.workspaces.limit(workspace_limits(limits))
        self.shares.limits = limits
        self.results.characters = limits.result_characters
        await anyio.to_thread.run_sync(self.results.store.limit, result_limits(limits))
        self.audit.settings = settings.audit
        self.recording.arguments = settings.telemetry.arguments
        self.reloaded = Reload(settings_changes(before.settings, after.settings), after.problems)
        for change in self.reloaded.changes:
            logger.info("configuration: %s", change)
        self._report(before.problems, after.problems)
        self.announce(AccessChanged())
        return self.reloaded

    def describe(self, name: str, settings: Settings, catalog: Catalog) -> Server:
        """Return what is known about a server: the configuration first, then what the server says, once accepted."""
        configured, known = settings.servers.get(name), catalog.servers.get(name, Server(name=name))
        said: Mapping[str, str] = self.said(name)
        if said and self.seams.gate is not None:
            said = self.seams.gate.words(name, said)
        title = said.get("title", "") if said else known.title
        description = said.get("description") or said.get("instructions", "")
        if configured is None:
            return replace(known, title=title, description=description or known.description)
        return Server(
            name=name,
            title=configured.title or title,
            description=configured.description or description or known.description,
            categories=configured.categories,
            tags=configured.tags,
        )

    def said(self, name: str) -> dict[str, str]:
        """Return what a server says of itself, as it came; empty where it is not connected."""
        peer = self.upstreams.peer(name)
        if peer is None:
            return {}
        words = {key: _text(peer.info.get(key)) for key in ("title", "description")}
        return {**words, "instructions": peer.instructions}

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """Notify a listener of every change that concerns clients; return a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def announce(self, change: GatewayChange) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    def _tell(self, views: Collection[tuple[ServedView, ServedView]]) -> None:
        changed: dict[ServeOptions, list[frozenset[ToolId] | None]] = {}
        for before, after in views:
            changed.setdefault(after.options, []).append(listing_changes(before, after))
        for options, lists in changed.items():
            if None in lists:
                self.announce(ListChanged(options=options))
            elif any(lists):
                self.announce(ListChanged(tools=frozenset().union(*(tools or () for tools in lists)), options=options))

    def _report(self, before: Collection[str], after: Collection[str]) -> None:
        for problem in after:
            if problem not in before:
                logger.warning("configuration: %s", problem)

    def _served_as(self, view: ServedView, variant: Variant, before: ServedView | None = None) -> ServedView:
        options = replace(
            view.options,
            mode=variant.mode or view.options.mode,
            dynamic=view.options.dynamic and variant.mode is None,
            preset=variant.preset or view.options.preset,
        )
        return served_as(view, options, before)


class _SelectionModel:
    """The language model that picks tools; its connections are kept from call to call."""

    def __init__(self) -> None:
        self._made: tuple[SelectionSettings, LanguageModel | None] | None = None

    def configured(self, settings: SelectionSettings) -> LanguageModel | None:
        if self._made is None or self._made[0] != settings:
            self._made = settings, configured_model(settings)
        return self._made[1]


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
