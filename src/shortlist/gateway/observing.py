"""Watches a gateway from outside: put around its search, its servers and its front, it traces and times."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.methods import SPEC_CLIENT_METHODS

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import EMPTY
from shortlist.gateway.metatools import META_NAMES, OPTIONAL_NAMES
from shortlist.gateway.state import State, ToolSearch, Upstreams
from shortlist.models import Json, Query, SearchResult
from shortlist.observability.metrics import OTHER, READY, STATES, TOOLS, Instruments, Measure, Metrics, Operation
from shortlist.observability.tracing import mark_failed, search_span, upstream_span
from shortlist.upstream.errors import UpstreamNeedsAuth, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from shortlist.upstream.events import NO_OPTIONS, CallOptions, Peer, UpstreamStatus
from shortlist.upstream.events import State as UpstreamState

logger = logging.getLogger(__name__)

TOOL_ERROR = "tool_error"
"""What the conventions call a result with isError, which is no failure of the protocol."""
_FAILURES: Mapping[type[BaseException], str] = {
    UpstreamTimeout: "timeout",
    UpstreamNeedsAuth: "needs_auth",
    UpstreamUnavailable: "unavailable",
}


def watch(gateway: State, instruments: Instruments) -> None:
    """Let the instruments read how the servers are and what they have."""
    instruments.read(STATES, lambda: Counter((state,) for state in gateway.upstreams.states().values()))
    instruments.read(
        READY, lambda: {(name,): int(state == "ready") for name, state in gateway.upstreams.states().items()}
    )
    instruments.read(TOOLS, lambda: {(name,): len(tools) for name, tools in gateway.catalog.members.items()})


@dataclass(frozen=True, slots=True)
class ObservedSearch:
    """A search whose queries are traced and timed, step by step."""

    inner: ToolSearch
    metrics: Metrics

    @property
    def catalog(self) -> Catalog:
        return self.inner.catalog

    async def search(self, query: Query) -> SearchResult:
        with search_span(query) as span:
            result = await self.inner.search(query)
            span.found(result)
        self.metrics.searched(result)
        return result

    def update(self, catalog: Catalog) -> object:
        return self.inner.update(catalog)


@dataclass(frozen=True, slots=True)
class ObservedUpstreams:
    """Servers whose requests are traced and timed, waiting for them included."""

    inner: Upstreams
    measure: Measure

    def status(self) -> Mapping[str, UpstreamStatus]:
        return self.inner.status()

    def states(self) -> Mapping[str, UpstreamState]:
        return self.inner.states()

    def peer(self, server: str) -> Peer | None:
        return self.inner.peer(server)

    async def request(
        self, server: str, method: str, params: Mapping[str, Json] = EMPTY, *, options: CallOptions = NO_OPTIONS
    ) -> dict[str, Json]:
        started, error = perf_counter(), ""
        peer = self.inner.peer(server)
        with upstream_span(server, method, params, peer.protocol_version if peer else None) as span:
            try:
                result = await self.inner.request(server, method, params, options=options)
                error = _tool_error(method, result)
                return result
            except BaseException as failure:
                error = _failure(failure)
                raise
            finally:
                if error:
                    mark_failed(span, error)
                seconds = perf_counter() - started
                logger.debug("server %r: %s took %.1f ms%s", server, method, seconds * 1000, error and f": {error}")
                self.measure(Operation(side="client", method=method, target=server, seconds=seconds, error=error))

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = EMPTY) -> None:
        await self.inner.notify(server, method, params)

    async def watch(self, server: str, uris: Sequence[str]) -> None:
        await self.inner.watch(server, uris)


@dataclass(frozen=True, slots=True)
class ObservedRequests:
    """A middleware of the SDK's server that times what clients ask; the SDK has its own for spans."""

    measure: Measure

    async def __call__(self, ctx: ServerRequestContext, call_next: CallNext) -> HandlerResult:
        started, error = perf_counter(), ""
        try:
            result = await call_next(ctx)
            error = _tool_error(ctx.method, result)
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
    """Name the gateway's own tool that is called; any other name is the client's word, and there are too many."""
    name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
    return name if isinstance(name, str) and name in META_NAMES | OPTIONAL_NAMES else ""


def _tool_error(method: str, result: object) -> str:
    failed = method == "tools/call" and isinstance(result, Mapping) and result.get("isError") is True
    return TOOL_ERROR if failed else ""


def _failure(error: BaseException) -> str:
    if isinstance(error, UpstreamRefused):
        return str(error.code)
    if isinstance(error, MCPError):
        return str(error.error.code)
    return _FAILURES.get(type(error)) or type(error).__name__
