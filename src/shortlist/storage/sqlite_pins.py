"""Pins and reviews in a file of their own: damage to the record of events does not hold anybody's tools back."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from shortlist.errors import StoreError
from shortlist.storage.port import Decision, PinnedDefinition, StoredPins

BUSY_SECONDS = 5.0
VERSION = 1
_SCHEMA = (
    "CREATE TABLE servers (server TEXT PRIMARY KEY, listing TEXT NOT NULL) STRICT",
    "CREATE TABLE definitions (server TEXT NOT NULL, held INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, "
    "text TEXT NOT NULL, cause TEXT NOT NULL, reasons TEXT NOT NULL, before TEXT NOT NULL, before_name TEXT NOT NULL, "
    "PRIMARY KEY (server, held, kind, name)) STRICT",
    "CREATE TABLE decisions (id INTEGER PRIMARY KEY, server TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, "
    "hash TEXT NOT NULL, approved INTEGER NOT NULL, by TEXT NOT NULL, at REAL NOT NULL) STRICT",
    "CREATE INDEX decisions_of ON decisions (server)",
)
_COLUMNS = "kind, name, text, cause, reasons, before, before_name"


class SqlitePins:
    """One file, opened for each use: lists of tools change rarely. Every error is a StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, server: str) -> StoredPins:
        with self._opened() as connection:
            if connection is None:
                return StoredPins()
            row = connection.execute("SELECT listing FROM servers WHERE server = ?", (server,)).fetchone()
            sql = f"SELECT held, {_COLUMNS} FROM definitions WHERE server = ? ORDER BY kind, name"  # noqa: S608 (constants)
            found = connection.execute(sql, (server,)).fetchall()
            sql = "SELECT kind, name, hash, approved, by, at FROM decisions WHERE server = ? ORDER BY id"
            decided = connection.execute(sql, (server,)).fetchall()
        accepted, held = (tuple(PinnedDefinition(*row[1:]) for row in found if row[0] == which) for which in (0, 1))
        return StoredPins(
            row[0] if row else "",
            accepted,
            held,
            tuple(Decision(kind, name, digest, bool(yes), by, at) for kind, name, digest, yes, by, at in decided),
        )

    def write(self, server: str, pins: StoredPins) -> None:
        rows = [
            (server, held, d.kind, d.name, d.text, d.cause, d.reasons, d.before, d.before_name)
            for held, definitions in ((0, pins.accepted), (1, pins.held))
            for d in definitions
        ]
        with self._opened(create=True) as connection:
            connection.execute("INSERT OR REPLACE INTO servers VALUES (?, ?)", (server, pins.listing))
            connection.execute("DELETE FROM definitions WHERE server = ?", (server,))
            connection.executemany("INSERT OR REPLACE INTO definitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def decide(self, server: str, decisions: Sequence[Decision]) -> None:
        rows = [(server, d.kind, d.name, d.hash, int(d.approved), d.by, d.at) for d in decisions]
        with self._opened(create=True) as connection:
            sql = "INSERT INTO decisions (server, kind, name, hash, approved, by, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
            connection.executemany(sql, rows)

    def overview(self) -> dict[str, frozenset[str]]:
        with self._opened() as connection:
            if connection is None:
                return {}
            servers = connection.execute("SELECT server FROM servers ORDER BY server").fetchall()
            held = connection.execute(
                "SELECT server, name FROM definitions WHERE held = 1 AND kind = 'tool'"
            ).fetchall()
        return {server: frozenset(name for owner, name in held if owner == server) for (server,) in servers}

    def state(self) -> int:
        with self._opened() as connection:
            row = connection.execute("SELECT coalesce(max(id), 0) FROM decisions").fetchone() if connection else (0,)
        return int(row[0])

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file, and commit everything that happens inside or roll it back; yield None if there is no file."""
        if not create and (not os.path.lexists(self.path) or os.path.getsize(self.path) == 0):
            yield None  # type: ignore[misc]
            return
        try:
            if create:
                self._create()
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE" if create else "BEGIN")
                self._check(connection, create)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{self.path}: {error}. If the file is damaged, move it away: definitions are then scanned and pinned "
                "again, and you have to approve them again."
            ) from error

    def _create(self) -> None:
        """Create a file that only its owner can read, without following a link."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600))

    def _check(self, connection: sqlite3.Connection, create: bool) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer version of shortlist. Upgrade shortlist, or move the file away."
            )
        if version == 0 and create:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        elif version == 0:
            raise sqlite3.DatabaseError("the file has no tables")
