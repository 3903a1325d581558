"""Verdicts on definitions and their reasons; the scanner itself is imported when something has to be judged."""

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal, Protocol, TypeAlias

from shortlist.trust.definitions import Neighbours, ToolDefinition

Severity: TypeAlias = Literal["clean", "suspicious", "dangerous"]
LEVELS: tuple[Severity, ...] = ("clean", "suspicious", "dangerous")
OVERSIZED = "oversized"
"""The family of definitions that are too large to be read whole."""


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
    """Return a digest of all that a verdict depends on; what was accepted under another one is scanned again.

    That is the scanner's code and data, the classifier's, and whether a runtime for the classifier is installed.
    """
    package = resources.files("shortlist")
    classifier = (package / "index" / "passages.py", package / "weights" / "scanner" / "model.json")
    runtime = "with" if importlib.util.find_spec("onnxruntime") else "without"
    return digest_of(package / "trust", *classifier, note=f"{runtime} a classifier")


def digest_of(package: Traversable, *more: Traversable, note: str = "") -> str:
    """Return a digest of the modules of a package, of its data, of other files, and of a note."""
    modules = [file for file in package.iterdir() if file.name.endswith(".py")]
    files = [*modules, *(file for file in package.joinpath("data").iterdir() if file.is_file()), *more]
    digest = hashlib.sha256(note.encode())
    for name, content in sorted((file.name, file.read_bytes()) for file in files):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


class DefinitionScanner(Protocol):
    """Judges one definition at a time."""

    def scan(self, definition: ToolDefinition, around: Neighbours = ...) -> ScanVerdict: ...
