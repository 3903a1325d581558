"""Copies a data folder into an empty database, whole or not at all."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shortlist.errors import InvalidInput, StoreError
from shortlist.storage.audit_files import AuditFiles
from shortlist.storage.files import declared_format
from shortlist.storage.local import open_local
from shortlist.storage.port import Storage
from shortlist.storage.postgres.database import (
    BEGUN,
    MOVING,
    Parameters,
    Postgres,
    PostgresConnection,
    key_text,
    storable,
)
from shortlist.storage.postgres.events import partition_sql, partitioned_days
from shortlist.storage.postgres.records import PostgresPins, PostgresPrograms, PostgresTokens
from shortlist.storage.sqlite import SqliteFile

TABLES = (
    *("events", "sessions", "tallies", "times", "tools", "pairs", "notes", "experiments", "exposures", "exemplars"),
)
"""Of the record of events, as both stores have them."""
BOOLEAN = {("exposures", "counting")}
KEYS = {"tallies": ("key",), "tools": ("tool",), "pairs": ("one", "other"), "exemplars": ("tool", "query")}
"""Texts that may be too long for a key."""


def move(folder: Path, address: str, logins: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    """Copy everything in one transaction and yield how many rows of each kind; `logins` are encrypted already.

    Raise InvalidInput where the database is not empty, or another process is moving into it.
    """
    database = Postgres(address)
    try:
        with database.filling() as connection:
            _require_alone(connection, database.place)
            _require_empty(connection, database.place)
            connection.execute("SET LOCAL statement_timeout = 0")  # years of events take their time
            connection.execute("DELETE FROM notes")
            yield from _record(connection, folder / "events.sqlite")
            yield "saved catalogs", _catalogs(connection, folder / "catalog")
            yield "workspaces", _workspaces(connection, folder / "workspaces.sqlite")
            yield from _records(cast("Postgres", _Within(connection)), open_local(folder))
            yield "audit records", _audit(connection, AuditFiles(folder / "audit"))
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO grants VALUES (%s, %s) ON CONFLICT DO NOTHING", list(logins.items()))
            yield "logins", len(logins)
            connection.execute("INSERT INTO notes VALUES (%s, '') ON CONFLICT DO NOTHING", (BEGUN,))
    finally:
        database.close()


@dataclass(frozen=True, slots=True)
class _Within:
    """A database whose transactions are parts of one that is open."""

    connection: PostgresConnection

    @contextmanager
    def transaction(self) -> Iterator[PostgresConnection]:
        with self.connection.transaction():
            yield self.connection

    def read(self, sql: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()


def _records(database: Postgres, source: Storage) -> Iterator[tuple[str, int]]:
    servers = source.pins.overview()
    for server in servers:
        pins = source.pins.read(server)
        PostgresPins(database).write(server, pins)
        PostgresPins(database).decide(server, pins.decisions)
    yield "pinned servers", len(servers)
    tokens = source.tokens.load()
    for token in tokens.values():
        PostgresTokens(database).put(token)
    yield "tokens", len(tokens)
    programs = source.programs.load()
    for program in programs.values():
        PostgresPrograms(database).put(program)
    yield "programs", len(programs)


def _require_alone(connection: PostgresConnection, place: str) -> None:
    row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (MOVING,)).fetchone()
    if row != (True,):
        raise InvalidInput(f"Another `shortlist storage migrate` into {place} is running. Wait until it has ended.")


def _require_empty(connection: PostgresConnection, place: str) -> None:
    for table in ("events", "experiments", "pinned_servers", "tokens", "audit"):
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():  # noqa: S608 (constants)
            raise InvalidInput(f"{place} is not empty ({table}). Move into a new database, so that nothing is mixed.")


def _record(connection: PostgresConnection, path: Path) -> Iterator[tuple[str, int]]:
    if not path.is_file():
        return
    SqliteFile(path, write=True).close()  # brings an older file up to date
    with closing(SqliteFile(path)) as file:
        for day in partitioned_days(at for (at,) in file.rows("SELECT DISTINCT at / 86400000 * 86400000 FROM events")):
            connection.execute(partition_sql(day))
        connection.execute("ALTER TABLE events DISABLE TRIGGER workspace_exposed")  # the exposures are copied too
        for table in TABLES:
            yield table, _copy(connection, file, table)
        connection.execute("ALTER TABLE events ENABLE TRIGGER workspace_exposed")
    for sequence, table in (("event_ids", "events"), ("exposures_id_seq", "exposures")):
        sql = f"SELECT setval('{sequence}', greatest(coalesce(max(id), 0), 1)) FROM {table}"  # noqa: S608
        connection.execute(sql)


def _copy(connection: PostgresConnection, file: SqliteFile, table: str) -> int:
    columns = [name for _, name, *_ in file.query(f"PRAGMA table_info({table})")]
    count = 0
    listed = ", ".join(columns)
    with connection.cursor().copy(f"COPY {table} ({listed}) FROM STDIN") as copy:
        for row in file.rows(f"SELECT {listed} FROM {table}"):  # noqa: S608
            copy.write_row(_row(table, dict(zip(columns, row, strict=True))))
            count += 1
    return count


def _row(table: str, values: dict[str, Any]) -> list[Any]:
    keys = KEYS.get(table, ("subject",) if values.get("kind") == "called" else ())
    return [
        bool(value) if (table, name) in BOOLEAN else key_text(value) if name in keys and value else storable(value)
        for name, value in values.items()
    ]


def _audit(connection: PostgresConnection, source: AuditFiles) -> int:
    """Copy trails line by line, so that their chains can be verified as before."""
    people = [(key_text(principal), pseudonym) for principal, pseudonym in source.people().items()]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO audit_people VALUES (%s, %s) ON CONFLICT DO NOTHING", people)
    count = 0
    with connection.cursor().copy("COPY audit (trail, seq, line) FROM STDIN") as copy:
        for path in source.paths():
            with path.open(encoding="utf-8", errors="replace") as lines:
                for number, line in enumerate(lines):
                    copy.write_row([path.name, number, storable(line.rstrip("\n"))])
                    count += 1
    return count


def _catalogs(connection: PostgresConnection, folder: Path) -> int:
    count = 0
    for path in sorted(folder.glob("*.json")):
        try:
            document = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error}). Remove it: its server is listed again.") from None
        row = (path.stem, declared_format(document) or 0, document)
        connection.execute("INSERT INTO catalogs VALUES (%s, %s, %s)", row)
        count += 1
    return count


def _workspaces(connection: PostgresConnection, path: Path) -> int:
    if not path.is_file():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source:
            rows = source.execute("SELECT key, loaded, used FROM workspaces").fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read ({error}). Remove it: clients load their tools again.") from None
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO workspaces VALUES (%s, %s, %s)", rows)
    return len(rows)
