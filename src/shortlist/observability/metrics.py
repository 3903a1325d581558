"""Metrics and spans: what is counted, timed and traced while the gateway serves.

Names, units and labels are OpenTelemetry's; Prometheus' follow from them by the standard translation. The two
`mcp.*` families are those of the semantic conventions for MCP. What events add is declared with each event
(`telemetry.events`). Label values never come from clients or tools, which would make too many series: figures per
tool are in the event store. The text format takes one page of code, so there is no client library here; the tests
parse it with the official one.

The MCP SDK opens a span for every request that it serves or sends, and propagates `traceparent` in `_meta` both ways.
The spans here add what only the gateway knows: searches and their steps, and which server was called. Spans never
contain the text of a query, an argument or a result. Nothing is kept or sent until a tracer provider is set, by
`observability.otlp` or by whoever embeds the gateway.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from time import time_ns
from typing import Any, Literal, Protocol, TypeAlias

from opentelemetry.trace import (
    INVALID_SPAN,
    ProxyTracerProvider,
    Span,
    SpanKind,
    StatusCode,
    get_current_span,
    get_tracer,
    get_tracer_provider,
    use_span,
)

from shortlist.models import Query, SearchResult
from shortlist.telemetry.events import Called, Event, Tokens, count
from shortlist.telemetry.measures import CIRCLES, COUNTERS, LOADS, SEARCH_TOKENS, UNLOADS, EventCounter

MAX_SERIES = 1_000
OTHER = "_OTHER"
"""The label value that is used when a family has too many series."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_UNITS = {"s": "_seconds"}

Labels: TypeAlias = tuple[str, ...]
Reading: TypeAlias = Callable[[], Mapping[Labels, float]]
DATA_SOURCE = "tools"
_tracer = get_tracer("shortlist")
_UNTRACED = nullcontext(INVALID_SPAN)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One metric and its labels; an empty label value is left out."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    unit: str = ""
    labels: Labels = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name in Prometheus' text format."""
        return _plain(self.name) + _UNITS.get(self.unit, "") + ("_total" if self.kind == "counter" else "")


@dataclass(slots=True)
class Distribution:
    """Counts per bucket, the last being +Inf, and the sum of all values."""

    counts: list[int]
    total: float = 0.0


class Mirror(Protocol):
    """A second exporter that receives every measurement."""

    def add(self, family: Family, labels: Labels, amount: float) -> None: ...

    def watch(self, family: Family, reading: Reading) -> None: ...


@dataclass(slots=True)
class Instruments:
    """All measurements of this process; any thread may add to them."""

    counts: dict[Family, dict[Labels, float]] = field(default_factory=dict)
    distributions: dict[Family, dict[Labels, Distribution]] = field(default_factory=dict)
    readings: dict[Family, Reading] = field(default_factory=dict)
    _mirrors: list[Mirror] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, family: Family, *labels: str, by: float = 1) -> None:
        with self._lock:
            series = self.counts.setdefault(family, {})
            labels = _bounded(series, labels)
            series[labels] = series.get(labels, 0) + by
        for mirror in self._mirrors:
            mirror.add(family, labels, by)

    def observe(self, family: Family, value: float, *labels: str) -> None:
        with self._lock:
            series = self.distributions.setdefault(family, {})
            if (found := series.get(labels)) is None:
                labels = _bounded(series, labels)
                found = series.setdefault(labels, Distribution([0] * (len(family.buckets) + 1)))
            found.counts[bisect_left(family.buckets, value)] += 1
            found.total += value
        for mirror in self._mirrors:
            mirror.add(family, labels, value)

    def read(self, family: Family, reading: Reading) -> None:
        """Read a family's values when they are exported, instead of counting them."""
        self.readings[family] = reading
        for mirror in self._mirrors:
            mirror.watch(family, reading)

    def mirror(self, mirror: Mirror) -> None:
        """Send measurements to another exporter as well, from now on."""
        self._mirrors.append(mirror)
        for family, reading in self.readings.items():
            mirror.watch(family, reading)

    def exposition(self) -> str:
        """Return everything in Prometheus' text format."""
        with self._lock:
            lines = [line for family, series in self.counts.items() for line in _plain_lines(family, series)]
            for family, found in self.distributions.items():
                lines.extend(_histogram_lines(family, found))
        for family, reading in self.readings.items():
            lines.extend(_plain_lines(family, reading()))
        return "\n".join(lines) + "\n" if lines else ""


