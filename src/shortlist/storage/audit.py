"""The audit log: records of decisions, each chained to the one before it by a hash, in trails that one process writes.

Principals are written as pseudonyms; the store says whose they are, and a person can be erased from it. A changed,
removed or inserted line breaks the chain where it stands. A trail that was cut off at its end lacks its closing line,
unless the process that writes it is still running or was killed.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, Self, TypeAlias

from shortlist.storage.shared import Spool

CLOSED = "closed"
_CHAIN = ("seq", "prev", "hash")
AuditDecision: TypeAlias = Literal["allowed", "refused"]
AuditLine: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One decision. Hashes stand for what may be private: the definition that was in force, and the arguments."""

    at: float
    principal: str
    action: str
    decision: AuditDecision
    server: str = ""
    tool: str = ""
    why: str = ""
    outcome: str = ""
    definition: str = ""
    """The content hash of the tool's definition."""
    program: str = ""
    """The program that made the request; empty for one from outside."""
    arguments_hash: str = ""
    arguments: str | None = None
    """The arguments themselves, where the configuration keeps them."""

    def line(self, pseudonym: str) -> AuditLine:
        """Return what is written of the record; empty fields are left out."""
        fields = {**asdict(self), "principal": pseudonym}
        return {key: value for key, value in fields.items() if value not in ("", None)}


class AuditLog(Protocol):
    """Where the audit records of one process go; `record` raises StoreError when one cannot be kept."""

    def record(self, record: AuditRecord) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """What verification found in one trail."""

    name: str
    records: int
    problem: str = ""
    closed: bool = False


class AuditStore(Protocol):
    """The audit records of all processes; every method raises StoreError where it cannot act."""

    def log(self, spool: Callable[[], Spool]) -> AuditLog:
        """Return the log of this process. A shared store takes a spool, for records that it has not received yet."""
        ...

    def checks(self) -> tuple[AuditCheck, ...]:
        """Verify the chain of every trail."""
        ...

    def records(self) -> Iterable[AuditLine]:
        """Yield the records of all trails without the chain; a pseudonym is resolved, unless its person was erased."""
        ...

    def erase(self, principal: str) -> bool:
        """Forget whose pseudonym it was, and return whether there was one; records that name it stay."""
        ...

    def prune(self, before: float) -> int:
        """Remove whole trails of days before a time; return how many."""
        ...


@dataclass(frozen=True, slots=True)
class AuditChain:
    """A chain of lines up to its present end, which the next line refers to."""

    name: str
    count: int
    last: str
    """The hash of the last line."""

    @classmethod
    def begun(cls, name: str) -> Self:
        """Return a trail without lines; it begins with a hash of its name, so that no line fits into another one."""
        return cls(name, 0, hashlib.sha256(name.encode()).hexdigest())

    @classmethod
    def up_to(cls, name: str, line: str) -> Self:
        """Return the trail whose last line this is."""
        found = json.loads(line)
        return cls(name, found["seq"] + 1, found["hash"])

    def extended(self, fields: Mapping[str, Any]) -> tuple[str, Self]:
        """Return the next line as JSON, and the trail with it."""
        line = {"seq": self.count, "prev": self.last, **fields}
        digest = _hash(line)
        text = json.dumps({**line, "hash": digest}, separators=(",", ":"))
        return text, replace(self, count=self.count + 1, last=digest)


def trail_name(at: float, process: str) -> str:
    """Return the name of the trail that a process writes on a day."""
    return f"audit-{day_of(at)}-{process}.jsonl"


def day_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def trail_day(name: str) -> str:
    return name[6:16]


def process_name() -> str:
    """Return a name for the trails of this process that no other process uses."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def new_pseudonym() -> str:
    return f"p-{secrets.token_hex(8)}"


def check_trail(name: str, lines: Iterable[str]) -> AuditCheck:
    """Verify the chain of a trail, line by line."""
    last, count, closed = AuditChain.begun(name).last, 0, False
    for number, text in enumerate(lines, 1):
        line = parsed_line(text)
        if line is None:
            return AuditCheck(name=name, records=count, problem=f"line {number} is not a record")
        if closed or line.get("seq") != count or line.get("prev") != last or line.get("hash") != _hash(line):
            return AuditCheck(name=name, records=count, problem=f"line {number} does not fit the chain")
        last, count, closed = line["hash"], count + 1, line.get("action") == CLOSED
    return AuditCheck(name=name, records=count - closed, closed=closed)


def resolved(lines: Iterable[str], people: Mapping[str, str]) -> Iterable[AuditLine]:
    """Yield the records of lines; `people` are the principals by their pseudonyms."""
    for text in lines:
        line = parsed_line(text)
        if line is not None and line.get("action") != CLOSED:
            fields = {key: value for key, value in line.items() if key not in _CHAIN}
            pseudonym = fields.get("principal", "")
            yield {**fields, "principal": people.get(pseudonym, pseudonym)}


def parsed_line(text: str) -> AuditLine | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _hash(line: AuditLine) -> str:
    kept = {key: value for key, value in line.items() if key != "hash"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
