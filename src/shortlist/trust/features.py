"""A run of sentences as numbers: its concepts, the patterns that they form, and how loud it is."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.trust.concepts import Concepts, concepts
from shortlist.trust.definitions import Neighbours, Sentence
from shortlist.trust.patterns import PATTERNS

_LOUD = re.compile(r"\b[A-Z]{4,}\b")
_REFERENCE = re.compile(r"`[^`\n]{2,60}`|\b[a-z0-9]+(?:_[a-z0-9]+){1,5}\b|\bmcp__?[a-z]")
LOUD_WORDS = frozenset(
    (
        "IMPORTANT",
        "CRITICAL",
        "MUST",
        "NEVER",
        "ALWAYS",
        "MANDATORY",
        "WARNING",
        "REQUIRED",
        "SYSTEM",
        "OVERRIDE",
        "URGENT",
    )
)
SCALARS = ("loud", "loud_words", "exclaims", "names_foreign_tool", "names_foreign_server", "in_schema", "short")
FEATURES: tuple[str, ...] = (
    *(f"has {name}" for name in concepts().names),
    *(f"together {name}" for name in PATTERNS),
    *(f"across {name}" for name in PATTERNS),
    *SCALARS,
)
Row = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Marked:
    """A sentence and the concepts in it."""

    sentence: Sentence
    concepts: int


def _compiled(known: Concepts) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (name, tuple(sum(known.bit[concept] for concept in group) for group in pattern.groups))
        for name, pattern in PATTERNS.items()
    )


_PATTERNS = _compiled(concepts())


@functools.lru_cache(maxsize=20_000)
def patterns_in(mask: int) -> NDArray[np.bool_]:
    """Return for each pattern whether all its concepts are present."""
    return np.array([all(mask & group for group in groups) for _, groups in _PATTERNS], np.bool_)


@functools.lru_cache(maxsize=20_000)
def _bits(mask: int) -> tuple[int, ...]:
    """Return 1 for each concept that is present, else 0."""
    return tuple(mask >> number & 1 for number in range(len(concepts().names)))


def features_of(window: Sequence[Marked], around: Neighbours, path: str) -> Row:
    """Return the features of a run of sentences."""
    row = np.zeros(len(FEATURES), np.float32)
    whole = 0
    together = np.zeros(len(_PATTERNS), np.bool_)
    for marked in window:
        whole |= marked.concepts
        if marked.concepts:
            together |= patterns_in(marked.concepts)
    known = len(concepts().names)
    row[:known] = _bits(whole)
    row[known : known + len(together)] = together
    row[known + len(together) : known + 2 * len(together)] = patterns_in(whole)
    row[-len(SCALARS) :] = _scalars(" ".join(marked.sentence.text for marked in window), around, path)
    return row


def _scalars(text: str, around: Neighbours, path: str) -> list[float]:
    loud = _LOUD.findall(text)
    named = {match.strip("`").lower() for match in _REFERENCE.findall(text)}
    words = set(text.lower().split()) if around.foreign_servers else set()
    return [
        min(len(loud), 8) / 8,
        min(sum(word in LOUD_WORDS for word in loud), 4) / 4,
        min(text.count("!"), 4) / 4,
        float(bool((named & around.foreign_tools) - around.own)),
        float(bool(words & around.foreign_servers)),
        float(path not in ("description", "server_instructions")),
        float(len(text) < 40),
    ]
