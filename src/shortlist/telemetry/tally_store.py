"""Tallies in SQLite: by the hour, but tools by the day and pairs of tools without end, or there would be too many."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, get_args

from shortlist.telemetry.sqlite_store import SqliteFile
from shortlist.telemetry.tallies import HOUR, Name, Pair, Sums, unpair

HOURS = 24
"""In a day."""
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

Cells: TypeAlias = Mapping[tuple[str, int, str], float]
"""By name, hour and key."""
Cell: TypeAlias = tuple[int, str, str, float]
"""Hour, name, key and value."""


def add_tallies(connection: sqlite3.Connection, cells: Cells) -> None:
    """Add to what is there, in a transaction of the caller's."""
    tools: dict[tuple[int, str], dict[str, Any]] = {}
    times: dict[tuple[int, str], Counter[str]] = {}
    pairs, plain = [], []
    for (name, hour, key), value in cells.items():
        if name in OF_TOOLS:
            empty = {**dict.fromkeys(OF_TOOLS.values(), 0), "day": hour // HOURS, "tool": key}
            tools.setdefault((hour // HOURS, key), empty)[OF_TOOLS[name]] += value
        elif name == "milliseconds":
            step, _, bucket = key.rpartition(" ")
            times.setdefault((hour, step), Counter())[bucket] += int(value)
        elif name == "together":
            pairs.append((*unpair(key), value, hour))
        else:
            plain.append((hour, name, key, value))
    connection.executemany(_ADD, plain)
    connection.executemany(_ADD_TOOL, tools.values())
    connection.executemany(_ADD_PAIR, pairs)
    connection.executemany(_PUT_TIMES, list(_with_known(connection, times)))


def read_sums(file: SqliteFile, since: float | None, names: Sequence[Name]) -> Sums:
    """Add up everything since an hour, all or some by name."""
    return {(name, key): value for _, name, key, value in _cells(file, since, names, None)}


def read_series(file: SqliteFile, since: float | None, names: Sequence[Name], hours: int) -> dict[int, Sums]:
    """Add up parts of so many hours; what is kept by the day stands in the part of the day's first hour."""
    series: dict[int, Sums] = {}
    for hour, name, key, value in _cells(file, since, names, hours):
        series.setdefault(hour, {})[name, key] = value
    return dict(sorted(series.items()))


def read_pairs(file: SqliteFile, least: int, most: int) -> list[Pair]:
    """Give the tools that were called together most, and in how many workspaces."""
    sql = "SELECT one, other, workspaces FROM pairs WHERE workspaces >= ? ORDER BY workspaces DESC LIMIT ?"
    return [Pair(*row) for row in file.rows(sql, (least, most))]


def purge_tallies(connection: sqlite3.Connection, before: float) -> None:
    hour = int(before // HOUR)
    for table in ("tallies", "times", "pairs"):
        connection.execute(f"DELETE FROM {table} WHERE hour < ?", (hour,))  # noqa: S608
    connection.execute("DELETE FROM tools WHERE day < ?", (hour // HOURS,))


def _cells(file: SqliteFile, since: float | None, names: Sequence[Name], hours: int | None) -> Iterator[Cell]:
    """Give sums over parts of so many hours, or over all of them."""
    hour = int(since // HOUR) if since is not None else 0
    wanted = frozenset(names or get_args(Name))
    if wanted - {*OF_TOOLS, "milliseconds", "together"}:
        yield from _plain(file, hour, wanted, hours)
    if "milliseconds" in wanted:
        for (at, step), buckets in _times(file, hour, hours).items():
            yield from ((at, "milliseconds", f"{step} {bucket}", n) for bucket, n in buckets.items())
    if not wanted.isdisjoint(OF_TOOLS):
        yield from _tools(file, hour // HOURS, wanted, hours)


def _part(hour: str, hours: int | None) -> str:
    """Write, in SQL, the hour in which an hour's part begins."""
    return f"{hour} / {hours} * {hours}" if hours else "0"


def _plain(file: SqliteFile, hour: int, wanted: Iterable[str], hours: int | None) -> Iterator[Cell]:
    listed, part = ", ".join(f"'{name}'" for name in sorted(wanted)), _part("hour", hours)
    sql = f"SELECT {part}, name, key, sum(value) FROM tallies WHERE hour >= ? AND name IN ({listed}) GROUP BY 1, 2, 3"  # noqa: S608
    yield from file.rows(sql, (hour,))


def _tools(file: SqliteFile, day: int, wanted: frozenset[str], hours: int | None) -> Iterator[Cell]:
    columns = {name: column for name, column in OF_TOOLS.items() if name in wanted}
    part, summed = _part(f"day * {HOURS}", hours), ", ".join(f"sum({column})" for column in columns.values())
    sql = f"SELECT {part}, tool, {summed} FROM tools WHERE day >= ? GROUP BY 1, 2"  # noqa: S608
    for at, tool, *values in file.rows(sql, (day,)):
        yield from ((at, name, tool, v) for name, v in zip(columns, values, strict=True) if v)


def _times(file: SqliteFile, hour: int, hours: int | None) -> dict[tuple[int, str], dict[str, int]]:
    found: dict[tuple[int, str], dict[str, int]] = {}
    sql = f"SELECT {_part('hour', hours)}, step, buckets FROM times WHERE hour >= ?"  # noqa: S608
    for at, step, packed in file.rows(sql, (hour,)):
        buckets = found.setdefault((at, step), {})
        for bucket, count in json.loads(packed).items():
            buckets[bucket] = buckets.get(bucket, 0) + count
    return found


def _with_known(
    connection: sqlite3.Connection, times: Mapping[tuple[int, str], Counter[str]]
) -> Iterator[tuple[int, str, str]]:
    for (hour, step), new in times.items():
        known = connection.execute("SELECT buckets FROM times WHERE hour = ? AND step = ?", (hour, step)).fetchone()
        yield hour, step, json.dumps(new + Counter(json.loads(known[0])) if known else new, separators=(",", ":"))


_COLUMNS = tuple(OF_TOOLS.values())
_ADD = """
INSERT INTO tallies (hour, name, key, value) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = value + excluded.value
"""
_ADD_TOOL = f"""
INSERT INTO tools (day, tool, {", ".join(_COLUMNS)}) VALUES (:day, :tool, {", ".join(f":{c}" for c in _COLUMNS)})
ON CONFLICT DO UPDATE SET {", ".join(f"{c} = {c} + excluded.{c}" for c in _COLUMNS)}
"""  # noqa: S608
_ADD_PAIR = """
INSERT INTO pairs (one, other, workspaces, hour) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET workspaces = workspaces + excluded.workspaces, hour = max(hour, excluded.hour)
"""
_PUT_TIMES = "INSERT OR REPLACE INTO times (hour, step, buckets) VALUES (?, ?, ?)"
