"""What events hold and add to: hits, tallies, exported counters, buckets of durations, and their attribution."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from shortlist.models import Json, Signal, ToolId
from shortlist.storage.port import EventPlace, TallyName

NO_SIGNALS: Mapping[str, Signal] = {}


class FoundTool(NamedTuple):
    """A hit as it was returned; near-duplicates that it stands for were found at its rank."""

    tool: ToolId
    rank: int
    score: float
    signals: Mapping[str, Signal] = NO_SIGNALS
    family: tuple[ToolId, ...] = ()

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Keep the signals in a spool, not the candidates that they are worked out from."""
        return type(self), tuple(self._replace(signals=dict(self.signals)))

    def json(self) -> dict[str, Json]:
        signals = {name: [round(signal.score, 4), signal.rank] for name, signal in self.signals.items()}
        family = {"family": list(self.family)} if self.family else {}
        return {"tool": self.tool, "rank": self.rank, "score": round(self.score, 4), "signals": signals, **family}


class Tally(NamedTuple):
    """An addition to one sum, in the event's own hour or in that of the search it belongs to."""

    name: TallyName
    key: str = ""
    value: float = 1.0
    hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventCounter:
    """A counter that events add to, as it is exported."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


CALLS = EventCounter(
    name="shortlist.calls",
    help="Tool calls: ok, error (isError), invalid_arguments and unknown (never sent), failed, input_required.",
    labels=("server", "outcome"),
)
SEARCHES = EventCounter(
    name="shortlist.searches",
    help="Searches by the confidence of the answer; none means that no tool matched.",
    labels=("confidence",),
)
SEARCH_TOKENS = EventCounter(name="shortlist.search.tokens", help="Estimated tokens of answers to searches.")
CIRCLES = EventCounter(name="shortlist.search.circles", help="Repeated searches that were stopped.")
LOADS = EventCounter(name="shortlist.loads", help="Loads of toolsets and tools into workspaces.")
UNLOADS = EventCounter(name="shortlist.unloads", help="Toolsets unloaded from workspaces.")
COUNTERS = (CALLS, SEARCHES, SEARCH_TOKENS, CIRCLES, LOADS, UNLOADS)

STEP = math.log(1.1)
"""Milliseconds are counted in buckets 10 % wide, so a percentile is accurate within 5 %."""
SHORTEST = 0.001


def bucket(milliseconds: float) -> int:
    """Return the bucket that a duration is counted in."""
    return math.floor(math.log(max(milliseconds, SHORTEST)) / STEP)


def time_tally(step: str, milliseconds: float) -> Tally:
    return Tally("milliseconds", f"{step} {bucket(milliseconds)}")


@dataclass(frozen=True, slots=True)
class Attribution:
    """What is known of an event from what went before it in its workspace."""

    search: EventPlace | None = None
    """The search that returned the called tool, or that a search rephrases."""
    hour: int = 0
    """Of that search."""
    rank: int | None = None
    fresh: bool = False
    """The first call of this tool since that search, or, where none returned it, since the last search."""
    first_pick: bool = False
    """No other tool of that search was called before."""
    together: tuple[ToolId, ...] = ()
    """Tools with which a called one is now used together for the first time in this workspace."""


ALONE = Attribution()
