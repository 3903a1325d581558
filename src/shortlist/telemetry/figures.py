"""Every figure, defined once: its name, its meaning, how it is computed from the tallies, and how it is written."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Literal, TypeAlias

from shortlist.catalog.naming import shown_name
from shortlist.errors import InvalidInput
from shortlist.models import Json, ToolId
from shortlist.storage.port import Sums, TallyName, TallyStore
from shortlist.telemetry.measures import STEP

Unit: TypeAlias = Literal["", "%", "tokens"]

RECALL = 0.95
TOP = 5
PERCENTILES = (50, 95, 99)
DISCOVERY = ("instructions", "search", "describe", "toolsets", "load", "refusal")
"""What shows tokens besides the list of tools."""
SHOWN_TOOLS = 10
_AGO = re.compile(r"^(\d+(?:\.\d+)?)\s*([smhdw])$")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Tallied:
    """Tallies by name, for figures to compute with."""

    def __init__(self, sums: Sums) -> None:
        self._by_name: dict[str, dict[str, float]] = {}
        for (name, key), value in sums.items():
            self._by_name.setdefault(name, {})[key] = value

    def by_key(self, name: TallyName) -> Mapping[str, float]:
        return self._by_name.get(name, {})

    def total(self, name: TallyName, *keys: str) -> float:
        """Add up a name, over all keys or some."""
        found = self.by_key(name)
        return sum(found.get(key, 0.0) for key in keys) if keys else sum(found.values())

    def found_within(self, rank: int) -> float:
        return sum(value for key, value in self.by_key("found_at").items() if int(key) <= rank)

    @property
    def needs(self) -> float:
        """First calls that needed a search: of tools that one returned, and of tools that none returned."""
        return self.total("found_at") + self.total("unfound")

    @property
    def calls(self) -> float:
        """Calls of tools that exist."""
        return self.total("calls") - self.total("calls", "unknown")


Compute: TypeAlias = Callable[[Tallied], float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number; None while there is nothing to compute it from."""

    meaning: str
    compute: Compute
    unit: Unit = ""


def _limit_for_recall(t: Tallied) -> float | None:
    """Return the lowest rank within which 95 % of the called tools were returned."""
    ranks = sorted(int(key) for key in t.by_key("found_at"))
    return next((float(rank) for rank in ranks if t.found_within(rank) >= RECALL * t.needs), None)


def _mean_reciprocal_rank(t: Tallied) -> float | None:
    return share(sum(value / int(rank) for rank, value in t.by_key("found_at").items()), t.needs)


