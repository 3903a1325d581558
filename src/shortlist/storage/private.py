"""Private files: readable by their owner alone from the first byte, replaced whole, never through a link."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shortlist.paths import READING, private_folder

FILE_MODE = 0o600
PROBE_BYTES = 64 * 1024
"""More than the first pages of every file that a gateway creates."""
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def read_private(path: Path) -> bytes | None:
    """Return the bytes of a file that is not a link; None where there is none."""
    try:
        descriptor = os.open(path, READING)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_private(path: Path, content: bytes) -> None:
    """Replace a file whole and wait until it is on disk: a power failure leaves the old content or the new."""
    private_folder(path.parent)
    replace_private(path, content, wait=True)


def replace_private(path: Path, content: bytes, *, wait: bool = False) -> None:
    """Replace a file whole: a reader sees the old content or the new, and a full disk leaves the old."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if wait:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def create_private(path: Path) -> None:
    """Create an empty file; an existing one is not opened.

    Closing any descriptor of a file releases all locks that this process holds on it, SQLite's included.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, FILE_MODE))


def writing_problem(folder: Path) -> str | None:
    """Return why nothing can be saved in a folder; None where a file can."""
    probe = folder / f".probe.{secrets.token_hex(6)}"
    try:
        write_private(probe, bytes(PROBE_BYTES))
        probe.unlink()
    except OSError as error:
        return f"nothing can be saved in {folder}: {error.strerror or error}"
    return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes respect while a file is read and replaced."""
    private_folder(path.parent)
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | _NO_LINKS, FILE_MODE)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


class PrivateLock:
    """A lock that other processes respect, for work that takes longer than replacing a file."""

    def __init__(self, path: Path) -> None:
        private_folder(path.parent)
        self._descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | _NO_LINKS, FILE_MODE)

    def try_acquire(self) -> bool:
        """Return whether the lock is ours now, without waiting."""
        return _lock(self._descriptor, wait=False)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where an exclusive open has to do
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
