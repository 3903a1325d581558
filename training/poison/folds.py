"""Which families, voices, writers and servers each fold of the classifier's training leaves out."""

from dataclasses import dataclass
from typing import Any

import numpy as np

FAMILY_FOLDS, VOICE_FOLDS = 5, 3
SERVERS = 4
"""How many of the twentieths of the servers a fold leaves out."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What one classifier is not trained on; the final one is trained on everything."""

    name: str
    families: frozenset[str] = frozenset()
    voices: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    servers: frozenset[int] = frozenset()


def folds(names: dict[str, list[Any]]) -> list[Fold]:
    families = sorted({family for each, _, _ in names["learned"] for family in each} - {"hard_negative"})
    voices = sorted({voice for _, voice, _ in names["learned"]} - {"composed", "plain"})
    chance = np.random.RandomState(3)
    families, voices = list(chance.permutation(families)), list(chance.permutation(voices))
    kinds = [("family", {"families": frozenset(families[i::FAMILY_FOLDS])}) for i in range(FAMILY_FOLDS)]
    kinds += [("writer", {"sources": frozenset((source,))}) for source in ("a", "b", "d", "e", "own")]
    kinds += [("rules", {"sources": frozenset(("rules0",))})]
    kinds += [("voice", {"voices": frozenset(voices[i::VOICE_FOLDS])}) for i in range(VOICE_FOLDS)]
    found = [Fold("final")]
    for number, (kind, left) in enumerate(kinds):
        servers = frozenset((number * SERVERS + i) % 20 for i in range(SERVERS))
        same = sum(fold.name.startswith(kind) for fold in found)
        found.append(Fold(f"{kind}{same}", servers=servers, **left))
    return found


def learned(
    fold: Fold, raw: dict[str, np.ndarray], names: dict[str, list[Any]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the texts that a fold learns from: bad, good, and good ones of real tools."""
    servers = sorted(fold.servers)
    used = np.array(
        [
            not fold.families & set(families) and voice not in fold.voices and source not in fold.sources
            for families, voice, source in names["learned"]
        ]
    ) & ~np.isin(raw["learned_fold"], servers)
    owner = np.repeat(np.arange(len(raw["real_counts"])), raw["real_counts"])
    held = raw["real_passages"][np.isin(raw["real_fold"][owner], servers)]
    every_bad = raw["learned"][raw["learned_bad"]]
    bad = np.unique(raw["learned"][raw["learned_bad"] & used])
    unclear = np.union1d(held, every_bad)
    good = np.setdiff1d(raw["learned"][~raw["learned_bad"] & used], unclear)
    real = np.setdiff1d(np.setdiff1d(raw["real_passages"], unclear), good)
    return bad, good, real
