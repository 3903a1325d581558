"""Events and tallies as the rows of a relational store, the same for every adapter."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from pydantic_core import to_json

from shortlist.errors import StoreError
from shortlist.storage.port import (
    COUNTED,
    HOUR,
    HOURS,
    Cell,
    Cells,
    EventRow,
    StoredEvent,
    Sums,
    TallyName,
    ToolPair,
    WorkspaceCounts,
)

COLUMNS = (
    *("id", "at", "kind", "caller", "workspace", "subject", "outcome", "search", "rank", "miss"),
    *("milliseconds", "tokens", "data"),
)
OF_TOOLS: Mapping[str, str] = {
    "tool_shown": "shown",
    "tool_called": "called",
    "tool_failed": "failed",
    "tool_refused": "refused",
    "tool_found": "found",
    "tool_reciprocal": "reciprocal",
    "tool_unfound": "unfound",
    "tool_milliseconds": "milliseconds",
}
"""The column of each tally that is kept by tool."""
DAY = 86_400.0
YEAR_2000 = 946_684_800.0
"""No gateway has run before; an earlier time was told by a clock that was not set."""
RowReading: TypeAlias = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]


def event_row(entry: EventRow) -> dict[str, Any]:
    data = to_json(entry.columns["data"]).decode()
    search = entry.search.id if entry.search else None
    return {**dict.fromkeys(COLUMNS), **entry.columns, "id": entry.place.id, "search": search, "data": data}


def stored_event(row: Sequence[Any]) -> StoredEvent:
    columns = dict(zip(COLUMNS, row, strict=True))
    return StoredEvent(**{**columns, "data": decoded(columns["data"])})


def decoded(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
        return dict(found)
    except (TypeError, ValueError) as error:
        raise StoreError(f"A recorded value is damaged ({error}): {str(text)[:40]!r}. Move the file away.") from None


def workspace_row(workspace: str, did: WorkspaceCounts) -> dict[str, Any]:
    return {
        **{name: did.counts.get(name, 0) + 0 for name in COUNTED},
        "workspace": workspace,
        "caller": did.caller,
        "mode": did.mode,
        "opened": did.first,
        "last": did.last,
        "initial": did.initial_tools,
        "toolsets": json.dumps(did.toolsets),
    }


@dataclass(slots=True)
class TallyRows:
    """Tallies by the table that keeps them."""

    plain: list[tuple[int, str, str, float]] = field(default_factory=list)
    """Hour, name, key and value."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """By day and tool."""
    pairs: list[tuple[str, str, float, int]] = field(default_factory=list)
    """Two tools, workspaces and hour."""
    times: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    """Counts per bucket, by hour and step."""


def tally_rows(cells: Cells) -> TallyRows:
    """Divide tallies among the tables."""
    rows, tools = TallyRows(), dict[tuple[int, str], dict[str, Any]]()
    for (name, hour, key), value in cells.items():
        if name in OF_TOOLS:
            empty = {**dict.fromkeys(OF_TOOLS.values(), 0), "day": hour // HOURS, "tool": key}
            tools.setdefault((hour // HOURS, key), empty)[OF_TOOLS[name]] += value
        elif name == "milliseconds":
            step, _, bucket = key.rpartition(" ")
            rows.times.setdefault((hour, step), Counter())[bucket] += int(value)
        elif name == "together":
            one, _, other = key.partition("\n")
            rows.pairs.append((one, other, value, hour))
        else:
            rows.plain.append((hour, name, key, value))
    rows.tools = list(tools.values())
    return rows


def times_with(new: Counter[str], known: Sequence[Any] | None) -> str:
    """Return counts per bucket, with those of the row that is already stored."""
    return json.dumps(new + Counter(decoded(known[0])) if known else new, separators=(",", ":"))


def careful_cutoff(before: float, last: str | None) -> float:
    """Let the cutoff of a purge advance by at most a day, so a clock that jumps ahead does not delete everything."""
    try:
        known = float(last or 0.0)
    except ValueError:
        known = 0.0
    return min(before, known + DAY) if known >= YEAR_2000 else before


class StoredTallies:
    """Reads tallies from the tables that keep them; adapters differ in the placeholder of a value alone."""

    def __init__(self, read: RowReading, placeholder: str) -> None:
        self._read, self._value = read, placeholder

    def sums(self, since: float | None = None, names: Sequence[TallyName] = ()) -> Sums:
        """Add up tallies since the beginning of an hour (of tools: of a day), all or some by name."""
        return {(name, key): value for _, name, key, value in self._cells(since, names, None)}

    def series(self, names: Sequence[TallyName], since: float | None = None, hours: int = 1) -> dict[int, Sums]:
        """Add up tallies per interval of `hours`, each under its first hour since 1970 (of tools: its day's)."""
        series: dict[int, Sums] = {}
        for hour, name, key, value in self._cells(since, names, hours):
            series.setdefault(hour, {})[name, key] = value
        return dict(sorted(series.items()))

    def pairs(self, least: int = 2, most: int = 10_000) -> list[ToolPair]:
        """Return the tools that at least so many workspaces have called together, most often first."""
        sql = (
            f"SELECT one, other, workspaces FROM pairs WHERE workspaces >= {self._value} "  # noqa: S608
            f"ORDER BY workspaces DESC LIMIT {self._value}"
        )
        return [ToolPair(*row) for row in self._read(sql, (least, most))]

    def _cells(self, since: float | None, names: Sequence[TallyName], hours: int | None) -> Iterator[Cell]:
        """Yield sums per interval of `hours`, or over all of them."""
        hour = int(since // HOUR) if since is not None else 0
        wanted = frozenset(names or get_args(TallyName))
        if wanted - {*OF_TOOLS, "milliseconds", "together"}:
            yield from self._plain(hour, wanted, hours)
        if "milliseconds" in wanted:
            for (at, step), buckets in self._times(hour, hours).items():
                yield from ((at, "milliseconds", f"{step} {bucket}", n) for bucket, n in buckets.items())
        if not wanted.isdisjoint(OF_TOOLS):
            yield from self._tools(hour // HOURS, wanted, hours)

    def _plain(self, hour: int, wanted: Iterable[str], hours: int | None) -> Iterator[Cell]:
        listed = ", ".join(f"'{name}'" for name in sorted(wanted))
        sql = (
            f"SELECT {_interval('hour', hours)}, name, key, sum(value) FROM tallies "  # noqa: S608
            f"WHERE hour >= {self._value} AND name IN ({listed}) GROUP BY 1, 2, 3"
        )
        yield from self._read(sql, (hour,))

    def _tools(self, day: int, wanted: frozenset[str], hours: int | None) -> Iterator[Cell]:
        columns = {name: column for name, column in OF_TOOLS.items() if name in wanted}
        part, summed = _interval(f"day * {HOURS}", hours), ", ".join(f"sum({column})" for column in columns.values())
        sql = f"SELECT {part}, tool, {summed} FROM tools WHERE day >= {self._value} GROUP BY 1, 2"  # noqa: S608
        for at, tool, *values in self._read(sql, (day,)):
            yield from ((at, name, tool, v) for name, v in zip(columns, values, strict=True) if v)

    def _times(self, hour: int, hours: int | None) -> dict[tuple[int, str], dict[str, int]]:
        found: dict[tuple[int, str], dict[str, int]] = {}
        sql = f"SELECT {_interval('hour', hours)}, step, buckets FROM times WHERE hour >= {self._value}"  # noqa: S608
        for at, step, packed in self._read(sql, (hour,)):
            buckets = found.setdefault((at, step), {})
            for bucket, count in decoded(packed).items():
                buckets[bucket] = buckets.get(bucket, 0) + count
        return found


def _interval(hour: str, hours: int | None) -> str:
    """Return the SQL of the hour in which an hour's interval begins."""
    return f"{hour} / {hours} * {hours}" if hours else "0"
