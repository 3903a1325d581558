"""The one SQLite file that telemetry lives in: opened, migrated, shared by processes, and never made worse."""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

from shortlist.errors import StoreError
from shortlist.paths import data_folder

BUSY_SECONDS = 5.0
"""How long another process may hold the file; the writer waits beside the requests."""


def events_path() -> Path:
    """Say where events are kept on this machine."""
    return data_folder() / "events.sqlite"


class SqliteFile:
    """A connection that any number of gateways and readers can have at once; a file it cannot use is left as it is.

    Every error is a StoreError, and then nothing was changed.
    """

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        if not write and not path.is_file():
            raise StoreError(f"Nothing has been recorded yet: there is no {path}. `shortlist serve` makes it.")
        with self._explained():
            if write:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _create(path)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(write)
            except BaseException:
                self._connection.close()
                raise

    def rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Give the rows of a query one at a time, so that a long answer needs no memory."""
        with self._explained(), closing(self._connection.execute(sql, values)) as found:
            yield from found

    def query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Give all rows of a query."""
        return list(self.rows(sql, values))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Change something, whole or not at all."""
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def megabytes(self) -> float:
        """Say how much of the file is in use."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self.query(f"PRAGMA {name}")[0][0] for name in names)
        return float((pages - free) * size / 1e6)

    def close(self) -> None:
        self._connection.close()

    def _prepare(self, write: bool) -> None:
        scripts = migrations()
        if (version := self._version()) > len(scripts):
            raise StoreError(
                f"{self.path} was written by a newer version of shortlist (schema {version}, this one knows "
                f"{len(scripts)}). Upgrade shortlist, or move the file away."
            )
        if not write:
            if version < len(scripts):
                SqliteFile(self.path, write=True).close()
            self._connection.execute("PRAGMA query_only = ON")
            return
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may lose the last moments
        self._connection.execute("PRAGMA secure_delete = FAST")
        if version < len(scripts):
            with self.transaction() as connection:
                _migrate(connection, scripts, self._version())

    def _version(self) -> int:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
            raise  # our own mistake, which waiting does not mend
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: {error}. {_remedy(error)}") from error


def _create(path: Path) -> None:
    """Make a file that only its owner reads; one that is there is not opened.

    Closing any descriptor of a file gives up all locks that this process has on it, those of SQLite among them.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def migrations() -> tuple[str, ...]:
    """Give the numbered scripts that make the schema; a file of version n has had the first n."""
    folder = resources.files("shortlist.telemetry").joinpath("migrations")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text("utf-8") for file in found)


def _migrate(connection: sqlite3.Connection, scripts: Sequence[str], version: int) -> None:
    for script in scripts[version:]:
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(scripts)}")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


_REMEDIES: Mapping[str, str] = {
    "locked": "Another process holds it; it is tried again.",
    "full": "Free some space on the disk; until then events are counted as lost.",
    "disk I/O": "Free some space on the disk; until then events are counted as lost.",
    "space": "Free some space on the disk; until then events are counted as lost.",
    "readonly": "Check that the file and its folder may be written.",
    "unable to open": "Check that the file and its folder may be written.",
    "Permission": "Check that the file and its folder may be written.",
}


def _remedy(error: Exception) -> str:
    found = (remedy for sign, remedy in _REMEDIES.items() if sign in str(error))
    return next(found, "The file is damaged and is left as it is: move it away, and a new one is begun.")
