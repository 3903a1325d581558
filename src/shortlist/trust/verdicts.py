"""Verdicts on definitions and their reasons; the scanner itself is imported when something has to be judged."""

import functools
import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
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
    """Return a digest of the scanner's code and data; what was accepted under another one is scanned again."""
    return digest_of(resources.files("shortlist.trust"))


def digest_of(package: Traversable) -> str:
    """Return a digest of the modules of a package and of its data."""
    modules = [file for file in package.iterdir() if file.name.endswith(".py")]
    files = [*modules, *(file for file in package.joinpath("data").iterdir() if file.is_file())]
    digest = hashlib.sha256()
    for name, content in sorted((file.name, file.read_bytes()) for file in files):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


class DefinitionScanner(Protocol):
    """Judges one definition at a time."""

    def scan(self, definition: ToolDefinition, around: Neighbours = ...) -> ScanVerdict: ...
