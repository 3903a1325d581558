"""Traces and times what the gateway does: its searches, and its requests to servers."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import EMPTY
from shortlist.errors import RequestRefused
from shortlist.gateway.ports import ToolSearch, Upstreams
from shortlist.models import Json, Query, SearchResult
from shortlist.observability.metrics import GatewayMetrics, Measure, Operation, mark_failed, search_span, upstream_span
from shortlist.upstream.errors import UpstreamNeedsAuth, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from shortlist.upstream.events import NO_OPTIONS, CallOptions, Peer, UpstreamStatus
from shortlist.upstream.events import State as UpstreamState

logger = logging.getLogger(__name__)

TOOL_ERROR = "tool_error"
"""How the conventions name a result with isError, which the protocol itself counts as a success."""
_FAILURES: Mapping[type[BaseException], str] = {
    UpstreamTimeout: "timeout",
    UpstreamNeedsAuth: "needs_auth",
    UpstreamUnavailable: "unavailable",
}


@dataclass(frozen=True, slots=True)
class ObservedSearch:
    """A search whose queries are traced and timed, step by step."""

    inner: ToolSearch
    metrics: GatewayMetrics

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
    """Servers whose requests are traced and timed, including the time they wait."""

    inner: Upstreams
    measure: Measure

    def status(self) -> Mapping[str, UpstreamStatus]:
        return self.inner.status()

    @property
    def states(self) -> Mapping[str, UpstreamState]:
        return self.inner.states

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
                error = tool_error(method, result)
                return result
            except BaseException as failure:
                error = failure_name(failure)
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


def tool_error(method: str, result: object) -> str:
    """Return the error type of a tool's result that reports a failure; empty for any other."""
    failed = method == "tools/call" and isinstance(result, Mapping) and result.get("isError") is True
    return TOOL_ERROR if failed else ""


def failure_name(error: BaseException) -> str:
    """Return the error type of an exception, as metrics and traces name it."""
    if isinstance(error, UpstreamRefused):
        return str(error.code)
    if isinstance(error, RequestRefused):
        return str(error.code)
    return _FAILURES.get(type(error)) or type(error).__name__
