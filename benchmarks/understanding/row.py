"""One line of the table: a figure over requests, its interval, and what is asked of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.evals.significance import Interval, bootstrap
from shortlist.evals.tables import Table
from shortlist.library.filter import ToolFilter

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Setup:
    """What every row is measured with."""

    embedding: str
    demo: ToolFilter
    """The 416 tools of the demo catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure: the value of each request from 0 to 1, the target, and the same figure on tidy English requests."""

    request: str
    metric: str
    values: Sequence[float]
    asked: float
    """The target in percent."""
    at_most: bool = False
    """The target is an upper bound."""
    english: float | None = None
    """The same metric, in percent, where the same things are asked for in one clean English sentence."""

    @property
    def interval(self) -> Interval:
        found = bootstrap([np.array(self.values, np.float64)])
        return Interval(*(100 * bound for bound in (found.mean, found.low, found.high)))

    @property
    def is_met(self) -> bool:
        mean = self.interval.mean
        return mean <= self.asked if self.at_most else mean >= self.asked


def table(rows: Sequence[Row]) -> Table:
    """Lay the rows out as the table that is printed."""
    return Table(
        "Understanding, on development data",
        ("request", "requests", "metric", "figure, %", "target", "clean English, %", "met"),
        tuple(_cells(row) for row in rows),
        ("In brackets: 95 % bootstrap interval over the requests.",),
    )


def as_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            "request": row.request,
            "requests": len(row.values),
            "metric": row.metric,
            "figure": row.interval,
            "target": row.asked,
            "at_most": row.at_most,
            "clean_english": row.english,
            "met": row.is_met,
        }
        for row in rows
    ]


def _cells(row: Row) -> tuple[str, ...]:
    found = row.interval
    return (
        row.request,
        str(len(row.values)),
        row.metric,
        f"{found.mean:.1f} [{found.low:.1f}, {found.high:.1f}]",
        f"{'≤' if row.at_most else '≥'} {row.asked:g}",
        "–" if row.english is None else f"{row.english:.1f}",
        "yes" if row.is_met else "no",
    )
