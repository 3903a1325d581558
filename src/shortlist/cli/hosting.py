"""Runs a gateway: over stdio for one client, over HTTP for many, over the local socket for all of this user."""

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from shortlist.access.jwt import TokenVerifier
from shortlist.access.tokens import OwnTokens
from shortlist.cli.entrance import dashboard_route, entrance
from shortlist.cli.listening import GRACE_SECONDS, address, base_url, exit_soon, listen, listening_socket
from shortlist.cli.local import LocalDoor
from shortlist.cli.reading import read_settings, say
from shortlist.cli.rendezvous import Listener, NoSharing, Rendezvous, hold, rendezvous
from shortlist.cli.replica import open_replica, take_part
from shortlist.cli.shown import shown_json
from shortlist.cli.signals import ending_signals
from shortlist.cli.stack import Stack, open_stack, run_plainly
from shortlist.cli.tokens import OwnToken, own_token
from shortlist.cli.workers import Worker, this_worker
from shortlist.config.settings import SearchSettings, Settings
from shortlist.demo import FIRST_SEARCHES
from shortlist.errors import InvalidInput
from shortlist.front.border import Border
from shortlist.front.http import build_app
from shortlist.front.lending import Lending
from shortlist.front.probes import probe_routes
from shortlist.front.registry import registry_routes
from shortlist.front.requests import Admission
from shortlist.front.stdio import check_front, open_front
from shortlist.gateway.view import NO_OPTIONS, ServeOptions
from shortlist.models import Json
from shortlist.observability.metrics import KEPT_BYTES, GatewayMetrics
from shortlist.observability.otlp import exporting
from shortlist.storage.opening import open_storage
from shortlist.upstream.issuers import IssuerClient
from shortlist.upstream.wire import client_info
from shortlist.web.access import Access

OK = 0
SWITCH_SECONDS = 0.001
"""How long a thread that searches or indexes may keep the event loop waiting for the interpreter."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve one client over stdio, or many over HTTP, from a gateway in this process."""
    where, worker = address(arguments.http) if arguments.http else None, this_worker()
    if where is None:
        check_front()
    options = ServeOptions(
        mode=arguments.mode,
        menu=arguments.menu,
        preset=arguments.preset,
        toolsets=arguments.toolsets,
        exclude=arguments.exclude,
        dynamic=arguments.dynamic,
        toon=arguments.toon,
    )
    logs = {"level": arguments.log_level, "json": arguments.log_json}
    settings = read_settings(arguments.config, {key: value for key, value in logs.items() if value})
    search = {name: getattr(arguments, name) for name in ("embedder", "pipeline", "reranker")}
    settings = replace(settings, search=replace(settings.search, **{key: v for key, v in search.items() if v}))
    if settings.search != SearchSettings():
        from shortlist.cli.engine import check_search  # noqa: PLC0415 - takes half of a start

        check_search(settings.search)
    pages = settings.dashboard and not arguments.no_dashboard
    _check_open(arguments, settings)
    metrics = GatewayMetrics()
    sys.setswitchinterval(SWITCH_SECONDS)
    with (
        closing(open_storage(settings.storage)) as storage,
        exporting(os.environ, metrics.instruments, client_info()["version"]) as export,
    ):
        guarded = where is not None and not arguments.open
        # Replicas have no token of their own: each would replace the one that another has just printed.
        is_first = storage.shared is None or (not storage.tokens.load() and (worker is None or worker.is_first))
        own = own_token(storage.tokens) if guarded and not settings.tokens and is_first else None
        tokens = OwnTokens(storage.tokens, unsaved=own.unsaved if own is not None else None) if guarded else None

        async def run() -> None:
            shares = where is not None
            async with open_stack(settings, options, metrics=metrics, tokens=tokens, shares_servers=shares) as stack:
                if where:
                    await _serve_http(stack, where, worker, pages=pages, entry=LettingIn(tokens, own))
                else:
                    await _serve_stdio(stack)
                export.end()

        if export.signals:
            say(f"sending {' and '.join(export.signals)} by OTLP")
        run_plainly(run)
    return OK


def host_clients(place: Rendezvous, held: Listener, idle_seconds: float) -> int:
    """Run the shared gateway of this user until it is stopped, or idle for so long."""
    settings = read_settings(str(place.config) if place.config is not None else None)
    metrics = GatewayMetrics()
    sys.setswitchinterval(SWITCH_SECONDS)

    async def run() -> None:
        async with open_stack(settings, NO_OPTIONS, metrics=metrics) as stack, anyio.create_task_group() as tasks:
            stopped = anyio.Event()
            door = LocalDoor(stack, place, held, stopped.set)
            tasks.start_soon(_stop_on_signal, stopped)
            tasks.start_soon(_set_when, stopped, door.idle, idle_seconds)
            tasks.start_soon(door.serve)
            await stopped.wait()
            door.close()
            exit_soon()
            await stack.admission.close(GRACE_SECONDS)
            tasks.cancel_scope.cancel()
            export.end()

    with exporting(os.environ, metrics.instruments, client_info()["version"]) as export:
        run_plainly(run)
    return OK


