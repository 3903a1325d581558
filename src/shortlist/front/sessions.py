"""Legacy HTTP sessions that every gateway on one store can serve.

A session is opened by one gateway and stored before its client hears of it. Another one that gets a request for it
looks it up, and serves it as if the handshake had been its own. Its id is a random number; the store has only a hash.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from shortlist.errors import StoreError
from shortlist.large import parsed
from shortlist.storage.shared import SessionStore, StoredSession, session_key

SESSION_HEADER = "mcp-session-id"
IDLE_SECONDS = 300.0
"""How long a gateway keeps an idle session in memory; it can look it up again."""
HELD_SESSIONS = 1_000
"""With more sessions in memory, at about 20 kB each, those that were idle for longest stay in the store alone."""
REST_SECONDS = 5.0
"""How long a session stays in memory after a request at least: a client whose stream broke resumes within this time."""
TOUCH_SECONDS = 300.0
RETRY_SECONDS = 5.0
"""How often sessions that could not be stored are stored again."""
REMEMBERED_ENDS = 10_000
"""Sessions that ended while the store was away; beyond so many, the oldest stay there until they are forgotten."""

logger = logging.getLogger(__name__)


class SharedSessions:
    """The sessions of all gateways on one store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.is_reachable = True
        """Whether the store answered when it was last asked."""
        self._stored: dict[str, str] = {}
        """Sessions that are served here and that the store has, by what it knows them under."""
        self._unsaved: dict[str, StoredSession] = {}
        """Sessions that were opened while the store could not be reached."""
        self._unstored_changes: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Log levels and subscriptions that could not be stored."""
        self._ended: dict[str, None] = {}
        """Sessions that ended here and that the store still has, the oldest first."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return what the store knows the sessions under that are served here."""
        return tuple(self._stored)

    def served(self, key: str) -> str | None:
        """Return the session that the store knows under a key, where it is served here."""
        return self._stored.get(key)

    def serve(self, session: str) -> None:
        """Note that a session that the store has is served here."""
        self._stored[session_key(session)] = session

    def is_stored(self, session: str) -> bool:
        """Return whether other gateways, and this one later, can look a session up as it is now."""
        return self.is_reachable and session_key(session) in self._stored and not self.is_changed(session)

    def is_changed(self, session: str) -> bool:
        """Return whether a change of a session waits to be stored."""
        return session in self._unstored_changes

    def opening(self, scope: Scope, body: bytes, send: Send) -> Send:
        """Return a send that stores the session that a response opens before its client can use it elsewhere."""

        async def save_then_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session = Headers(raw=message["headers"]).get(SESSION_HEADER)
                if session is not None:
                    await self._open(session, scope, body)
            await send(message)

        return save_then_send

    def ending(self, session: str, send: Send) -> Send:
        """Return a send that ends a session for all gateways before its client hears that it has ended."""

        async def end_then_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                await self.end(session)
            await send(message)

        return end_then_send

    async def find(self, session: str, scope: Scope) -> StoredSession | None:
        """Return a session, to the credential that opened it and to nobody else."""
        found = await self.look_again(session)
        return found if found is not None and found.owner == owner_of_request(scope) else None

    async def look_again(self, session: str) -> StoredSession | None:
        """Return a session that is served here, whoever opened it; None where it has ended."""
        if session in self._ended:
            return None
        self.is_reachable = False
        found = await anyio.to_thread.run_sync(self._store.find, session)
        self.is_reachable = True
        return found

    def forget(self, session: str) -> None:
        """Stop trying to store a session that this gateway no longer serves."""
        self._stored.pop(session_key(session), None)
        self._unsaved.pop(session, None)
        self._unstored_changes.pop(session, None)

    async def save_again(self) -> None:
        """Store what could not be stored while the store could not be reached."""
        for session in tuple(self._ended):
            if not await self._try("ended", self._store.end, session):
                return
            self._ended.pop(session, None)
        for session, stored in tuple(self._unsaved.items()):
            if session in self._unsaved and not await self._save(session, stored):
                return
        for session, (level, subscriptions) in tuple(self._unstored_changes.items()):
            if session in self._unstored_changes and self.is_reachable:
                await self.change(session, level, subscriptions)

    async def end(self, session: str) -> None:
        """End a session for all gateways; where the store cannot be reached, the others hear of it later."""
        self.forget(session)
        if not await self._try("ended", self._store.end, session):
            self._ended[session] = None
            if len(self._ended) > REMEMBERED_ENDS:
                del self._ended[next(iter(self._ended))]

    async def change(self, session: str, level: str, subscriptions: Sequence[str]) -> None:
        """Store what a client has asked for; where that fails, it is stored later."""
        wanted = (level, tuple(subscriptions))
        self._unstored_changes[session] = wanted
        is_done = session not in self._unsaved and await self._try("changed", self._store.change, session, *wanted)
        if is_done and self._unstored_changes.get(session) == wanted:
            del self._unstored_changes[session]

    async def touch(self, sessions: Sequence[str]) -> None:
        await self._try("kept", self._store.touch, tuple(sessions))

    async def _open(self, session: str, scope: Scope, body: bytes) -> None:
        message = parsed(body)
        params = message.get("params") if isinstance(message, dict) else None
        stored = StoredSession(owner=owner_of_request(scope), handshake=json.dumps(params or {}))
        await self._save(session, stored)

    async def _save(self, session: str, stored: StoredSession) -> bool:
        self._unsaved[session] = stored
        is_saved = await self._try("stored", self._store.open, session, stored)
        if is_saved and self._unsaved.pop(session, None) is not None:
            self.serve(session)
        elif is_saved and self.served(session_key(session)) is None:
            await self.end(session)  # it ended while it was stored
        return is_saved

    async def _try(self, what: str, act: Any, *values: Any) -> bool:
        """Change the store; where it cannot be reached, return False: the session goes on here alone."""
        try:
            await anyio.to_thread.run_sync(act, *values)
            self.is_reachable = True
        except StoreError as error:
            logger.warning("a session could not be %s for other gateways: %s", what, error)
            self.is_reachable = False
        return self.is_reachable


def owner_of_request(scope: Scope) -> str:
    """Identify the credential of a request; empty where none was needed."""
    user = scope.get("user")
    context = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
    return "" if context is None else session_key(json.dumps(context, sort_keys=True, default=str))
