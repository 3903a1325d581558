"""What an event changes in the row of its workspace."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shortlist.telemetry.events import (
    Act,
    Called,
    CircleBroken,
    Listed,
    Loaded,
    Searched,
    SessionOpened,
    TaskReported,
    Unloaded,
    count,
)

COUNTED = (
    *("tools", "searches", "calls", "errors", "loads", "load_milliseconds", "misses", "circles"),
    *("tokens", "upfront", "completed", "abandoned"),
)
"""Columns that events add to."""


@dataclass(frozen=True, slots=True)
class Change:
    """So much more in some columns; where a workspace opens, its mode and how many tools it begins with."""

    counts: Mapping[str, float]
    mode: str | None = None
    initial_tools: int | None = None
    toolset: str | None = None


@dataclass(slots=True)
class SessionChange:
    """All changes of one workspace in a batch."""

    caller: str
    first: int = 0
    last: int = 0
    mode: str | None = None
    initial_tools: int | None = None
    toolsets: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, change: Change, at: int) -> None:
        """Take up one more event."""
        self.first, self.last = self.first or at, at
        self.mode = change.mode or self.mode
        self.initial_tools = self.initial_tools if change.initial_tools is None else change.initial_tools
        if change.toolset and change.toolset not in self.toolsets:
            self.toolsets.append(change.toolset)
        self.counts.update(change.counts)


def change_of(event: Act, miss: str | None) -> Change:
    """Say what one event changes."""
    rule = _COUNTS.get(type(event))
    counts = {
        "misses": 1 if miss else 0,
        "tokens": count(getattr(event, "tokens", 0)),
        **(rule(event) if rule else {}),
    }
    counted = {name: value for name, value in counts.items() if value}
    if isinstance(event, SessionOpened):
        return Change(counted, mode=event.mode, initial_tools=event.tools)
    return Change(counted, toolset=event.toolset if isinstance(event, Loaded) else None)


_COUNTS: Mapping[type, Callable[[Any], dict[str, float]]] = {
    Listed: lambda e: {"upfront": count(e.upfront)},
    Searched: lambda _: {"searches": 1},
    CircleBroken: lambda _: {"circles": 1},
    Called: lambda e: {"calls": 1, "errors": e.outcome in ("error", "failed", "invalid_arguments", "unknown")},
    Loaded: lambda e: {"loads": 1, "tools": len(e.tools), "load_milliseconds": e.milliseconds},
    Unloaded: lambda e: {"tools": -len(e.tools)},
    TaskReported: lambda e: {"completed" if e.completed else "abandoned": 1},
}