async def _set_when(event: anyio.Event, wait: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await wait(seconds)
    event.set()


async def _serve_stdio(stack: Stack) -> None:
    """Serve one client until it closes stdin or a signal comes."""
    server = stack.front.server
    if sys.stdin.isatty():
        say(
            "waiting for MCP messages on stdin: a client starts this by itself. `--http 127.0.0.1:8765` serves them all"
        )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, tasks.cancel_scope, stack.admission)
        async with open_front(stack.settings.limits) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_on_signal(scope: anyio.CancelScope, admission: Admission) -> None:
    await _stop_on_signal(anyio.Event())
    exit_soon()
    await admission.close(GRACE_SECONDS)
    scope.cancel()


async def _stop_on_signal(stopped: anyio.Event) -> None:
    with anyio.open_signal_receiver(*ending_signals()) as signals:
        async for _ in signals:
            stopped.set()
            return


def _check_open(arguments: argparse.Namespace, settings: Settings) -> None:
    if arguments.open and not arguments.http:
        raise InvalidInput("--open works only with --http. Leave it out: over stdio a client needs no token.")
    if arguments.open and settings.has_callers:
        raise InvalidInput(
            f"--open serves without tokens, but {settings.source} defines callers. Leave out --open, or remove them."
        )


@dataclass(frozen=True, slots=True)
class LettingIn:
    """How clients authenticate over HTTP: with tokens, one of which may be this user's own, or not at all."""

    tokens: OwnTokens | None
    own: OwnToken | None

    def border(self, stack: Stack) -> Border:
        state = stack.gateway.state
        verifier = TokenVerifier(lambda: state.settings.oauth, IssuerClient())
        if self.tokens is None:
            return Border(state, token_required=False, verifier=verifier)
        return Border(state, token_required=True, on_use=self.tokens.used, verifier=verifier)

    def pasted(self, url: str) -> str:
        """Return what a client's configuration needs; the token itself is shown to a person, or when it is new."""
        server: dict[str, Json] = {"type": "http", "url": url}
        if self.own is not None:
            shown = self.own.secret if self.own.is_new or sys.stderr.isatty() else f"<the token in {self.own.path}>"
            server["headers"] = {"Authorization": f"Bearer {shown}"}
        elif self.tokens is not None:
            server["headers"] = {"Authorization": "Bearer <a token from `shortlist token create NAME`>"}
        return shown_json({"mcpServers": {"shortlist": server}})


async def _serve_http(
    stack: Stack, where: tuple[str, int], worker: Worker | None, *, pages: bool, entry: LettingIn
) -> None:
    host, port = where if worker is None else (where[0], worker.port)
    access = Access(mark=stack.peers.page_mark if stack.peers is not None else "")
    border = entry.border(stack)
    instruments, admission = stack.metrics.instruments, stack.admission
    probes = probe_routes(stack.gateway.state, instruments, border, lambda: admission.is_closing)
    registry = registry_routes(stack.gateway.state, border)
    dashboard = [dashboard_route(stack, access, border)] if pages else []
    replica = open_replica(stack)
    lending = Lending(stack.pool, stack.leases, admission.relayed).routes() if stack.leases is not None else []
    app = build_app(
        stack.front, host, [*probes, *registry, *lending, *dashboard], border, replica, stack.admission.refused
    )
    kept, sent = stack.storage.results, app.state.sessions.log
    stack.metrics.instruments.read(KEPT_BYTES, lambda: {("results",): kept.bytes, ("resumption",): sent.bytes})

    def announce(base: str) -> None:
        url = f"{base}/mcp"
        say(f"serving {url}")
        if entry.tokens is None:
            say("warning: --open lets every program and every user of this machine call every tool")
        say(f"paste into a client: {entry.pasted(url)}")
        if not stack.settings.source:
            say(f"a first search to try: search_tools {json.dumps({'query': FIRST_SEARCHES[0]})}")
        if pages:
            own = entry.own.settings if entry.own is not None else None
            say(f"dashboard: {entrance(access, base, stack.settings, own)}")

    with _local_door(stack) as door:
        async with anyio.create_task_group() as tasks:
            if door is not None:
                tasks.start_soon(door.serve)

            own = listening_socket(host, 0) if worker is not None else None

            def serving(base: str) -> None:
                if worker is None or worker.is_first:
                    announce(base)
                if worker is not None:
                    worker.ready()
                if replica is not None:
                    reached = base if own is None else base_url(host, own)
                    join = partial(take_part, has_siblings=own is not None)
                    tasks.start_soon(join, stack, replica, app.state.sessions, reached)

            await listen(app, host, port, serving, admission=stack.admission, own=own)
            tasks.cancel_scope.cancel()


@contextmanager
def _local_door(stack: Stack) -> Iterator[LocalDoor | None]:
    """Open the local socket of a gateway that serves HTTP; None where another gateway has it."""
    try:
        place = rendezvous(Path(stack.settings.source) if stack.settings.source else None)
        held = hold(place)
    except NoSharing:
        held = None
    if held is None:
        yield None
        return
    try:
        yield LocalDoor(stack, place, held)
    finally:
        held.end(place)
