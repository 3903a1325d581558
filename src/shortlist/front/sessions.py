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
"""How long a gateway holds a session that nobody uses in memory; it can look it up again."""
TOUCH_SECONDS = 300.0

logger = logging.getLogger(__name__)


class SharedSessions:
    """The sessions of all gateways on one store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

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
        found = await anyio.to_thread.run_sync(self._store.find, session)
        return found if found is not None and found.owner == owner_of_request(scope) else None

    async def look_again(self, session: str) -> StoredSession | None:
        """Return a session that is served here, whoever opened it; None where it has ended."""
        return await anyio.to_thread.run_sync(self._store.find, session)

    async def end(self, session: str) -> None:
        await self._try("ended", self._store.end, session)

    async def change(self, session: str, level: str, subscriptions: Sequence[str]) -> None:
        await self._try("changed", self._store.change, session, level, tuple(subscriptions))

    async def touch(self, sessions: Sequence[str]) -> None:
        await self._try("kept", self._store.touch, tuple(sessions))

    async def _open(self, session: str, scope: Scope, body: bytes) -> None:
        message = from_json(body)
        params = message.get("params") if isinstance(message, dict) else None
        stored = StoredSession(owner=owner_of_request(scope), handshake=json.dumps(params or {}))
        await self._try("stored", self._store.open, session, stored)

    async def _try(self, what: str, act: Any, *values: Any) -> None:
        """Change the store; where it cannot be reached, the session goes on here alone."""
        try:
            await anyio.to_thread.run_sync(act, *values)
        except StoreError as error:
            logger.warning("a session could not be %s for other gateways: %s", what, error)


def owner_of_request(scope: Scope) -> str:
    """Identify the credential of a request; empty where none was needed."""
    user = scope.get("user")
    context = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
    return "" if context is None else session_key(json.dumps(context, sort_keys=True, default=str))