_OPERATION_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""From the semantic conventions."""
MOST_UNCOUNTED = 1_000
_SEARCH_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

SERVED = Family(
    name="mcp.server.operation.duration",
    help="Duration of clients' requests; isError results have error_type tool_error, RPC failures their code.",
    kind="histogram",
    unit="s",
    labels=("mcp.method.name", "gen_ai.tool.name", "error.type"),
    buckets=_OPERATION_BUCKETS,
)
RELAYED = Family(
    name="mcp.client.operation.duration",
    help="Duration of requests to upstream servers, including the wait for the server.",
    kind="histogram",
    unit="s",
    labels=("mcp.method.name", "server", "error.type"),
    buckets=_OPERATION_BUCKETS,
)
SEARCH_SECONDS = Family(
    name="shortlist.search.duration",
    help="Duration of searches.",
    kind="histogram",
    unit="s",
    buckets=_SEARCH_BUCKETS,
)
STEP_SECONDS = Family(
    name="shortlist.search.step.duration",
    help="Duration of each step of a search.",
    kind="histogram",
    unit="s",
    labels=("step",),
    buckets=_SEARCH_BUCKETS,
)
STATES = Family(name="shortlist.upstreams", help="Upstream servers by state.", kind="gauge", labels=("state",))
READY = Family(
    name="shortlist.upstream.ready", help="1 while a server is connected, else 0.", kind="gauge", labels=("server",)
)
TOOLS = Family(name="shortlist.tools", help="Known tools of each server.", kind="gauge", labels=("server",))
CIRCUITS = Family(
    name="shortlist.upstream.circuit_open",
    help="1 while calls to a server fail at once because it has stopped answering, else 0.",
    kind="gauge",
    labels=("server",),
)
NOTIFICATIONS_DROPPED = Family(
    name="shortlist.upstream.notifications.dropped",
    help="Notifications of a server over its allowance (limits.notifications_per_second).",
    labels=("server",),
)
NOTICES_DROPPED = Family(
    name="shortlist.client.notifications.dropped",
    help="Notifications of a server that clients did not get, because they take none or too many were waiting.",
    labels=("server",),
)
REFUSED = Family(
    name="shortlist.requests.refused",
    help="Requests that were refused at a limit or at shutdown, by reason.",
    labels=("reason",),
)
RUNNING = Family(name="shortlist.requests.running", help="Requests that are being served.", kind="gauge")
KEPT_BYTES = Family(
    name="shortlist.kept.bytes",
    help="Memory taken by paged results and by what legacy clients can resume.",
    kind="gauge",
    labels=("kind",),
)
DROPPED = Family(
    name="shortlist.events.dropped", help="Events that could not be recorded, by reason.", labels=("reason",)
)
UNSAVED = Family(
    name="shortlist.storage.unsaved",
    help="Servers whose approvals are in memory only, because they cannot be saved.",
    kind="gauge",
    labels=("what",),
)
LINES_DROPPED = Family(
    name="shortlist.log_lines.dropped",
    help="Log lines that were not written, because there were too many of a kind or nobody reads stderr.",
)
EVENT_FAMILIES: Mapping[EventCounter, Family] = {
    counter: Family(name=counter.name, help=counter.help, labels=counter.labels) for counter in COUNTERS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One MCP request, as served to a client or as relayed to an upstream server."""

    side: Literal["server", "client"]
    method: str
    seconds: float
    error: str = ""
    """`tool_error` for an isError result, a JSON-RPC code, or the kind of failure; empty on success."""
    target: str = ""
    """Served: the gateway's own tool that was called. Relayed: the upstream server."""


Measure: TypeAlias = Callable[[Operation], None]


class GatewayMetrics:
    """Counts events and times requests and searches; nothing here blocks or raises."""

    def __init__(self) -> None:
        self.instruments = Instruments()
        self._uncounted: deque[Tokens] = deque()
        self._tokens, self._counting = 0, threading.Lock()
        self.instruments.read(EVENT_FAMILIES[SEARCH_TOKENS], self._search_tokens)
        for counter in (CIRCLES, LOADS, UNLOADS):
            self.instruments.count(EVENT_FAMILIES[counter], by=0)  # so that rates work from the first one on

    def record(self, event: Event) -> None:
        """Count an event."""
        for counter, labels, amount in event.metrics():
            if counter is SEARCH_TOKENS:
                self._owe(amount)
            else:
                self.instruments.count(EVENT_FAMILIES[counter], *labels, by=count(amount))

    def measure(self, operation: Operation) -> None:
        """Time a request."""
        family = SERVED if operation.side == "server" else RELAYED
        self.instruments.observe(family, operation.seconds, operation.method, operation.target, operation.error)

    def _owe(self, tokens: Tokens) -> None:
        """Defer counting tokens until they are exported; by then the recorder has usually counted them."""
        self._uncounted.append(tokens)
        if len(self._uncounted) > MOST_UNCOUNTED:
            self._count_to(MOST_UNCOUNTED)

    def _search_tokens(self) -> Mapping[Labels, float]:
        self._count_to(0)
        return {(): self._tokens}

    def _count_to(self, left: int) -> None:
        with self._counting:
            while len(self._uncounted) > left:
                self._tokens += count(self._uncounted.popleft())

    def searched(self, result: SearchResult) -> None:
        """Time a search and its steps."""
        self.instruments.observe(SEARCH_SECONDS, sum(step.milliseconds for step in result.steps) / 1000)
        for step in result.steps:
            self.instruments.observe(STEP_SECONDS, step.milliseconds / 1000, step.name)


