"""Spans by OpenTelemetry's conventions for MCP and GenAI, in addition to those of the MCP SDK.

The SDK opens a span for every request that it serves or sends, and propagates `traceparent` in `_meta` both ways.
These spans add what only the gateway knows: searches and their steps, and which server was called. Spans never
contain the text of a query, an argument or a result. Nothing is kept or sent until a tracer provider is set, by
`observability.otlp` or by whoever embeds the gateway.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import time_ns
from typing import Any

from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, get_current_span, get_tracer, use_span

from shortlist.models import Query, SearchResult
from shortlist.telemetry.events import Called, Event

DATA_SOURCE = "tools"
_tracer = get_tracer("shortlist")


@contextmanager
def _span(name: str, kind: SpanKind, attributes: Mapping[str, Any]) -> Iterator[Span]:
    span = _tracer.start_span(name, kind=kind, attributes=attributes)
    if not span.is_recording():
        yield INVALID_SPAN
        return
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        yield span


@contextmanager
def search_span(query: Query) -> Iterator["SearchSpan"]:
    """Open the span of one search; its steps become child spans when the result is known."""
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
        self._span.set_attribute("shortlist.search.confidence", result.confidence.level)
        began = self._started
        for step in result.steps:
            child = _tracer.start_span(
                f"search {step.name}", start_time=began, attributes={"shortlist.search.found": step.found}
            )
            began += int(step.milliseconds * 1_000_000)
            child.end(began)


@contextmanager
def upstream_span(server: str, method: str, params: Mapping[str, Any], protocol_version: str | None) -> Iterator[Span]:
    """Open the span of a request to an upstream server, including the wait; the SDK's own span is its child."""
    attributes: dict[str, Any] = {"mcp.method.name": method, "shortlist.server": server}
    if protocol_version is not None:
        attributes["mcp.protocol.version"] = protocol_version
    name = params.get("name")
    if method == "tools/call":
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": str(name)}
    elif method == "prompts/get":
        attributes["gen_ai.prompt.name"] = str(name)
    with _span(f"{method} {name}" if name else method, SpanKind.CLIENT, attributes) as span:
        yield span


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
