"""Puts the parts together: configuration, servers, search, gateway."""

import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from shortlist import upstream
from shortlist.access.tokens import OwnTokens
from shortlist.catalog.catalog import Catalog
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.following import (
    Reloads,
    follow_experiments,
    follow_grants,
    follow_programs,
    follow_reviews,
    learn,
)
from shortlist.cli.grants import open_logins
from shortlist.cli.news import News
from shortlist.cli.pauses import keep_pauses_short, no_collection, return_memory, share_arenas
from shortlist.cli.pinning import open_inspection, open_keeper
from shortlist.cli.reading import log_folder, say
from shortlist.cli.recording import Telemetry, open_audit, open_telemetry
from shortlist.cli.signing import SignIns
from shortlist.cli.teaching import Teacher, open_teacher
from shortlist.cli.vault import stored_secret
from shortlist.cli.words import Words
from shortlist.config.settings import ServerSettings, Settings, TelemetrySettings
from shortlist.front.answerer import Answerer
from shortlist.front.leases import SharedLeases
from shortlist.front.peers import Peers
from shortlist.front.probes import watch_clients
from shortlist.front.requests import Admission, ObservedRequests
from shortlist.front.server import Front, RelayedCalls
from shortlist.gateway.gateway import Gateway, watch
from shortlist.gateway.ports import ToolSearch
from shortlist.gateway.recording import ObservedSearch, ObservedUpstreams
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.models import Query, Tool, ToolId
from shortlist.observability.logs import lines_left_out, quieter
from shortlist.observability.metrics import DROPPED, LINES_DROPPED, UNSAVED, GatewayMetrics, Instruments, note_on_span
from shortlist.search.engine import Engine, Preparable
from shortlist.storage.audit import AuditLog
from shortlist.storage.opening import open_storage
from shortlist.storage.port import Storage, VectorStore
from shortlist.telemetry.recorder import record_to
from shortlist.trust.keeping import Keeper
from shortlist.upstream.events import Survey, Surveyed, UpstreamEvent
from shortlist.upstream.pool import UpstreamPool

Done = TypeVar("Done")
Starting: TypeAlias = Literal["all", "unknown", "none"]
"""Which servers are started at once: `unknown` are those that no catalog was saved of."""