def _saved(t: Tallied) -> float:
    return t.total("upfront") - t.total("tokens", "list", *DISCOVERY)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "sessions": Figure(
            "Workspaces that a gateway served for the first time since it started.", lambda t: t.total("sessions")
        ),
        "searches": Figure("Queries; one request may contain several.", lambda t: t.total("searches")),
        "calls": Figure(
            "Tool calls, whatever their outcome; the gateway's own tools are not counted.", lambda t: t.calls
        ),
        "recall_proxy": Figure(
            "Share of first calls that needed a search whose tool was returned by a recent search.",
            lambda t: share(t.total("found_at"), t.needs),
            "%",
        ),
        "unfound_calls": Figure(
            "First calls, through call_tool, of tools that no recent search had returned.",
            lambda t: t.total("unfound"),
        ),
        "unknown_calls": Figure("Calls of names that do not exist.", lambda t: t.total("calls", "unknown")),
        "rephrased": Figure(
            "Share of searches that the same workspace rephrased before it called anything.",
            lambda t: share(t.total("searches_rephrased"), t.total("searches")),
            "%",
        ),
        "uncalled": Figure(
            "Share of searches of which no hit was called.",
            lambda t: share(t.total("searches") - t.total("searches_picked"), t.total("searches")),
            "%",
        ),
        "mrr": Figure(
            "Mean reciprocal rank of the called tool over the same calls; 0 where no search had returned it.",
            _mean_reciprocal_rank,
        ),
        "top_1": Figure(
            "Share of the same calls whose tool was ranked first.", lambda t: share(t.found_within(1), t.needs), "%"
        ),
        "top_5": Figure(
            "Share of the same calls whose tool was ranked among the first five.",
            lambda t: share(t.found_within(TOP), t.needs),
            "%",
        ),
        "limit_for_recall": Figure(
            "The smallest limit with which 95 % of the same calls would have found their tool; none if no limit would.",
            _limit_for_recall,
        ),
        "zero_results": Figure(
            "Share of searches without a hit.",
            lambda t: share(t.total("searches_empty"), t.total("searches")),
            "%",
        ),
        "abstentions": Figure(
            "Share of searches answered with confidence none.",
            lambda t: share(t.total("searches_abstained"), t.total("searches")),
            "%",
        ),
        "searches_per_call": Figure("Searches per call.", lambda t: share(t.total("searches"), t.calls)),
        "loop_breaks": Figure(
            "Searches answered with advice to stop, because they kept returning the same tools.",
            lambda t: t.total("circles"),
        ),
        "error_rate": Figure(
            "Share of calls that ended in a tool error or without an answer.",
            lambda t: share(t.total("calls", "error", "failed"), t.calls),
            "%",
        ),
        "invalid_arguments": Figure(
            "Share of calls refused because the arguments do not match the schema.",
            lambda t: share(t.total("calls", "invalid_arguments"), t.calls),
            "%",
        ),
        "tokens_upfront": Figure(
            "Tokens of the definitions of all visible tools, once per workspace that listed tools.",
            lambda t: t.total("upfront"),
            "tokens",
        ),
        "tokens_listed": Figure(
            "Tokens of the definitions that were listed instead: the longest list of each workspace.",
            lambda t: t.total("tokens", "list"),
            "tokens",
        ),
        "tokens_discovery": Figure(
            "Tokens that discovery adds: instructions, search results, descriptions, lists of toolsets, loads and "
            "refusals.",
            lambda t: t.total("tokens", *DISCOVERY),
            "tokens",
        ),
        "tokens_saved": Figure("tokens_upfront minus tokens_listed minus tokens_discovery.", _saved, "tokens"),
        "saved_share": Figure(
            "tokens_saved as a share of tokens_upfront.", lambda t: share(_saved(t), t.total("upfront")), "%"
        ),
        "loads": Figure("Requests that loaded toolsets or tools.", lambda t: t.total("loads")),
        "suggestions": Figure("Toolsets that answers suggested to load.", lambda t: t.total("suggestions")),
        "task_completion": Figure(
            "Share of the tasks reported by callers that were completed.",
            lambda t: share(t.total("tasks", "completed"), t.total("tasks")),
            "%",
        ),
        "events_lost": Figure(
            "Events that could not be recorded: the queue was full or the store failed.", lambda t: t.total("lost")
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """Figures of one tool, or of all tools of one server."""

    name: str
    shown: int
    """Number of search results that included it."""
    calls: int
    error_rate: float | None
    invalid_arguments: float | None
    found: int
    """First calls of a tool that a search had returned, and below of one that none had."""
    unfound: int
    mrr: float | None
    """Over both."""
    milliseconds: float | None
    """Of a call, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageStats:
    """Everything that `shortlist stats` prints."""

    figures: Mapping[str, float | None]
    latency: Mapping[str, Mapping[str, float]]
    """Milliseconds by step and percentile, within 5 %."""
    tools: tuple[ToolFigures, ...]
    servers: tuple[ToolFigures, ...]
    lost: Mapping[str, int]

    def among(self, visible: frozenset[ToolId] | None) -> "UsageStats":
        """Leave out tools and servers that the caller may not see."""
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


def stats(store: TallyStore, since: float | None = None) -> UsageStats:
    """Compute every figure from the hour of `since` on."""
    return stats_of(store.sums(since))


def stats_of(sums: Sums) -> UsageStats:
    tallied = Tallied(sums)
    by_tool = _by_tool(tallied)
    return UsageStats(
        figures={name: figure.compute(tallied) for name, figure in FIGURES.items()},
        latency=latency(tallied),
        tools=tuple(_tool_figures(name, by_tool[name]) for name in _busiest(by_tool)),
        servers=tuple(_servers(by_tool)),
        lost={reason: int(count) for reason, count in tallied.by_key("lost").items()},
    )


def latency(tallied: Tallied) -> dict[str, dict[str, float]]:
    """Return latency percentiles in milliseconds: of whole searches, their steps, calls and loads."""
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


def _middle(bucket: int) -> float:
    """Return the representative duration of a bucket."""
    return math.exp((bucket + 0.5) * STEP)


def _percentile(buckets: Mapping[int, float], percent: int) -> float:
    left = percent / 100 * sum(buckets.values())
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return _middle(bucket)
    return _middle(max(buckets))


_Counts: TypeAlias = dict[str, float]
_OF_TOOLS: tuple[TallyName, ...] = (
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


def parse_since(text: str, now: Callable[[], float] = time.time) -> float:
    """Parse `24h`, `7d` or a date into seconds since 1970."""
    if ago := _AGO.match(str(text).strip()):
        return now() - float(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(str(text).strip()).timestamp()
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a time. Use a duration such as 24h or 7d, or a date such as 2026-01-31."
        ) from None


def stats_text(stats: UsageStats, lost: Mapping[str, int] = MappingProxyType({})) -> str:
    """Format every figure, the latency of each step, and the most called tools and servers."""
    width = max(map(len, FIGURES))
    figures = [
        f"{name:<{width}}  {shown(name, value):>10}  {FIGURES[name].meaning}" for name, value in stats.figures.items()
    ]
    parts = [
        "\n".join(figures),
        _table(
            "latency (ms)", ("", "p50", "p95", "p99"), [(s, *map(_time, p.values())) for s, p in stats.latency.items()]
        ),
        _table("servers", _HEAD, map(_row, stats.servers[:SHOWN_TOOLS])),
        _table("tools", _HEAD, map(_row, stats.tools[:SHOWN_TOOLS])),
        _losses(Counter(stats.lost) + Counter(lost)),
    ]
    return "\n\n".join(part for part in parts if part)


def shown(name: str, value: float | None) -> str:
    """Format one figure in its unit."""
    if value is None:
        return "–"
    if FIGURES[name].unit == "%":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.2f}"


_HEAD = ("", "calls", "errors", "invalid", "shown", "found", "unfound", "mrr", "ms")


def _row(tool: ToolFigures) -> tuple[str, ...]:
    percent = [_percent(tool.error_rate), _percent(tool.invalid_arguments)]
    counts = [f"{count:,}" for count in (tool.shown, tool.found, tool.unfound)]
    mrr = "–" if tool.mrr is None else f"{tool.mrr:.2f}"
    return (shown_name(tool.name), f"{tool.calls:,}", *percent, *counts, mrr, _time(tool.milliseconds))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _time(milliseconds: float | None) -> str:
    return "–" if milliseconds is None else f"{milliseconds:.2f}" if milliseconds < 10 else f"{milliseconds:,.0f}"


def _losses(lost: Mapping[str, int]) -> str:
    return "\n".join(f"lost: {count:,} events ({reason})" for reason, count in lost.items())


def _table(title: str, head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [(title, *head[1:]), *rows]
    if len(lines) == 1:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
