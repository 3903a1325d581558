"""Connected clients: what they are told, and asked while none of their requests is running.

A client hears of a server, and is asked something by it, only within its scope. When a principal loses access, its
streams and running requests end.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from mcp import MCPError
from mcp.server.connection import Connection
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from shortlist.access.principal import Principal
from shortlist.errors import RequestRefused
from shortlist.fairness import has_room
from shortlist.front.notices import Notice, Notices
from shortlist.front.requests import LOG_METHOD, RunningRequests, declares
from shortlist.gateway.asking import question
from shortlist.gateway.callers import Caller, Exchange, client_key, session_of, workspace_key
from shortlist.gateway.changes import AccessChanged, GatewayChange, ListChanged, reaches
from shortlist.gateway.relayed_tasks import STATUS, renamed
from shortlist.gateway.router import Router
from shortlist.gateway.state import GatewayState
from shortlist.gateway.tasks import Work
from shortlist.models import Json
from shortlist.text.tokens import cleaned
from shortlist.upstream.events import Notified

MAX_STREAMS = 1_024
_LIST_EVENTS: Mapping[str, ServerEvent] = {
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
_RELAYED = frozenset({*_LIST_EVENTS, "notifications/elicitation/complete"})


def number_requests(connection: Connection, first: int) -> None:
    """Let the ids of requests to a client begin at a number. The SDK counts from one; this reaches into its counter."""
    dispatcher = cast("JSONRPCDispatcher[Any]", connection.outbound)
    dispatcher._next_id = max(dispatcher._next_id, first)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A legacy connection, which can be notified while no request is in flight."""

    connection: Connection
    caller: Caller


class IdleExchange:
    """A legacy client that can be asked while none of its calls is in flight."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def caller(self) -> Caller:
        return self._link.caller

    def can(self, method: str) -> bool:
        connection = self._link.connection
        return connection.has_standalone_channel and declares(connection.client_capabilities, method)

    @property
    def answers_in_place(self) -> bool:
        return True

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        return await self._link.connection.send_raw_request(method, dict(params) or None)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it: there is no request in flight to send it with."""

    async def pause(self) -> None:
        """Do nothing: no request of the client is open."""

    async def log(self, params: Mapping[str, Json]) -> None:
        await self._link.connection.notify(LOG_METHOD, dict(params))


