"""The metrics of experiments: each is a numerator and a denominator per workspace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

Counts: TypeAlias = Mapping[str, Any]
"""The fields of a WorkspaceOutcome except its variant: of one workspace or, as arrays, of many."""
Share: TypeAlias = Callable[[Counts], tuple[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentMetric:
    """A ratio over all workspaces of a variant; `share` returns each one's numerator and denominator."""

    name: str
    meaning: str
    better: Literal["lower", "higher"]
    share: Share
    unit: Literal["", "%", "ms"] = ""


_METRICS = (
    ExperimentMetric(
        name="errors",
        meaning="share of calls that failed, were refused or named an unknown tool",
        better="lower",
        share=lambda of: (of["errors"], of["calls"]),
        unit="%",
    ),
    ExperimentMetric(
        name="misses",
        meaning="retrieval misses per call",
        better="lower",
        share=lambda of: (of["misses"], of["calls"]),
    ),
    ExperimentMetric(
        name="searches",
        meaning="searches per call",
        better="lower",
        share=lambda of: (of["searches"], of["calls"]),
    ),
    ExperimentMetric(
        name="tokens",
        meaning="tokens of lists, searches, descriptions and loads per workspace",
        better="lower",
        share=lambda of: (of["tokens"], 1),
    ),
    ExperimentMetric(
        name="active_tools",
        meaning="tools listed at the end of a workspace",
        better="lower",
        share=lambda of: (of["tools"], 1),
    ),
    ExperimentMetric(
        name="load_latency",
        meaning="latency of a load",
        better="lower",
        share=lambda of: (of["load_milliseconds"], of["loads"]),
        unit="ms",
    ),
    ExperimentMetric(
        name="organic_loads",
        meaning="share of workspaces that loaded tools unprompted",
        better="higher",
        share=lambda of: (of["loads"] > 0, 1),
        unit="%",
    ),
    ExperimentMetric(
        name="calls",
        meaning="calls per workspace",
        better="higher",
        share=lambda of: (of["calls"], 1),
    ),
    ExperimentMetric(
        name="completion",
        meaning="share of reported tasks that were completed",
        better="higher",
        share=lambda of: (of["completed"], of["completed"] + of["abandoned"]),
        unit="%",
    ),
)
METRICS: Mapping[str, ExperimentMetric] = MappingProxyType({metric.name: metric for metric in _METRICS})
DEFAULT_METRIC = "errors"
DEFAULT_GUARDRAILS = ("errors", "misses")
