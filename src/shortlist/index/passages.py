"""Classifies passages of tool definitions by whether they tell the model more than how to use the tool.

Weighted word pieces and pairs of them score every passage in microseconds. A transformer of six layers, which takes
milliseconds, reads those that the caller picks by that score.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.index.embedders import MODEL_FILE, PROGRAM, WEIGHTS, checked, onnx_session, open_tokenizer

TokenIds: TypeAlias = NDArray[np.int64]
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
    pieces: int
    """How many of the weights belong to single word pieces; the others belong to pairs."""
    scale: float
    bias: float


class PassageClassifier:
    """Scores passages with the shipped weights, which are loaded with the first passage."""

    def __init__(self, folder: Path = WEIGHTS / "scanner") -> None:
        self._folder = folder
        try:
            self.card = PassageCard(**json.loads((folder / "model.json").read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(f"The scanner's weights in {str(folder)!r} cannot be read ({error}); reinstall.") from None
        self._lock = threading.Lock()
        self._loaded: tuple[Any, NDArray[np.float32], Any] | None = None

    def glance(self, texts: Sequence[str]) -> list[list[tuple[float, TokenIds]]]:
        """Return the windows of each passage as tokens, each with its score by word pieces and pairs."""
        tokenizer, pairs, _ = self._parts()
        return [
            [(pairs_score(window, pairs, self.card), window) for window in windows(np.array(each.ids, np.int64))]
            for each in tokenizer.encode_batch_fast(list(texts))
        ]

    def read(self, window: TokenIds) -> float:
        """Return the transformer's score of a window, high where it tells the model more than how to use its tool."""
        _, _, session = self._parts()
        with PROGRAM:
            (logit,) = session.run(None, {"ids": window[None]})
        return float(logit[0, 0])

    def _parts(self) -> tuple[Any, NDArray[np.float32], Any]:
        with self._lock:
            if self._loaded is None:
                with PROGRAM:
                    self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Any, NDArray[np.float32], Any]:
        tokenizer = open_tokenizer(self._folder.parent / "small" / "tokenizer.json")
        stored = np.load(checked(self._folder / "pairs.npy", self.card.pairs_digest))
        pairs = stored.astype(np.float32) * np.float32(self.card.scale)
        return tokenizer, pairs, onnx_session(checked(self._folder / MODEL_FILE, self.card.digest), threads=1)


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
