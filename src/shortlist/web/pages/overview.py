"""The overview: all metrics of a time range, and charts of the main ones."""

import base64
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, get_args
from urllib.parse import quote

from shortlist.storage.port import HOUR, Sums, TallyName, TallyStore
from shortlist.telemetry.figures import FIGURES, Tallied, Unit, latency, stats_of
from shortlist.web.charts import Chart, ChartValue, Series, spark
from shortlist.web.filters import TimeRange
from shortlist.web.page import OF_TOOLS, Download, Page, Visit
from shortlist.web.pages.attention import concerns
from shortlist.web.templating import milliseconds, moment, percent, short

BUSIEST = 8

OVER_TIME: tuple[TallyName, ...] = tuple(name for name in get_args(TallyName) if name not in (*OF_TOOLS, "together"))
"""All tallies except those of single tools."""


WRITTEN: Mapping[Unit, Callable[[float], str]] = {"": short, "%": percent, "tokens": short}


@dataclass(frozen=True, slots=True)
class Tile:
    """One metric, with its sparkline and meaning."""

    label: str
    value: str
    note: str
    meaning: str
    spark: str
    tone: int


def page(visit: Visit) -> Page:
    """Show the metrics of a time range."""
    if visit.limited:
        return Page("limited.html", "Overview", {"tools": len(visit.tools()), "servers": len(visit.servers())})
    stretch = visit.filter.range
    begins = stretch.begins(time.time())
    tallies = visit.tallies()
    parts = _parts(tallies, stretch, begins)
    whole = stats_of(_added([*parts, tallies.sums(begins[0] * HOUR, OF_TOOLS)]))
    course = Course.of(stretch, begins, [Tallied(part) for part in parts])
    return Page(
        "overview.html",
        "Overview",
        {
            "stats": whole,
            "tiles": list(_tiles(whole.figures, whole.latency, course)),
            "charts": course.charts(),
            "busiest": [tool for tool in whole.tools if tool.calls][:BUSIEST],
            "names": visit.reach.name,
            "figures": [(name, figure, written(name, whole.figures[name])) for name, figure in FIGURES.items()],
            "kept": visit.state.settings.telemetry,
            "concerns": concerns(visit, whole),
            "links": _install_links(),
        },
    )


def download(visit: Visit) -> Download:
    """Return every metric of each interval as a table."""
    begins = visit.filter.range.begins(time.time())
    parts = [Tallied(part) for part in _parts(visit.tallies(), visit.filter.range, begins)]
    rows = [
        (moment(hour * HOUR), *(figure.compute(part) for figure in FIGURES.values()))
        for hour, part in zip(begins, parts, strict=True)
    ]
    return Download("overview", ("time", *FIGURES), rows)


def _install_links() -> Mapping[str, str]:
    """Return links that make a client on this machine add the gateway; the browser hands them to the client."""
    entry = {"command": "shortlist", "args": ["serve"]}
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    return {
        "Cursor": f"cursor://anysphere.cursor-deeplink/mcp/install?name=shortlist&config={quote(config)}",
        "VS Code": f"vscode:mcp/install?{quote(json.dumps({'name': 'shortlist', **entry}))}",
    }


def written(name: str, value: float | None) -> str:
    """Format a metric in its unit."""
    return "–" if value is None else WRITTEN[FIGURES[name].unit](value)


def _parts(store: TallyStore, stretch: TimeRange, begins: Sequence[int]) -> list[Sums]:
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
    """Metrics over time, one value per interval."""

    stretch: TimeRange
    begins: Sequence[int]
    parts: Sequence[Tallied]
    searches: Sequence[Mapping[str, float]]
    """Latency percentiles of whole searches."""

    @classmethod
    def of(cls, stretch: TimeRange, begins: Sequence[int], parts: Sequence[Tallied]) -> Self:
        return cls(stretch, begins, parts, [latency(part).get("search", {}) for part in parts])

    def figure(self, name: str) -> list[ChartValue]:
        return [FIGURES[name].compute(part) for part in self.parts]

    def took(self, percentile: str) -> list[ChartValue]:
        return [times.get(percentile) for times in self.searches]

    def calls(self, *outcomes: str) -> list[ChartValue]:
        return [part.total("calls", *outcomes) for part in self.parts]

    def charts(self) -> list[Chart]:
        shown = [_sum(pair) for pair in zip(self.figure("tokens_listed"), self.figure("tokens_discovery"), strict=True)]
        saved = [max(value or 0.0, 0.0) for value in self.figure("tokens_saved")]
        return [
            self._chart(
                "Tokens shown and saved",
                short,
                Series("shown", shown, tone=1),
                Series("saved", saved, tone=2),
            ),
            self._chart(
                "Calls",
                short,
                Series("ok", self.calls("ok", "input_required"), tone=1),
                Series("refused", self.calls("invalid_arguments"), tone=3),
                Series("failed", self.calls("error", "failed"), tone=4),
            ),
            self._chart(
                "Calls found by search",
                percent,
                Series("any rank", self.figure("recall_proxy"), tone=1),
                Series("rank 1", self.figure("top_1"), tone=2),
                lines=True,
            ),
            self._chart(
                "Search latency",
                milliseconds,
                Series("p50", self.took("p50"), tone=1),
                Series("p95", self.took("p95"), tone=3),
                lines=True,
            ),
        ]

    def _chart(self, title: str, show: Callable[[float], str], *series: Series, lines: bool = False) -> Chart:
        moments = [self.stretch.label(hour) for hour in self.begins]
        return Chart(
            title=title,
            kind="lines" if lines else "bars",
            moments=moments,
            series=series,
            show=show,
            seconds=[hour * HOUR for hour in self.begins],
            local=self.stretch.local,
        )


def _sum(values: Sequence[ChartValue]) -> float:
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
        tile("tokens_saved", "Tokens saved", f"{say['saved_share']} of listing all tools", 2),
        tile("calls", "Calls", f"{say['searches_per_call']} searches per call"),
        tile("recall_proxy", "Found by search", f"{say['top_1']} ranked first"),
        tile("unfound_calls", "Calls not found", f"{say['rephrased']} of searches rephrased", 4),
        tile("error_rate", "Error rate", f"{say['invalid_arguments']} invalid arguments", 4),
        Tile(
            "Search latency",
            milliseconds(took.get("p50")),
            f"p95 {milliseconds(took.get('p95'))}",
            "Median latency of a search.",
            spark(course.took("p50")),
            3,
        ),
    ]
