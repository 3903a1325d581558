"""The SDK's server as both eras use it, and calls in their usual form, which skip its models."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from mcp.server import NotificationOptions, Server
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult
from mcp.server.models import InitializationOptions
from mcp.server.runner import _apply_middleware
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json

from shortlist.front.audience import RequestContext, connection_of
from shortlist.observability.metrics import is_traced

CALL = "tools/call"
_USUAL = frozenset({"name", "arguments", "_meta"})


class DualServer(Server[Any]):
    """The SDK's server, which advertises over every transport that its lists change."""

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
        message = from_json(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or message.get("method") != CALL:
        return None
    number = message.get("id")
    is_numbered = isinstance(number, (int, str)) and not isinstance(number, bool)
    return message if is_numbered and is_usual_call(message.get("params")) else None
