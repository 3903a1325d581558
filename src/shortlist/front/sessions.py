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
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from shortlist.errors import StoreError
from shortlist.storage.shared import SessionStore, StoredSession, session_key

SESSION_HEADER = "mcp-session-id"
IDLE_SECONDS = 300.0
"""How long a gateway keeps an idle session in memory; it can look it up again."""
HELD_SESSIONS = 1_000
"""With more sessions in memory, at about 30 kB each, those that were idle for longest stay in the store alone."""
REST_SECONDS = 5.0
"""How long a session stays in memory after a request at least: a client whose stream broke resumes within this time."""
TOUCH_SECONDS = 300.0
RETRY_SECONDS = 5.0
"""How often sessions that could not be stored are stored again."""

logger = logging.getLogger(__name__)


class SharedSessions:
    """The sessions of all gateways on one store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.is_reachable = True
        """Whether the store answered when it was last asked."""
        self._unsaved: dict[str, StoredSession] = {}

    def is_stored(self, session: str) -> bool:
        """Return whether other gateways, and this one later, can look a session up."""
        return self.is_reachable and not self.is_unsaved(session)

    def is_unsaved(self, session: str) -> bool:
        """Return whether a session was opened while the store could not be reached, and waits to be stored."""
        return session in self._unsaved

    def opening(self, scope: Scope, body: bytes, send: Send) -> Send:
        """Return a send that stores the session that a response opens before its client can use it elsewhere."""

        async def save_then_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session = Headers(raw=message["headers"]).get(SESSION_HEADER)
                if session is not None:
                    await self._open(session, scope, body)
            await send(message)

        return save_then_send

    async def find(self, session: str, scope: Scope) -> StoredSession | None:
        """Return a session, to the credential that opened it and to nobody else."""
        found = await self.look_again(session)
        return found if found is not None and found.owner == owner_of_request(scope) else None

    async def look_again(self, session: str) -> StoredSession | None:
        """Return a session that is served here, whoever opened it; None where it has ended."""
        self.is_reachable = False
        found = await anyio.to_thread.run_sync(self._store.find, session)
        self.is_reachable = True
        return found

    def forget(self, session: str) -> None:
        """Stop trying to store a session that this gateway no longer serves."""
        self._unsaved.pop(session, None)

    async def save_again(self) -> None:
        """Store the sessions that were opened while the store could not be reached."""
        for session, stored in tuple(self._unsaved.items()):
            if not await self._try("stored", self._store.open, session, stored):
                return
            self.forget(session)

    async def end(self, session: str) -> None:
        self.forget(session)
        await self._try("ended", self._store.end, session)

    async def change(self, session: str, level: str, subscriptions: Sequence[str]) -> None:
        await self._try("changed", self._store.change, session, level, tuple(subscriptions))

    async def touch(self, sessions: Sequence[str]) -> None:
        await self._try("kept", self._store.touch, tuple(sessions))

    async def _open(self, session: str, scope: Scope, body: bytes) -> None:
        message = from_json(body)
        params = message.get("params") if isinstance(message, dict) else None
        stored = StoredSession(owner=owner_of_request(scope), handshake=json.dumps(params or {}))
        if not await self._try("stored", self._store.open, session, stored):
            self._unsaved[session] = stored

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
