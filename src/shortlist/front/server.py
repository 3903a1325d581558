"""Translates MCP to the gateway and back, both eras from one server object, and decides nothing."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import anyio
from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.models import InitializationOptions
from mcp.server.runner import _apply_middleware
from mcp.server.subscriptions import ListenHandler
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field

from shortlist.access.principal import NOBODY, OWNER, Principal
from shortlist.catalog.readable import readable_by_legacy
from shortlist.errors import InvalidInput, RequestRefused, ShortlistError, shortened
from shortlist.front.answerer import Answerer
from shortlist.front.audience import Audience, Link
from shortlist.front.requests import ClientExchange, RequestContext, RunningRequests, connection_of
from shortlist.gateway.callers import Caller, Round, TaskWish
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.relayed_tasks import EXTENSION, METHODS
from shortlist.gateway.router import MAX_SUBSCRIPTIONS, PROMPTS, RESOURCES, TEMPLATES, ListedKind, Router
from shortlist.gateway.tools import text_result
from shortlist.gateway.view import ServeOptions
from shortlist.large import parsed
from shortlist.observability.metrics import is_traced
from shortlist.storage.shared import session_key
from shortlist.text.tokens import cleaned, one_line
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import Era
from shortlist.version import own_version

Handler: TypeAlias = Callable[[RequestContext, Any], Awaitable[dict[str, Any]]]

NAME = "shortlist"
CALL = "tools/call"
ERROR_CHARACTERS = 20_000
_USUAL = frozenset({"name", "arguments", "_meta"})
HANDLE_PARAMETER = "handle"
"""The part of the endpoint's path that names a workspace."""
PRINCIPAL = "shortlist.principal"
"""The scope key under which the HTTP layer stores the principal of a request. Without it, no call is accepted."""
PRESENTED: ContextVar[Principal] = ContextVar("shortlist.presented", default=NOBODY)
"""The same principal, for the one callback of the SDK that gets no request."""


@dataclass(frozen=True, slots=True)
class LocalClient:
    """A client of this user over stdio or the local socket: its process, and how its connection is served."""

    process: str = field(default_factory=lambda: secrets.token_hex(8))
    options: ServeOptions | None = None


LOCAL_CLIENT: ContextVar[LocalClient] = ContextVar("shortlist.local_client")
"""The client whose connection the current task serves; requests that came by HTTP have a principal instead."""
RESERVED_META = "io.modelcontextprotocol/"
"""The envelope of one hop; the next hop has its own. What a client opts in to is relayed."""
LOG_LEVEL_META = "io.modelcontextprotocol/logLevel"
DEFAULT_LOG_LEVEL = "info"
"""The level at which a legacy client that set none hears a modern server."""
EXPIRED = "The access token has expired; subscribe again with a new one."
_SESSION = "shortlist.session"
SESSION_CHARACTERS = 32
_ASKED = {"sampling", "elicitation", "roots"}


class DualServer(Server[Any]):
    """The SDK's server, which advertises over every transport that its lists change."""

    mirrors_headers: Callable[[str], bool] = staticmethod(lambda _: False)
    """Returns whether a tool wants arguments repeated in headers, which the SDK checks."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Advertise `listChanged`, which the SDK's HTTP transport would leave false."""
        options = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    @cached_property
    def relayed(self) -> CallNext:
        """The handler of `tools/call` within every middleware, composed when the first call comes."""
        entry = self.get_request_handler(CALL)
        if entry is None:
            raise RuntimeError("the server has no handler of tools/call")

        async def call(context: RequestContext) -> HandlerResult:
            params: Mapping[str, Any] = context.params or {}
            return await entry.handler(context, CallParams(params["name"], params.get("arguments")))

        composed: CallNext = call
        for middleware in reversed(self.middleware):
            if isinstance(middleware, OpenTelemetryMiddleware) and not is_traced():
                continue  # the trace context in `_meta` is relayed as it came
            composed = partial(_apply_middleware, middleware, composed)
        return composed


class TaskParams(RequestParams):
    """The params of a request about a task; the list of tasks names none."""

    task_id: str = Field(default="", alias="taskId")


