"""Vectors kept by what was embedded and by which model, in one SQLite file that processes can share."""

import hashlib
import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from shortlist.index.embedders import Vectors
from shortlist.index.vectors import quantise

logger = logging.getLogger(__name__)

VERSION = 1
_LOOKUP = 500


class SqliteVectorCache:
    """Content-addressed vectors; a damaged file is put aside and begun again, since all in it can be made anew.

    For the same reason nobody fails for it: what cannot be read is made again, what cannot be kept is let go.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._failing = path, False
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._create()
        except sqlite3.OperationalError as error:
            raise OSError(0, str(error), str(path)) from None
        except sqlite3.DatabaseError:
            path.replace(path.with_suffix(".damaged"))
            self._create()

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]:
        keys = {vector_key(model_id, text): text for text in texts}
        found: dict[str, Vectors] = {}
        with self._excused(), self._connected() as connection:
            for part in _parts(list(keys)):
                marks = ",".join("?" * len(part))
                query = f"SELECT key, scale, codes FROM vectors WHERE key IN ({marks})"  # noqa: S608
                for key, scale, codes in connection.execute(query, part):
                    found[keys[key]] = np.frombuffer(codes, np.int8).astype(np.float32) * np.float32(scale)
        return found

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None:
        if not vectors:
            return
        codes, scales = quantise(np.stack(list(vectors.values())))
        rows = [
            (vector_key(model_id, text), float(scale), code.tobytes())
            for text, scale, code in zip(vectors, scales, codes, strict=True)
        ]
        with self._excused(), self._connected() as connection:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def __len__(self) -> int:
        with self._connected() as connection:
            (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
            return int(count)

    def clear(self) -> None:
        with self._connected() as connection:
            connection.execute("DELETE FROM vectors")

    def _create(self) -> None:
        with self._connected() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                connection.execute("DROP TABLE IF EXISTS vectors")
            connection.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, scale REAL, codes BLOB)")
            connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """Go on without the file, and say so once until it works again."""
        try:
            yield
            self._failing = False
        except sqlite3.Error as error:
            if not self._failing:
                logger.warning("vectors are made anew and not kept while %s cannot be used (%s)", self._path, error)
            self._failing = True

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=10)
        try:
            with connection:
                yield connection
        finally:
            connection.close()


def vector_key(model_id: str, text: str) -> bytes:
    """Name a vector by the model that made it and the text that it stands for."""
    return hashlib.blake2b(f"{model_id}\0{text}".encode("utf-8", "replace"), digest_size=16).digest()


def _parts(keys: list[bytes]) -> Iterator[list[bytes]]:
    return (keys[start : start + _LOOKUP] for start in range(0, len(keys), _LOOKUP))
