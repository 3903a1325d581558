"""Which requests begin, and when: in turn, within limits, and until the gateway shuts down."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import INTERNAL_ERROR

from shortlist.config.settings import Limits

AT_ONCE = 8
"""How many requests begin in one pass of the event loop; a legacy `initialize` takes 2 ms in about ten passes."""
BUSY_SECONDS = 1
"""When a refused request may be tried again."""
SHUTTING_DOWN = "The gateway is shutting down and takes no new calls."
CUT_SHORT = "The gateway is shutting down and ended this request. Its server may have done the work all the same."
TOLD_SECONDS = 0.4
"""How long requests that are ended at a shutdown may take to give up and answer."""
_WORK = frozenset(
    {"initialize", "server/discover", "tools/call", "prompts/get", "resources/read", "completion/complete"}
)
"""Requests that a gateway that shuts down refuses; clients may still list and unsubscribe while their calls end."""
_LASTING = frozenset({"subscriptions/listen"})
"""Requests that last until the client disconnects; shutdown does not wait for them."""


class Turns:
    """Begins a few requests in each pass of the event loop; where more wait, each caller has its turn.

    Otherwise thousands that arrive together would keep the event loop from anything else.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = self._left = at_once
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._is_due = False

    async def wait(self, caller: Hashable) -> None:
        """Return when a request of this caller may begin: at once, unless many arrive at the same time."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next_pass)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    def _next_pass(self) -> None:
        self._left = self._at_once
        while self._left and self._waiting:
            caller, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # behind the others
            if not turn.done():  # its client may have left
                turn.set_result(None)
                self._left -= 1
        self._is_due = self._left < self._at_once
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next_pass)


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
    _scopes: set[anyio.CancelScope] = field(default_factory=set)

    @property
    def running(self) -> int:
        """Return how many requests are being served."""
        return self._total

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        if ctx.method in _LASTING:
            with self._ended_at_shutdown():
                return await call_next(ctx)
        client = _client(ctx)
        self._check(client, ctx.method)
        with self._counted(client), self._ended_at_shutdown():
            return await call_next(ctx)

    @contextmanager
    def _ended_at_shutdown(self) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            self.refused["cut short"] += 1
            raise MCPError(INTERNAL_ERROR, CUT_SHORT)

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
        """Refuse new requests, wait so long for those that are running, and end the others with an error."""
        self.is_closing = True
        await self._ended(seconds)
        for scope in tuple(self._scopes):
            scope.cancel()
        await self._ended(TOLD_SECONDS)

    async def _ended(self, seconds: float) -> None:
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
