"""Events, what each workspace did, and tallies in SQLite.

Tallies are kept by the hour, those of tools by the day, and pairs of tools in one row each: there would be too many.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from shortlist.errors import StoreError
from shortlist.storage.port import ALL, COUNTED, HOUR, HOURS, Batch, Cells, EventQuery, StoredEvent
from shortlist.storage.rows import (
    COLUMNS,
    OF_TOOLS,
    StoredTallies,
    careful_cutoff,
    event_row,
    stored_event,
    tally_rows,
    times_with,
    workspace_row,
)
from shortlist.storage.sqlite import Database

PURGED_AT_ONCE = 5_000
"""Events deleted in one transaction: a short one, so that other gateways can write in between."""


READ_AT_ONCE = 5_000
LARGEST_ID = 2**63 - 1


class SqliteEvents(StoredTallies):
    """Stores events, and the tallies of the same transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.query, "?")
        self.database = database

    def append(self, batch: Batch) -> None:
        """Write a batch whole or not at all, and set the ids of its places."""
        try:
            with self.database.transaction() as connection:
                (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
                for number, entry in enumerate(batch.entries, last + 1):
                    entry.place.id = number
                connection.executemany(_INSERT_EVENT, map(event_row, batch.entries))
                _add_tallies(connection, batch.tallies)
                connection.executemany(_ADD_WORKSPACE, (workspace_row(w, c) for w, c in batch.workspaces.items()))
        except StoreError:
            for entry in batch.entries:
                entry.place.id = None
            raise

    def events(self, query: EventQuery = ALL) -> Iterator[StoredEvent]:
        """Yield matching events, read a part at a time: an export needs little memory and holds no writer up."""
        where, values = _conditions(query)
        order, beyond = ("DESC", "id < ?") if query.latest else ("ASC", "id > ?")
        sql = f"SELECT {', '.join(COLUMNS)} FROM events WHERE {where} AND {beyond} ORDER BY id {order} LIMIT ?"  # noqa: S608
        last, left = LARGEST_ID if query.latest else -1, query.limit
        while left is None or left > 0:
            wanted = READ_AT_ONCE if left is None else min(left, READ_AT_ONCE)
            found = [stored_event(row) for row in self.database.query(sql, (*values, last, wanted))]
            yield from found
            if len(found) < wanted:
                return
            last, left = found[-1].id, None if left is None else left - wanted

    def purge(self, before: float, megabytes: float) -> None:
        """Delete events from before a second since 1970, then the oldest until the rest fits.

        The cutoff moves on by a day at most, so a clock that jumps ahead for a moment does not delete everything.
        """
        before = self._careful(before)
        while self._purge_events("at < ?", int(before * 1000)):
            pass
        while self.database.megabytes() > megabytes and self._purge_events("? = 0", 0):
            pass
        hour = int(before // HOUR)
        with self.database.transaction() as connection:
            for table in ("tallies", "times", "pairs"):
                connection.execute(f"DELETE FROM {table} WHERE hour < ?", (hour,))  # noqa: S608
            connection.execute("DELETE FROM tools WHERE day < ?", (hour // HOURS,))
            connection.execute("DELETE FROM sessions WHERE last < ?", (int(before * 1000),))

    def erase(self, caller: str) -> int:
        erased = 0
        while done := self._purge_events("caller = ?", caller):
            erased += done
        with self.database.transaction(create=False) as connection:
            connection.execute("DELETE FROM sessions WHERE caller = ?", (caller,))
        return erased

    def _careful(self, before: float) -> float:
        with self.database.transaction() as connection:
            last = connection.execute("SELECT value FROM notes WHERE name = 'purged before'").fetchone()
            careful = careful_cutoff(before, last[0] if last else None)
            connection.execute("INSERT OR REPLACE INTO notes VALUES ('purged before', ?)", (str(careful),))
        return careful

    def _purge_events(self, condition: str, value: int | str) -> int:
        oldest = f"SELECT id FROM events WHERE {condition} ORDER BY id LIMIT {PURGED_AT_ONCE}"  # noqa: S608
        with self.database.transaction() as connection:
            done = connection.execute(f"DELETE FROM events WHERE id IN ({oldest})", (value,))  # noqa: S608
        return done.rowcount


def _conditions(query: EventQuery) -> tuple[str, list[Any]]:
    asked: list[tuple[str, Any]] = [("id > ?", query.after)]
    if query.since is not None:
        asked.append(("at >= ?", int(query.since * 1000)))
    if query.workspace is not None:
        asked.append(("workspace = ?", query.workspace))
    if query.subject is not None:
        asked.append(("subject = ?", query.subject))
    if query.caller is not None:
        asked.append(("caller = ?", query.caller))
    where = [condition for condition, _ in asked]
    values = [value for _, value in asked]
    if query.missed:
        where.append("miss IS NOT NULL")
    if query.kinds:
        where.append(f"kind IN ({','.join('?' * len(query.kinds))})")
        values += query.kinds
    return " AND ".join(where), values


def _add_tallies(connection: sqlite3.Connection, cells: Cells) -> None:
    rows = tally_rows(cells)
    connection.executemany(_ADD_TALLY, rows.plain)
    connection.executemany(_ADD_TOOL, rows.tools)
    connection.executemany(_ADD_PAIR, rows.pairs)
    connection.executemany(_PUT_TIMES, list(_with_known(connection, rows.times)))


def _with_known(
    connection: sqlite3.Connection, times: Mapping[tuple[int, str], Counter[str]]
) -> Iterator[tuple[int, str, str]]:
    for (hour, step), new in times.items():
        known = connection.execute("SELECT buckets FROM times WHERE hour = ? AND step = ?", (hour, step)).fetchone()
        yield hour, step, times_with(new, known)


_INSERT_EVENT = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)})"  # noqa: S608
_ADDED = [name for name in COUNTED if name != "tools"]
_ADD_WORKSPACE = f"""
INSERT INTO sessions (workspace, caller, mode, opened, last, initial_tools, tools, toolsets, {", ".join(_ADDED)})
VALUES (:workspace, :caller, :mode, :opened, :last, coalesce(:initial, 0), coalesce(:initial, 0) + :tools, :toolsets,
        {", ".join(f":{name}" for name in _ADDED)})
ON CONFLICT DO UPDATE SET
  mode = coalesce(:mode, mode), last = max(last, :last),
  initial_tools = coalesce(:initial, initial_tools), tools = coalesce(:initial, tools) + :tools,
  toolsets = (SELECT json_group_array(value) FROM
              (SELECT value FROM json_each(sessions.toolsets) UNION SELECT value FROM json_each(:toolsets))),
  {", ".join(f"{name} = {name} + :{name}" for name in _ADDED)}
"""  # noqa: S608
_TOOL_COLUMNS = tuple(OF_TOOLS.values())
_ADD_TALLY = """
INSERT INTO tallies (hour, name, key, value) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = value + excluded.value
"""
_ADD_TOOL = f"""
INSERT INTO tools (day, tool, {", ".join(_TOOL_COLUMNS)})
VALUES (:day, :tool, {", ".join(f":{c}" for c in _TOOL_COLUMNS)})
ON CONFLICT DO UPDATE SET {", ".join(f"{c} = {c} + excluded.{c}" for c in _TOOL_COLUMNS)}
"""  # noqa: S608
_ADD_PAIR = """
INSERT INTO pairs (one, other, workspaces, hour) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET workspaces = workspaces + excluded.workspaces, hour = max(hour, excluded.hour)
"""
_PUT_TIMES = "INSERT OR REPLACE INTO times (hour, step, buckets) VALUES (?, ?, ?)"
