"""MCP to the gateway and back, both eras from one server object; it translates and decides nothing."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
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
from pydantic import BaseModel

from shortlist.errors import InvalidInput, ShortlistError
from shortlist.front.audience import Audience
from shortlist.front.clients import ClientExchange, Context, Link
from shortlist.gateway.answerer import Answerer
from shortlist.gateway.answers import text_result
from shortlist.gateway.exchange import Round
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.router import PROMPTS, RESOURCES, TEMPLATES, Listed, Router
from shortlist.gateway.workspaces import LOCAL, Caller, Era
from shortlist.upstream.errors import UpstreamRefused

Handler: TypeAlias = Callable[[Context, Any], Awaitable[dict[str, Any]]]

NAME = "shortlist"
HANDLE_PARAMETER = "handle"
"""The part of the endpoint's path that names a workspace."""
RESERVED_META = "io.modelcontextprotocol/"
"""The envelope of one hop; the next hop has its own. What a client opts in to is relayed."""
LOG_LEVEL_META = "io.modelcontextprotocol/logLevel"
DEFAULT_LOG_LEVEL = "info"
"""What a legacy client that set no level hears of a modern server."""
_SESSION = "shortlist.session"
_ASKED = {"sampling", "elicitation", "roots"}


class DualServer(Server[Any]):
    """The SDK's server, saying over every transport that its lists change."""

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


