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
        self._folder = private_folder(folder)
        self._cipher = AESGCM(key)
        self._begin()

    def append(self, record: bytes) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, record, self.name.encode())
        written = len(sealed).to_bytes(LENGTH_BYTES) + sealed
        try:
            if os.write(self._descriptor, written) != len(written):
                raise OSError("the disk is full")
        except OSError as error:
            raise StoreError(f"{self._path}: {error}. Check disk space and permissions.") from None
        self.count += 1
        self.size += len(written)

    def renew(self) -> None:
        """Begin a new file; everything in the present one has reached the store."""
        self.close(discard=True)
        self._begin()

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
        self.name = secrets.token_hex(16)
        self.count = self.size = 0
        self._path = self._folder / f"{self.name}{SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor = os.open(self._path, flags, FILE_MODE)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def _left_in(self, path: Path) -> Iterator[LeftRecords]:
        try:
            with path.open("rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # a process that runs holds this lock
                yield LeftRecords(path.stem, tuple(self._records(path.stem, file.read())), path)
        except BlockingIOError:
            return
        except (OSError, InvalidTag):
            logger.warning("%s cannot be read and is left as it is: it was written with the key of another store", path)

    def _records(self, name: str, content: bytes) -> Iterator[bytes]:
        start = 0
        while len(content) >= start + LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(content[start : start + LENGTH_BYTES])
            if end > len(content):
                return  # the process was killed while it wrote
            sealed = content[start + LENGTH_BYTES : end]
            yield self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
            start = end