class Front:
    """Serves a gateway to MCP clients."""

    def __init__(self, gateway: Gateway, answerer: Answerer | None = None) -> None:
        self.gateway = gateway
        self.router = Router(gateway.state)
        self._client = LocalClient()
        self.remember_session: Callable[[Link], Awaitable[None]] | None = None
        """Stores what a session has asked for, where other gateways may serve it."""
        self._running = RunningRequests()
        self.audience = Audience(gateway.state, self.router, self._running)
        if answerer is not None:
            answerer.idle = self.audience.idle_exchanges
            answerer.may_be_asked = self.audience.may_be_asked
            answerer.question = self.audience.question
            answerer.told_roots = self.audience.told_roots
            answerer.owner_of = gateway.state.relayed_tasks.owner_of
        gateway.state.on_change(self.audience.tell)
        self.server = self._build()

    def _build(self) -> DualServer:
        server = DualServer(
            NAME,
            version=own_version(),
            cache_hints={method: CacheHint() for method in CACHEABLE_METHODS},  # type: ignore[misc]
            get_tool_input_schema=self._bound_schema,
        )
        server.mirrors_headers = self._mirrors_headers
        requests: list[tuple[str, type[BaseModel], Handler]] = [
            ("tools/list", PaginatedRequestParams, self._list_tools),
            ("tools/call", CallToolRequestParams, self._call_tool),
            ("prompts/list", PaginatedRequestParams, self._lists(PROMPTS)),
            ("prompts/get", GetPromptRequestParams, self._get_prompt),
            ("resources/list", PaginatedRequestParams, self._lists(RESOURCES)),
            ("resources/templates/list", PaginatedRequestParams, self._lists(TEMPLATES)),
            ("resources/read", ReadResourceRequestParams, self._read_resource),
            ("resources/subscribe", SubscribeRequestParams, self._subscribe),
            ("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe),
            ("completion/complete", CompleteRequestParams, self._complete),
            ("logging/setLevel", SetLevelRequestParams, self._set_level),
            ("subscriptions/listen", SubscriptionsListenRequestParams, self._listen),
        ]
        requests += [(method, TaskParams, self._task) for method in METHODS]
        for method, params, handler in requests:
            server.add_request_handler(method, params, self._as_mcp(handler))
        server.add_notification_handler("notifications/initialized", NotificationParams, self._initialized)
        server.add_notification_handler("notifications/roots/list_changed", NotificationParams, self._roots_changed)
        server.middleware += [self._instruct, self._call_as_task]
        return server

    def surround(self, *middleware: Any) -> None:
        """Put middleware around every request, the outermost first; calls as tasks are within it too."""
        at = self.server.middleware.index(self._call_as_task)
        self.server.middleware[at:at] = middleware

    # Requests

    async def _list_tools(self, context: RequestContext, _: RequestParams) -> dict[str, Any]:
        listed = await self.gateway.list_tools(self._exchange(context).caller)
        if _era(context) == "legacy":
            listed = [readable_by_legacy(tool) for tool in listed]
        return {"tools": listed}

    async def _call_tool(self, context: RequestContext, params: CallToolRequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        try:
            turn = self._round(context, exchange.caller)
            return await self.gateway.call(exchange, params.name, params.arguments or {}, turn)
        except (UpstreamRefused, RequestRefused):
            raise
        except ShortlistError as error:  # a model can act on these; anything else is a bug and must surface
            return text_result(_line(str(error)), is_error=True)

    def _lists(self, kind: ListedKind) -> Handler:
        async def listing(context: RequestContext, params: PaginatedRequestParams) -> dict[str, Any]:
            return await self.router.listing(self._exchange(context), kind, params.cursor)

        return listing

    async def _get_prompt(self, context: RequestContext, _: RequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        return await self.router.get_prompt(exchange, _params(context), self._round(context, exchange.caller))

    async def _read_resource(self, context: RequestContext, _: RequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        return await self.router.read(exchange, _params(context), self._round(context, exchange.caller))

    async def _complete(self, context: RequestContext, _: RequestParams) -> dict[str, Any]:
        return await self.router.complete(self._exchange(context), _params(context))

    async def _task(self, context: RequestContext, _: RequestParams) -> dict[str, Any]:
        params = {key: value for key, value in (context.params or {}).items() if key != "_meta"}
        return await self.router.task(self._exchange(context), context.method, params)

    async def _subscribe(self, context: RequestContext, params: SubscribeRequestParams) -> dict[str, Any]:
        await self.router.subscribe(self._exchange(context), self._link(context), [params.uri])
        return await self._remembered(context)

    async def _unsubscribe(self, context: RequestContext, params: UnsubscribeRequestParams) -> dict[str, Any]:
        await self.router.unsubscribe(self._exchange(context), self._link(context), params.uri)
        return await self._remembered(context)

    async def _set_level(self, context: RequestContext, params: SetLevelRequestParams) -> dict[str, Any]:
        await self.router.set_level(self._exchange(context), self._link(context), params.level)
        return await self._remembered(context)

    async def _remembered(self, context: RequestContext) -> dict[str, Any]:
        if self.remember_session is not None:
            await self.remember_session(self._link(context))
        return {}

    async def _listen(self, context: RequestContext, params: SubscriptionsListenRequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        if not self.audience.has_room(exchange.caller.principal):
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        stream = self.audience.stream(exchange.caller)
        for uri in (params.notifications.resource_subscriptions or ())[:MAX_SUBSCRIPTIONS]:
            try:
                await self.router.subscribe(exchange, stream, [uri])
            except ShortlistError:
                continue  # a subscription to what does not exist is honoured and never fires
        try:
            with anyio.move_on_after(exchange.caller.principal.seconds_left()):  # a stream ends with its token
                result = await ListenHandler(stream)(context, params)
                return result.model_dump(by_alias=True, mode="json", exclude_none=True)
        finally:
            self.router.forget(stream)
        raise MCPError(INVALID_REQUEST, EXPIRED)

    async def _initialized(self, context: RequestContext, _: NotificationParams) -> None:
        """Remember a legacy client from its handshake on, so that its first call is served as all others are."""
        if _era(context) == "legacy":
            self._link(context)

    async def _roots_changed(self, context: RequestContext, _: NotificationParams) -> None:
        state = self.gateway.state
        seen = await state.admit(self.caller(context))
        for server in state.upstreams.states:
            peer = state.upstreams.peer(server)
            if peer is not None and peer.era == "legacy" and seen.tools.has_server(server):
                await state.upstreams.notify(server, "notifications/roots/list_changed")

    async def _instruct(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Add instructions that name what the caller can reach, when it connects."""
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            result["instructions"] = await self.gateway.instructions(self.caller(ctx))
            result["capabilities"] = _with_tasks(result.get("capabilities") or {}, ctx.method)
        return result

    async def _call_as_task(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Call a tool as a task for a legacy client; the SDK knows no such result, and would reject it."""
        params: Mapping[str, Any] = ctx.params or {}
        usual = {key: value for key, value in params.items() if key != "task"}
        entry = self.server.get_request_handler(CALL)
        if ctx.method != CALL or entry is None or not isinstance(params.get("task"), dict) or not is_usual_call(usual):
            return await call_next(ctx)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or not connection_of(ctx).initialize_accepted:
            return await call_next(ctx)
        return await entry.handler(ctx, CallParams(params["name"], params.get("arguments")))

    def _round(self, context: RequestContext, caller: Caller) -> Round:
        """Read the metadata of a request; a modern server also gets the settings of a legacy session."""
        params = context.params or {}
        meta = {**_relayed_meta(params), CLIENT_CAPABILITIES_META_KEY: _answerable(context)}
        if caller.era == "legacy":
            meta.setdefault(LOG_LEVEL_META, self.router.level(self.audience.linked(caller)) or DEFAULT_LOG_LEVEL)
        answers, state = params.get("inputResponses"), params.get("requestState")
        return Round(meta=meta, answers=answers, state=state, task=_task_wish(context))

    def _bound_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema that the SDK checks headers of a `tools/call` against, for a tool in the caller's reach."""
        tool = self.gateway.state.everything.tool_in_reach(PRESENTED.get(), name)
        return None if tool is None else tool.input_schema

    def _mirrors_headers(self, name: str) -> bool:
        tool = self.gateway.state.everything.tool_in_reach(PRESENTED.get(), name)
        return tool is not None and "x-mcp-header" in tool.definition  # unparsed: it may have a million characters

    # Who calls

    def caller(self, context: RequestContext) -> Caller:
        """Return the caller of a request: the principal that the border recognised, and the workspace it names."""
        request = context.request
        era = _era(context)
        local = LOCAL_CLIENT.get(self._client) if request is None else None
        return Caller(
            principal=_principal(context),
            era=era,
            session=self._session(context) if era == "legacy" else None,
            handle=request.path_params.get(HANDLE_PARAMETER) if request is not None else None,
            process=local.process if local is not None else None,
            options=local.options if local is not None else None,
        )

    def _session(self, context: RequestContext) -> str:
        """Return the key of a legacy connection: of its session over HTTP, which other gateways may serve too."""
        connection = connection_of(context)
        state: dict[str, Any] = connection.state
        if _SESSION not in state and connection.session_id is not None:
            state[_SESSION] = session_key(connection.session_id)[:SESSION_CHARACTERS]
        if _SESSION not in state:
            state[_SESSION] = secrets.token_hex(16)
        return str(state[_SESSION])

    def _exchange(self, context: RequestContext) -> ClientExchange:
        caller = self.caller(context)
        if caller.era == "legacy":
            self.audience.link(caller, connection_of(context))
        return ClientExchange(context, caller)

    def _as_mcp(self, handler: Handler) -> Handler:
        """Mark a result as its client's era does, and turn errors raised on purpose into JSON-RPC errors."""

        async def handle(context: RequestContext, params: Any) -> dict[str, Any]:
            try:
                with self._running.run(_principal(context)):
                    result = await handler(context, params)
                    kind = result.pop("resultType", "complete")
                    return {**result, "resultType": kind} if _era(context) == "modern" else result
            except UpstreamRefused as error:  # the server's own error, on one line and without invisible characters
                raise MCPError(error.code, _line(error.reason), cleaned(error.data)) from error
            except RequestRefused as error:
                raise MCPError(error.code, _line(str(error)), cleaned(error.data)) from error
            except InvalidInput as error:
                raise MCPError(INVALID_PARAMS, _line(str(error))) from error
            except ShortlistError as error:
                raise MCPError(INTERNAL_ERROR, _line(str(error))) from error

        return handle

    def _link(self, context: RequestContext) -> Link:
        return self.audience.link(self.caller(context), connection_of(context))


def _principal(context: RequestContext) -> Principal:
    """Return who the border recognised; a request that came by no HTTP is from the user of this machine."""
    request = context.request
    return OWNER if request is None else request.scope.get(PRINCIPAL, NOBODY)


def _era(context: RequestContext) -> Era:
    return "modern" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"


def _answerable(context: RequestContext) -> dict[str, Any]:
    """Return what this client declared that it can be asked, so that a server asks it nothing else."""
    declared = context.session.client_capabilities
    if declared is None or not any(getattr(declared, each) for each in _ASKED):
        return {}
    return declared.model_dump(mode="json", by_alias=True, exclude_none=True, include=_ASKED)


def _relayed_meta(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a request without what belongs to this hop."""
    meta = params.get("_meta") or {}
    kept = {k: v for k, v in meta.items() if not k.startswith(RESERVED_META) or k == LOG_LEVEL_META}
    kept.pop("progressToken", None)  # the next hop has its own
    return kept


def _task_wish(context: RequestContext) -> TaskWish | None:
    """Return whether the client follows a call as a task: a legacy one says so in it, a modern one declares it."""
    if _era(context) == "modern":
        declared = context.session.client_capabilities
        return TaskWish() if declared is not None and EXTENSION in (declared.extensions or {}) else None
    asked = (context.params or {}).get("task")
    if not isinstance(asked, dict):
        return None
    ttl = asked.get("ttl")
    return TaskWish(is_required=True, milliseconds=ttl if isinstance(ttl, int) else None)


def _with_tasks(capabilities: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Declare that calls may be tasks, as each era does."""
    if method == "initialize":
        return {**capabilities, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    return {**capabilities, "extensions": {**(capabilities.get("extensions") or {}), EXTENSION: {}}}


def _params(context: RequestContext) -> dict[str, Any]:
    """Return a request's own params, without what belongs to this hop."""
    hop = ("_meta", "inputResponses", "requestState")
    return {key: value for key, value in (context.params or {}).items() if key not in hop}


def _line(error: str) -> str:
    """Return the text of an error on one line; some repeat what a client or a server sent, which may be megabytes."""
    return one_line(shortened(error, ERROR_CHARACTERS))


@dataclass(frozen=True, slots=True)
class CallParams:
    """What a handler of `tools/call` reads of its typed params."""

    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RelayedCalls:
    """The innermost middleware: makes legacy calls without validating their params and results against models."""

    server: DualServer

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        entry = self.server.get_request_handler(CALL) if ctx.method == CALL else None
        if entry is None or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or not is_usual_call(ctx.params):
            return await call_next(ctx)
        if not connection_of(ctx).initialize_accepted:
            return await call_next(ctx)  # the SDK refuses what comes before the handshake
        params: Mapping[str, Any] = ctx.params or {}
        return await entry.handler(ctx, CallParams(params["name"], params.get("arguments")))


def is_usual_call(params: Any) -> bool:
    """Return whether params hold a name and arguments, and nothing that only the SDK knows how to read."""
    if not isinstance(params, Mapping) or not _USUAL.issuperset(params):
        return False
    has_arguments = params.get("arguments") is None or isinstance(params["arguments"], dict)
    return isinstance(params.get("name"), str) and has_arguments


def usual_call(body: bytes) -> dict[str, Any] | None:
    """Parse a body; return None for what is not a `tools/call` in its usual form."""
    try:
        message = parsed(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or message.get("method") != CALL:
        return None
    number = message.get("id")
    is_numbered = isinstance(number, (int, str)) and not isinstance(number, bool)
    return message if is_numbered and is_usual_call(message.get("params")) else None
