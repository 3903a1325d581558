"""Saved programs: what is kept of one, and the stores that keep them in memory, in a file or in PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from shortlist.models import Json, ToolId
from shortlist.storage.sqlite import OwnFile

Writing: TypeAlias = Literal["read", "write"]

_SCHEMA = ("CREATE TABLE programs (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT",)
_REMEDY = "If the file is damaged, move it away: saved programs then have to be saved and approved again."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgram:
    """A program under a name; it is offered once somebody has approved it."""

    name: str
    source: str
    description: str
    parameters: Mapping[str, Json] = field(default_factory=dict)
    """The default value of each parameter, by name."""
    tools: tuple[ToolId, ...] = ()
    """The only tools that it may call."""
    saved: float
    """Seconds since 1970."""
    approved_by: str = ""
    """Empty until it is approved."""
    allow: Writing = "read"
    """`write`: whoever approved it lets it call tools that may write without asking the user."""


class ProgramStore(Protocol):
    """Saved programs by name, shared by all processes of this user; raises StoreError where they cannot be read."""

    def load(self) -> Mapping[str, StoredProgram]: ...

    def put(self, program: StoredProgram) -> None:
        """Add a program, or replace the one of the same name."""
        ...

    def remove(self, name: str) -> bool:
        """Remove a program; return whether there was one."""
        ...


class MemoryPrograms:
    """Programs for a gateway without a data folder."""

    def __init__(self, *programs: StoredProgram) -> None:
        self._programs = {program.name: program for program in programs}

    def load(self) -> Mapping[str, StoredProgram]:
        return dict(self._programs)

    def put(self, program: StoredProgram) -> None:
        self._programs[program.name] = program

    def remove(self, name: str) -> bool:
        return self._programs.pop(name, None) is not None


class SqlitePrograms:
    """One row per program, in a file of its own. Every error is a StoreError."""

    def __init__(self, path: Path) -> None:
        self._file = OwnFile(path, _SCHEMA, remedy=_REMEDY)

    def load(self) -> Mapping[str, StoredProgram]:
        with self._file.opened() as connection:
            sql = "SELECT document FROM programs ORDER BY name"
            return {} if connection is None else programs_of([row[0] for row in connection.execute(sql)])

    def put(self, program: StoredProgram) -> None:
        with self._file.opened(create=True) as connection:
            row = (program.name, program_text(program))
            connection.execute("INSERT OR REPLACE INTO programs VALUES (?, ?)", row)

    def remove(self, name: str) -> bool:
        with self._file.opened() as connection:
            sql = "DELETE FROM programs WHERE name = ?"
            return connection is not None and connection.execute(sql, (name,)).rowcount > 0


def program_text(program: StoredProgram) -> str:
    """Return a program as JSON."""
    return json.dumps(asdict(program), ensure_ascii=False)


def programs_of(documents: Sequence[str]) -> dict[str, StoredProgram]:
    """Read programs that were written as JSON, by name."""
    parsed = [json.loads(document) for document in documents]
    found = [StoredProgram(**{**each, "tools": tuple(each["tools"])}) for each in parsed]
    return {program.name: program for program in found}
