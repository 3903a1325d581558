"""What is compared: every metric as a numerator and a denominator of each workspace, defined once, here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a workspace did from its first exposure until now, or until the experiment stopped."""

    variant: str
    tools: int = 0
    """Listed at the end."""
    searches: int = 0
    calls: int = 0
    errors: int = 0
    misses: int = 0
    loads: int = 0
    load_milliseconds: float = 0.0
    tokens: int = 0
    completed: int = 0
    abandoned: int = 0


Counts: TypeAlias = Mapping[str, Any]
"""The fields of an outcome but for its variant, of one workspace or, in arrays, of many."""
Share: TypeAlias = Callable[[Counts], tuple[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A ratio over all workspaces of a variant; `share` gives what each of them adds above and below the line."""

    name: str
    meaning: str
    better: Literal["lower", "higher"]
    share: Share
    unit: Literal["", "%", "ms"] = ""


_METRICS = (
    Metric(
        name="errors",
        meaning="calls that failed, were refused or named no tool, of all calls",
        better="lower",
        share=lambda of: (of["errors"], of["calls"]),
        unit="%",
    ),
    Metric(
        name="misses",
        meaning="retrieval misses for each call",
        better="lower",
        share=lambda of: (of["misses"], of["calls"]),
    ),
    Metric(
        name="searches",
        meaning="searches for each call",
        better="lower",
        share=lambda of: (of["searches"], of["calls"]),
    ),
    Metric(
        name="tokens",
        meaning="tokens of lists, searches, descriptions and loads in a workspace",
        better="lower",
        share=lambda of: (of["tokens"], 1),
    ),
    Metric(
        name="active_tools",
        meaning="tools listed in a workspace at its end",
        better="lower",
        share=lambda of: (of["tools"], 1),
    ),
    Metric(
        name="load_latency",
        meaning="time of a load",
        better="lower",
        share=lambda of: (of["load_milliseconds"], of["loads"]),
        unit="ms",
    ),
    Metric(
        name="organic_loads",
        meaning="workspaces that loaded tools of their own accord",
        better="higher",
        share=lambda of: (of["loads"] > 0, 1),
        unit="%",
    ),
    Metric(
        name="calls",
        meaning="calls in a workspace",
        better="higher",
        share=lambda of: (of["calls"], 1),
    ),
    Metric(
        name="completion",
        meaning="tasks reported as done, of all reported",
        better="higher",
        share=lambda of: (of["completed"], of["completed"] + of["abandoned"]),
        unit="%",
    ),
)
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _METRICS})
DEFAULT_METRIC = "errors"
DEFAULT_GUARDRAILS = ("errors", "misses")
