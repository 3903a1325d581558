"""Every figure, defined once: a name, its meaning in words, and how it follows from the tallies."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from shortlist.models import Json, ToolId
from shortlist.telemetry.store import EventReader
from shortlist.telemetry.tallies import Name, Sums, middle

Unit: TypeAlias = Literal["", "%", "tokens"]

RECALL = 0.95
TOP = 5
PERCENTILES = (50, 95, 99)
DISCOVERY = ("instructions", "search", "describe", "toolsets", "load", "refusal")
"""What shows tokens beside the list of tools."""


class Tallied:
    """Tallies by name, ready to be computed with."""

    def __init__(self, sums: Sums) -> None:
        self._by_name: dict[str, dict[str, float]] = {}
        for (name, key), value in sums.items():
            self._by_name.setdefault(name, {})[key] = value

    def by_key(self, name: Name) -> Mapping[str, float]:
        return self._by_name.get(name, {})

    def total(self, name: Name, *keys: str) -> float:
        """Add up a name, over all keys or some."""
        found = self.by_key(name)
        return sum(found.get(key, 0.0) for key in keys) if keys else sum(found.values())

    def found_within(self, rank: int) -> float:
        return sum(value for key, value in self.by_key("found_at").items() if int(key) <= rank)

    @property
    def needs(self) -> float:
        """First calls that a search was needed for: those it returned, and those it should have."""
        return self.total("found_at") + self.total("unfound")

    @property
    def calls(self) -> float:
        """Calls of tools that there are."""
        return self.total("calls") - self.total("calls", "unknown")


Compute: TypeAlias = Callable[[Tallied], float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number; None where there is nothing yet to compute it from."""

    meaning: str
    compute: Compute
    unit: Unit = ""


def _limit_for_recall(t: Tallied) -> float | None:
    """Give the least rank within which enough of the called tools stood."""
    ranks = sorted(int(key) for key in t.by_key("found_at"))
    return next((float(rank) for rank in ranks if t.found_within(rank) >= RECALL * t.needs), None)


def _mean_reciprocal_rank(t: Tallied) -> float | None:
    return share(sum(value / int(rank) for rank, value in t.by_key("found_at").items()), t.needs)


