"""The clients that are connected: which of them is told of which change, and which is asked what.

A client hears of a server, and is asked something by it, only within its scope. When a principal loses access, its
streams and running requests end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.connection import Connection
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND

from shortlist.access.principal import Principal
from shortlist.front.clients import LOG_METHOD, IdleExchange, Link
from shortlist.gateway.exchange import QUESTIONS, Exchange
from shortlist.gateway.router import Router
from shortlist.gateway.state import AccessChanged, GatewayChange, ListChanged, State, reaches
from shortlist.gateway.tasks import Work
from shortlist.gateway.workspaces import Caller, workspace_key
from shortlist.models import Json
from shortlist.upstream.events import Notified

MAX_STREAMS = 1_024
TOLD_AT_ONCE = 10
TURN_SECONDS = 0.005
REVOKED = "The access of this client was revoked"
_LIST_EVENTS: Mapping[str, ServerEvent] = {
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
_RELAYED = frozenset({*_LIST_EVENTS, "notifications/elicitation/complete"})


class Audience:
    """Legacy connections, modern listen streams and running requests, each with its principal."""

    def __init__(self, state: State, router: Router) -> None:
        self._state = state
        self._router = router
        self._links: dict[str, Link] = {}
        self._streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]] = {}
        self._running: dict[anyio.CancelScope, Principal] = {}
        self.end_sessions: Callable[[Callable[[Principal], bool]], Work] | None = None
        """Returns the work that ends the HTTP sessions of some principals; None where none are served."""

    # Who is connected

    def link(self, caller: Caller, connection: Connection) -> Link:
        """Remember a legacy connection until it closes."""
        session = caller.session or ""
        if session not in self._links:
            self._links[session] = Link(connection, caller)
            connection.exit_stack.callback(self._unlink, session)
        return self._links[session]

    def _unlink(self, session: str) -> None:
        link = self._links.pop(session, None)
        if link is not None:
            self._router.forget(link)
            self._state.workspaces.close(link.caller)

    def linked(self, caller: Caller) -> Link | None:
        """Return the connection of a legacy caller."""
        return self._links.get(caller.session or "")

    @property
    def is_full(self) -> bool:
        return len(self._streams) >= MAX_STREAMS

    def stream(self, caller: Caller) -> "Stream":
        """Make a listen stream; it hears of changes once it is subscribed to."""
        return Stream(self._streams, caller)

    @contextmanager
    def running(self, principal: Principal) -> Iterator[None]:
        """Run a request that ends as soon as its principal loses access."""
        with anyio.CancelScope() as scope:
            self._running[scope] = principal
            try:
                yield
            finally:
                del self._running[scope]
        if scope.cancelled_caught:
            raise MCPError(INVALID_REQUEST, REVOKED)

    def _is_current(self, principal: Principal) -> bool:
        return principal.is_current(self._state.settings.tokens)

    def _end_revoked(self) -> None:
        for scope, principal in tuple(self._running.items()):
            if not self._is_current(principal):
                scope.cancel()
        if self.end_sessions is not None:
            self._state.background.spawn("ending revoked sessions", self.end_sessions(self._is_current))

    # Who is told

    def tell(self, change: GatewayChange) -> None:
        """Pass a change on to the clients that it concerns and that can reach what it is about."""
        if isinstance(change, ListChanged):
            self._tools_changed(change)
        elif isinstance(change, AccessChanged):
            self._end_revoked()
        elif change.method == LOG_METHOD:
            self._logged(change)
        elif change.method == "notifications/resources/updated":
            self._resource_updated(change)
        elif change.method in _RELAYED:
            self._relay_notification(change)

    def _spawn(self, what: str, work: Work) -> None:
        self._state.background.spawn(what, work)

    def _concerns(self, caller: Caller, change: ListChanged) -> bool:
        if change.workspace is not None:
            return workspace_key(caller) == change.workspace
        return self._is_current(caller.principal) and reaches(self._state.reach(caller.principal), change)

    def _has_server(self, caller: Caller, server: str) -> bool:
        return self._state.reach(caller.principal).has_server(server)

    def _tools_changed(self, change: ListChanged) -> None:
        links = [link for link in self._links.values() if self._concerns(link.caller, change)]
        if links:
            self._spawn("telling clients that their tools changed", partial(self._tell_in_turns, links))
        for caller, listener in tuple(self._streams.values()):
            if self._concerns(caller, change):
                listener(ToolsListChanged())

    async def _tell_in_turns(self, links: Sequence[Link]) -> None:
        """Tell a few clients at a time: telling a thousand at once would stall every call for half a second."""
        for start in range(0, len(links), TOLD_AT_ONCE):
            for link in links[start : start + TOLD_AT_ONCE]:
                self._spawn("telling a client that its tools changed", link.connection.send_tool_list_changed)
            await anyio.sleep(TURN_SECONDS)

    def _logged(self, event: Notified) -> None:
        """Pass on a log entry, which names no request: to the calls in flight where all have one principal.

        Otherwise it goes to those clients whose scope holds the whole server.
        """
        level = str(event.params.get("level"))
        working = tuple(self._state.in_flight.get(event.server) or ())
        is_alone = len({exchange.caller.principal for exchange in working}) == 1
        for exchange in working:
            link = self.linked(exchange.caller)
            wanted = link is None or self._router.wants(link, level)
            if wanted and (is_alone or self._has_server(exchange.caller, event.server)):
                self._spawn(f"a log entry of {event.server!r}", partial(exchange.log, event.params))
        for link in () if working else tuple(self._links.values()):
            if self._router.wants(link, level):
                self._notify(link, event)

    def _resource_updated(self, event: Notified) -> None:
        for holder, uri in self._router.subscribers(event).items():
            caller = holder.caller if isinstance(holder, (Link, Stream)) else None
            if caller is None or not self._has_server(caller, event.server):
                continue
            if isinstance(holder, Link):
                self._spawn("telling of a resource", partial(holder.connection.send_resource_updated, uri))
            elif holder in self._streams:
                self._streams[holder][1](ResourceUpdated(uri))

    def _relay_notification(self, event: Notified) -> None:
        for link in tuple(self._links.values()):
            self._notify(link, event)
        if event.method in _LIST_EVENTS:
            for caller, listener in tuple(self._streams.values()):
                if self._has_server(caller, event.server):
                    listener(_LIST_EVENTS[event.method])

    def _notify(self, link: Link, event: Notified) -> None:
        if self._has_server(link.caller, event.server):
            params = dict(event.params) or None
            self._spawn(f"{event.method} of {event.server!r}", partial(link.connection.notify, event.method, params))

    # Who is asked

    def idle_exchanges(self, server: str) -> tuple[Exchange, ...]:
        """Return the clients that a server may ask while no call is in flight: their scope holds the whole server."""
        return tuple(IdleExchange(link) for link in self._links.values() if self._has_server(link.caller, server))

    def may_be_asked(self, caller: Caller) -> bool:
        return "be_asked" in self._state.reach(caller.principal).scope.actions


class Answerer:
    """Puts what a legacy server asks to the client whose call is in flight there."""

    capabilities: Mapping[str, Json] = {
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": True},
    }

    def __init__(self) -> None:
        self.idle: Callable[[str], tuple[Exchange, ...]] = lambda _: ()
        """Returns the clients that a server may ask while no call is in flight."""
        self.may_be_asked: Callable[[Caller], bool] = lambda _: True

    async def answer(
        self, server: str, method: str, params: Mapping[str, Json], callers: tuple[Any, ...]
    ) -> dict[str, Json]:
        """Ask the client of the calls in flight; refuse where they belong to several clients."""
        known = method in QUESTIONS
        candidates: list[Exchange] = [e for e in callers or self.idle(server) if e is not None] if known else []
        askable = [e for e in candidates if self.may_be_asked(e.caller) and e.can(method)]
        if not askable:
            raise MCPError(METHOD_NOT_FOUND, f"No client that is connected can answer {method}")
        if len({exchange.caller for exchange in askable}) > 1:
            raise MCPError(METHOD_NOT_FOUND, f"Several clients use {server!r}: it is not clear whom {method} is for")
        return await askable[-1].ask(method, params)


class Stream:
    """One modern client's listen stream, as the bus that the SDK's handler reads from."""

    def __init__(self, streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]], caller: Caller) -> None:
        self._streams = streams
        self.caller = caller

    async def publish(self, event: ServerEvent) -> None:
        self._streams[self][1](event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        self._streams[self] = (self.caller, listener)
        return lambda: self._streams.pop(self, None) and None
