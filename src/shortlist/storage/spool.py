"""Records on their way to a shared store, in a file of their own: they survive a process that is killed.

The file is encrypted with a key of the store, so that it reveals nothing to somebody who has only this disk. Whoever
starts next with the same folder sends what the store does not have yet.
"""

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shortlist.errors import StoreError
from shortlist.storage.private import FILE_MODE, private_folder
from shortlist.storage.shared import LeftRecords

NONCE_BYTES = 12
LENGTH_BYTES = 4
SUFFIX = ".spool"

logger = logging.getLogger(__name__)


class SpoolFile:
    """Appends records to the file of this process; each reaches the operating system before `append` returns."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._cipher = AESGCM(key)
        self._begin()

    def append(self, record: bytes) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, record, self.name.encode())
        written = len(sealed).to_bytes(LENGTH_BYTES) + sealed
        try:
            if os.write(self._descriptor, written) != len(written):
                os.ftruncate(self._descriptor, self.size)  # whoever reads the file finds whole records only
                raise OSError("the disk is full")
        except OSError as error:
            raise _unwritable(self._path, error) from None
        self.count += 1
        self.size += len(written)

    def renew(self) -> None:
        """Continue in a new file, since everything in the present one has reached the store."""
        path, descriptor = self._path, self._descriptor
        try:
            self._begin()
        except StoreError as error:
            logger.warning("records still go to a file that could have been removed: %s", error)
            return
        path.unlink(missing_ok=True)
        os.close(descriptor)

    def close(self, *, discard: bool) -> None:
        if discard:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def left(self) -> Iterator[LeftRecords]:
        """Yield what processes that no longer run have left in this folder."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path != self._path:
                yield from self._left_in(path)

    def _begin(self) -> None:
        """Open a new file; where that fails, the present one stays in use."""
        name = secrets.token_hex(16)
        path = self._folder / f"{name}{SUFFIX}"
        try:
            private_folder(self._folder)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise _unwritable(path, error) from None
        self.name, self._path, self._descriptor = name, path, descriptor
        self.count = self.size = 0

    def _left_in(self, path: Path) -> Iterator[LeftRecords]:
        try:
            with path.open("rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # a process that runs holds this lock
                left = LeftRecords(path.stem, tuple(self._records(path.stem, file.read())), path)
                if left.records and not any(left.records):
                    logger.warning("%s was written with the key of another database and is left as it is", path)
                    return
                yield left
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

    def _opened(self, name: str, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):
            return b""


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{str(path)!r} cannot be written: {error}. Check disk space and permissions.")
