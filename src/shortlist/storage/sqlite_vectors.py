"""Embeddings in one SQLite file that all programs of this machine share; everything in it can be computed again.

So nobody fails because of it: what cannot be read is computed again, and what cannot be kept is dropped. A damaged
file is moved aside; one of a newer version, or one that cannot be opened, is left unchanged and not used.
"""

import hashlib
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from shortlist.paths import private_folder
from shortlist.storage.port import StoredVector
from shortlist.storage.private import PrivateLock, create_private
from shortlist.storage.sqlite import use_rollback_journal

logger = logging.getLogger(__name__)

VERSION = 1
LOOKUP = 500
DAY = 86_400
UNUSABLE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorBounds:
    """The size limits; the least recently used vectors are removed first."""

    megabytes: float = 1_000.0
    days: int = 90
    checked_every: int = 5_000
    """Vectors that are written between two checks of the size."""


BOUNDS = VectorBounds()


class SqliteVectors:
    """Vectors by key; the day on which each was last used is kept beside them."""

    def __init__(self, path: Path, bounds: VectorBounds = BOUNDS, clock: Callable[[], float] = time.time) -> None:
        self._path, self._bounds, self._clock = path, bounds, clock
        self._failing = ""
        self._ready = False
        self._unchecked = bounds.checked_every
        """Written since the last check; the first write checks."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, StoredVector]:
        """Return the vectors that are known."""
        found: dict[bytes, StoredVector] = {}
        unnoted: list[bytes] = []
        with self._excused(), self._connected() as connection:
            for start in range(0, len(keys), LOOKUP):
                part = list(keys[start : start + LOOKUP])
                sql = f"{_READ} WHERE key IN ({','.join('?' * len(part))})"
                for key, scale, codes, day in connection.execute(sql, part):
                    if isinstance(scale, float) and math.isfinite(scale) and isinstance(codes, bytes):
                        found[key] = StoredVector(scale, codes)
                        if day is None or day < self._today():
                            unnoted.append(key)
            with suppress(sqlite3.OperationalError):  # a file that may only be read
                self._note_use(connection, unnoted)
        return found

    def put(self, vectors: Mapping[bytes, StoredVector]) -> None:
        """Keep vectors, and drop those that were not used for longest beyond the bounds."""
        if not vectors:
            return
        rows = [(key, vector.scale, vector.codes) for key, vector in vectors.items()]
        with self._excused(), self._connected() as connection:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._note_use(connection, vectors)
            self._unchecked += len(rows)
            if self._unchecked >= self._bounds.checked_every:
                self._unchecked = 0
                self._prune(connection)

    @contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[frozenset[str]]:
        """Hold names by locks on files, which the system releases when a process ends."""
        folder = self._path.with_name(f"{self._path.stem}-claims")
        with ExitStack() as held:
            yield frozenset(name for name in names if _is_free(folder, name, held))

    def __len__(self) -> int:
        with self._connected() as connection:
            (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
            return int(count)

    def clear(self) -> None:
        with self._connected() as connection:
            connection.execute("DELETE FROM vectors")
            connection.execute("DELETE FROM uses")

    def _today(self) -> int:
        return int(self._clock() // DAY)

    def _note_use(self, connection: sqlite3.Connection, keys: Iterable[bytes]) -> None:
        sql = "INSERT INTO uses VALUES (?, ?) ON CONFLICT DO UPDATE SET day = excluded.day WHERE day < excluded.day"
        connection.executemany(sql, ((key, self._today()) for key in keys))

    def _prune(self, connection: sqlite3.Connection) -> None:
        today = self._today()
        # Vectors of releases that did not note their use count from today.
        connection.execute("INSERT OR IGNORE INTO uses SELECT key, ? FROM vectors", (today,))
        connection.execute("DELETE FROM uses WHERE day < ?", (today - self._bounds.days,))
        connection.execute(_FORGET)
        (size,) = connection.execute("SELECT coalesce(sum(length(codes) + length(key)), 0) FROM vectors").fetchone()
        (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
        kept = int(count * min(self._bounds.megabytes * 1e6 / max(size, 1), 1.0))
        if kept < count:
            oldest = "SELECT key FROM uses ORDER BY day, key LIMIT ?"
            connection.execute(f"DELETE FROM uses WHERE key IN ({oldest})", (count - kept,))  # noqa: S608
            connection.execute(_FORGET)
            logger.info("%s: removed the %d least recently used vectors", self._path, count - kept)

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """Go on without the file, and log the reason once until it works again."""
        try:
            yield
            self._failing = ""
        except (sqlite3.Error, OSError) as error:
            if not self._failing:
                logger.warning("vectors are computed again while %s cannot be used (%s)", self._path, error)
            self._failing = str(error)
            self._ready = False

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if not self._ready:
            self._prepare()
        with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
            yield connection

    def _prepare(self) -> None:
        private_folder(self._path.parent)
        try:
            self._create()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) not in UNUSABLE:
                raise
            self._path.replace(self._path.with_suffix(".damaged"))
            logger.warning("%s is damaged (%s); it was moved aside, and a new one is created", self._path, error)
            self._create()
        self._ready = True

    def _create(self) -> None:
        create_private(self._path)
        with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
            use_rollback_journal(connection)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise OSError(f"a newer version of shortlist wrote it: version {version}, this one reads {VERSION}")
            tables = connection.execute(
                "SELECT count(*) FROM sqlite_schema WHERE name IN ('vectors', 'uses')"
            ).fetchone()
            if (version, tables) == (VERSION, (2,)):
                return  # a full or read-only disk does not keep anybody from reading
            connection.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, scale REAL, codes BLOB)")
            connection.execute("CREATE TABLE IF NOT EXISTS uses (key BLOB PRIMARY KEY, day INTEGER) WITHOUT ROWID")
            connection.execute(f"PRAGMA user_version = {VERSION}")


def _is_free(folder: Path, name: str, held: ExitStack) -> bool:
    """Lock a name until `held` is closed; return whether nobody else holds it."""
    try:
        lock = PrivateLock(folder / hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest())
        held.callback(lock.close)
        return lock.try_acquire()
    except OSError:  # where no lock can be, everybody works
        return True


_READ = "SELECT key, scale, codes, day FROM vectors LEFT JOIN uses USING (key)"
_FORGET = "DELETE FROM vectors WHERE key NOT IN (SELECT key FROM uses)"
