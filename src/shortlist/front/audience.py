"""The clients that are connected, and which of them is told of which change."""

from collections.abc import Callable, Mapping

from mcp.server.connection import Connection
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from shortlist.front.clients import LOG_METHOD, IdleExchange, Link
from shortlist.gateway.exchange import Exchange
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.router import Router
from shortlist.gateway.state import Change, ListChanged
from shortlist.gateway.workspaces import Caller, Key, workspace_key
from shortlist.upstream.events import Notified

MAX_STREAMS = 1_024
_LIST_EVENTS: Mapping[str, ServerEvent] = {
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
_RELAYED = frozenset({*_LIST_EVENTS, "notifications/elicitation/complete"})


class Audience:
    """Legacy connections and modern listen streams, told of what they may know."""

    def __init__(self, gateway: Gateway, router: Router) -> None:
        self._gateway = gateway
        self._router = router
        self._links: dict[str, Link] = {}
        self._streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]] = {}

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
            self._gateway.state.workspaces.close(link.caller)

    def linked(self, caller: Caller) -> Link | None:
        """Give the connection of a legacy caller."""
        return self._links.get(caller.session or "")

    def idle_exchanges(self) -> tuple[Exchange, ...]:
        """Give the way to every client that can be asked at any time."""
        return tuple(IdleExchange(link) for link in self._links.values())

    @property
    def is_full(self) -> bool:
        return len(self._streams) >= MAX_STREAMS

    def stream(self, caller: Caller) -> "Stream":
        """Make a listen stream; it hears of changes once it is subscribed to."""
        return Stream(self._streams, caller)

    def tell(self, change: Change) -> None:
        """Pass a change on to those whom it concerns."""
        if isinstance(change, ListChanged):
            self._tools_changed(change.workspace)
        elif change.method == LOG_METHOD:
            self._logged(change)
        elif change.method == "notifications/resources/updated":
            self._resource_updated(change)
        elif change.method in _RELAYED:
            self._relay_notification(change)

    def _tools_changed(self, key: Key | None) -> None:
        for link in self._links.values():
            if key is None or workspace_key(link.caller) == key:
                self._gateway.spawn(link.connection.send_tool_list_changed)
        for caller, listener in tuple(self._streams.values()):
            if key is None or workspace_key(caller) == key:
                listener(ToolsListChanged())

    def _logged(self, event: Notified) -> None:
        level = str(event.params.get("level"))
        working = self._gateway.state.in_flight.get(event.server)
        for exchange in tuple(working or ()):
            link = self.linked(exchange.caller)
            if link is None or self._router.wants(link, level):
                self._gateway.spawn(lambda exchange=exchange: exchange.log(event.params))  # type: ignore[misc]
        for link in () if working else tuple(self._links.values()):
            if self._router.wants(link, level):
                self._notify(link, event)

    def _resource_updated(self, event: Notified) -> None:
        for holder, uri in self._router.subscribers(event).items():
            if isinstance(holder, Link):
                self._gateway.spawn(lambda h=holder, u=uri: h.connection.send_resource_updated(u))  # type: ignore[misc]
            elif holder in self._streams:
                self._streams[holder][1](ResourceUpdated(uri))

    def _relay_notification(self, event: Notified) -> None:
        for link in tuple(self._links.values()):
            self._notify(link, event)
        if event.method in _LIST_EVENTS:
            for caller, listener in tuple(self._streams.values()):
                if self._gateway.state.may_use_server(caller, event.server):
                    listener(_LIST_EVENTS[event.method])

    def _notify(self, link: Link, event: Notified) -> None:
        if self._gateway.state.may_use_server(link.caller, event.server):
            params = dict(event.params) or None
            self._gateway.spawn(lambda: link.connection.notify(event.method, params))


class Stream:
    """One modern client's listen stream, as the bus that the SDK's handler reads from."""

    def __init__(self, streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]], caller: Caller) -> None:
        self._streams = streams
        self._caller = caller

    async def publish(self, event: ServerEvent) -> None:
        self._streams[self][1](event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        self._streams[self] = (self._caller, listener)
        return lambda: self._streams.pop(self, None) and None