class Audience:
    """Legacy connections and modern listen streams, each with its principal."""

    def __init__(self, state: GatewayState, router: Router, running: RunningRequests) -> None:
        self._state = state
        self._router = router
        self._running = running
        self._links: dict[str, Link] = {}
        self._connections: dict[str, Connection] = {}
        """Those over HTTP, by the id of their session."""
        self._streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]] = {}
        self.notices = Notices(self._spawn)
        self.first_request = 0
        """Where the ids of requests to clients begin, so that those of several gateways differ."""
        self.end_sessions: Callable[[Callable[[Principal], bool]], Work] | None = None
        """Returns the work that ends the HTTP sessions of some principals; None where none are served."""

    # Who is connected

    def link(self, caller: Caller, connection: Connection) -> Link:
        """Remember a legacy connection until it closes."""
        session = caller.session or ""
        known = self._links.get(session)
        if known is not None and known.connection is connection:
            return known
        link = self._links[session] = Link(connection, caller)
        if connection.session_id is not None:
            self._connections[connection.session_id] = connection
            number_requests(connection, self.first_request)
        connection.exit_stack.callback(self._unlink, session, link)
        return link

    def _unlink(self, session: str, link: Link) -> None:
        self._router.forget(link)
        if self._links.get(session) is link:  # else the session came back from the store, with another connection
            del self._links[session]
            self._connections.pop(link.connection.session_id or "", None)
            self._state.workspaces.close(link.caller)

    def connection(self, session_id: str) -> Connection | None:
        """Return the legacy connection of an HTTP session that has made a request."""
        return self._connections.get(session_id)

    def of_session(self, session: str) -> Link | None:
        """Return the legacy connection of a caller's session."""
        return self._links.get(session)

    def linked(self, caller: Caller) -> Link | None:
        """Return the connection of a legacy caller."""
        return self._links.get(caller.session or "")

    def has_room(self, principal: Principal) -> bool:
        """Return whether a principal may open another listen stream."""
        taken = Counter(caller.principal for caller, _ in self._streams.values())
        return has_room(taken, principal, MAX_STREAMS, alone=principal.anonymous)

    def stream(self, caller: Caller) -> "Stream":
        """Make a listen stream; it hears of changes once it is subscribed to."""
        return Stream(self._streams, caller)

    def _is_current(self, principal: Principal) -> bool:
        return principal.is_current(self._state.settings)

    def _end_revoked(self) -> None:
        self._running.end_unless(self._is_current)
        if self.end_sessions is not None:
            self._state.background.spawn("ending revoked sessions", self.end_sessions(self._is_current))

    # Notifications

    def tell(self, change: GatewayChange) -> None:
        """Pass a change on to the clients that it concerns and that can reach what it is about."""
        if isinstance(change, ListChanged):
            self._tools_changed(change)
        elif isinstance(change, AccessChanged):
            self._end_revoked()
        elif change.method == LOG_METHOD:
            self._logged(replace(change, params=cleaned(dict(change.params))))
        elif change.method == "notifications/resources/updated":
            self._resource_updated(change)
        elif change.method == STATUS:
            reader = (STATUS, change.server)  # who follows the task is found out when it is told
            self.notices.put(Notice(reader, change.server, partial(self._task_changed, change)))
        elif change.method in _RELAYED:
            self._relay_notification(change)

    def _spawn(self, what: str, work: Work) -> None:
        self._state.background.spawn(what, work)

    def _concerns(self, caller: Caller, change: ListChanged) -> bool:
        if change.workspace is not None:
            return workspace_key(caller) == change.workspace
        view = self._state.view_of(caller)
        is_served = change.options is None or change.options == view.options
        return is_served and self._is_current(caller.principal) and reaches(view.scope(caller.principal), change)

    def _has_server(self, caller: Caller, server: str) -> bool:
        return self._state.view_of(caller).server_in_reach(caller.principal, server)

    def _tools_changed(self, change: ListChanged) -> None:
        for link in self._links.values():
            if self._concerns(link.caller, change):
                self.notices.put(Notice(link, "", link.connection.send_tool_list_changed, "tools"))
        for caller, listener in tuple(self._streams.values()):
            if self._concerns(caller, change):
                listener(ToolsListChanged())

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
                self.notices.send(Notice(exchange, event.server, partial(exchange.log, event.params)))
        for link in () if working else tuple(self._links.values()):
            if self._router.wants(link, level):
                self._notify(link, event)

    def _resource_updated(self, event: Notified) -> None:
        for holder, uri in self._router.subscribers(event).items():
            caller = holder.caller if isinstance(holder, (Link, Stream)) else None
            if caller is None or not self._has_server(caller, event.server):
                continue
            if isinstance(holder, Link):
                work = partial(holder.connection.send_resource_updated, uri)
                self.notices.put(Notice(holder, event.server, work, f"resource {uri}"))
            elif holder in self._streams:
                self._streams[holder][1](ResourceUpdated(uri))

    async def _task_changed(self, event: Notified) -> None:
        """Tell the legacy client that follows a task of its status, while it can reach the tool; modern ones poll."""
        tasks = self._state.relayed_tasks
        handle = tasks.handle_of(event.server, event.params.get("taskId"))
        link = self.linked(tasks.caller_of(handle)) if handle is not None else None
        if handle is not None and link is not None:
            with suppress(RequestRefused):
                tasks.find(link.caller, (await self._state.admit(link.caller)).tools, handle)
                await link.connection.notify(event.method, cleaned(renamed(event.params, handle)))

    def _relay_notification(self, event: Notified) -> None:
        for link in tuple(self._links.values()):
            self._notify(link, event)
        if event.method in _LIST_EVENTS:
            for caller, listener in tuple(self._streams.values()):
                if self._has_server(caller, event.server):
                    listener(_LIST_EVENTS[event.method])

    def _notify(self, link: Link, event: Notified) -> None:
        if self._has_server(link.caller, event.server):
            work = partial(link.connection.notify, event.method, dict(event.params) or None)
            # A list that changed is told once. A log entry or the end of a question is different each time.
            subject = event.method if event.method in _LIST_EVENTS else None
            self.notices.put(Notice(link, event.server, work, subject))

    # Who is asked

    def idle_exchanges(self, server: str) -> tuple[Exchange, ...]:
        """Return the clients that a server may ask while no call is in flight: their scope holds the whole server."""
        return tuple(IdleExchange(link) for link in self._links.values() if self._has_server(link.caller, server))

    def question(self, exchange: Exchange, server: str, method: str, params: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the params of a server's question as a client gets it; raise MCPError where it may not be asked."""
        try:
            return question(self._state, exchange, server, method, params)
        except RequestRefused as error:
            raise MCPError(error.code, str(error)) from None

    def told_roots(self, server: str, caller: Caller) -> None:
        """Keep the shared connection to a server for the client whose roots it was told."""
        state = self._state
        if session_of(state.settings.servers.get(server), caller, state.rooted) == ("", ""):
            state.rooted[server] = client_key(caller)

    def may_be_asked(self, caller: Caller) -> bool:
        return "be_asked" in self._state.everything.scope(caller.principal).actions


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
