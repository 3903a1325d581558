"""Requests of clients: when they begin, what ends them early, how long they take, and the way back while they run."""

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeAlias, cast

import anyio
from mcp import MCPError
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ClientCapabilities, LoggingMessageNotification, ServerRequest
from mcp_types.methods import SPEC_CLIENT_METHODS
from pydantic import BaseModel, ConfigDict

from shortlist.access.principal import Principal
from shortlist.config.settings import Limits
from shortlist.gateway.callers import OPEN_LINK, Caller
from shortlist.gateway.menus import META_NAMES
from shortlist.gateway.recording import failure_name, tool_error
from shortlist.models import Json
from shortlist.observability.metrics import OTHER, Measure, Operation
from shortlist.text.tokens import clean_text

RequestContext: TypeAlias = ServerRequestContext[Any, Any]

AT_ONCE = 8
"""How many requests begin in one pass of the event loop; a legacy `initialize` takes 2 ms in about ten passes."""
BUSY_SECONDS = 1
"""When a refused request may be tried again."""
SHUTTING_DOWN = "The gateway is shutting down and takes no new calls."
CUT_SHORT = "The gateway is shutting down and ended this request. Its server may have done the work all the same."
REVOKED = "The access of this client was revoked"
TOLD_SECONDS = 0.4
"""How long requests that are ended at a shutdown may take to give up and answer."""
_WORK = frozenset(
    {"initialize", "server/discover", "tools/call", "prompts/get", "resources/read", "completion/complete"}
)
"""Requests that a gateway that shuts down refuses; clients may still list and unsubscribe while their calls end."""
_LASTING = frozenset({"subscriptions/listen"})
"""Requests that last until the client disconnects; shutdown does not wait for them."""
LOG_METHOD = "notifications/message"
_CAPABILITY_OF = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
logger = logging.getLogger(__name__)


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

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
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


def _client(ctx: RequestContext) -> str:
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


@dataclass(frozen=True, slots=True)
class ObservedRequests:
    """A middleware of the SDK's server that times what clients ask. The SDK itself makes the spans."""

    measure: Measure

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        started, error = perf_counter(), ""
        try:
            result = await call_next(ctx)
            error = tool_error(ctx.method, result)
            return result
        except BaseException as failure:
            error = _failure(failure)
            raise
        finally:
            seconds = perf_counter() - started
            method = ctx.method if ctx.method in SPEC_CLIENT_METHODS else OTHER
            logger.debug("%s took %.1f ms%s", method, seconds * 1000, error and f": {error}")
            self.measure(Operation(side="server", method=method, target=_own_tool(ctx), seconds=seconds, error=error))


def _own_tool(ctx: RequestContext) -> str:
    """Return the gateway's own tool that is called; any other name is the client's, and there may be too many."""
    name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
    return name if isinstance(name, str) and name in META_NAMES else ""


def _failure(error: BaseException) -> str:
    return str(error.error.code) if isinstance(error, MCPError) else failure_name(error)


class RunningRequests:
    """Those that run now, each with its principal."""

    def __init__(self) -> None:
        self._principals: dict[anyio.CancelScope, Principal] = {}

    @contextmanager
    def run(self, principal: Principal) -> Iterator[None]:
        """Run a request that ends as soon as its principal loses access."""
        with anyio.CancelScope() as scope:
            self._principals[scope] = principal
            try:
                yield
            finally:
                del self._principals[scope]
        if scope.cancelled_caught:
            raise MCPError(INVALID_REQUEST, REVOKED)

    def end_unless(self, is_current: Callable[[Principal], bool]) -> None:
        """End the requests of principals that have lost access."""
        for scope, principal in tuple(self._principals.items()):
            if not is_current(principal):
                scope.cancel()


def connection_of(context: RequestContext) -> Connection:
    """Return the connection of a request. The SDK has no public way to it; this is the only place that reaches in."""
    return context.session._connection


class _Asked(BaseModel):
    method: str
    params: dict[str, Any] | None = None


class _Answered(BaseModel):
    model_config = ConfigDict(extra="allow")


class ClientExchange:
    """The way back to a client, over the SDK's session of its request."""

    def __init__(self, context: RequestContext, caller: Caller) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._let_go = context.close_sse_stream
        self._log_levels = allowed_log_levels(context.protocol_version, context.meta)
        self._caller = caller

    @property
    def caller(self) -> Caller:
        return self._caller

    def can(self, method: str) -> bool:
        """Return whether the client declared the capability; a modern one answers in its next round trip."""
        reachable = self._caller.era == "modern" or self._session.can_send_request
        return reachable and declares(self._session.client_capabilities, method)

    @property
    def answers_in_place(self) -> bool:
        return self._caller.era == "legacy"

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Send the client a request on the stream of its own request."""
        # The typed helpers would drop what they do not know; these two models carry everything.
        asked = cast("ServerRequest", _Asked(method=method, params=dict(params)))
        related = ServerMessageMetadata(related_request_id=self._request_id)
        answered = await self._session.send_request(asked, _Answered, metadata=related)
        return answered.model_dump(mode="json")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._session.report_progress(progress, total, message and clean_text(message))

    async def pause(self) -> None:
        """End the stream of this request; later messages are kept until the client asks for them."""
        if self._let_go is not None:
            await self._let_go()

    async def log(self, params: Mapping[str, Json]) -> None:
        """Send a log entry on this request's stream; a modern client gets only the levels it asked for.

        Raise ValidationError for an entry that the protocol does not allow.
        """
        entry = LoggingMessageNotification.model_validate({"method": LOG_METHOD, "params": dict(params)})
        if entry.params.level in self._log_levels:
            await self._session.send_notification(entry, related_request_id=self._request_id)


def declares(capabilities: ClientCapabilities | None, method: str) -> bool:
    """Return whether a client said that it answers a kind of request."""
    if method == OPEN_LINK:
        elicitation = capabilities.elicitation if capabilities is not None else None
        return elicitation is not None and elicitation.url is not None
    capability = _CAPABILITY_OF.get(method)
    return capability is not None and getattr(capabilities, capability, None) is not None
