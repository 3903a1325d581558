"""Times what clients ask of the front."""

import logging
from dataclasses import dataclass
from time import perf_counter

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.methods import SPEC_CLIENT_METHODS

from shortlist.gateway.menus import META_NAMES
from shortlist.gateway.observing import failure_name, tool_error
from shortlist.observability.metrics import OTHER, Measure, Operation

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedRequests:
    """A middleware of the SDK's server that times what clients ask. The SDK itself makes the spans."""

    measure: Measure

    async def __call__(self, ctx: ServerRequestContext, call_next: CallNext) -> HandlerResult:
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


def _own_tool(ctx: ServerRequestContext) -> str:
    """Return the gateway's own tool that is called; any other name is the client's, and there may be too many."""
    name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
    return name if isinstance(name, str) and name in META_NAMES else ""


def _failure(error: BaseException) -> str:
    return str(error.error.code) if isinstance(error, MCPError) else failure_name(error)
