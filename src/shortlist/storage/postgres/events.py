"""Events, what each workspace did, and tallies in PostgreSQL; the events of a day are one partition."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from shortlist.storage.port import ALL, COUNTED, HOUR, HOURS, Batch, EventQuery, EventRow, StoredEvent, TrailQuery
from shortlist.storage.postgres.database import APPENDING, Postgres, PostgresConnection, key_text, storable
from shortlist.storage.rows import (
    COLUMNS,
    DAY,
    OF_TOOLS,
    YEAR_2000,
    StoredTallies,
    careful_cutoff,
    event_row,
    stored_event,
    tally_rows,
    times_with,
    workspace_row,
)

DAY_MILLISECONDS = 86_400_000
PURGED_AT_ONCE = 5_000
TRAIL_KINDS = ("searched", "called", "loaded")
_TRAILS = (
    f"SELECT {', '.join(f'e.{column}' for column in COLUMNS)} FROM unnest(%s::text[], %s::bigint[]) AS w (name, after) "  # noqa: S608
    "JOIN events e ON e.workspace = w.name AND e.id > w.after AND e.id <= %s "
    "WHERE e.at >= %s AND e.kind = ANY(%s) AND NOT EXISTS (SELECT FROM unnest(%s::bigint[], %s::bigint[]) "
    "AS own (first, final) WHERE e.id BETWEEN own.first AND own.final) ORDER BY e.id"
)


class PostgresEvents(StoredTallies):
    """Stores events, and the tallies of the same transaction; writers take turns, so that ids are in order."""

    def __init__(self, database: Postgres) -> None:
        super().__init__(database.query, "%s")
        self.database = database

    def append(self, batch: Batch) -> None:
        with self.database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (APPENDING,))
            if batch.spool is not None and connection.execute(_NOTE_SPOOL, batch.spool).fetchone() is None:
                return  # it arrived with the ids that it has, though the answer of the database did not
            self._number(connection, batch)
            _partition(connection, batch)
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT_EVENT, [_event_row(entry) for entry in batch.entries])
                cursor.executemany(_ADD_WORKSPACE, [workspace_row(w, c) for w, c in batch.workspaces.items()])
            _add_tallies(connection, batch)

    def events(self, query: EventQuery = ALL) -> Iterator[StoredEvent]:
        where, values = _conditions(query)
        order = "DESC" if query.latest else "ASC"
        sql = f"SELECT {', '.join(COLUMNS)} FROM events WHERE {where} ORDER BY id {order} LIMIT %s"  # noqa: S608
        yield from map(stored_event, self.database.rows(sql, (*values, query.limit)))

    def trails(self, query: TrailQuery) -> tuple[list[StoredEvent], int]:
        """Return what workspaces did with other gateways, and the last id: ids are written in order."""
        ((last,),) = self.database.read("SELECT coalesce(max(id), 0) FROM events")
        firsts, finals = [first for first, _ in query.own], [final for _, final in query.own]
        after = (list(query.after), list(query.after.values()))
        values = (*after, last, query.since, list(TRAIL_KINDS), firsts, finals)
        return [stored_event(row) for row in self.database.read(_TRAILS, values)], last

    def purge(self, before: float, megabytes: float) -> None:
        """Drop whole days from before a second since 1970 and the rest of its day, then the oldest until it fits."""
        before = self._careful(before)
        at = int(before * 1000)
        for day in self._kept_days():
            if (day + 1) * DAY_MILLISECONDS <= at:
                self._drop(day)
        while self._purge_events("at < %s", at):
            pass
        while self._megabytes() > megabytes:
            days = self._kept_days()
            if len(days) > 1:
                self._drop(days[0])
            elif not self._purge_events("%s = 0", 0):
                break
        hour = int(before // HOUR)
        with self.database.transaction() as connection:
            for table in ("tallies", "times", "pairs"):
                connection.execute(f"DELETE FROM {table} WHERE hour < %s", (hour,))  # noqa: S608
            connection.execute("DELETE FROM tools WHERE day < %s", (hour // HOURS,))
            connection.execute("DELETE FROM sessions WHERE last < %s", (at,))
            connection.execute("DELETE FROM exemplars WHERE last < %s", (at,))
            connection.execute("DELETE FROM spools WHERE at < now() - interval '90 days'")

    def erase(self, caller: str) -> int:
        erased = 0
        while done := self._purge_events("caller = %s", storable(caller)):
            erased += done
        with self.database.transaction(create=False) as connection:
            connection.execute("DELETE FROM sessions WHERE caller = %s", (storable(caller),))
        return erased

    def _number(self, connection: PostgresConnection, batch: Batch) -> None:
        count = len(batch.entries)
        ids = connection.execute("SELECT nextval('event_ids') FROM generate_series(1, %s)", (count,)).fetchall()
        for entry, (number,) in zip(batch.entries, ids, strict=True):
            entry.place.id = number

    def _kept_days(self) -> list[int]:
        sql = (
            "SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid "
            "WHERE inhparent = 'events'::regclass AND c.relname LIKE 'events_day_%%' ORDER BY 1"
        )
        return sorted(int(name.rpartition("_")[2]) for (name,) in self.database.query(sql, ()))

    def _drop(self, day: int) -> None:
        with self.database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (APPENDING,))
            connection.execute(f"DROP TABLE IF EXISTS events_day_{int(day)}")

    def _megabytes(self) -> float:
        sql = (
            "SELECT coalesce(sum(pg_relation_size(inhrelid)), 0) / 1e6 FROM pg_inherits "
            "WHERE inhparent = 'events'::regclass"
        )
        return float(self.database.query(sql)[0][0])

    def _careful(self, before: float) -> float:
        with self.database.transaction() as connection:
            last = connection.execute("SELECT value FROM notes WHERE name = 'purged before'").fetchone()
            careful = careful_cutoff(before, last[0] if last else None)
            connection.execute(_PUT_NOTE, ("purged before", str(careful)))
        return careful

    def _purge_events(self, condition: str, value: int | str) -> int:
        oldest = f"SELECT id FROM events WHERE {condition} ORDER BY id LIMIT {PURGED_AT_ONCE}"  # noqa: S608
        with self.database.transaction() as connection:
            return connection.execute(f"DELETE FROM events WHERE id IN ({oldest})", (value,)).rowcount  # noqa: S608


def _partition(connection: PostgresConnection, batch: Batch) -> None:
    """Make sure that there is a partition for every day; what the clock puts before 2000 is kept apart.

    Other gateways drop old partitions, so the database is asked each time which ones there are.
    """
    days = partitioned_days(entry.columns["at"] for entry in batch.entries)
    sql = "SELECT day FROM unnest(%s::bigint[]) AS day WHERE to_regclass('events_day_' || day) IS NULL ORDER BY day"
    for (day,) in connection.execute(sql, (list(days),)).fetchall():
        connection.execute(partition_sql(day))


def _event_row(entry: EventRow) -> dict[str, Any]:
    row = {key: storable(value) for key, value in event_row(entry).items()}
    if row["kind"] == "called" and row["subject"] is not None:
        row["subject"] = key_text(row["subject"])
    return row


def partitioned_days(times: Iterable[int]) -> set[int]:
    """Return the days that get a partition, of times in milliseconds since 1970."""
    return {day for day in (int(at) // DAY_MILLISECONDS for at in times) if day * DAY >= YEAR_2000}


def partition_sql(day: int) -> str:
    start = day * DAY_MILLISECONDS
    named = datetime.fromtimestamp(day * DAY, UTC).date()
    return (
        f"CREATE TABLE IF NOT EXISTS events_day_{day} PARTITION OF events "
        f"FOR VALUES FROM ({start}) TO ({start + DAY_MILLISECONDS}) /* {named} */"
    )


def _conditions(query: EventQuery) -> tuple[str, list[Any]]:
    since = None if query.since is None else int(query.since * 1000)
    asked: list[tuple[str, Any]] = [
        ("id > %s", query.after),
        ("at >= %s", since),
        ("workspace = %s", query.workspace),
        ("subject = %s", query.subject),
        ("caller = %s", query.caller),
        ("kind = ANY(%s)", list(query.kinds) or None),
    ]
    where = [condition for condition, value in asked if value is not None]
    return " AND ".join([*where, *(["miss IS NOT NULL"] if query.missed else [])]), [
        value for _, value in asked if value is not None
    ]


def _add_tallies(connection: PostgresConnection, batch: Batch) -> None:
    rows = tally_rows(batch.tallies)
    with connection.cursor() as cursor:
        cursor.executemany(_ADD_TALLY, [(hour, name, key_text(key), value) for hour, name, key, value in rows.plain])
        cursor.executemany(_ADD_TOOL, [{**row, "tool": key_text(row["tool"])} for row in rows.tools])
        cursor.executemany(_ADD_PAIR, [(key_text(one), key_text(other), *rest) for one, other, *rest in rows.pairs])
        cursor.executemany(_PUT_TIMES, list(_with_known(connection, rows.times)))


def _with_known(
    connection: PostgresConnection, times: Mapping[tuple[int, str], Counter[str]]
) -> Iterable[tuple[int, str, str]]:
    for (hour, step), new in times.items():
        known = connection.execute("SELECT buckets FROM times WHERE hour = %s AND step = %s", (hour, step)).fetchone()
        yield hour, step, times_with(new, known)


_INSERT_EVENT = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join(f'%({name})s' for name in COLUMNS)})"  # noqa: S608
_ADDED = [name for name in COUNTED if name != "tools"]
_ADD_WORKSPACE = f"""
INSERT INTO sessions (workspace, caller, mode, opened, last, initial_tools, tools, toolsets, {", ".join(_ADDED)})
VALUES (%(workspace)s, %(caller)s, %(mode)s, %(opened)s, %(last)s, coalesce(%(initial)s, 0),
        coalesce(%(initial)s, 0) + %(tools)s, %(toolsets)s, {", ".join(f"%({name})s" for name in _ADDED)})
