"""Where events are kept: the roles that any database can take, and SQLite."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shortlist.errors import StoreError
from shortlist.telemetry.ledger import Batch, Entry
from shortlist.telemetry.rows import StoredEvent
from shortlist.telemetry.sessions import COUNTED, SessionChange
from shortlist.telemetry.sqlite_store import SqliteFile
from shortlist.telemetry.tallies import Name, Pair, Sums
from shortlist.telemetry.tally_store import add_tallies, purge_tallies, read_pairs, read_series, read_sums

PURGED_AT_ONCE = 5_000
"""Events deleted in one transaction: a moment, so that other gateways write in between."""
DAY = 86_400.0
COLUMNS = (
    *("id", "at", "kind", "caller", "workspace", "subject", "outcome", "search", "rank", "miss"),
    *("milliseconds", "tokens", "data"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events; in the order of writing, or the latest first."""

    after: int = 0
    since: float | None = None
    """Seconds since 1970."""
    kinds: Sequence[str] = ()
    workspace: str | None = None
    subject: str | None = None
    missed: bool = False
    latest: bool = False
    limit: int | None = None


ALL = EventQuery()


class EventWriter(Protocol):
    """What the recorder asks of a store; raises StoreError, and then nothing was changed."""

    def append(self, batch: Batch) -> None: ...

    def purge(self, before: float, megabytes: float) -> None: ...

    def close(self) -> None: ...


class EventReader(Protocol):
    """What figures, pages and exports ask of a store."""

    def events(self, query: EventQuery = ...) -> Iterator[StoredEvent]: ...

    def sums(self, since: float | None = ..., names: Sequence[Name] = ...) -> Sums: ...

    def series(self, names: Sequence[Name], since: float | None = ..., hours: int = ...) -> dict[int, Sums]: ...

    def pairs(self, least: int = ..., most: int = ...) -> list[Pair]: ...


class EventStore(EventWriter, EventReader, Protocol):
    """Both of them: what a server database has to implement."""


class SqliteEventStore:
    """Events, sums and sessions in the file of `sqlite_store`."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.file = SqliteFile(path, write=write)

    def append(self, batch: Batch) -> None:
        """Write a batch whole or not at all, and tell its events their ids."""
        try:
            with self.file.transaction() as connection:
                (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
                for number, entry in enumerate(batch.entries, last + 1):
                    entry.place.id = number
                connection.executemany(_INSERT_EVENT, map(_event_row, batch.entries))
                add_tallies(connection, batch.tallies)
                connection.executemany(_ADD_SESSION, (_session_row(w, c) for w, c in batch.sessions.items()))
        except StoreError:
            for entry in batch.entries:
                entry.place.id = None
            raise

    def purge(self, before: float, megabytes: float) -> None:
        """Delete what happened before a second since 1970, then the oldest until the rest fits.

        That second moves on by a day at most: a clock that jumps ahead for a moment does not cost everything.
        """
        before = self._careful(before)
        while self._purge_events("at < ?", int(before * 1000)):
            pass
        while self.file.megabytes() > megabytes and self._purge_events("? = 0", 0):
            pass
        with self.file.transaction() as connection:
            purge_tallies(connection, before)
            connection.execute("DELETE FROM sessions WHERE last < ?", (int(before * 1000),))

    def events(self, query: EventQuery = ALL) -> Iterator[StoredEvent]:
        """Give events that fit; a row at a time, so that an export needs no memory."""
        where, values = _conditions(query)
        order = "DESC" if query.latest else "ASC"
        sql = f"SELECT {', '.join(COLUMNS)} FROM events WHERE {where} ORDER BY id {order} LIMIT ?"  # noqa: S608
        limit = -1 if query.limit is None else query.limit
        yield from map(_stored, self.file.rows(sql, (*values, limit)))

    def sums(self, since: float | None = None, names: Sequence[Name] = ()) -> Sums:
        """Add up the tallies since the beginning of an hour (of tools: of a day), all or some by name."""
        return read_sums(self.file, since, names)

    def series(self, names: Sequence[Name], since: float | None = None, hours: int = 1) -> dict[int, Sums]:
        """Give tallies by parts of so many hours, each under its first hour since 1970 (of tools: under its day's)."""
        return read_series(self.file, since, names, hours)

    def pairs(self, least: int = 2, most: int = 10_000) -> list[Pair]:
        """Give the tools that at least so many workspaces have called together, most often first."""
        return read_pairs(self.file, least, most)

    def close(self) -> None:
        self.file.close()

    def _careful(self, before: float) -> float:
        last = self.file.query("SELECT value FROM notes WHERE name = 'purged before'")
        careful = min(before, float(last[0][0]) + DAY) if last else before
        with self.file.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES ('purged before', ?)", (str(careful),))
        return careful

    def _purge_events(self, condition: str, value: int) -> bool:
        oldest = f"SELECT id FROM events WHERE {condition} ORDER BY id LIMIT {PURGED_AT_ONCE}"  # noqa: S608
        with self.file.transaction() as connection:
            done = connection.execute(f"DELETE FROM events WHERE id IN ({oldest})", (value,))  # noqa: S608
        return done.rowcount > 0


def _conditions(query: EventQuery) -> tuple[str, list[Any]]:
    asked: list[tuple[str, Any]] = [("id > ?", query.after)]
    if query.since is not None:
        asked.append(("at >= ?", int(query.since * 1000)))
    if query.workspace is not None:
        asked.append(("workspace = ?", query.workspace))
    if query.subject is not None:
        asked.append(("subject = ?", query.subject))
    where = [condition for condition, _ in asked]
    values = [value for _, value in asked]
    if query.missed:
        where.append("miss IS NOT NULL")
    if query.kinds:
        where.append(f"kind IN ({','.join('?' * len(query.kinds))})")
        values += query.kinds
    return " AND ".join(where), values


def _event_row(entry: Entry) -> dict[str, Any]:
    data = json.dumps(entry.columns["data"], ensure_ascii=False, separators=(",", ":"))
    search = entry.search.id if entry.search else None
    return {**dict.fromkeys(COLUMNS), **entry.columns, "id": entry.place.id, "search": search, "data": data}


def _stored(row: Sequence[Any]) -> StoredEvent:
    columns = dict(zip(COLUMNS, row, strict=True))
    return StoredEvent(**{**columns, "data": json.loads(columns["data"])})


def _session_row(workspace: str, change: SessionChange) -> dict[str, Any]:
    return {
        **{name: change.counts.get(name, 0) for name in COUNTED},
        "workspace": workspace,
        "caller": change.caller,
        "mode": change.mode,
        "opened": change.first,
        "last": change.last,
        "initial": change.initial_tools,
        "toolsets": json.dumps(change.toolsets),
    }


_INSERT_EVENT = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)})"  # noqa: S608
_ADDED = [name for name in COUNTED if name != "tools"]
_ADD_SESSION = f"""
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
