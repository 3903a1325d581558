"""Raw MCP over a pair of streams: JSON objects in and out, in the era that was negotiated.

The SDK's typed session checks results against its own models and the server's output schemas; a gateway
relays what came. So this stands on the SDK's dispatcher, which knows no MCP types, and adds only what each
era wants on every request.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus
from mcp.client._transport import TransportStreams
from mcp.shared.dispatcher import CallOptions as SendOptions
from mcp.shared.dispatcher import DispatchContext, ProgressFnT
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from shortlist.models import Json
from shortlist.upstream.events import Era

_CLOSE_SECONDS = 0.5
PING = "ping"
UNCANCELLABLE = ("initialize", "server/discover")
_ENVELOPE = (
    PROTOCOL_VERSION_META_KEY,
    CLIENT_INFO_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    LOG_LEVEL_META_KEY,
)
_NEVER_RELAYED = "progressToken"
"""A token belongs to one connection; the dispatcher makes its own."""

HeaderMap = Mapping[tuple[str, ...], str]
"""Which arguments of a tool a modern HTTP server wants mirrored into headers."""


class Ears(Protocol):
    """What hears the server: its requests and its notifications, raw."""

    async def asked(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]: ...

    def notified(self, method: str, params: Mapping[str, Json]) -> None: ...


class Wire:
    """One open connection; until `speak` is called it speaks the legacy era without a version."""

    def __init__(self, streams: TransportStreams, ears: Ears, capabilities: Mapping[str, Json]) -> None:
        self.capabilities = dict(capabilities)
        self.header_maps: Mapping[str, HeaderMap] = {}
        self.closed = anyio.Event()
        self._dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(*streams)
        self._ears = ears
        self._version: str | None = None
        self._era: Era = "legacy"

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Hear the server until its stream ends."""
        try:
            await self._dispatcher.run(self._on_request, self._on_notify, task_status=task_status)
        finally:
            self.closed.set()

    async def has_closed(self) -> bool:
        """Say whether the stream has ended; servers use the error code of a closed one for less, too."""
        with anyio.move_on_after(_CLOSE_SECONDS):
            await self.closed.wait()
        return self.closed.is_set()

    def speak(self, protocol_version: str, era: Era) -> None:
        self._version, self._era = protocol_version, era

    async def send(
        self,
        method: str,
        params: Mapping[str, Json],
        *,
        on_progress: ProgressFnT | None = None,
        request_id: str | None = None,
    ) -> dict[str, Json]:
        """Send a request and give its raw result; cancelling the caller cancels it at the server too.

        Raises MCPError with the server's own code, message and data, or when the connection closes.
        """
        options: SendOptions = {"headers": self._headers(method, params)}
        if on_progress is not None:
            options["on_progress"] = on_progress
        if request_id is not None:
            options["request_id"] = request_id
        if method in UNCANCELLABLE:
            options["cancel_on_abandon"] = False
        return await self._dispatcher.send_raw_request(method, self._stamped(params), options)

    async def notify(self, method: str, params: Mapping[str, Json]) -> None:
        stamped = self._stamped(params) or None
        await self._dispatcher.notify(method, stamped, {"headers": self._headers(method, params)})

    def envelope(self, protocol_version: str) -> dict[str, Json]:
        """Give the `_meta` that every modern request carries."""
        return {
            PROTOCOL_VERSION_META_KEY: protocol_version,
            CLIENT_INFO_META_KEY: client_info(),
            CLIENT_CAPABILITIES_META_KEY: self.capabilities,
        }

    def _stamped(self, params: Mapping[str, Json]) -> dict[str, Json]:
        meta = dict(params.get("_meta") or {})
        meta.pop(_NEVER_RELAYED, None)
        if self._era == "modern" and self._version is not None:
            asked = {key: meta[key] for key in (CLIENT_CAPABILITIES_META_KEY,) if key in meta}
            meta |= self.envelope(self._version) | asked
        elif self._version is not None:
            meta = {key: value for key, value in meta.items() if key not in _ENVELOPE}
        rest = {key: value for key, value in params.items() if key != "_meta"}
        return rest | {"_meta": meta} if meta else rest

    def _headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
        """Give what HTTP transports repeat in headers; the others ignore it."""
        if self._version is None:
            envelope = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
            return {MCP_PROTOCOL_VERSION_HEADER: envelope, MCP_METHOD_HEADER: method} if envelope else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self._version}
        if self._era == "legacy":
            return headers
        headers[MCP_METHOD_HEADER] = method
        named = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[MCP_NAME_HEADER] = encode_header_value(named)
        if method == "tools/call" and (mirrored := self.header_maps.get(str(named))):
            headers |= mcp_param_headers(mirrored, params.get("arguments") or {})
        return headers

    async def _on_request(
        self, _: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return {} if method == PING else await self._ears.asked(method, params or {})

    async def _on_notify(
        self, _: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> None:
        self._ears.notified(method, params or {})


@cache
def client_info() -> dict[str, Json]:
    """Name this gateway to servers; a checkout that is not installed has no version."""
    try:
        return {"name": "shortlist", "version": version("shortlist-mcp")}
    except PackageNotFoundError:
        return {"name": "shortlist", "version": "0"}
