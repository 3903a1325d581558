"""Verdicts on definitions and their reasons; the scanner itself is imported when something has to be judged."""

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, Protocol, TypeAlias

from shortlist.trust.definitions import Neighbours, ToolDefinition

Severity: TypeAlias = Literal["clean", "suspicious", "dangerous"]
LEVELS: tuple[Severity, ...] = ("clean", "suspicious", "dangerous")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a definition is not clean: which family of attack, where, and in words."""

    family: str
    field: str
    span: tuple[int, int]
    why: str
    level: Severity = "suspicious"

    def shown(self) -> dict[str, Any]:
        return {"family": self.family, "field": self.field, "span": list(self.span), "why": self.why}


@dataclass(frozen=True, slots=True)
class ScanVerdict:
    """What the scanner makes of a definition; the gravest reasons come first."""

    level: Severity = "clean"
    reasons: tuple[Reason, ...] = ()


@functools.cache
def scanner_version() -> str:
    """Return a digest of the scanner's data; definitions that were accepted under another one are scanned again."""
    data = resources.files("shortlist.trust").joinpath("data")
    files = sorted((file.name, file.read_bytes()) for file in data.iterdir() if file.is_file())
    return hashlib.sha256(b"".join(name.encode() + content for name, content in files)).hexdigest()[:16]


class DefinitionScanner(Protocol):
    """Judges one definition at a time."""

    def scan(self, definition: ToolDefinition, around: Neighbours = ...) -> ScanVerdict: ...
