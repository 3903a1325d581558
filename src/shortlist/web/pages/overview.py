"""The overview: every figure for a stretch of time, and the main ones over it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self, get_args

from shortlist.storage.port import HOUR, Sums, TallyName, TallyStore
from shortlist.telemetry.figures import FIGURES, Tallied, Unit, latency, stats_of
from shortlist.web.charts import Chart, Series, Value, spark
from shortlist.web.page import OF_TOOLS, Page, Visit
from shortlist.web.templating import milliseconds, percent, short

BUSIEST = 8

OVER_TIME: tuple[TallyName, ...] = tuple(name for name in get_args(TallyName) if name not in (*OF_TOOLS, "together"))
"""The tallies of everything but single tools."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The time that is looked at, in equal parts."""

    name: str
    parts: int
    hours: int
    """In each part."""
    form: str
    """How the beginning of a part is written."""

    def begins(self, now: float) -> list[int]:
        """Give the hours in which the parts begin, the last being the one that is not over."""
        last = int(now // HOUR) // self.hours * self.hours
        return [last - self.hours * back for back in reversed(range(self.parts))]

    def label(self, hour: int) -> str:
        return datetime.fromtimestamp(hour * HOUR, UTC).strftime(self.form)


STRETCHES: Mapping[str, Stretch] = {
    "24h": Stretch("24 hours", 25, 1, "%H:%M"),
    "7d": Stretch("7 days", 29, 6, "%d %b %H:%M"),
    "30d": Stretch("30 days", 31, 24, "%d %b"),
}
WRITTEN: Mapping[Unit, Callable[[float], str]] = {"": short, "%": percent, "tokens": short}


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure, with its course and its meaning."""

    label: str
    value: str
    note: str
    meaning: str
    spark: str
    tone: int


def page(visit: Visit) -> Page:
    """Show the figures of a stretch of time."""
    if visit.limited:
        return Page("limited.html", "Overview", {"tools": len(visit.tools()), "servers": len(visit.servers())})
    chosen = visit.query.get("range", "")
    chosen = chosen if chosen in STRETCHES else "7d"
    stretch = STRETCHES[chosen]
    begins = stretch.begins(time.time())
    tallies = visit.record().tallies
    parts = _parts(tallies, stretch, begins)
    whole = stats_of(_added([*parts, tallies.sums(begins[0] * HOUR, OF_TOOLS)]))
    course = Course.of(stretch, begins, [Tallied(part) for part in parts])
    return Page(
        "overview.html",
        "Overview",
        {
            "stretches": STRETCHES,
            "chosen": chosen,
            "stats": whole,
            "tiles": list(_tiles(whole.figures, whole.latency, course)),
            "charts": course.charts(),
            "busiest": [tool for tool in whole.tools if tool.calls][:BUSIEST],
            "names": visit.state.snapshot.name,
            "figures": [(name, figure, written(name, whole.figures[name])) for name, figure in FIGURES.items()],
            "kept": visit.state.settings.telemetry,
        },
    )


def written(name: str, value: float | None) -> str:
    """Write a figure in its unit."""
    return "–" if value is None else WRITTEN[FIGURES[name].unit](value)


def _parts(store: TallyStore, stretch: Stretch, begins: Sequence[int]) -> list[Sums]:
    series = store.series(OVER_TIME, begins[0] * HOUR, stretch.hours)
    return [series.get(hour, {}) for hour in begins]


def _added(several: Iterable[Sums]) -> Sums:
    total: Sums = {}
    for sums in several:
        for key, value in sums.items():
            total[key] = total.get(key, 0.0) + value
    return total


@dataclass(frozen=True, slots=True)
class Course:
    """Figures over time: each point is the figure of one part."""

    stretch: Stretch
    begins: Sequence[int]
    parts: Sequence[Tallied]
    searches: Sequence[Mapping[str, float]]
    """Percentiles of whole searches."""

    @classmethod
    def of(cls, stretch: Stretch, begins: Sequence[int], parts: Sequence[Tallied]) -> Self:
        return cls(stretch, begins, parts, [latency(part).get("search", {}) for part in parts])

    def figure(self, name: str) -> list[Value]:
        return [FIGURES[name].compute(part) for part in self.parts]

    def took(self, percentile: str) -> list[Value]:
        return [times.get(percentile) for times in self.searches]

    def calls(self, *outcomes: str) -> list[Value]:
        return [part.total("calls", *outcomes) for part in self.parts]

    def charts(self) -> list[Chart]:
        shown = [_sum(pair) for pair in zip(self.figure("tokens_listed"), self.figure("tokens_discovery"), strict=True)]
        saved = [max(value or 0.0, 0.0) for value in self.figure("tokens_saved")]
        return [
            self._chart(
                "Tokens: shown, and saved against listing everything",
                short,
                Series("shown", shown, tone=1),
                Series("saved", saved, tone=2),
            ),
            self._chart(
                "Calls",
                short,
                Series("ok", self.calls("ok", "input_required"), tone=1),
                Series("refused", self.calls("invalid_arguments", "unknown"), tone=3),
                Series("failed", self.calls("error", "failed"), tone=4),
            ),
            self._chart(
                "Calls whose tool a search had found",
                percent,
                Series("at any place", self.figure("recall_proxy"), tone=1),
                Series("at the first", self.figure("top_1"), tone=2),
                lines=True,
            ),
            self._chart(
                "Time of a search",
                milliseconds,
                Series("median", self.took("p50"), tone=1),
                Series("95 %", self.took("p95"), tone=3),
                lines=True,
            ),
        ]

    def _chart(self, title: str, show: Callable[[float], str], *series: Series, lines: bool = False) -> Chart:
        moments = [self.stretch.label(hour) for hour in self.begins]
        return Chart(title=title, kind="lines" if lines else "bars", moments=moments, series=series, show=show)


def _sum(values: Sequence[Value]) -> float:
    return sum(value or 0.0 for value in values)


def _tiles(
    figures: Mapping[str, float | None], latency: Mapping[str, Mapping[str, float]], course: Course
) -> list[Tile]:
    def tile(name: str, label: str, note: str, tone: int = 1) -> Tile:
        drawn = spark([max(value, 0.0) if value is not None else None for value in course.figure(name)])
        return Tile(label, written(name, figures[name]), note, FIGURES[name].meaning, drawn, tone)

    say = {name: written(name, value) for name, value in figures.items()}
    took = latency.get("search", {})
    return [
        tile("tokens_saved", "Tokens saved", f"{say['saved_share']} of listing everything", 2),
        tile("calls", "Calls", f"{say['searches_per_call']} searches for each"),
        tile("recall_proxy", "Found by search", f"{say['top_1']} at the first place"),
        tile("unfound_calls", "Unfound calls", f"{say['rephrased']} of searches asked again", 4),
        tile("error_rate", "Errors", f"{say['invalid_arguments']} more with wrong arguments", 4),
        Tile(
            "Time of a search",
            milliseconds(took.get("p50")),
            f"95 % within {milliseconds(took.get('p95'))}",
            "Half of all searches took no longer.",
            spark(course.took("p50")),
            3,
        ),
    ]
