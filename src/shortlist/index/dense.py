"""Exact cosine over int8 vectors: one byte a dimension, and a SIMD product instead of an approximate graph."""

import math
from collections.abc import Mapping
from typing import Any

import numkong
import numpy as np
from numpy.typing import NDArray

from shortlist.index.embedders import Vectors

LEVELS = np.float32(127)
SMALLEST = np.finfo(np.float32).tiny
SPARE_SHARE = 0.05
"""Room that is left for later rows once an index has been updated."""


class DenseIndex:
    """Vectors by row, rounded to int8 with a scale each; rows without a vector score zero."""

    def __init__(self, dimensions: int, model_id: str) -> None:
        self.dimensions = dimensions
        self.model_id = model_id
        self._room = np.zeros((0, dimensions), np.int8)
        """The codes, and after them room for rows to come: an update must not copy every vector."""
        self._scales = np.zeros(0, np.float32)
        self.missing = 0
        """How many rows still wait for their vector; counted at every change, asked at every search."""

    @property
    def size(self) -> int:
        return len(self._scales)

    def rows_without_vector(self) -> list[int]:
        missing: list[int] = np.flatnonzero(self._scales == 0).tolist()
        return missing

    def waiting(self, rows: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Mark the rows that have no vector yet; None where all have one."""
        if not self.missing:
            return None
        marked: NDArray[np.bool_] = self._scales[rows] == 0
        return marked if marked.any() else None

    def grow(self, size: int) -> None:
        """Make room for rows whose vectors come later."""
        if size > len(self._room):
            spare = int(size * SPARE_SHARE) if self.size else 0
            room = np.zeros((size + spare, self.dimensions), np.int8)
            room[: self.size] = self._codes
            self._room = room
        self._scales = np.concatenate([self._scales, np.zeros(size - self.size, np.float32)])
        self._count()

    def compact(self, rows: NDArray[np.int64]) -> None:
        """Keep only these rows; they move up."""
        self._room, self._scales = self._room[rows], self._scales[rows]
        self._count()

    def put(self, rows: NDArray[np.int64], vectors: Vectors) -> None:
        codes, scales = quantise(vectors)
        self._room[rows] = codes
        self._scales[rows] = scales
        self._count()

    def scores(self, queries: Vectors) -> Vectors:
        """Give the cosine of every row with each of the queries, a line a query."""
        if not self.size:
            return np.zeros((len(queries), 0), np.float32)
        codes, scales = quantise(queries[:, : self.dimensions])
        cosines = np.empty((len(codes), self.size), np.float32)
        numkong.cdist(codes, self._codes, metric="dot", out=cosines, out_dtype="float32")
        cosines *= self._scales
        cosines *= scales[:, None]
        return cosines

    def vectors(self, rows: NDArray[np.int64] | list[int]) -> Vectors:
        restored: Vectors = self._codes[rows].astype(np.float32) * self._scales[rows, None]
        return restored

    def state(self) -> dict[str, NDArray[Any]]:
        return {"codes": self._codes, "scales": self._scales}

    @classmethod
    def restore(cls, model_id: str, arrays: Mapping[str, NDArray[Any]]) -> "DenseIndex":
        index = cls(arrays["codes"].shape[1], model_id)
        index._room, index._scales = np.ascontiguousarray(arrays["codes"]), np.array(arrays["scales"])
        index._count()
        return index

    def _count(self) -> None:
        self.missing = self.size - int(np.count_nonzero(self._scales))

    @property
    def _codes(self) -> NDArray[np.int8]:
        return self._room[: self.size]


def quantise(vectors: Vectors) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each vector to int8 by its own largest component."""
    largest: Vectors = np.maximum.reduce(np.abs(vectors), axis=1, keepdims=True)
    scales = largest / LEVELS
    return np.rint(vectors / np.maximum(scales, SMALLEST)).astype(np.int8), scales[:, 0]


def mean_and_deviation(cosines: Vectors) -> tuple[float, float]:
    """Sum up how near the tools of a catalog are; in doubles, so that the order of the rows hardly matters."""
    total, squares = numkong.moments(cosines)
    mean = total / len(cosines)
    return mean, math.sqrt(max(squares / len(cosines) - mean * mean, 1e-6))
