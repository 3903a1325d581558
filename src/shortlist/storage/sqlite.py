"""One SQLite file that gateways, commands and the dashboard of one machine share: opened, migrated, never damaged."""

import errno
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from shortlist.errors import NothingRecorded, StoreError
from shortlist.paths import private_folder
from shortlist.storage.private import create_private, locked

BUSY_SECONDS = 5.0
"""How long another process may hold the file before a write fails; writes never happen on a request's path."""

CLOSE_SECONDS = 0.5

Parameters = Sequence[Any] | Mapping[str, Any]


class SqliteFile:
    """One connection to a database file; any number of processes may have one at a time.

    A file that cannot be used is left unchanged. Every error is a StoreError, and then nothing was changed.
    """

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        if not write and not os.path.isfile(path):  # unlike Path.is_file, false for a folder that may not be read
            raise _nothing_recorded(path)
        with self._explained():
            if write:
                private_folder(path.parent)
                create_private(path)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(write)
            except BaseException:
                self._connection.close()
                raise

    def rows(self, sql: str, values: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one at a time, so that a long answer needs little memory."""
        with self._explained(), closing(self._connection.execute(sql, values)) as found:
            yield from found

    def query(self, sql: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return list(self.rows(sql, values))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything inside, or roll it back."""
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
        """Return how much of the file is in use."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self.query(f"PRAGMA {name}")[0][0] for name in names)
        return float((pages - free) * size / 1e6)

    def close(self) -> None:
        self._connection.close()

    def _prepare(self, write: bool) -> None:
        scripts = migrations()
        if (version := self._version()) > len(scripts):
            raise StoreError(
                f"{self.path} was written by a newer version of shortlist (schema {version}, this version supports "
                f"{len(scripts)}). Upgrade shortlist, or move the file away."
            )
        if not write:
            if version < len(scripts):
                SqliteFile(self.path, write=True).close()
            self._connection.execute("PRAGMA query_only = ON")
            return
        use_rollback_journal(self._connection)
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
            raise  # a bug of ours, which no retry repairs
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: {error}. {_remedy(error)}") from error


class Database:
    """A file that is opened for each read, and kept open for writes from the first one on.

    A connection that failed is closed; the next write opens the file again, so a file that was repaired or moved
    away is picked up without a restart.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.RLock()
        self._writer: SqliteFile | None = None

    def query(self, sql: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; raise StoreError where nothing has been recorded.

        The file is closed before anybody looks at them: whoever reads slowly would hold up the writers.
        """
        with closing(SqliteFile(self.path)) as file:
            return file.query(sql, values)

    @contextmanager
    def transaction(self, *, create: bool = True) -> Iterator[sqlite3.Connection]:
        """Commit everything inside, or roll it back; without `create`, raise if the file does not exist."""
        if not create and not os.path.isfile(self.path):
            raise _nothing_recorded(self.path)
        with self._writing:
            if self._writer is None:
                self._writer = SqliteFile(self.path, write=True)
            try:
                with self._writer.transaction() as connection:
                    yield connection
            except StoreError:
                self.close()
                raise

    def megabytes(self) -> float:
        with closing(SqliteFile(self.path)) as file:
            return file.megabytes()

    def close(self) -> None:
        """Close the connection for writes; a later write opens it again.

        One that another thread is still using stays open: whoever ends does not wait for it.
        """
        if self._writing.acquire(timeout=CLOSE_SECONDS):
            try:
                if self._writer is not None:
                    self._writer.close()
                self._writer = None
            finally:
                self._writing.release()


class OwnFile:
    """A small database in a file of its own, opened for each use, so that damage elsewhere does not reach it."""

    def __init__(self, path: Path, schema: Sequence[str], *, remedy: str) -> None:
        self._path = path
        self._schema = schema
        self._remedy = remedy

    @contextmanager
    def opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file, and commit everything that happens inside or roll it back; yield None if there is no file."""
        if not self._has_content() and not create:
            yield None  # type: ignore[misc]
            return
        try:
            if create:
                self._create()
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE" if create else "BEGIN")
                self._check(connection)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            remedy = _remedy(error)
            raise StoreError(f"{self._path}: {error}. {self._remedy if remedy == _DAMAGED else remedy}") from error

    def _has_content(self) -> bool:
        """Return whether there is a file; raise StoreError where that cannot be known, or the file is empty."""
        try:
            size = os.lstat(self._path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(f"{self._path}: {error}. {_ACCESS}") from error
        if not size:
            raise StoreError(f"{self._path}: the file is empty. {self._remedy}")
        return True

    def _create(self) -> None:
        """Make the file with its tables elsewhere and put it in place: one that is empty has lost what it held."""
        private_folder(self._path.parent)
        if self._path.exists():
            return
        with locked(self._path):
            if self._path.exists():
                return
            fresh = self._path.with_name(f".{self._path.name}.{secrets.token_hex(6)}")
            create_private(fresh)
            with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                for statement in (*self._schema, "PRAGMA user_version = 1"):
                    connection.execute(statement)
            fresh.replace(self._path)

    def _check(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > 1:
            raise StoreError(
                f"{self._path} was written by a newer version of shortlist. Upgrade shortlist, or move the file away."
            )
        if version == 0:
            raise sqlite3.DatabaseError("the file has no tables")


def use_rollback_journal(connection: sqlite3.Connection) -> None:
    """Keep a file in the mode in which SQLite maps nothing into memory.

    In WAL mode it maps `-shm`, and a process ends with SIGBUS when a program cuts that file. A file that an earlier
    release is still using in WAL mode is changed by whoever opens it after that.
    """
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = TRUNCATE")


def _nothing_recorded(path: Path) -> NothingRecorded:
    return NothingRecorded(f"Nothing has been recorded yet: {path} does not exist. `shortlist serve` creates it.")


@cache
def migrations() -> tuple[str, ...]:
    """Return the numbered scripts that make the schema; a file of version n has had the first n."""
    folder = resources.files("shortlist.storage").joinpath("migrations")
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


_SPACE = "Free some disk space; until then nothing is saved."
_ACCESS = "Check that you may write the file and its folder."
_DAMAGED = "The file is damaged and is left unchanged: move it away, and a new one is created."
_REMEDIES: Mapping[int, str] = {
    sqlite3.SQLITE_BUSY: "Another process is using it; it will be tried again.",
    sqlite3.SQLITE_LOCKED: "Another process is using it; it will be tried again.",
    sqlite3.SQLITE_FULL: _SPACE,
    sqlite3.SQLITE_IOERR: _SPACE,
    sqlite3.SQLITE_READONLY: _ACCESS,
    sqlite3.SQLITE_CANTOPEN: _ACCESS,
    sqlite3.SQLITE_PERM: _ACCESS,
}
"""By primary result code, the low byte of what SQLite reports."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def _remedy(error: sqlite3.Error | OSError) -> str:
    if isinstance(error, OSError):
        return _SPACE if error.errno in _NO_SPACE else _ACCESS
    return _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, _DAMAGED)
