"""The fast path of `tools/call`: parsed once, relayed, and written once.

The SDK validates params and results against its models and runs two tasks and a queue for every request. Here the
request's shape is checked once; a result that is only passed on is not validated again. The response becomes an event
stream when something is to be sent before the answer. Whatever is unusual is left to the SDK.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import anyio
from mcp.server._streamable_http_modern import _SingleExchangeDispatchContext
from mcp.server.connection import _NO_CHANNEL, Connection
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import SERVER_INFO_META_KEY, ClientCapabilities, InitializeRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from shortlist.front.server import CALL, DualServer, usual_call
from shortlist.front.streams import PING, PING_SECONDS, STREAM_HEADERS
from shortlist.large import written

WATCH_SECONDS = 0.25
"""Calls that take longer are cancelled when their client disconnects; most are answered before."""
_PARAM_PREFIX = MCP_PARAM_HEADER_PREFIX.lower()


async def serve_call(server: DualServer, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
    """Answer a modern `tools/call`; return False, without having sent anything, for every other request."""
    request = Request(scope, receive)
    if request.headers.get(MCP_PROTOCOL_VERSION_HEADER) not in MODERN_PROTOCOL_VERSIONS or scope["method"] != "POST":
        return False
    message = usual_call(body)
    if message is None or check_accept_headers(request) != (True, True):
        return False
    names = request.headers.keys()
    if any(name.startswith(_PARAM_PREFIX) for name in names) or find_duplicated_routing_header(request.headers.items()):
        return False
    route = classify_inbound_request(message, headers=dict(request.headers))
    params: dict[str, Any] = message["params"]
    if not isinstance(route, InboundModernRoute) or server.mirrors_headers(params["name"]):
        return False
    await _Exchange(server, request, receive, send, message, route).run()
    return True


def _connection(route: InboundModernRoute) -> Connection:
    """Return the connection of one request; what its client says about itself is read once, not with every call."""
    params, capabilities = _client(
        route.protocol_version, to_json([route.client_info, route.client_capabilities], inf_nan_mode="null")
    )
    connection = Connection(_NO_CHANNEL, protocol_version=route.protocol_version, client_params=params)
    connection.client_capabilities = capabilities
    connection.initialized.set()
    return connection


@lru_cache(maxsize=256)
def _client(version: str, described: bytes) -> tuple[InitializeRequestParams | None, ClientCapabilities | None]:
    info, capabilities = from_json(described)
    known = Connection.from_envelope(version, info, capabilities)
    return known.client_params, known.client_capabilities


def _stamp(server: DualServer, result: dict[str, Any]) -> None:
    """Add who answers to a result, as the SDK does, without copying it for each."""
    meta = result.get("_meta")
    if meta is None or (isinstance(meta, dict) and meta.get(SERVER_INFO_META_KEY) is None):
        result["_meta"] = {**(meta or {}), SERVER_INFO_META_KEY: server._server_info_stamp_source}


class _Exchange:
    """One call: its context, its answer, and the stream that its response becomes where it must."""

    def __init__(
        self,
        server: DualServer,
        request: Request,
        receive: Receive,
        send: Send,
        message: dict[str, Any],
        route: InboundModernRoute,
    ) -> None:
        self._server = server
        self._receive = receive
        self._send = send
        self._id = message["id"]
        self._params: dict[str, Any] = message["params"]
        self._version = route.protocol_version
        self._connection = _connection(route)
        self._runner: ServerRunner[Any] = ServerRunner(server, self._connection, {})
        self._context = _Dispatch(
            transport=TransportContext(kind="streamable-http", can_send_request=False, headers=request.headers),
            request_id=self._id,
            message_metadata=ServerMessageMetadata(request_context=request),
            progress_token=progress_token_from_params(self._params),
            write=self._stream,
        )
        self._writing = asyncio.Lock()
        self._is_stream = self._is_done = False
        self._scope = anyio.CancelScope()
        self._watching: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Make the call and write its answer, unless the client leaves before."""
        timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._watch)
        try:
            with self._scope:
                answer = await self._answer()
                await self._finish(answer)
        finally:
            timer.cancel()
            if self._watching is not None:
                self._watching.cancel()
            del self._context, self._watching  # they refer to this exchange: a cycle waits for the garbage collector

    async def _answer(self) -> dict[str, Any]:
        context = self._runner._make_context(
            self._context, CALL, self._params, self._params.get("_meta"), self._version
        )
        try:
            result: Any = await self._server.relayed(context)
            result.setdefault("resultType", "complete")
            _stamp(self._server, result)
            return {"jsonrpc": "2.0", "id": self._id, "result": result}
        except Exception as error:
            failed = modern_error_data(error).model_dump(mode="json", exclude_none=True)
            return {"jsonrpc": "2.0", "id": self._id, "error": failed}
        finally:
            if self._connection.exit_stack._exit_callbacks:  # type: ignore[attr-defined]
                await aclose_shielded(self._connection)

    async def _finish(self, answer: Mapping[str, Any]) -> None:
        body = await written(answer)
        async with self._writing:
            self._is_done = True
            if self._is_stream:
                data = b"event: message\r\ndata: " + body + b"\r\n\r\n"
                await self._send({"type": "http.response.body", "body": data, "more_body": False})
                return
            status = ERROR_CODE_HTTP_STATUS.get(answer["error"]["code"], 200) if "error" in answer else 200
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _stream(self, data: bytes) -> None:
        """Send something before the answer: from now on the response is an event stream."""
        async with self._writing:
            if self._is_done:
                return
            if not self._is_stream:
                self._is_stream = True
                await self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _watch(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch_client())

    async def _watch_client(self) -> None:
        """Cancel the call when its client leaves, and keep its connection from looking idle to proxies."""
        while True:
            with anyio.move_on_after(PING_SECONDS):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                self._scope.cancel()
                return
            await self._stream(PING)


@dataclass
class _Dispatch(_SingleExchangeDispatchContext):
    """The SDK's context of a single exchange, whose notifications are written to the response."""

    write: Any = field(default=None, kw_only=True)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:  # noqa: ARG002
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        await self.write(b"event: message\r\ndata: " + to_json(message, inf_nan_mode="null") + b"\r\n\r\n")
