"""Classifies passages of tool definitions by whether they tell the model more than how to use the tool.

Weighted word pieces and pairs of them score every passage in microseconds. Only passages that they find unusual are
read by a transformer of six layers, which takes milliseconds.
"""

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.index.embedders import MODEL_FILE, WEIGHTS, checked, onnx_session, open_tokenizer

MAX_TOKENS = 96
FEWEST_PAIRS = 6
"""Short passages count as if they had so many pieces and pairs: one word proves little."""
PAIR_GAPS = (1, 2)
OTHER_LETTERS = 2
_OTHER = re.compile("[\u00c0-\u024f\u0400-\u06ff\u0900-\u097f\u1e00-\u1eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
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
    gate: float
    """Passages whose pairs score no higher are clean and not read by the transformer."""
    floor: float
    """Passages that the transformer scores no higher are clean. Neither holds for those in other languages."""
    most: float
    """The bound of the transformer's score: it is often too sure."""
    pairs_weight: float
    """How much the score by pairs counts beside it."""


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

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return a score for each passage, high where it tells the model more than how to use its tool, or None."""
        tokenizer, pairs, session = self._parts()
        encoded = tokenizer.encode_batch_fast(list(texts))
        return [
            self._score(np.array(each.ids[:MAX_TOKENS], np.int64), is_foreign(text), pairs, session)
            for text, each in zip(texts, encoded, strict=True)
        ]

    def _score(self, ids: NDArray[np.int64], foreign: bool, weights: NDArray[np.float32], session: Any) -> float | None:
        card = self.card
        by_pairs = pairs_score(ids, weights, card)
        if by_pairs <= card.gate and not foreign:
            return None
        (logit,) = session.run(None, {"ids": ids[None]})
        read = float(logit[0, 0])
        if read <= card.floor and not foreign:
            return None
        return min(max(read, -card.most), card.most) + card.pairs_weight * by_pairs

    def _parts(self) -> tuple[Any, NDArray[np.float32], Any]:
        with self._lock:
            if self._loaded is None:
                tokenizer = open_tokenizer(self._folder.parent / "small" / "tokenizer.json")
                stored = np.load(checked(self._folder / "pairs.npy", self.card.pairs_digest))
                pairs = stored.astype(np.float32) * np.float32(self.card.scale)
                session = onnx_session(checked(self._folder / MODEL_FILE, self.card.digest), threads=1)
                self._loaded = tokenizer, pairs, session
            return self._loaded


def is_foreign(text: str) -> bool:
    """Return whether a passage has letters that English has not: the pairs know little of other languages."""
    return not text.isascii() and len(_OTHER.findall(text)) >= OTHER_LETTERS


def pairs_score(ids: NDArray[np.int64], weights: NDArray[np.float32], card: PassageCard) -> float:
    """Return the score of a passage by its word pieces and their pairs, without its opening and closing marks."""
    inner = ids[1:-1]
    pairs = [pair_numbers(inner[:-gap], inner[gap:], gap, len(weights) - card.pieces) for gap in PAIR_GAPS]
    features = np.concatenate([inner, *(found + card.pieces for found in pairs)])
    return float(weights[features].sum() / np.sqrt(max(len(features), FEWEST_PAIRS)) + card.bias)


def pair_numbers(first: NDArray[np.int64], second: NDArray[np.int64], gap: int, numbers: int) -> NDArray[np.int64]:
    """Return the number of each pair of word pieces that stand `gap` apart."""
    found: NDArray[np.int64] = (first * _FIRST + second * _SECOND + gap * _GAP) % numbers
    return found
