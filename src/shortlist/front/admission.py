"""How many requests are served at once, in total and for each client, and what becomes of them at a shutdown."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import INTERNAL_ERROR

from shortlist.config.settings import Limits

SHUTTING_DOWN = "The gateway is shutting down and takes no new calls."
_WORK = frozenset(
    {"initialize", "server/discover", "tools/call", "prompts/get", "resources/read", "completion/complete"}
)
"""Requests that a gateway that shuts down refuses; clients may still list and unsubscribe while their calls end."""
_LASTING = frozenset({"subscriptions/listen"})
"""Requests that last until the client disconnects; shutdown does not wait for them."""
BUSY_SECONDS = 1
"""When a refused request may be tried again."""


@dataclass(slots=True)
class Admission:
    """A middleware of the SDK's server, around every request over every transport and in both eras."""

    limits: Limits
    is_closing: bool = False
    refused: Counter[str] = field(default_factory=Counter)
    """How many requests were refused, by reason."""
    _running: Counter[str] = field(default_factory=Counter)
    _total: int = 0
    _idle: anyio.Event = field(default_factory=anyio.Event)

    @property
    def running(self) -> int:
        """Return how many requests are being served."""
        return self._total

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None or ctx.method in _LASTING:
            return await call_next(ctx)
        client = _client(ctx)
        self._check(client, ctx.method)
        with self._counted(client):
            return await call_next(ctx)

    @contextmanager
    def relayed(self) -> Iterator[bool]:
        """Count a request that another gateway relays to a server of this one; yield False where it may not begin."""
        if self.is_closing:
            yield False
            return
        with self._counted("other gateways"):
            yield True

    @contextmanager
    def _counted(self, client: str) -> Iterator[None]:
        self._total += 1
        self._running[client] += 1
        try:
            yield
        finally:
            self._leave(client)

    async def close(self, seconds: float) -> None:
        """Refuse new requests, and wait so long for those that are running."""
        self.is_closing = True
        with anyio.move_on_after(seconds):
            while self._total:
                self._idle = anyio.Event()
                await self._idle.wait()

    def _check(self, client: str, method: str) -> None:
        if self.is_closing and method in _WORK:
            self._refuse("shutdown", SHUTTING_DOWN)
        if self._total >= self.limits.calls:
            self._refuse("calls", f"{self.limits.calls} requests are running, as many as limits.calls allows.")
        if self._running[client] >= self.limits.calls_per_client:
            most = self.limits.calls_per_client
            self._refuse("calls_per_client", f"You have {most} requests running (limits.calls_per_client).")

    def _refuse(self, reason: str, message: str) -> None:
        self.refused[reason] += 1
        raise MCPError(
            INTERNAL_ERROR, f"{message} Try again in {BUSY_SECONDS} second.", {"retryAfterSeconds": BUSY_SECONDS}
        )

    def _leave(self, client: str) -> None:
        self._total -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        if not self._total:
            self._idle.set()


def _client(ctx: ServerRequestContext[Any, Any]) -> str:
    """Name who sent a request: its token where there is one, its session, or the address it comes from."""
    request = ctx.request
    if request is None:
        return "stdio"
    user = request.scope.get("user")
    if user is not None:
        return f"token {user.display_name}"
    session = request.headers.get("mcp-session-id")
    address = request.client.host if request.client is not None else ""
    return f"session {session}" if session else f"address {address}{request.scope['path']}"
