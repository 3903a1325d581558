"""Exact cosine over any embedder, and a memo so that every peer pays for a text once."""

from collections.abc import Sequence

import numpy as np
from benchmarks.baselines.lexical import Scores
from benchmarks.baselines.protocol import Embed
from numpy.typing import NDArray


class Vectors:
    """Unit vectors of the documents; scores are cosines with the query."""

    def __init__(self, texts: Sequence[str], embed: Embed) -> None:
        self._embed = embed
        self._matrix = unit(embed(texts))

    def scores(self, query: str) -> Scores:
        similarity: Scores = (self._matrix @ unit(self._embed([query]))[0]).astype(np.float64)
        return similarity


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
    return scaled


def memoised(embed: Embed) -> Embed:
    """Remember every vector by its text: after a warm pass a query costs a look-up, whoever asks."""
    known: dict[str, NDArray[np.float32]] = {}

    def lookup(texts: Sequence[str]) -> NDArray[np.float32]:
        new = list(dict.fromkeys(text for text in texts if text not in known))
        if new:
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts])

    return lookup
