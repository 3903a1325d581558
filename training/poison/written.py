"""Pairs of definitions, one poisoned and one honest, by the same hand: `written/*.jsonl`.

Each line has a pair's number, its label, family, voice, tone, language, and the tool. An honest one without a partner
is a hard negative. Files of one folder are by one writer; those of `e` stand alone, without partners.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.trust.definitions import ToolDefinition
from training.poison.folds import UNSORTED

FOLDER = Path(__file__).parent / "written"
UNSEEN = Path(__file__).parent / "unseen"
"""The folder of writers that the shipped classifier was not trained on, which it is measured on."""
FIRST_WRITERS = frozenset("abde")
"""Writers who named every family; what is not listed is a family of its own."""


@dataclass(frozen=True, slots=True)
class Written:
    """One definition of a pair."""

    writer: str
    pair: int
    poisoned: bool
    family: str
    voice: str
    tone: str
    language: str
    tool: dict[str, Any]
    server_instructions: str
    bad: tuple[str, ...] = ()
    """The poisoned parts of its texts, where they are marked."""

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(
            f"{self.writer}-{self.pair}", f"{self.writer}{self.pair}", self.tool, self.server_instructions
        )


@functools.cache
def rare_families() -> frozenset[str]:
    """Return the families that the training hardly knows."""
    return frozenset(family for family, _ in _rare_families())


def _rare_families() -> Iterator[tuple[str, list[str]]]:
    for line in (FOLDER.parent / "rare_families.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            known, _, names = line.partition(": ")
            yield known.split()[1], names.split()


@functools.cache
def same_family() -> dict[str, str]:
    """Return the corpus's name of each family that a writer calls otherwise: it is held out under all its names."""
    found: dict[str, str] = {}
    for line in (FOLDER.parent / "families.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            family, _, names = line.partition(": ")
            found |= dict.fromkeys((family, *names.split()), family)
    for family, others in _rare_families():
        found |= dict.fromkeys(others, family)
    return found


def family_of(writer: str, name: str, poisoned: bool) -> str:
    """Return the family of a definition by the name that its writer gave it."""
    own = name.replace("-", "_")
    other = own if writer in FIRST_WRITERS else UNSORTED if poisoned else "honest"
    return same_family().get(name, other)


def written(folder: Path = FOLDER) -> Sequence[Written]:
    """Read all pairs."""
    found = []
    for path in sorted(folder.glob("*/*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            raw = json.loads(line)
            writer, poisoned = path.parent.name, raw["label"] == "poisoned"
            found.append(
                Written(
                    writer,
                    raw["pair"],
                    poisoned,
                    family_of(writer, raw["family"], poisoned),
                    raw["voice"],
                    raw["tone"],
                    raw["language"],
                    raw["tool"],
                    raw.get("server_instructions", ""),
                    tuple(raw.get("bad", ())),
                )
            )
    return found
