"""Proof that nothing of `eval/` is trained on: exact and near-duplicate queries, and texts of right tools.

Two depths share one idea of sameness. With the data at hand, candidates from a dense set of hash bands
are confirmed by their true character-gram overlap. Without it (continuous integration), the committed
sketches are compared: hashes of every query, and coarser bands for the queries that people wrote.

The development requests in the repository (chats, pastes, wishes, hints, real servers) are compared with everything
that something is fitted on: the training queries by their sketch, and the written conversations by their text. The
development requests in other languages are compared with the training ones where the data is at hand.
"""

import argparse
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.library.messages import read_turns
from training.bench import UNION_SETS, Folder, data_folder, folders, read_lines
from training.lexicon import training_pairs
from training.texts import digest, normalised, tool_key

GRAM = 5
NEAR = 0.8
EXACT_BYTES = 5
DENSE_ROWS, DENSE_BANDS = 3, 8
COARSE_ROWS, COARSE_BANDS = 5, 4
EVAL_FILE = Path(__file__).with_name("leakage_hashes.npz")
TRAIN_FILE = Path(__file__).with_name("train_hashes.npz")
CONVERSATIONS = tuple(Path(__file__).parent / "data" / f"{name}.jsonl" for name in ("conversations", "chats"))
PIECES = tuple(CONVERSATIONS[0].with_name(f"{name}.jsonl") for name in ("asks", "material", "pasted"))
UNDERSTANDING = Path(__file__).parents[1] / "benchmarks" / "understanding" / "data"
DEVELOPMENT = (
    "chats",
    "pastes",
    "further",
    "second",
    "third",
    "fourth",
    "fifth",
    "unseen",
    "wishes",
    "real_wishes",
    "hints",
    "real",
    "unservable",
)

