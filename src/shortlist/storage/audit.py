"""The audit log on disk: lines of JSON, each chained to the one before it by a hash, one file a day and process.

Principals are written as pseudonyms; the file `people.json` says whose they are, and a person can be erased from it.
A changed, removed or inserted line breaks the chain where it stands. A file that was cut off at its end lacks its
closing line, unless the process that writes it is still running or was killed.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shortlist.errors import StoreError
from shortlist.storage.port import AuditRecord
from shortlist.storage.private import FILE_MODE, locked, private_folder, read_private, write_private

CLOSED = "closed"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)


class AuditFiles:
    """Appends records; each is flushed to the operating system before its call continues."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now
        self._people = Pseudonyms(folder)
        self._process = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._day = ""
        self._descriptor: int | None = None
        self._last = ""
        self._count = 0

    def record(self, record: AuditRecord) -> None:
        """Append one record; raises StoreError when it cannot be kept, and the chain stays as it was."""
        try:
            self._turn_page(record.at)
            fields = {**asdict(record), "principal": self._people.of(record.principal)}
            self._append({key: value for key, value in fields.items() if value not in ("", None)})
        except OSError as error:
            raise StoreError(
                f"The audit log in {str(self._folder)!r} cannot be written: {error}. Check disk space and permissions."
            ) from None

    def close(self) -> None:
        """Write the closing line of the file."""
        if self._descriptor is None:
            return
        try:
            self._append({"action": CLOSED, "at": self._now()})
        except OSError:
            pass  # the chain ends here; verification reports that it was not closed
        finally:
            os.close(self._descriptor)
            self._descriptor = None

    def _turn_page(self, at: float) -> None:
        day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
        if day == self._day and self._descriptor is not None:
            return
        self.close()
        private_folder(self._folder)
        path = self._folder / f"audit-{day}-{self._process}.jsonl"
        self._descriptor = os.open(path, _FLAGS, FILE_MODE)
        self._day, self._last, self._count = day, _start(path), 0

    def _append(self, fields: dict[str, Any]) -> None:
        line = {"seq": self._count, "prev": self._last, **fields}
        digest = _hash(line)
        written = json.dumps({**line, "hash": digest}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        if self._descriptor is None or os.write(self._descriptor, written) != len(written):
            raise OSError("the line was written in part; the disk may be full")
        self._last, self._count = digest, self._count + 1


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
                self._known.setdefault(principal, f"p-{secrets.token_hex(8)}")
                self._save(self._known)
            self._seen = self._stamp()
        return self._known[principal]

    def erase(self, principal: str) -> bool:
        """Forget whose pseudonym it was, and return whether there was one; records that name it stay."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """What verification found in one file."""

    path: Path
    records: int
    problem: str = ""
    closed: bool = False


def verify_audit(folder: Path) -> tuple[AuditCheck, ...]:
    """Check the chain of every file; a file that cannot be read is a problem of its own."""
    return tuple(_check(path) for path in sorted(folder.glob("audit-*.jsonl")))


def read_audit(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of all files in order of their files, without the chain's own members.

    A pseudonym is replaced by the principal it stands for, unless that was erased.
    """
    people = {pseudonym: principal for principal, pseudonym in Pseudonyms(folder).load().items()}
    for path in sorted(folder.glob("audit-*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                line = _parsed(text)
                if line is not None and line.get("action") != CLOSED:
                    fields = {key: value for key, value in line.items() if key not in ("seq", "prev", "hash")}
                    yield {**fields, "principal": people.get(fields.get("principal", ""), fields.get("principal", ""))}


def prune_audit(folder: Path, days: float, now: float) -> int:
    """Remove whole files that are older than the retention; return how many."""
    limit = datetime.fromtimestamp(now - days * 86_400, UTC).strftime("%Y-%m-%d")
    old = [path for path in folder.glob("audit-*.jsonl") if path.name[6:16] < limit]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _check(path: Path) -> AuditCheck:
    last, count, closed = _start(path), 0, False
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, text in enumerate(lines, 1):
                line = _parsed(text)
                if line is None:
                    return AuditCheck(path=path, records=count, problem=f"line {number} is not a record")
                if closed or line.get("seq") != count or line.get("prev") != last or line.get("hash") != _hash(line):
                    return AuditCheck(path=path, records=count, problem=f"line {number} does not fit the chain")
                last, count, closed = line["hash"], count + 1, line.get("action") == CLOSED
    except OSError as error:
        return AuditCheck(path=path, records=count, problem=f"the file cannot be read: {error}")
    return AuditCheck(path=path, records=count - closed, closed=closed)


def _start(path: Path) -> str:
    """Return what a file's chain begins with: its name, so that no line fits into another file."""
    return hashlib.sha256(path.name.encode()).hexdigest()


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _hash(line: dict[str, Any]) -> str:
    kept = {key: value for key, value in line.items() if key != "hash"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
