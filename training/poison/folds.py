"""Which families, writers and servers each fold of the classifier's training leaves out."""

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

UNSORTED = "unsorted"
"""The family of definitions that are named by their form or their subject, not by what they ask for."""
FAMILY_FOLDS = 5
SERVER_FOLDS = 20
WRITERS = (
    *map(tuple, ("aglo", "bhmp", "dinq", "ejk", "tuvw", "crx", "fsy")),
    ("ab", "ae", "ah", "ak", "z"),
    ("aa", "ad", "ag", "al"),
    ("ac", "af", "ai", "aj", "am", "z2"),
    ("ba", "bc", "bd", "bf", "bk"),
    ("bb", "be", "bg", "bi", "bj", "bl", "bm"),
    ("bo", "bp", "bq", "br"),
    ("bs", "bt", "bv", "bw"),
    ("bh", "bn", "ca", "cb", "cc"),
    ("cd", "ce", "cf", "cg", "ch", "ci"),
    ("da", "db", "dc", "dd", "de"),
    ("df", "dg", "dk", "dl", "dm", "dn"),
    ("dh", "di", "dj", "do", "dp", "dq", "dr", "ds"),
)
"""The writers that are left out together."""
SERVERS = 4
"""How many of the twentieths of the servers a fold leaves out."""
SERVERS_OF_FINAL = frozenset({17, 18, 19})
"""The twentieths that the final one leaves out: thresholds are chosen on their tools."""
UNSEEN_WRITERS = frozenset(path.name for path in (Path(__file__).parent / "unseen").iterdir())
"""The writers that every fold leaves out, to measure the shipped classifier on."""


def server_fold(server: str) -> int:
    """Return the twentieth that a server belongs to."""
    return int.from_bytes(blake2b(server.encode(), digest_size=4).digest(), "big") % SERVER_FOLDS


@dataclass(frozen=True, slots=True)
class Fold:
    """What is not trained on, besides the unseen writers; `final` only leaves out tools of some servers."""

    name: str
    families: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    servers: frozenset[int] = frozenset()


def folds(names: dict[str, list[Any]]) -> list[Fold]:
    """Return the folds; those of families leave out what is unsorted too, which may belong to any of them."""
    families = sorted({family for each, _, _ in names["learned"] for family in each} - {"hard_negative", UNSORTED})
    families = list(np.random.RandomState(3).permutation(families))
    kinds = [("family", {"families": frozenset((*families[i::FAMILY_FOLDS], UNSORTED))}) for i in range(FAMILY_FOLDS)]
    kinds += [("writer", {"sources": frozenset(together)}) for together in WRITERS]
    kinds[FAMILY_FOLDS][1]["sources"] |= {"rules0"}
    found = [Fold("final", servers=SERVERS_OF_FINAL)]
    for number, (kind, left) in enumerate(kinds):
        servers = frozenset((number * SERVERS + i) % 20 for i in range(SERVERS))
        same = sum(fold.name.startswith(kind) for fold in found)
        found.append(Fold(f"{kind}{same}", servers=servers, **left))
    return found


class Glosses:
    """What texts in other languages say in English, which is learned beside them."""

    def __init__(self, names: dict[str, list[Any]]) -> None:
        self.later: dict[int, list[int]] = {}
        self.text_of: dict[int, int] = {}
        for row, text in names["later"]:
            self.later.setdefault(text, []).append(row)
            self.text_of[row] = text
        self.glosses: dict[int, int] = dict(names["glosses"])

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of the glosses of texts, of which rows are given."""
        texts = {self.text_of.get(row, row) for row in rows.tolist()}
        said = [self.glosses[text] for text in texts if text in self.glosses]
        return np.array(sorted(row for text in said for row in (text, *self.later.get(text, ()))), np.int64)


def learned(
    fold: Fold, raw: dict[str, np.ndarray], names: dict[str, list[Any]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the texts that a fold learns from: bad, good, and good ones of real tools."""
    servers = sorted(fold.servers)
    used = np.array(
        [
            not fold.families & set(families) and source not in fold.sources | UNSEEN_WRITERS
            for families, _, source in names["learned"]
        ]
    ) & ~np.isin(raw["learned_fold"], servers)
    owner = np.repeat(np.arange(len(raw["real_counts"])), raw["real_counts"])
    held = raw["real_passages"][np.isin(raw["real_fold"][owner], servers)]
    every_bad = raw["learned"][raw["learned_bad"]]
    bad = np.unique(raw["learned"][raw["learned_bad"] & used])
    unclear = np.union1d(held, every_bad)
    good = np.setdiff1d(raw["learned"][~raw["learned_bad"] & used], unclear)
    real = np.setdiff1d(np.setdiff1d(raw["real_passages"], unclear), good)
    said = Glosses(names)
    bad = np.union1d(bad, said.of(bad))
    good = np.setdiff1d(np.union1d(good, said.of(good)), bad)
    unclear = np.union1d(unclear, said.of(unclear))
    return bad, good, np.setdiff1d(np.setdiff1d(np.union1d(real, said.of(real)), unclear), good)
