"""The audit log on disk: lines of JSON, one file a day and process, readable by its user only."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from shortlist.errors import StoreError
from shortlist.paths import private_folder
from shortlist.storage.audit import (
    CLOSED,
    AuditChain,
    AuditCheck,
    AuditLine,
    AuditLog,
    AuditRecord,
    check_trail,
    day_of,
    new_pseudonym,
    process_name,
    resolved,
    trail_day,
    trail_name,
)
from shortlist.storage.private import FILE_MODE, locked, read_private, write_private
from shortlist.storage.shared import Spool

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)


class AuditFiles:
    """All trails in a folder, and the one of this process: a record reaches the operating system before its call."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now
        self._people = Pseudonyms(folder)
        self._process = process_name()
        self._trail: AuditChain | None = None
        self._descriptor: int | None = None

    def log(self, spool: Callable[[], Spool]) -> AuditLog:  # noqa: ARG002 - files need none
        return self

    def record(self, record: AuditRecord) -> None:
        """Append one record; raise StoreError when it cannot be kept, and the chain stays as it was."""
        try:
            self._append(self._trail_at(record.at), record.line(self._people.of(record.principal)))
        except OSError as error:
            raise StoreError(
                f"The audit log in {str(self._folder)!r} cannot be written: {error}. Check disk space and permissions."
            ) from None

    def close(self) -> None:
        """Write the closing line of the file."""
        if self._descriptor is None or self._trail is None:
            return
        try:
            self._append(self._trail, {"action": CLOSED, "at": self._now()})
        except OSError:
            pass  # the chain ends here; verification reports that it was not closed
        finally:
            os.close(self._descriptor)
            self._descriptor = None

    def checks(self) -> tuple[AuditCheck, ...]:
        return tuple(_check(path) for path in self.paths())

    def records(self) -> Iterator[AuditLine]:
        people = {pseudonym: principal for principal, pseudonym in self._people.load().items()}
        for path in self.paths():
            with path.open(encoding="utf-8", errors="replace") as lines:
                yield from resolved(lines, people)

    def erase(self, principal: str) -> bool:
        return self._people.erase(principal)

    def prune(self, before: float) -> int:
        old = [path for path in self.paths() if trail_day(path.name) < day_of(before)]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def paths(self) -> Iterable[Path]:
        return sorted(self._folder.glob("audit-*.jsonl"))

    def people(self) -> dict[str, str]:
        """Return the pseudonyms by principal."""
        return self._people.load()

    def _trail_at(self, at: float) -> AuditChain:
        name = trail_name(at, self._process)
        if self._trail is None or self._descriptor is None or self._trail.name != name:
            self.close()
            private_folder(self._folder)
            if (self._folder / name).exists():  # the clock was set back to a day whose file is closed
                self._process = process_name()
                name = trail_name(at, self._process)
            self._descriptor = os.open(self._folder / name, _FLAGS, FILE_MODE)
            self._trail = AuditChain.begun(name)
        return self._trail

    def _append(self, trail: AuditChain, fields: dict[str, Any]) -> None:
        line, extended = trail.extended(fields)
        written = line.encode() + b"\n"
        if self._descriptor is None or os.write(self._descriptor, written) != len(written):
            raise OSError("the line was written in part; the disk may be full")
        self._trail = extended


class Pseudonyms:
    """Which pseudonym in the log stands for which principal, in a file that all processes of this user share."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "people.json"
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, str] = {}

    def of(self, principal: str) -> str:
        """Return the pseudonym of a principal; the first time, make one."""
        now = self._stamp()
        if now is None or now != self._seen:
            self._known, self._seen = self.load(), now
        if principal not in self._known:
            with locked(self._path):
                self._known = self.load()
                self._known.setdefault(principal, new_pseudonym())
                self._save(self._known)
            self._seen = self._stamp()
        return self._known[principal]

    def erase(self, principal: str) -> bool:
        with locked(self._path):
            known = self.load()
            found = known.pop(principal, None) is not None
            if found:
                self._save(known)
            return found

    def load(self) -> dict[str, str]:
        """Return the pseudonyms by principal."""
        try:
            content = read_private(self._path)
            known = json.loads(content) if content is not None else {}
            if not isinstance(known, dict) or not all(isinstance(name, str) for name in known.values()):
                raise ValueError("it does not hold pseudonyms")
            return known
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{str(self._path)!r} cannot be read ({error}). Restore the file or move it away."
            ) from None

    def _save(self, known: dict[str, str]) -> None:
        write_private(self._path, json.dumps(known, indent=1).encode())

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _check(path: Path) -> AuditCheck:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return check_trail(path.name, lines)
    except OSError as error:
        return AuditCheck(name=path.name, records=0, problem=f"the file cannot be read: {error}")
