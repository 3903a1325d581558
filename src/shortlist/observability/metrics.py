"""What is counted and timed while the gateway serves, and what each metric is called.

The two `mcp.*` families are those of the semantic conventions for MCP. No label takes its values from clients
or from tools: there would be no end to them. Figures per tool are in the event store.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist.models import SearchResult
from shortlist.observability.instruments import Family, Instruments, Labels
from shortlist.telemetry.events import Called, CircleBroken, Event, Loaded, Searched, Tokens, Unloaded, count

_OPERATION_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""As the conventions say."""
MOST_UNCOUNTED = 1_000
_SEARCH_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

SERVED = Family(
    name="mcp.server.operation.duration",
    help="How long clients' requests took; isError results have error_type tool_error, RPC failures their code.",
    kind="histogram",
    unit="s",
    labels=("mcp.method.name", "gen_ai.tool.name", "error.type"),
    buckets=_OPERATION_BUCKETS,
)
RELAYED = Family(
    name="mcp.client.operation.duration",
    help="How long requests to upstream servers took, waiting for the server included.",
    kind="histogram",
    unit="s",
    labels=("mcp.method.name", "server", "error.type"),
    buckets=_OPERATION_BUCKETS,
)
CALLS = Family(
    name="shortlist.calls",
    help="Calls of tools: ok, error (isError), invalid_arguments and unknown (never sent), failed, input_required.",
    labels=("server", "outcome"),
)
SEARCHES = Family(
    name="shortlist.searches",
    help="Searches by the confidence of the answer; none means that nothing fitted.",
    labels=("confidence",),
)
SEARCH_SECONDS = Family(
    name="shortlist.search.duration",
    help="How long searches took.",
    kind="histogram",
    unit="s",
    buckets=_SEARCH_BUCKETS,
)
STEP_SECONDS = Family(
    name="shortlist.search.step.duration",
    help="How long each step of a search took.",
    kind="histogram",
    unit="s",
    labels=("step",),
    buckets=_SEARCH_BUCKETS,
)
SEARCH_TOKENS = Family(name="shortlist.search.tokens", help="Tokens that answers to searches cost, as estimated.")
CIRCLES = Family(name="shortlist.search.circles", help="Searches in circles that were stopped.")
LOADS = Family(name="shortlist.loads", help="Toolsets and tools loaded into workspaces.")
UNLOADS = Family(name="shortlist.unloads", help="Toolsets unloaded from workspaces.")
STATES = Family(name="shortlist.upstreams", help="Upstream servers by state.", kind="gauge", labels=("state",))
READY = Family(
    name="shortlist.upstream.ready", help="1 while a server is connected, else 0.", kind="gauge", labels=("server",)
)
TOOLS = Family(name="shortlist.tools", help="Tools known of each server.", kind="gauge", labels=("server",))
DROPPED = Family(
    name="shortlist.events.dropped", help="Events that could not be recorded, by the reason.", labels=("reason",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One MCP request, as served to a client or as relayed to an upstream server."""

    side: Literal["server", "client"]
    method: str
    seconds: float
    error: str = ""
    """`tool_error` for an isError result, a JSON-RPC code, or the kind of failure; empty when it went well."""
    target: str = ""
    """Served: the gateway's own tool that was called. Relayed: the upstream server."""


Measure: TypeAlias = Callable[[Operation], None]


class Metrics:
    """Turns what happens into counts; nothing here blocks or raises."""

    def __init__(self) -> None:
        self.instruments = Instruments()
        self._uncounted: deque[Tokens] = deque()
        self._tokens, self._counting = 0, threading.Lock()
        self.instruments.read(SEARCH_TOKENS, self._search_tokens)
        for family in (CIRCLES, LOADS, UNLOADS):
            self.instruments.count(family, by=0)  # a rate can be taken from the first one on

    def record(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Searched():
                self.instruments.count(SEARCHES, event.confidence)
                self._owe(event.tokens)
            case Called():
                server = "" if event.outcome == "unknown" else event.tool.partition("/")[0]
                self.instruments.count(CALLS, server, event.outcome)
            case CircleBroken():
                self.instruments.count(CIRCLES)
            case Loaded():
                self.instruments.count(LOADS)
            case Unloaded():
                self.instruments.count(UNLOADS)

    def measure(self, operation: Operation) -> None:
        """Time a request."""
        family = SERVED if operation.side == "server" else RELAYED
        self.instruments.observe(family, operation.seconds, operation.method, operation.target, operation.error)

    def _owe(self, tokens: Tokens) -> None:
        """Leave the counting to whoever reads; by then the recorder, which also wants to know, has mostly done it."""
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
        self.instruments.observe(SEARCH_SECONDS, result.milliseconds / 1000)
        for step in result.steps:
            self.instruments.observe(STEP_SECONDS, step.milliseconds / 1000, step.name)