class Front:
    """Serves a gateway to MCP clients."""

    def __init__(self, gateway: Gateway, answerer: Answerer | None = None) -> None:
        self.gateway = gateway
        self.router = Router(gateway)
        self._process = secrets.token_hex(8)
        self._audience = Audience(gateway, self.router)
        if answerer is not None:
            answerer.idle = self._audience.idle_exchanges
        gateway.state.on_change(self._audience.tell)
        self.server = self._build()

    def _build(self) -> DualServer:
        server = DualServer(
            NAME,
            version=_version(),
            cache_hints={method: CacheHint() for method in CACHEABLE_METHODS},  # type: ignore[misc]
            get_tool_input_schema=self._bound_schema,
        )
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
        for method, params, handler in requests:
            server.add_request_handler(method, params, _as_mcp(handler))
        server.add_notification_handler("notifications/roots/list_changed", NotificationParams, self._roots_changed)
        server.middleware.append(self._instruct)
        return server

    # Requests

    async def _list_tools(self, context: Context, _: RequestParams) -> dict[str, Any]:
        return {"tools": self.gateway.list_tools(self._exchange(context).caller)}

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        try:
            turn = self._round(context, exchange.caller)
            return await self.gateway.call(exchange, params.name, params.arguments or {}, turn)
        except UpstreamRefused:
            raise
        except ShortlistError as error:  # a model can act on these; anything else is a bug and must surface
            return text_result(str(error), is_error=True)

    def _lists(self, kind: Listed) -> Handler:
        async def listing(context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
            return await self.router.listing(self._exchange(context), kind, params.cursor)

        return listing

    async def _get_prompt(self, context: Context, _: RequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        return await self.router.get_prompt(exchange, _params(context), self._round(context, exchange.caller))

    async def _read_resource(self, context: Context, _: RequestParams) -> dict[str, Any]:
        exchange = self._exchange(context)
        return await self.router.read(exchange, _params(context), self._round(context, exchange.caller))

    async def _complete(self, context: Context, _: RequestParams) -> dict[str, Any]:
        return await self.router.complete(self._exchange(context), _params(context))

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> dict[str, Any]:
        await self.router.subscribe(self._exchange(context), self._link(context), [params.uri])
        return {}

    async def _unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> dict[str, Any]:
        await self.router.unsubscribe(self._exchange(context), self._link(context), params.uri)
        return {}

    async def _set_level(self, context: Context, params: SetLevelRequestParams) -> dict[str, Any]:
        await self.router.set_level(self._exchange(context), self._link(context), params.level)
        return {}

    async def _listen(self, context: Context, params: SubscriptionsListenRequestParams) -> dict[str, Any]:
        if self._audience.is_full:
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        exchange = self._exchange(context)
        stream = self._audience.stream(exchange.caller)
        for uri in params.notifications.resource_subscriptions or ():
            try:
                await self.router.subscribe(exchange, stream, [uri])
            except (MCPError, ShortlistError):
                continue  # a subscription to what does not exist is honoured and never fires
        try:
            result = await ListenHandler(stream)(context, params)
        finally:
            self.router.forget(stream)
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _roots_changed(self, context: Context, _: NotificationParams) -> None:
        caller, state = self.caller(context), self.gateway.state
        for server in state.upstreams.states():
            peer = state.upstreams.peer(server)
            if peer is not None and peer.era == "legacy" and state.may_use_server(caller, server):
                await state.upstreams.notify(server, "notifications/roots/list_changed")

    async def _instruct(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Give each caller instructions that name what it may see, when it connects."""
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            result["instructions"] = self.gateway.instructions(self.caller(ctx))
        return result

    def _round(self, context: Context, caller: Caller) -> Round:
        """Read what a request carries beside its params; what a legacy session set, a modern server gets with it."""
        turn = _round(context)
        meta = {**turn.meta, CLIENT_CAPABILITIES_META_KEY: _answerable(context)}
        if caller.era == "modern":
            return replace(turn, meta=meta)
        level = self.router.level(self._audience.linked(caller)) or DEFAULT_LOG_LEVEL
        return replace(turn, meta={LOG_LEVEL_META: level, **meta})

    def _bound_schema(self, name: str) -> Mapping[str, Any] | None:
        snapshot = self.gateway.state.snapshot
        tool_id = snapshot.names.by_name.get(name)
        return snapshot.catalog.tools[tool_id].input_schema if tool_id is not None else None

    # Who calls

    def caller(self, context: Context) -> Caller:
        """Recognise the caller of a request; what follows from that is decided in `workspace_key`."""
        request = context.request
        user = request.scope.get("user") if request is not None else None
        named = user.display_name if isinstance(user, AuthenticatedUser) else None
        era = _era(context)
        return Caller(
            name=named or LOCAL,
            has_token=named is not None,
            era=era,
            session=self._session(context) if era == "legacy" else None,
            handle=request.path_params.get(HANDLE_PARAMETER) if request is not None else None,
            process=self._process if request is None else None,
        )

    def _session(self, context: Context) -> str:
        """Name a legacy connection."""
        # The SDK gives handlers no public key of their connection; its scratch state is meant for this.
        state: dict[str, Any] = context.session._connection.state
        if _SESSION not in state:
            state[_SESSION] = secrets.token_hex(16)
        return str(state[_SESSION])

    def _exchange(self, context: Context) -> ClientExchange:
        caller = self.caller(context)
        if caller.era == "legacy":
            self._audience.link(caller, context.session._connection)
        return ClientExchange(context, caller)

    def _link(self, context: Context) -> Link:
        return self._audience.link(self.caller(context), context.session._connection)


def _as_mcp(handler: Handler) -> Handler:
    """Mark a result as its client's era does, and turn errors raised on purpose into JSON-RPC errors."""

    async def handle(context: Context, params: Any) -> dict[str, Any]:
        try:
            result = await handler(context, params)
            kind = result.pop("resultType", "complete")
            return {**result, "resultType": kind} if _era(context) == "modern" else result
        except UpstreamRefused as error:  # the server's own error, relayed as it came
            raise MCPError(error.code, error.reason, error.data) from error
        except InvalidInput as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error
        except ShortlistError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error

    return handle


def _era(context: Context) -> Era:
    return "modern" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"


def _answerable(context: Context) -> dict[str, Any]:
    """Give what this client declared that it can be asked, so that a server asks it nothing else."""
    declared = context.session.client_capabilities
    return declared.model_dump(mode="json", by_alias=True, exclude_none=True, include=_ASKED) if declared else {}


def _round(context: Context) -> Round:
    params = context.params or {}
    meta = params.get("_meta") or {}
    kept = {k: v for k, v in meta.items() if not k.startswith(RESERVED_META) or k == LOG_LEVEL_META}
    kept.pop("progressToken", None)  # the next hop has its own
    return Round(meta=kept, answers=params.get("inputResponses"), state=params.get("requestState"))


def _params(context: Context) -> dict[str, Any]:
    """Give a request's own params, without what belongs to this hop."""
    hop = ("_meta", "inputResponses", "requestState")
    return {key: value for key, value in (context.params or {}).items() if key not in hop}


def _version() -> str:
    try:
        return version("shortlist-mcp")
    except PackageNotFoundError:
        return "0"
