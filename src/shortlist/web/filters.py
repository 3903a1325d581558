"""One time range and one caller for every page: read from the address, and kept in its links."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlencode

from shortlist.storage.port import HOUR, EventQuery

DEFAULT = "7d"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range, in equal intervals."""

    name: str
    parts: int
    hours: int
    """In each interval."""
    form: str
    """strftime format of an interval's start."""

    def begins(self, now: float) -> list[int]:
        """Return the first hour of each interval; the last one is still running."""
        last = int(now // HOUR) // self.hours * self.hours
        return [last - self.hours * back for back in reversed(range(self.parts))]

    def label(self, hour: int) -> str:
        return datetime.fromtimestamp(hour * HOUR, UTC).strftime(self.form)

    @property
    def local(self) -> str:
        """How a browser writes an interval's start in the reader's time; whole days are those of UTC."""
        return {1: "time", 6: "both"}.get(self.hours, "")


RANGES: Mapping[str, TimeRange] = {
    "24h": TimeRange("24 hours", 25, 1, "%H:%M"),
    "7d": TimeRange("7 days", 29, 6, "%d %b %H:%M"),
    "30d": TimeRange("30 days", 31, 24, "%d %b"),
}


@dataclass(frozen=True, slots=True)
class UseFilter:
    """The time range and the caller that a visitor looks at; an empty caller is everybody."""

    key: str = DEFAULT
    caller: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        key = query.get("range", DEFAULT)
        return cls(key if key in RANGES else DEFAULT, query.get("caller", "")[:200])

    @property
    def range(self) -> TimeRange:
        return RANGES[self.key]

    @property
    def since(self) -> float:
        """The second in which the range begins."""
        return self.range.begins(time.time())[0] * HOUR

    @property
    def query(self) -> str:
        """What links carry on, beginning with `?`; empty for the defaults."""
        kept = {"range": self.key if self.key != DEFAULT else "", "caller": self.caller}
        written = urlencode({name: value for name, value in kept.items() if value})
        return f"?{written}" if written else ""

    def events(self, **more: Any) -> EventQuery:
        """Return a query for events of the time range and the caller, the latest first."""
        return EventQuery(**{"since": self.since, "caller": self.caller or None, "latest": True, **more})
