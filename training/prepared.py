"""What `training.data` wrote, as arrays: all that the stages after it read."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]
NOTHING = -1
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RankingSet:
    """Queries against a pool of texts; `golds` counts exact tools, `groups` any equivalent once."""

    name: str
    texts: tuple[str, ...]
    queries: tuple[str, ...]
    golds: tuple[tuple[tuple[int, ...], ...], ...]
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Pairs and texts by number; `right` lists every group that answers a query, however it was drawn."""

    queries: tuple[str, ...]
    kinds: tuple[str, ...]
    positives: Numbers
    right: Numbers
    parts: Numbers
    """The pairs that each is made of: an errand of several, any other of itself."""
    texts: tuple[str, ...]
    groups: Numbers
    negatives: NDArray[np.bool_]


def read_training(folder: Path, largest: int | None = None) -> TrainingSet:
    """Read pairs and texts; `largest` keeps an even sample for a smoke run."""
    texts = _lines(folder / "texts.jsonl.gz")
    pairs = _lines(folder / "pairs.jsonl.gz")
    if largest:
        pairs = _sample(pairs, largest)
        texts = _only_used(texts, pairs)
    groups = np.array([text["g"] for text in texts], np.int32)
    answers: defaultdict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        answers[pair["q"].casefold()].update(int(groups[number]) for number in pair["p"])
    return TrainingSet(
        queries=tuple(pair["q"] for pair in pairs),
        kinds=tuple(pair["k"] for pair in pairs),
        positives=padded([pair["p"] for pair in pairs]),
        right=padded([sorted(answers[pair["q"].casefold()]) for pair in pairs], longest=12),
        parts=padded([pair.get("c", [row]) for row, pair in enumerate(pairs)]),
        texts=tuple(text["t"] for text in texts),
        groups=groups,
        negatives=np.array([text["n"] for text in texts], bool),
    )


def _sample(pairs: list[Record], count: int) -> list[Record]:
    """Take every so many, with the parts of the errands among them, and number the parts anew."""
    taken = set(range(0, len(pairs), max(1, len(pairs) // count)))
    taken |= {part for row in taken for part in pairs[row].get("c", ())}
    place = {row: index for index, row in enumerate(sorted(taken))}
    sample = [pairs[row] for row in sorted(taken)]
    return [pair | {"c": [place[part] for part in pair["c"]]} if "c" in pair else pair for pair in sample]


def _only_used(texts: list[Record], pairs: list[Record]) -> list[Record]:
    """Keep the texts that the pairs name and number them anew."""
    used = sorted({number for pair in pairs for number in pair["p"]})
    place = {number: index for index, number in enumerate(used)}
    for pair in pairs:
        pair["p"] = [place[number] for number in pair["p"]]
    return [texts[number] for number in used]


def read_sets(path: Path, most_queries: int | None = None, most_texts: int | None = None) -> tuple[RankingSet, ...]:
    sets = (_set_of(record, most_queries) for record in _lines(path))
    return tuple(each for each in sets if most_texts is None or len(each.texts) <= most_texts)


def padded(rows: list[list[int]], longest: int | None = None) -> Numbers:
    """Write ragged rows as one array, filled up with `NOTHING`."""
    width = min(max(map(len, rows)), longest or 2**31)
    table = np.full((len(rows), width), NOTHING, np.int32)
    for index, row in enumerate(rows):
        kept = row[:width]
        table[index, : len(kept)] = kept
    return table


def _set_of(record: Record, most: int | None) -> RankingSet:
    cases = record["cases"][: most or None]
    return RankingSet(
        name=str(record["name"]),
        texts=tuple(map(str, record["texts"])),
        queries=tuple(str(case["q"]) for case in cases),
        golds=tuple(tuple((number,) for number in case["g"]) for case in cases),
        groups=tuple(tuple(map(tuple, case["e"])) for case in cases),
        splits=tuple(str(case["s"]) for case in cases),
    )


def _lines(path: Path) -> list[Record]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
