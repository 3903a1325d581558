"""Classifies passages of tool definitions by whether they tell the model more than how to use the tool.

Weighted word pieces and pairs of them score every passage in microseconds. A transformer of ten layers, which takes
milliseconds, reads those that the caller picks by that score. Its word vectors are those of the model `small`.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.index.embedders import MODEL_FILE, PROGRAM, WEIGHTS, onnx_session
from shortlist.text.word_vectors import checked, open_tokenizer

TokenIds: TypeAlias = NDArray[np.int64]
WIDTH = 384
MAX_TOKENS = 96
WINDOW_STEP = 47
"""Longer passages are read in windows that overlap by half, so that no sentence is cut in all of them."""
FEWEST_PAIRS = 6
"""Short passages count as if they had so many pieces and pairs: one word proves little."""
PAIR_GAPS = (1, 2)
_FIRST, _SECOND, _GAP = 1_000_003, 7_919, 104_729


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageCard:
    """The contents of `model.json`: digests of the weights, and the numbers that were fitted with them."""

    digest: str
    pairs_digest: str
    words_digest: str
    """Of the file of `small`."""
    words_at: int
    """Where the bytes of the word vectors start in that file."""
    scales_at: int
    pieces: int
    """How many of the weights belong to single word pieces; the others belong to pairs."""
    scale: float
    bias: float


@dataclass(frozen=True, slots=True)
class WordVectors:
    """The word vectors in the file of `small`, which stay on disk until they are read."""

    numbers: NDArray[np.int8]
    scales: NDArray[np.float32]

    @classmethod
    def open(cls, path: Path, card: PassageCard) -> Self:
        words, scales = (card.pieces, WIDTH), (card.pieces, 1)
        return cls(
            np.memmap(path, np.int8, "r", card.words_at, words), np.memmap(path, "<f4", "r", card.scales_at, scales)
        )

    def of(self, ids: TokenIds) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.numbers[ids] * self.scales[ids]
        return found


@dataclass(frozen=True, slots=True)
class _Parts:
    tokenizer: Any
    pairs: NDArray[np.float32]
    words: WordVectors
    session: Any


class PassageClassifier:
    """Scores passages with the shipped weights, which are loaded with the first passage."""

    def __init__(self, folder: Path = WEIGHTS / "scanner") -> None:
        self._folder = folder
        try:
            self.card = PassageCard(**json.loads((folder / "model.json").read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(f"The scanner's weights in {str(folder)!r} cannot be read ({error}); reinstall.") from None
        self._lock = threading.Lock()
        self._loaded: _Parts | None = None

    def glance(self, texts: Sequence[str]) -> list[list[tuple[float, TokenIds]]]:
        """Return the windows of each passage as tokens, each with its score by word pieces and pairs."""
        parts = self._parts()
        return [
            [(pairs_score(window, parts.pairs, self.card), window) for window in windows(np.array(each.ids, np.int64))]
            for each in parts.tokenizer.encode_batch_fast(list(texts))
        ]

    def read(self, window: TokenIds) -> float:
        """Return the transformer's score of a window, high where it tells the model more than how to use its tool."""
        parts = self._parts()
        with PROGRAM:
            (logit,) = parts.session.run(None, {"vectors": parts.words.of(window)[None]})
        return float(logit[0, 0])

    def _parts(self) -> _Parts:
        with self._lock:
            if self._loaded is None:
                with PROGRAM:
                    self._loaded = self._load()
            return self._loaded

    def _load(self) -> _Parts:
        small = self._folder.parent / "small"
        tokenizer = open_tokenizer(small / "tokenizer.json")
        stored = np.load(checked(self._folder / "pairs.npy", self.card.pairs_digest))
        pairs = stored.astype(np.float32) * np.float32(self.card.scale)
        words = WordVectors.open(checked(small / MODEL_FILE, self.card.words_digest), self.card)
        session = onnx_session(checked(self._folder / MODEL_FILE, self.card.digest), threads=1)
        return _Parts(tokenizer, pairs, words, session)


def windows(ids: TokenIds) -> Iterator[TokenIds]:
    """Yield the tokens of a passage as the transformer reads them, each window between the opening and closing mark."""
    if len(ids) <= MAX_TOKENS:
        yield ids
        return
    inner, room = ids[1:-1], MAX_TOKENS - 2
    for start in range(0, len(inner) - room + WINDOW_STEP, WINDOW_STEP):
        begin = min(start, len(inner) - room)
        yield np.concatenate([ids[:1], inner[begin : begin + room], ids[-1:]])


def pairs_score(ids: TokenIds, weights: NDArray[np.float32], card: PassageCard) -> float:
    """Return the score of a passage by its word pieces and their pairs, without its opening and closing marks."""
    inner = ids[1:-1]
    pairs = [pair_numbers(inner[:-gap], inner[gap:], gap, len(weights) - card.pieces) for gap in PAIR_GAPS]
    features = np.concatenate([inner, *(found + card.pieces for found in pairs)])
    return float(weights[features].sum() / np.sqrt(max(len(features), FEWEST_PAIRS)) + card.bias)


def pair_numbers(first: TokenIds, second: TokenIds, gap: int, numbers: int) -> TokenIds:
    """Return the number of each pair of word pieces that stand `gap` apart."""
    found: TokenIds = (first * _FIRST + second * _SECOND + gap * _GAP) % numbers
    return found
