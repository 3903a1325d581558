"""This gateway as one of several on the same store: its sessions, its peers, and changes that the others make."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mcp.server.connection import Connection
from starlette.types import Scope

from shortlist.errors import ShortlistError
from shortlist.front.audience import IdleExchange, Link
from shortlist.front.peers import Peers
from shortlist.front.resumption import ResumableSessions, Sharing
from shortlist.front.server import HANDLE_PARAMETER, PRINCIPAL, SESSION_CHARACTERS, Front
from shortlist.front.sessions import SharedSessions
from shortlist.gateway.callers import Caller
from shortlist.gateway.changes import ListChanged
from shortlist.storage.shared import SharedStores, StoredSession, session_key

logger = logging.getLogger(__name__)


class Replica:
    """One of several gateways that serve the same clients."""

    def __init__(self, front: Front, stores: SharedStores, peers: Peers) -> None:
        self.peers = peers
        self._front = front
        self._sessions = SharedSessions(stores.sessions)
        front.remember_session = self._remember
        front.audience.first_request = peers.first_request

    @property
    def sharing(self) -> Sharing:
        return Sharing(self._sessions, self.peers.mark, self._restored, self._apply)

    async def heard(self, what: str, sessions: ResumableSessions | None) -> None:
        """Act on a change of a workspace or session by any gateway; where none is named, any may have changed."""
        kind, _, key = what.partition(" ")
        state = self._front.gateway.state
        if not what:
            state.workspaces.forget_all()
            if sessions is not None:
                await sessions.changed_anywhere()
        elif kind == "workspaces" and state.workspaces.forget(key):
            state.announce(ListChanged(key))
        elif kind == "client_sessions" and sessions is not None:
            await sessions.changed_elsewhere(key)

    async def _restored(self, scope: Scope, connection: Connection, stored: StoredSession) -> None:
        caller = Caller(
            principal=scope[PRINCIPAL],
            era="legacy",
            session=session_key(connection.session_id or "")[:SESSION_CHARACTERS],
            handle=scope.get("path_params", {}).get(HANDLE_PARAMETER),
        )
        self._front.audience.link(caller, connection)
        await self._apply(connection, stored)

    async def _apply(self, connection: Connection, stored: StoredSession) -> None:
        """Take over the log level and the subscriptions of a session."""
        link = self._front.audience.of_session(session_key(connection.session_id or "")[:SESSION_CHARACTERS])
        if link is None:
            return
        router, exchange = self._front.router, IdleExchange(link)
        known = set(router.subscriptions(link))
        with suppress(ShortlistError):
            if stored.level and stored.level != router.level(link):
                await router.set_level(exchange, link, stored.level)
        for uri in stored.subscriptions:
            if uri not in known:
                await self._try(lambda uri=uri: router.subscribe(exchange, link, [uri]))  # type: ignore[misc]
        for uri in known - set(stored.subscriptions):
            await self._try(lambda uri=uri: router.unsubscribe(exchange, link, uri))  # type: ignore[misc]

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except ShortlistError as error:
            logger.debug("a subscription was not taken over: %s", error)

    async def _remember(self, link: Link) -> None:
        """Store what a client has asked for, so that it holds wherever its session is served."""
        router, session = self._front.router, link.connection.session_id
        if session is not None:
            await self._sessions.change(session, router.level(link) or "", router.subscriptions(link))
