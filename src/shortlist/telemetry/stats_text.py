"""The figures for a person to read, and the times they are asked for."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from shortlist.errors import InvalidInput
from shortlist.telemetry.figures import FIGURES, Stats, ToolFigures

SHOWN_TOOLS = 10
_AGO = re.compile(r"^(\d+(?:\.\d+)?)\s*([smhdw])$")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_since(text: str, now: Callable[[], float] = time.time) -> float:
    """Read `24h`, `7d` or a date into seconds since 1970."""
    if ago := _AGO.match(str(text).strip()):
        return now() - float(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(str(text).strip()).timestamp()
    except ValueError:
        raise InvalidInput(f"{text!r} is no time: give 24h, 7d or a date as in 2026-01-31.") from None


def stats_text(stats: Stats, lost: Mapping[str, int] = MappingProxyType({})) -> str:
    """Write every figure, the times of each step, and the tools and servers called most."""
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
    """Write one figure in its unit."""
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
    return (tool.name, f"{tool.calls:,}", *percent, *counts, mrr, _time(tool.milliseconds))


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