ON CONFLICT (workspace) DO UPDATE SET
  mode = coalesce(excluded.mode, sessions.mode), last = greatest(sessions.last, excluded.last),
  initial_tools = coalesce(%(initial)s, sessions.initial_tools),
  tools = coalesce(%(initial)s, sessions.tools) + %(tools)s,
  toolsets = (SELECT coalesce(json_agg(name), '[]')::text FROM
              (SELECT json_array_elements_text(sessions.toolsets::json) AS name
               UNION SELECT json_array_elements_text(excluded.toolsets::json)) AS every),
  {", ".join(f"{name} = sessions.{name} + excluded.{name}" for name in _ADDED)}
"""  # noqa: S608
_TOOL_COLUMNS = tuple(OF_TOOLS.values())
_ADD_TALLY = """
INSERT INTO tallies (hour, name, key, value) VALUES (%s, %s, %s, %s)
ON CONFLICT (hour, name, key) DO UPDATE SET value = tallies.value + excluded.value
"""
_ADD_TOOL = f"""
INSERT INTO tools (day, tool, {", ".join(_TOOL_COLUMNS)})
VALUES (%(day)s, %(tool)s, {", ".join(f"%({c})s" for c in _TOOL_COLUMNS)})
ON CONFLICT (day, tool) DO UPDATE SET {", ".join(f"{c} = tools.{c} + excluded.{c}" for c in _TOOL_COLUMNS)}
"""  # noqa: S608
_ADD_PAIR = """
INSERT INTO pairs (one, other, workspaces, hour) VALUES (%s, %s, %s, %s)
ON CONFLICT (one, other) DO UPDATE SET
  workspaces = pairs.workspaces + excluded.workspaces, hour = greatest(pairs.hour, excluded.hour)
"""
_PUT_TIMES = """
INSERT INTO times (hour, step, buckets) VALUES (%s, %s, %s)
ON CONFLICT (hour, step) DO UPDATE SET buckets = excluded.buckets
"""
_NOTE_SPOOL = (
    "INSERT INTO spools VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET stored = excluded.stored, at = excluded.at "
    "WHERE spools.stored < excluded.stored RETURNING stored"
)
_PUT_NOTE = "INSERT INTO notes VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
