"""Pins and reviews in a file of their own: damage to the record of events does not hold anybody's tools back."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from shortlist.errors import StoreConflict
from shortlist.storage.port import Decision, PinnedDefinition, StoredPins
from shortlist.storage.sqlite import OwnFile

_SCHEMA = (
    "CREATE TABLE servers (server TEXT PRIMARY KEY, listing TEXT NOT NULL) STRICT",
    "CREATE TABLE definitions (server TEXT NOT NULL, held INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, "
    "text TEXT NOT NULL, cause TEXT NOT NULL, reasons TEXT NOT NULL, before TEXT NOT NULL, before_name TEXT NOT NULL, "
    "PRIMARY KEY (server, held, kind, name)) STRICT",
    "CREATE TABLE decisions (id INTEGER PRIMARY KEY, server TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, "
    "hash TEXT NOT NULL, approved INTEGER NOT NULL, by TEXT NOT NULL, at REAL NOT NULL) STRICT",
    "CREATE INDEX decisions_of ON decisions (server)",
)
_REMEDY = (
    "If the file is damaged, move it away: definitions are then scanned and pinned again, and you have to approve "
    "them again."
)
_COLUMNS = "kind, name, text, cause, reasons, before, before_name"


class SqlitePins:
    """One file, opened for each use: lists of tools change rarely. Every error is a StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = OwnFile(path, _SCHEMA, remedy=_REMEDY)

    def read(self, server: str) -> StoredPins:
        with self._file.opened() as connection:
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

    def write(self, server: str, pins: StoredPins, since: str | None = None) -> None:
        with self._file.opened(create=True) as connection:
            _check(connection, server, since)
            connection.execute("DELETE FROM definitions WHERE server = ?", (server,))
            _insert(connection, server, pins)

    def amend(
        self, server: str, touched: Sequence[tuple[str, str]], pins: StoredPins, since: str | None = None
    ) -> None:
        with self._file.opened(create=True) as connection:
            _check(connection, server, since)
            sql = "DELETE FROM definitions WHERE server = ? AND held = 1 AND kind = ? AND name = ?"
            connection.executemany(sql, [(server, kind, name) for kind, name in touched])
            _insert(connection, server, pins)

    def decide(self, server: str, decisions: Sequence[Decision]) -> None:
        rows = [(server, d.kind, d.name, d.hash, int(d.approved), d.by, d.at) for d in decisions]
        with self._file.opened(create=True) as connection:
            sql = "INSERT INTO decisions (server, kind, name, hash, approved, by, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
            connection.executemany(sql, rows)

    def overview(self) -> dict[str, frozenset[str]]:
        with self._file.opened() as connection:
            if connection is None:
                return {}
            servers = connection.execute("SELECT server FROM servers ORDER BY server").fetchall()
            held = connection.execute(
                "SELECT server, name FROM definitions WHERE held = 1 AND kind = 'tool'"
            ).fetchall()
        return {server: frozenset(name for owner, name in held if owner == server) for (server,) in servers}

    def state(self) -> int:
        with self._file.opened() as connection:
            row = connection.execute("SELECT coalesce(max(id), 0) FROM decisions").fetchone() if connection else (0,)
        return int(row[0])


def _check(connection: sqlite3.Connection, server: str, since: str | None) -> None:
    row = connection.execute("SELECT listing FROM servers WHERE server = ?", (server,)).fetchone()
    if since is not None and since != (row[0] if row else ""):
        raise StoreConflict(f"Another gateway has changed the approvals of {server!r} meanwhile. Try again.")


def _insert(connection: sqlite3.Connection, server: str, pins: StoredPins) -> None:
    rows = [
        (server, held, d.kind, d.name, d.text, d.cause, d.reasons, d.before, d.before_name)
        for held, definitions in ((0, pins.accepted), (1, pins.held))
        for d in definitions
    ]
    connection.execute("INSERT OR REPLACE INTO servers VALUES (?, ?)", (server, pins.listing))
    connection.executemany("INSERT OR REPLACE INTO definitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
