"""Records on their way to a shared store, in a file of their own: they survive a process that is killed.

The file is encrypted with a key of the store, so that it reveals nothing to somebody who has only this disk. Whoever
starts next with the same folder sends what the store does not have yet.
"""

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shortlist.errors import StoreError
from shortlist.paths import private_folder
from shortlist.storage.private import FILE_MODE
from shortlist.storage.shared import LeftRecords, remove_stored

NONCE_BYTES = 12
LENGTH_BYTES = 4
SUFFIX = ".spool"
_FIRST = b"first record: "
"""Begins a file whose first records were removed when they had been stored."""

logger = logging.getLogger(__name__)


class SpoolFile:
    """Appends records to the file of this process; each reaches the operating system before `append` returns."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._cipher = AESGCM(key)
        self.name = secrets.token_hex(16)
        self.count = self.size = 0
        self._path = folder / f"{self.name}{SUFFIX}"
        try:
            private_folder(folder)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def append(self, record: bytes) -> None:
        written = self._frame(record)
        try:
            if os.write(self._descriptor, written) != len(written):
                os.ftruncate(self._descriptor, self.size)  # whoever reads the file finds whole records only
                raise OSError("the disk is full")
        except OSError as error:
            raise _unwritable(self._path, error) from None
        self.count += 1
        self.size += len(written)

    def renew(self, first: int, records: Sequence[bytes]) -> bool:
        """Replace the file by one with these records alone; where that fails, the present one stays in use."""
        content = b"".join(map(self._frame, (_FIRST + str(first).encode(), *records)))
        part = self._path.with_suffix(".part")
        descriptor = -1
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, FILE_MODE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.write(descriptor, content) != len(content):
                raise OSError("the disk is full")
            part.replace(self._path)
        except OSError as error:
            logger.warning("records that are stored stay in their file: %s", _unwritable(part, error))
            part.unlink(missing_ok=True)
            if descriptor >= 0:
                os.close(descriptor)
            return False
        os.close(self._descriptor)
        self._descriptor, self.count, self.size = descriptor, first + len(records), len(content)
        return True

    def close(self, *, discard: bool) -> None:
        if discard:
            remove_stored(self._path)
        os.close(self._descriptor)

    def left(self) -> Iterator[LeftRecords]:
        """Yield what processes that no longer run have left in this folder."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path != self._path:
                yield from self._left_in(path)

    def _left_in(self, path: Path) -> Iterator[LeftRecords]:
        try:
            with path.open("rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # a process that runs holds this lock
                if os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                    return  # it has replaced its file meanwhile
                records = tuple(self._records(path.stem, file.read()))
                if records and not any(records):
                    logger.warning("%s was written with the key of another database and is left as it is", path)
                    return
                yield _left(path, records)
        except BlockingIOError:
            return
        except OSError as error:
            logger.warning("%s cannot be read and is left as it is: %s", path, error)

    def _records(self, name: str, content: bytes) -> Iterator[bytes]:
        start = 0
        while len(content) >= start + LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(content[start : start + LENGTH_BYTES])
            if end > len(content):
                return  # the process was killed while it wrote
            yield self._opened(name, content[start + LENGTH_BYTES : end])
            start = end

    def _frame(self, record: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, record, self.name.encode())
        return len(sealed).to_bytes(LENGTH_BYTES) + sealed

    def _opened(self, name: str, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):
            return b""


def _left(path: Path, records: tuple[bytes, ...]) -> LeftRecords:
    first = records[0].removeprefix(_FIRST) if records and records[0].startswith(_FIRST) else None
    return (
        LeftRecords(path.stem, records, path)
        if first is None
        else LeftRecords(path.stem, records[1:], path, int(first))
    )


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{str(path)!r} cannot be written: {error}. Check disk space and permissions.")