def _saved(t: Tallied) -> float:
    return t.total("upfront") - t.total("tokens", "list", *DISCOVERY)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "sessions": Figure(
            "Workspaces that a gateway met for the first time since it started.", lambda t: t.total("sessions")
        ),
        "searches": Figure("Queries searched for; a request may hold several.", lambda t: t.total("searches")),
        "calls": Figure("Calls of tools, however they ended; the gateway's own tools do not count.", lambda t: t.calls),
        "recall_proxy": Figure(
            "Of first calls that a search was needed for, the share whose tool one of the last searches had returned.",
            lambda t: share(t.total("found_at"), t.needs),
            "%",
        ),
        "unfound_calls": Figure(
            "First calls, through call_tool, of tools that none of the last searches had returned.",
            lambda t: t.total("unfound"),
        ),
        "unknown_calls": Figure("Calls of names that no tool has.", lambda t: t.total("calls", "unknown")),
        "rephrased": Figure(
            "Of all searches, the share that the same workspace repeats in other words before it calls anything.",
            lambda t: share(t.total("searches_rephrased"), t.total("searches")),
            "%",
        ),
        "uncalled": Figure(
            "Of all searches, the share of which no hit has been called.",
            lambda t: share(t.total("searches") - t.total("searches_picked"), t.total("searches")),
            "%",
        ),
        "mrr": Figure(
            "Mean of 1/rank of the called tool over the same calls; 0 where no search had returned it.",
            _mean_reciprocal_rank,
        ),
        "top_1": Figure(
            "Of the same calls, the share whose tool stood first.", lambda t: share(t.found_within(1), t.needs), "%"
        ),
        "top_5": Figure(
            "Of the same calls, the share whose tool stood among the first five.",
            lambda t: share(t.found_within(TOP), t.needs),
            "%",
        ),
        "limit_for_recall": Figure(
            "The least limit with which 95 % of the same calls would have found their tool; none where no limit would.",
            _limit_for_recall,
        ),
        "zero_results": Figure(
            "Of all searches, the share without a hit.",
            lambda t: share(t.total("searches_empty"), t.total("searches")),
            "%",
        ),
        "abstentions": Figure(
            "Of all searches, the share answered with confidence none.",
            lambda t: share(t.total("searches_abstained"), t.total("searches")),
            "%",
        ),
        "searches_per_call": Figure("Searches for each call.", lambda t: share(t.total("searches"), t.calls)),
        "loop_breaks": Figure(
            "Searches answered with the advice to stop searching, because they kept finding the same.",
            lambda t: t.total("circles"),
        ),
        "error_rate": Figure(
            "Of all calls, the share that ended in an error of the tool or without an answer.",
            lambda t: share(t.total("calls", "error", "failed"), t.calls),
            "%",
        ),
        "invalid_arguments": Figure(
            "Of all calls, the share refused because the arguments do not fit the schema.",
            lambda t: share(t.total("calls", "invalid_arguments"), t.calls),
            "%",
        ),
        "tokens_upfront": Figure(
            "Tokens of the definitions of all tools a workspace may see, once for each workspace that listed tools.",
            lambda t: t.total("upfront"),
            "tokens",
        ),
        "tokens_listed": Figure(
            "Tokens of the definitions that were listed instead: the longest list of each workspace.",
            lambda t: t.total("tokens", "list"),
            "tokens",
        ),
        "tokens_discovery": Figure(
            "Tokens of what discovery said on top: instructions, answers to searches, descriptions, lists of toolsets, "
            "loads and refusals.",
            lambda t: t.total("tokens", *DISCOVERY),
            "tokens",
        ),
        "tokens_saved": Figure("tokens_upfront less tokens_listed less tokens_discovery.", _saved, "tokens"),
        "saved_share": Figure(
            "tokens_saved as a share of tokens_upfront.", lambda t: share(_saved(t), t.total("upfront")), "%"
        ),
        "loads": Figure("Toolsets and tools loaded, by requests.", lambda t: t.total("loads")),
        "suggestions": Figure("Toolsets that answers offered to load.", lambda t: t.total("suggestions")),
        "task_completion": Figure(
            "Of the tasks whose end callers reported, the share they reported as completed.",
            lambda t: share(t.total("tasks", "completed"), t.total("tasks")),
            "%",
        ),
        "events_lost": Figure(
            "Events that could not be kept: the queue was full or the store failed.", lambda t: t.total("lost")
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """What is known of one tool, or of all tools of one server."""

    name: str
    shown: int
    """In so many answers."""
    calls: int
    error_rate: float | None
    invalid_arguments: float | None
    found: int
    """First calls that a search had returned, and below those that none had."""
    unfound: int
    mrr: float | None
    """Over both."""
    milliseconds: float | None
    """Of a call, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Everything `shortlist stats` says."""

    figures: Mapping[str, float | None]
    latency: Mapping[str, Mapping[str, float]]
    """Milliseconds by step and percentile, within 5 %."""
    tools: tuple[ToolFigures, ...]
    servers: tuple[ToolFigures, ...]
    lost: Mapping[str, int]

    def among(self, visible: frozenset[ToolId] | None) -> "Stats":
        """Leave out the tools and servers that somebody may not see."""
        if visible is None:
            return self
        seen = {tool.partition("/")[0] for tool in visible}
        return replace(
            self,
            tools=tuple(tool for tool in self.tools if tool.name in visible),
            servers=tuple(server for server in self.servers if server.name in seen),
        )

    def json(self) -> dict[str, Json]:
        return asdict(self)


def stats(reader: EventReader, since: float | None = None) -> Stats:
    """Compute every figure from the hour of `since` on."""
    return stats_of(reader.sums(since))


def stats_of(sums: Sums) -> Stats:
    tallied = Tallied(sums)
    by_tool = _by_tool(tallied)
    return Stats(
        figures={name: figure.compute(tallied) for name, figure in FIGURES.items()},
        latency=latency(tallied),
        tools=tuple(_tool_figures(name, by_tool[name]) for name in _busiest(by_tool)),
        servers=tuple(_servers(by_tool)),
        lost={reason: int(count) for reason, count in tallied.by_key("lost").items()},
    )


def latency(tallied: Tallied) -> dict[str, dict[str, float]]:
    """Give the percentiles of each step's milliseconds: of a whole search, its steps, a call, a load."""
    buckets: dict[str, dict[int, float]] = {}
    for key, count in tallied.by_key("milliseconds").items():
        step, _, bucket = key.rpartition(" ")
        buckets.setdefault(step, {})[int(bucket)] = count
    return {
        step: {f"p{percent}": _percentile(buckets[step], percent) for percent in PERCENTILES}
        for step in sorted(buckets)
    }


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _percentile(buckets: Mapping[int, float], percent: int) -> float:
    left = percent / 100 * sum(buckets.values())
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return middle(bucket)
    return middle(max(buckets))


_Counts: TypeAlias = dict[str, float]
_OF_TOOLS: tuple[Name, ...] = (
    *("tool_shown", "tool_called", "tool_failed", "tool_refused"),
    *("tool_found", "tool_reciprocal", "tool_unfound", "tool_milliseconds"),
)


def _by_tool(tallied: Tallied) -> dict[ToolId, _Counts]:
    found: dict[ToolId, _Counts] = {}
    for name in _OF_TOOLS:
        for tool, value in tallied.by_key(name).items():
            found.setdefault(tool, {})[name] = value
    return found


def _busiest(by_tool: Mapping[ToolId, _Counts]) -> list[ToolId]:
    return sorted(by_tool, key=lambda tool: (-by_tool[tool].get("tool_called", 0), tool))


def _servers(by_tool: Mapping[ToolId, _Counts]) -> list[ToolFigures]:
    servers: dict[str, _Counts] = {}
    for tool, counts in by_tool.items():
        server = servers.setdefault(tool.partition("/")[0], {})
        for name, value in counts.items():
            server[name] = server.get(name, 0) + value
    return [_tool_figures(name, servers[name]) for name in _busiest(servers)]


def _tool_figures(name: str, counts: _Counts) -> ToolFigures:
    shown, called, failed, refused, found, reciprocal, unfound, milliseconds = (counts.get(n, 0.0) for n in _OF_TOOLS)
    return ToolFigures(
        name=name,
        shown=int(shown),
        calls=int(called),
        error_rate=share(failed, called),
        invalid_arguments=share(refused, called),
        found=int(found),
        unfound=int(unfound),
        mrr=share(reciprocal, found + unfound),
        milliseconds=share(milliseconds, called - refused),
    )