def _bounded(series: Mapping[Labels, object], labels: Labels) -> Labels:
    """Bound the number of series of a family, whatever its label values are."""
    return labels if labels in series or len(series) < MAX_SERIES else (OTHER,) * len(labels)


def _plain_lines(family: Family, series: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(family)
    for labels, value in series.items():
        yield _line(family.exposed_name, zip(family.labels, labels, strict=True), value)


def _histogram_lines(family: Family, series: Mapping[Labels, Distribution]) -> Iterator[str]:
    yield from _head(family)
    name = family.exposed_name
    bounds = [*(_number(bound) for bound in family.buckets), "+Inf"]
    for labels, found in series.items():
        pairs = list(zip(family.labels, labels, strict=True))
        for bound, below in zip(bounds, accumulate(found.counts), strict=True):
            yield _line(f"{name}_bucket", [*pairs, ("le", bound)], below)
        yield _line(f"{name}_sum", pairs, found.total)
        yield _line(f"{name}_count", pairs, sum(found.counts))


def _head(family: Family) -> Iterator[str]:
    name = family.exposed_name
    yield f"# HELP {name} {family.help}"
    yield f"# TYPE {name} {family.kind}"


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    pairs = ",".join(f'{_plain(key)}="{_escaped(text)}"' for key, text in labels if text)
    return f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _plain(name: str) -> str:
    return name.replace(".", "_")


def is_traced() -> bool:
    """Return whether somebody set a tracer provider; without one every span would be thrown away."""
    return not isinstance(get_tracer_provider(), ProxyTracerProvider)


@contextmanager
def _span(name: str, kind: SpanKind, attributes: Mapping[str, Any]) -> Iterator[Span]:
    span = _tracer.start_span(name, kind=kind, attributes=attributes)
    if not span.is_recording():
        yield INVALID_SPAN
        return
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        yield span


def search_span(query: Query) -> AbstractContextManager["SearchSpan"]:
    """Open the span of one search; its steps become child spans when the result is known."""
    return _search_span(query) if is_traced() else _UNTRACED_SEARCH


@contextmanager
def _search_span(query: Query) -> Iterator["SearchSpan"]:
    attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": DATA_SOURCE,
        "gen_ai.retrieval.top_k": query.limit,
        "shortlist.search.mode": query.mode,
    }
    with _span(f"retrieval {DATA_SOURCE}", SpanKind.INTERNAL, attributes) as span:
        yield SearchSpan(span)


class SearchSpan:
    """A search in progress."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._started = time_ns()

    def found(self, result: SearchResult) -> None:
        """Add the result, and a child span for each step, back to back as they ran."""
        if not self._span.is_recording():
            return
        self._span.set_attribute("shortlist.search.hits", len(result.hits))
        self._span.set_attribute("shortlist.search.fusion", result.confidence.level)
        began = self._started
        for step in result.steps:
            child = _tracer.start_span(
                f"search {step.name}", start_time=began, attributes={"shortlist.search.found": step.found}
            )
            began += int(step.milliseconds * 1_000_000)
            child.end(began)


_UNTRACED_SEARCH = nullcontext(SearchSpan(INVALID_SPAN))


def upstream_span(
    server: str, method: str, params: Mapping[str, Any], protocol_version: str | None
) -> AbstractContextManager[Span]:
    """Open the span of a request to an upstream server, including the wait; the SDK's own span is its child."""
    if not is_traced():
        return _UNTRACED
    attributes: dict[str, Any] = {"mcp.method.name": method, "shortlist.server": server}
    if protocol_version is not None:
        attributes["mcp.protocol.version"] = protocol_version
    name = params.get("name")
    if method == "tools/call":
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": str(name)}
    elif method == "prompts/get":
        attributes["gen_ai.prompt.name"] = str(name)
    return _span(f"{method} {name}" if name else method, SpanKind.CLIENT, attributes)


def mark_failed(span: Span, error: str) -> None:
    """Mark a span as failed by the kind of error, without its message, which may contain private data."""
    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def note_on_span(event: Event) -> None:
    """Add what the SDK does not know to the current request's span."""
    span = get_current_span()
    if not span.is_recording():
        return
    if isinstance(event, Called):
        span.set_attribute("shortlist.outcome", event.outcome)
        span.set_attribute("shortlist.tool", event.tool)