Bands = NDArray[np.uint32]
_RANDOM = np.random.default_rng(20240817)
_SLOPES = _RANDOM.integers(2**62, 2**64 - 1, DENSE_ROWS * DENSE_BANDS, dtype=np.uint64) | np.uint64(1)
_OFFSETS = _RANDOM.integers(0, 2**64 - 1, DENSE_ROWS * DENSE_BANDS, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Sketch:
    """What can be published of a set of queries and tools: hashes, from which no text comes back."""

    exact: NDArray[np.uint64]
    coarse: Bands
    tools: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many training entries collide with evaluation data."""

    exact: int
    near: int
    tools: int

    @property
    def clean(self) -> bool:
        return not (self.exact or self.near or self.tools)


def grams(text: str) -> frozenset[str]:
    """Return the character grams of the normalised text; they work for every script."""
    plain = f" {normalised(text)} "
    return frozenset(plain[start : start + GRAM] for start in range(max(1, len(plain) - GRAM + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def min_hashes(text: str) -> NDArray[np.uint64]:
    raw = np.fromiter((zlib.crc32(gram.encode()) for gram in grams(text)), np.uint64)
    mixed = raw[:, None] * _SLOPES + _OFFSETS
    return np.asarray((mixed >> np.uint64(32)).min(axis=0))


def bands(signature: NDArray[np.uint64], rows: int, count: int) -> list[int]:
    used = signature[: rows * count].reshape(count, rows)
    return [zlib.crc32(bytes([index]) + row.tobytes()) for index, row in enumerate(used)]


def coarse_bands(text: str) -> list[int]:
    return bands(min_hashes(text), COARSE_ROWS, COARSE_BANDS)


def exact_hash(text: str) -> int:
    return int(digest(text)[: 2 * EXACT_BYTES], 16)


class EvaluationGuard:
    """Recognises evaluation queries, near-duplicates of them, and the tools they ask for."""

    def __init__(self, evaluation: Sequence[Folder]) -> None:
        self.queries = sorted({case.query for folder in evaluation for case in folder.cases})
        self._plain = {normalised(query) for query in self.queries}
        self._buckets: defaultdict[int, list[int]] = defaultdict(list)
        self._coarse: set[int] = set()
        for index, query in enumerate(self.queries):
            signature = min_hashes(query)
            self._coarse.update(bands(signature, COARSE_ROWS, COARSE_BANDS))
            for band in bands(signature, DENSE_ROWS, DENSE_BANDS):
                self._buckets[band].append(index)
        judged = [folder for folder in evaluation if folder.name not in UNION_SETS]
        self.gold_keys = frozenset(
            tool_key(folder.by_id[tool_id]) for folder in judged for case in folder.cases for tool_id in case.gold
        )
        self.catalog_keys = frozenset(tool_key(tool) for folder in judged for tool in folder.tools)

    def is_same(self, query: str) -> bool:
        return normalised(query) in self._plain

    def is_near(self, query: str) -> bool:
        """Return whether the grams overlap an evaluation query's, or the coarse sketch cannot rule it out."""
        signature = min_hashes(query)
        if any(band in self._coarse for band in bands(signature, COARSE_ROWS, COARSE_BANDS)):
            return True
        found = {i for band in bands(signature, DENSE_ROWS, DENSE_BANDS) for i in self._buckets.get(band, ())}
        own = grams(query)
        return any(jaccard(own, grams(self.queries[index])) >= NEAR for index in found)

    def sketch(self) -> Sketch:
        return sketch_of(self.queries, self.queries, self.gold_keys)


def sketch_of(queries: Iterable[str], written: Iterable[str], tool_keys: Iterable[str]) -> Sketch:
    """Sketch all `queries` exactly and the `written` ones coarsely as well."""
    coarse = np.array(sorted({tuple(coarse_bands(text)) for text in written}), np.uint32)
    return Sketch(
        _hashes(normalised(query) for query in queries),
        coarse.reshape(-1, COARSE_BANDS),
        _hashes(tool_keys),
    )


def _hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    return np.array(sorted({exact_hash(text) for text in texts}), np.uint64)


def overlap(train: Sketch, evaluation: Sketch) -> Overlap:
    near = sum(int(np.isin(train.coarse[:, band], evaluation.coarse[:, band]).sum()) for band in range(COARSE_BANDS))
    exact = np.intersect1d(train.exact, evaluation.exact).size
    return Overlap(int(exact), near, int(np.intersect1d(train.tools, evaluation.tools).size))


def development_requests() -> list[str]:
    """Return every request that `benchmarks.understanding` measures on, a chat as all that its user says."""
    return [_said(case) for name in DEVELOPMENT for case in _cases(UNDERSTANDING / f"{name}.jsonl")]


def development_asks() -> list[str]:
    """Return the requests that stand beside pasted text there, alone."""
    cases = (case for name in DEVELOPMENT for case in _cases(UNDERSTANDING / f"{name}.jsonl"))
    return [case["asked"] for case in cases if "asked" in case]


def fitted_conversations() -> list[str]:
    """Return the conversations that are fitted on, as all that their user says, and their last turns rewritten."""
    cases = [case for file in CONVERSATIONS for case in _cases(file)]
    return [*map(_said, cases), *(case["plain"] for case in cases if "plain" in case)]


def fitted_asks() -> list[str]:
    """Return the requests, the material and the messages that the reading of long messages is fitted on."""
    cases = [case for file in PIECES for case in _cases(file)]
    asked = [
        ask for case in cases for ask in ([case["ask"]] if isinstance(case.get("ask"), str) else case.get("ask", []))
    ]
    return [*asked, *(case["text"] for case in cases if "text" in case)]


def repeated(fitted: Iterable[str], measured: Iterable[str]) -> list[str]:
    """Return the texts to fit on that are also measured on, or nearly."""
    known = [*measured]
    exact, sizes, holders = {*map(normalised, known)}, [], defaultdict[str, list[int]](list)
    for number, text in enumerate(known):
        own = grams(text)
        sizes.append(len(own))
        for gram in own:
            holders[gram].append(number)
    found = []
    for text in fitted:
        own = grams(text)
        shared = Counter(number for gram in own for number in holders.get(gram, ()))
        alike = (count / (len(own) + sizes[number] - count) for number, count in shared.items())
        if normalised(text) in exact or any(share >= NEAR for share in alike):
            found.append(text)
    return found


def languages_repeated(data: Path) -> list[str]:
    """Return the requests of other languages to fit on that are development requests, or ask for the same tool."""
    train, development = (list(read_lines(data / "languages" / f"{part}.jsonl.gz")) for part in ("train", "dev"))
    texts = {normalised(case[key]) for case in development for key in ("query", "english")}
    gold = {tool for case in development for tool in case["gold"]}
    fitted = [text for pairs in training_pairs(data).values() for pair in pairs for text in pair]
    return [
        *(text for text in fitted if normalised(text) in texts),
        *(case["query"] for case in train if gold.intersection(case["gold"])),
    ]


def _cases(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _said(case: Mapping[str, Any]) -> str:
    if "text" in case:
        return str(case["text"])
    if "turns" in case:
        return "\n".join(text for role, text in case["turns"] if role == "u")
    return "\n".join(turn.text for turn in read_turns(case["messages"]) if turn.role == "user" and turn.text)


def save(sketch: Sketch, path: Path) -> None:
    np.savez_compressed(path, exact=_packed(sketch.exact), coarse=sketch.coarse, tools=_packed(sketch.tools))


def load(path: Path) -> Sketch:
    with np.load(path) as arrays:
        return Sketch(_unpacked(arrays["exact"]), arrays["coarse"], _unpacked(arrays["tools"]))


def _packed(hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return hashes.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :EXACT_BYTES].copy()


def _unpacked(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    whole = np.zeros((len(packed), 8), np.uint8)
    whole[:, :EXACT_BYTES] = packed
    return whole.view("<u8").reshape(-1).astype(np.uint64)


def exposed_distractors(guard: EvaluationGuard, keys: Collection[str]) -> Mapping[str, int]:
    """Count training tools that evaluation catalogs hold as distractors (train/ ships them as right tools)."""
    return {"right_tools": len(guard.gold_keys & set(keys)), "distractors": len(guard.catalog_keys & set(keys))}


def main() -> int:
    """Check the committed sketches; with `--data`, first see that they still match the evaluation data."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", help="benchmark folder; without it only the committed hashes are compared")
    given = parser.parse_args().data
    evaluation = load(EVAL_FILE)
    if given:
        fresh = EvaluationGuard(folders(data_folder(given), "eval")).sketch()
        if not np.array_equal(fresh.exact, evaluation.exact):
            print(f"{EVAL_FILE.name} was made from other evaluation data: run python -m training.data")
            return 1
    again = [
        *repeated((*fitted_conversations(), *fitted_asks()), (*development_requests(), *development_asks())),
        *(languages_repeated(Path(given)) if given else ()),
    ]
    found = overlap(load(TRAIN_FILE), evaluation)
    print(f"exact {found.exact}, near {found.near}, right tools {found.tools}, development requests {len(again)}")
    return 0 if found.clean and not again else 1


if __name__ == "__main__":
    sys.exit(main())
