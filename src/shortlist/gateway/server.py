"""MCP to the gateway and back, both eras from one server object; it translates and decides nothing."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias, cast

from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    LoggingMessageNotification,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
    ServerRequest,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

from shortlist.errors import InvalidInput, ShortlistError
from shortlist.gateway.answerer import Answerer
from shortlist.gateway.answers import text_result
from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.router import PROMPTS, RESOURCES, TEMPLATES, Listed, Router
from shortlist.gateway.state import Change, ListChanged
from shortlist.gateway.workspaces import LOCAL, Caller, Era, Key, workspace_key
from shortlist.models import Json
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.events import Notified

Context: TypeAlias = ServerRequestContext[Any, Any]
Handler: TypeAlias = Callable[[Context, Any], Awaitable[dict[str, Any]]]

NAME = "shortlist"
HANDLE_PARAMETER = "handle"
"""The part of the endpoint's path that names a workspace."""
MAX_STREAMS = 1_024
RESERVED_META = "io.modelcontextprotocol/"
"""The envelope of one hop; the next hop has its own. What a client opts in to is relayed."""
LOG_LEVEL_META = "io.modelcontextprotocol/logLevel"
LOG_METHOD = "notifications/message"
DEFAULT_LOG_LEVEL = "info"
"""What a legacy client that set no level hears of a modern server."""
_SESSION = "shortlist.session"
_ASKED = {"sampling", "elicitation", "roots"}
_CAPABILITY_OF = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
_LIST_EVENTS: Mapping[str, ServerEvent] = {
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
_RELAYED = frozenset({*_LIST_EVENTS, "notifications/elicitation/complete"})


class _Asked(BaseModel):
    method: str
    params: dict[str, Any] | None = None


class _Answered(BaseModel):
    model_config = ConfigDict(extra="allow")


class ClientExchange:
    """The way back to a client, over the SDK's session of its request."""

    def __init__(self, context: Context, caller: Caller) -> None:
        self._session = context.session
        self._request_id = context.request_id
        self._let_go = context.close_sse_stream
        self._log_levels = allowed_log_levels(context.protocol_version, context.meta)
        self._caller = caller

    @property
    def caller(self) -> Caller:
        return self._caller

    def can(self, method: str) -> bool:
        """Say whether the client declared the capability; a modern one answers in its next round trip."""
        capability = _CAPABILITY_OF.get(method)
        declared = getattr(self._session.client_capabilities, capability, None) if capability else None
        return declared is not None and (self._caller.era == "modern" or self._session.can_send_request)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Send the client a request on the channel of its own."""
        # The typed helpers would drop what they do not know; these two models carry everything.
        asked = cast("ServerRequest", _Asked(method=method, params=dict(params)))
        related = ServerMessageMetadata(related_request_id=self._request_id)
        answered = await self._session.send_request(asked, _Answered, metadata=related)
        return answered.model_dump(mode="json")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._session.report_progress(progress, total, message)

    async def pause(self) -> None:
        """End the stream of this request; what comes later is kept until the client asks for it."""
        if self._let_go is not None:
            await self._let_go()

    async def log(self, params: Mapping[str, Json]) -> None:
        """Send a log entry with this request's stream; a modern client hears only what it opted in to."""
        entry = LoggingMessageNotification.model_validate({"method": LOG_METHOD, "params": dict(params)})
        if entry.params.level in self._log_levels:
            await self._session.send_notification(entry, related_request_id=self._request_id)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A legacy connection: it can be told of changes while no request is in flight."""

    connection: Connection
    caller: Caller


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
        self._links: dict[str, Link] = {}
        self._streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]] = {}
        if answerer is not None:
            answerer.idle = self._idle_exchanges
        gateway.state.on_change(self._on_change)
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
            return await self.gateway.call(exchange, params.name, params.arguments or {}, self._round(context))
        except UpstreamRefused:
            raise
        except ShortlistError as error:  # a model can act on these; anything else is a bug and must surface
            return text_result(str(error), is_error=True)

    def _lists(self, kind: Listed) -> Handler:
        async def listing(context: Context, params: PaginatedRequestParams) -> dict[str, Any]:
            return await self.router.listing(self._exchange(context), kind, params.cursor)

        return listing

    async def _get_prompt(self, context: Context, _: RequestParams) -> dict[str, Any]:
        return await self.router.get_prompt(self._exchange(context), _params(context), self._round(context))

    async def _read_resource(self, context: Context, _: RequestParams) -> dict[str, Any]:
        return await self.router.read(self._exchange(context), _params(context), self._round(context))

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
        if len(self._streams) >= MAX_STREAMS:
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        exchange, stream = self._exchange(context), _Stream(self._streams, self.caller(context))
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

    def _round(self, context: Context) -> Round:
        """Read what a request carries beside its params; what a legacy session set, a modern server gets with it."""
        turn = _round(context)
        meta = {**turn.meta, CLIENT_CAPABILITIES_META_KEY: _answerable(context)}
        if _era(context) == "modern":
            return replace(turn, meta=meta)
        level = self.router.level(self._links.get(self.caller(context).session or "")) or DEFAULT_LOG_LEVEL
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
        name: str = state.setdefault(_SESSION, secrets.token_hex(16))
        return name

    def _exchange(self, context: Context) -> ClientExchange:
        caller = self.caller(context)
        if caller.era == "legacy":
            self._link(context)
        return ClientExchange(context, caller)

    def _link(self, context: Context) -> Link:
        """Remember a legacy connection until it closes."""
        caller, connection = self.caller(context), context.session._connection
        session = caller.session or ""
        if session not in self._links:
            self._links[session] = Link(connection, caller)
            connection.exit_stack.callback(self._unlink, session)
        return self._links[session]

    def _unlink(self, session: str) -> None:
        link = self._links.pop(session, None)
        if link is not None:
            self.router.forget(link)
            self.gateway.state.workspaces.close(link.caller)

    def _idle_exchanges(self) -> tuple[Exchange, ...]:
        return tuple(IdleExchange(link) for link in self._links.values())

    # Changes

    def _on_change(self, change: Change) -> None:
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
                self.gateway.spawn(link.connection.send_tool_list_changed)
        for caller, listener in tuple(self._streams.values()):
            if key is None or workspace_key(caller) == key:
                listener(ToolsListChanged())

    def _logged(self, event: Notified) -> None:
        level = str(event.params.get("level"))
        working = self.gateway.state.in_flight.get(event.server)
        for exchange in tuple(working or ()):
            link = self._links.get(exchange.caller.session or "")
            if link is None or self.router.wants(link, level):
                self.gateway.spawn(lambda exchange=exchange: exchange.log(event.params))  # type: ignore[misc]
        for link in () if working else tuple(self._links.values()):
            if self.router.wants(link, level):
                self._notify(link, event)

    def _resource_updated(self, event: Notified) -> None:
        for holder, uri in self.router.subscribers(event).items():
            if isinstance(holder, Link):
                self.gateway.spawn(lambda h=holder, u=uri: h.connection.send_resource_updated(u))  # type: ignore[misc]
            elif holder in self._streams:
                self._streams[holder][1](ResourceUpdated(uri))

    def _relay_notification(self, event: Notified) -> None:
        for link in tuple(self._links.values()):
            self._notify(link, event)
        if event.method in _LIST_EVENTS:
            for caller, listener in tuple(self._streams.values()):
                if self.gateway.state.may_use_server(caller, event.server):
                    listener(_LIST_EVENTS[event.method])

    def _notify(self, link: Link, event: Notified) -> None:
        if self.gateway.state.may_use_server(link.caller, event.server):
            params = dict(event.params) or None
            self.gateway.spawn(lambda: link.connection.notify(event.method, params))


class IdleExchange:
    """A legacy client that can be asked while none of its calls is in flight."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def caller(self) -> Caller:
        return self._link.caller

    def can(self, method: str) -> bool:
        capability = _CAPABILITY_OF.get(method)
        declared = getattr(self._link.connection.client_capabilities, capability, None) if capability else None
        return declared is not None and self._link.connection.has_standalone_channel

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        return await self._link.connection.send_raw_request(method, dict(params) or None)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it: there is no request it could belong to."""

    async def pause(self) -> None:
        """Do nothing: no request of the client is open."""

    async def log(self, params: Mapping[str, Json]) -> None:
        await self._link.connection.notify(LOG_METHOD, dict(params))


class _Stream:
    """One modern client's listen stream, as the bus that the SDK's handler reads from."""

    def __init__(self, streams: dict[object, tuple[Caller, Callable[[ServerEvent], None]]], caller: Caller) -> None:
        self._streams = streams
        self._caller = caller

    async def publish(self, event: ServerEvent) -> None:
        self._streams[self][1](event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        self._streams[self] = (self._caller, listener)
        return lambda: self._streams.pop(self, None) and None


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