SETTLE_SECONDS = 30.0
"""How long a command waits for servers before it answers without them."""
NOT_RECORDED = TelemetrySettings(enabled=False)


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything that serves, put together."""

    settings: Settings
    pool: UpstreamPool
    gateway: Gateway
    front: Front
    metrics: GatewayMetrics
    search: Engine
    storage: Storage
    admission: Admission
    news: News
    peers: Peers | None
    """The other gateways on the same store; None where it is not shared."""
    leases: SharedLeases | None
    """Decides which of these gateways runs a server over stdio; None where this one runs all of its own."""
    unsaved: Callable[[], tuple[str, ...]]
    """Says what could not be saved, and why."""


def run_plainly(work: Callable[[], Awaitable[Done]]) -> Done:
    """Run to the end; an error that task groups have wrapped comes out as itself."""
    try:
        # A faster loop where it is installed; its timers and pipes cost a call half a millisecond less.
        return anyio.run(work, backend_options={"use_uvloop": find_spec("uvloop") is not None})
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


@asynccontextmanager
async def open_stack(  # noqa: PLR0913 - all but two have a default
    settings: Settings,
    options: ServeOptions,
    *,
    models: bool = True,
    metrics: GatewayMetrics | None = None,
    start: Starting = "all",
    tokens: OwnTokens | None = None,
    shares_servers: bool = False,
) -> AsyncIterator[Stack]:
    """Start servers, search and gateway; searches are answered at once from the saved catalog.

    With `tokens`, those are valid beside the configured ones, and their changes are followed. With `shares_servers`,
    servers over stdio run once among all gateways on the store, where that is a shared one.
    """
    if models:
        share_arenas()
    # Commands that inspect servers are not recorded as usage; only served requests are.
    with (
        no_collection() if models else nullcontext(),
        closing(open_storage(settings.storage)) as storage,
        open_telemetry(settings.telemetry if models else NOT_RECORDED, storage) as telemetry,
    ):
        async with (
            open_audit(settings.audit, storage) if models else nullcontext() as audit,
            _open_stack(
                settings,
                options,
                telemetry,
                storage,
                _Opening(models, metrics or GatewayMetrics(), start, tokens, audit, shares_servers),
            ) as stack,
        ):
            stack.search.begin()  # not before: the rest of a start would wait for the thread that indexes
            yield stack


@dataclass(frozen=True, slots=True)
class _Opening:
    """How a stack is opened."""

    models: bool
    metrics: GatewayMetrics
    start: Starting
    tokens: OwnTokens | None
    audit: AuditLog | None
    shares_servers: bool

    def servers(self, settings: Settings, known: Catalog) -> dict[str, ServerSettings]:
        """Return the servers to start at once."""
        if self.start == "all":
            return dict(settings.servers)
        unknown = [name for name in settings.servers if name not in known.servers and self.start == "unknown"]
        return {name: settings.servers[name] for name in unknown}


@asynccontextmanager
async def _open_stack(
    settings: Settings,
    options: ServeOptions,
    telemetry: Telemetry,
    storage: Storage,
    opening: _Opening,
) -> AsyncIterator[Stack]:
    models, metrics, tokens = opening.models, opening.metrics, opening.tokens
    configured, settings = settings, tokens.added_to(settings) if tokens is not None else settings
    saved = SavedCatalog(storage.catalogs, settings.servers)
    keeper = open_keeper(storage.pins, lambda: gateway.state.settings if started else settings)
    started = False
    catalog = keeper.opened(saved.load())
    teacher = open_teacher(settings.telemetry, storage.exemplars) if models else None
    words = Words(settings.expansions)
    searching = _Searching(settings, words, teacher, telemetry.together.shares.get, storage.vectors)
    search = (
        Engine(searching.make, catalog, load_model=searching.load_model)
        if models
        else Engine(searching.make_without_model, catalog, vectors=False)
    )
    answerer, events, news = Answerer(), _Events(), News()
    shared = storage.shared if models else None
    peers = Peers(shared.replicas) if shared is not None else None
    leases = SharedLeases(shared, peers) if shared and peers and opening.shares_servers else None
    starting = opening.servers(settings, catalog)
    logins = open_logins(storage)
    pool = UpstreamPool(
        starting,
        on_event=events,
        client=answerer,
        limits=settings.limits,
        log_directory=log_folder(),
        logins=logins,
        secrets=stored_secret,
        on_demand=models,
        leases=leases,
    )
    seams = Seams(
        gate=keeper,
        items=keeper,
        sign_in=SignIns(logins, lambda: gateway.state.settings, pool.refresh, lambda: gateway.state.background),
        inspect=open_inspection(),
        reviews=keeper,
        record=record_to(metrics.record, note_on_span, telemetry.record),
        co_use=telemetry.together,
        reports=telemetry.reports,
        experiment=telemetry.experiment,
        save=saved.save,
        explain=partial(explained, search),
        audit=opening.audit,
        workspaces=storage.workspaces,
        results=storage.results,
        programs=storage.programs,
        stale=frozenset(catalog.servers),
        search_others=searching.search_others if models else None,
        installable=lambda: _installable(gateway.state.settings),
        replica=peers.mark if peers is not None else None,
    )
    gateway = Gateway(
        settings,
        ObservedSearch(search, metrics),
        ObservedUpstreams(pool, metrics.measure),
        options=options,
        seams=seams,
    )
    started = True
    watch(gateway.state, metrics.instruments)
    _watch_losses(metrics.instruments, gateway, telemetry, keeper)
    telemetry.follow()  # before the first request, so that nobody gets two variants
    events.take = partial(_take_event, gateway, saved)
    changes = shared.changes if shared is not None else None
    async with gateway, news.following(changes), anyio.create_task_group() as tasks:
        front = Front(gateway, answerer)
        admission = Admission(settings.limits)
        watch_clients(metrics.instruments, admission, front.audience.notices)
        front.surround(ObservedRequests(metrics.measure), admission, RelayedCalls(front.server))
        stack = Stack(
            settings,
            pool,
            gateway,
            front,
            metrics,
            search,
            storage,
            admission,
            news,
            peers,
            leases,
            partial(_unsaved, keeper, telemetry),
        )
        if models:
            known = starting.keys() & catalog.servers.keys()
            pool.start_later(known)  # searches of their tools are answered meanwhile
            surveys = {name: Survey.read(document) for name, document in saved.offers().items() if name in known}
            pool.know({name: survey for name, survey in surveys.items() if survey is not None})
        async with leases.renewed() if leases is not None else nullcontext(), pool:
            if models:
                tasks.start_soon(keep_pauses_short)
                tasks.start_soon(return_memory)
                tasks.start_soon(follow_experiments, telemetry, gateway, news)
            if teacher is not None:
                tasks.start_soon(learn, teacher, gateway)
            if settings.source or tokens is not None:
                reloads = Reloads(gateway, pool, search, news, saved, words, configured, tokens)
                tasks.start_soon(reloads.follow)
            for follow in (
                partial(follow_reviews, keeper, gateway, pool),
                partial(follow_programs, gateway),
                partial(follow_grants, pool),
            ):
                tasks.start_soon(follow, news)
            yield stack
        tasks.cancel_scope.cancel()


def _watch_losses(instruments: Instruments, gateway: Gateway, telemetry: Telemetry, keeper: Keeper) -> None:
    """Let the instruments read what could not be recorded, saved or written."""
    instruments.read(
        DROPPED,
        lambda: {
            ("",): 0,
            ("audit",): gateway.state.audit.lost,
            **{(why,): count for why, count in telemetry.lost().items()},
        },
    )
    instruments.read(UNSAVED, lambda: {("approvals",): len(keeper.unsaved)})
    instruments.read(LINES_DROPPED, lambda: {(): lines_left_out()})


def _unsaved(keeper: Keeper, telemetry: Telemetry) -> tuple[str, ...]:
    events = [f"{count:,} events could not be recorded ({why})" for why, count in telemetry.lost().items() if count]
    return (*keeper.problems, *events)


@asynccontextmanager
async def connected(settings: Settings, start: Starting = "all") -> AsyncIterator[Stack]:
    """Connect to servers for one answer."""
    # That each server is ready is news where it is served, noise around one answer.
    noisy = (upstream.__name__, Gateway.__module__) if settings.logs.level == "info" else ()
    options = ServeOptions(mode="search")
    with quieter(logging.WARNING, *noisy):
        async with open_stack(settings, options, models=False, start=start) as stack:
            if sys.stderr.isatty() and (asked := len(stack.pool.status())):
                say(f"connecting to {asked} server{'' if asked == 1 else 's'} …")
            await stack.pool.settled(SETTLE_SECONDS)
            await stack.gateway.settled()
            yield stack


def list_tools(settings: Settings) -> Catalog:
    """Ask every server for its tools; they are saved for the next time."""

    async def listed() -> Catalog:
        async with connected(settings) as stack:
            return stack.gateway.state.everything.catalog

    return run_plainly(listed)


def list_everything(settings: Settings) -> tuple[Catalog, dict[str, str]]:
    """List the tools of every server with its title and instructions, held or not."""

    async def listed() -> tuple[Catalog, dict[str, str]]:
        accepting = replace(settings, servers={n: replace(s, trust="auto") for n, s in settings.servers.items()})
        async with connected(accepting) as stack:
            state = stack.gateway.state
            said = {name: "\n".join(filter(None, state.said(name).values())) for name in settings.servers}
            return state.everything.catalog, said

    return run_plainly(listed)


def _installable(settings: Settings) -> Sequence[Tool]:
    # Only searches for servers need them.
    from shortlist.cli.installables import installable  # noqa: PLC0415
    from shortlist.cli.registries import registry_url  # noqa: PLC0415

    return installable(registry_url(None), settings.servers)


async def explained(search: Engine, query: Query, tool_id: ToolId, corrected: Mapping[str, str] | None) -> str:
    """Explain the rank of a tool to a caller who may know of these corrections; None: of all."""
    why = replace(await search.explain(query, tool_id), notes=())  # they stand in the answer, once for all hits
    text: str = (why if corrected is None else why.limited_to(corrected)).text()
    return text


@dataclass(frozen=True, slots=True)
class _Searching:
    """Makes the searcher and loads its model; all that is imported when the first search needs it: half of a start."""

    settings: Settings
    words: Words
    teacher: Teacher | None
    together: Callable[[ToolId], Any]
    vectors: VectorStore
    _model: list[Any] = field(default_factory=list)
    _choosing: threading.Lock = field(default_factory=threading.Lock)

    def make(self, catalog: Catalog) -> Preparable:
        """Make a searcher. Of equal tools, that of the server configured first is the original."""
        from shortlist.cli.engine import make_searcher  # noqa: PLC0415

        return make_searcher(catalog, self.settings.search, self._chosen(), self._known())

    def make_without_model(self, catalog: Catalog) -> Preparable:
        from shortlist.cli.engine import words_alone  # noqa: PLC0415

        return words_alone(catalog, self._known())

    def search_others(self, catalog: Catalog) -> ToolSearch:
        """Make a search over prompts, resources or servers to install."""
        from shortlist.cli.engine import search_others  # noqa: PLC0415

        return search_others(self._chosen(), catalog)

    def _known(self) -> Any:
        from shortlist.cli.engine import Known, server_order  # noqa: PLC0415

        memory = self.teacher.memory if self.teacher is not None else None
        order = server_order(self.settings)
        return Known(
            expansions=self.words.expansions, memory=memory, together=self.together, order=order, vectors=self.vectors
        )

    def load_model(self) -> None:
        model = self._chosen()
        if model is not None:
            model.load()

    def _chosen(self) -> Any:
        from shortlist.cli.engine import open_model  # noqa: PLC0415

        with self._choosing:
            if not self._model:
                self._model.append(open_model(self.settings.search))
            return self._model[0]


def _take_event(gateway: Gateway, saved: SavedCatalog, event: UpstreamEvent) -> None:
    if isinstance(event, Surveyed):
        save = partial(anyio.to_thread.run_sync, saved.save_offers, event.server, event.survey.document())
        gateway.state.background.spawn(f"saving what {event.server!r} offers", save)
    else:
        gateway.on_upstream(event)


class _Events:
    """Hands events to the gateway, which comes after the servers that have them."""

    def __init__(self) -> None:
        self.take: Callable[[UpstreamEvent], None] = lambda _: None

    def __call__(self, event: UpstreamEvent) -> None:
        self.take(event)
