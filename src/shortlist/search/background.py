"""Tools at large: a sample of what other catalogs offer, to tell a query for somebody else's tools."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shortlist.index.dense import SMALLEST, DenseIndex
from shortlist.index.embedders import Vectors
from shortlist.search.request import Request

NEAREST = 10


@dataclass(frozen=True, slots=True)
class Background:
    """Vectors of the sample, by one model; a query nearer to them than to its own catalog hardly belongs there."""

    sample: DenseIndex

    @classmethod
    def of(cls, vectors: Vectors) -> "Background":
        sample = DenseIndex(vectors.shape[1], "")
        sample.grow(len(vectors))
        sample.put(np.arange(len(vectors)), vectors)
        return cls(sample)

    @classmethod
    def read(cls, path: Path) -> "Background":
        with np.load(path) as arrays:
            return cls(DenseIndex.restore("", dict(arrays)))

    def write(self, path: Path) -> None:
        state = self.sample.state()
        np.savez(path, codes=state["codes"], scales=state["scales"])

    def first(self, dimensions: int) -> "Background":
        """Give the same sample as a model has it that keeps its first dimensions alone."""
        if dimensions == self.sample.dimensions:
            return self
        vectors = self.sample.vectors(np.arange(self.sample.size))[:, :dimensions]
        return Background.of(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST))

    def nearness(self, vectors: Vectors) -> float:
        """Give how near the nearest tools at large are to a query as a whole."""
        cosines = self.sample.scores(vectors[:1])[0]
        return float(np.partition(cosines, -NEAREST)[-NEAREST:].mean())


def at_large(background: Background | None, request: Request) -> float:
    """Give the nearness of tools at large; nothing where the query or the model has no vectors for it."""
    return 0.0 if background is None or request.vectors is None else background.nearness(request.vectors)
