"""Templates: every value is escaped and stripped of invisible characters."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shortlist.catalog.naming import shown_name
from shortlist.text.tokens import clean_text, one_line

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, context: Mapping[str, Any]) -> str:
    environment = _environment()
    parts = environment.get_template("parts.html").make_module(dict(context))  # links keep the filter of the page
    written: str = environment.get_template(template).render({**context, "parts": parts})
    return written


@cache
def _environment() -> Any:
    # Imported with the first page: a gateway that nobody looks at starts without it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    from shortlist.search.fusion import shown_chance  # noqa: PLC0415

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "ago": ago,
        "moment": moment,
        "short": short,
        "whole": whole,
        "percent": percent,
        "shown_chance": shown_chance,
        "milliseconds": milliseconds,
        "one_line": one_line,
        "segment": segment,
        "wire": shown_name,
    }
    return found


def _seen(value: Any) -> Any:
    """Drop what a stranger's text hides: ANSI sequences, controls, marks that turn the direction of writing."""
    if value is None:
        return ""
    return clean_text(value) if type(value) is str else value


def segment(text: str) -> str:
    """Encode a name as a path segment."""
    return quote(text, safe="")


def whole(number: float) -> str:
    return f"{number:,.0f}"


def short(number: float) -> str:
    """Format a number with at most four digits."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scaled = number / (1e3 if unit == "k" else size)
            return f"{scaled:,.0f}{unit}" if abs(scaled) >= 100 else f"{scaled:.1f}{unit}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.2g}"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"


def milliseconds(number: float | None) -> str:
    if number is None:
        return "–"
    if number >= 10_000:
        return f"{number / 1000:.0f} s"
    if number >= 1_000:
        return f"{number / 1000:.1f} s"
    return f"{number:.0f} ms" if number >= 10 else f"{number:.1f} ms" if number >= 0.05 or not number else "< 0.1 ms"


def moment(second: float) -> str:
    """Format a time for a `datetime` attribute; the page shows it in the reader's time zone."""
    return datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def ago(second: float | None, now: float | None = None) -> str:
    """Return how long ago something was, in one unit."""
    if second is None:
        return "never"
    passed = max(0.0, (time.time() if now is None else now) - second)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed / size:.0f} {unit} ago"
    return "just now" if passed < 10 else f"{passed:.0f} s ago"
