"""Exact cosine similarity over int8 vectors: one byte per dimension and SIMD, instead of an approximate graph."""

import math
from collections.abc import Mapping
from typing import Any

import numkong
import numpy as np
from numpy.typing import NDArray

from shortlist.index.embedders import Vectors
from shortlist.index.ports import Among, Candidates, Rows, best, masked
from shortlist.models import Scores

LEVELS = np.float32(127)
SMALLEST = np.finfo(np.float32).tiny
SPARE_SHARE = 0.05
"""Room left for later rows once an index has been updated."""


class ExactVectorIndex:
    """Vectors by row, rounded to int8 with a scale each; a row without a vector scores zero.

    A value: `grown`, `compacted` and `with_vectors` return new indexes that share their codes. Codes are written only
    for rows whose scale is zero in every index that shares them, so older indexes never see a change.
    """

    def __init__(self, dimensions: int, model_id: str, room: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        self.dimensions = dimensions
        self.model_id = model_id
        self._room = room
        """The codes, followed by room for later rows: an update must not copy every vector."""
        self._scales = scales
        self.missing = self.size - int(np.count_nonzero(scales))
        """How many rows still wait for their vector."""

    @classmethod
    def empty(cls, dimensions: int, model_id: str, rows: int = 0) -> "ExactVectorIndex":
        return cls(dimensions, model_id, np.zeros((rows, dimensions), np.int8), np.zeros(rows, np.float32))

    @classmethod
    def of(cls, model_id: str, vectors: Vectors) -> "ExactVectorIndex":
        """Index vectors in the order they come."""
        codes, scales = quantise(vectors)
        return cls(vectors.shape[1], model_id, codes, scales)

    @property
    def size(self) -> int:
        return len(self._scales)

    def rows_without_vector(self) -> Rows:
        return np.flatnonzero(self._scales == 0)

    def waiting(self, rows: Rows) -> NDArray[np.bool_] | None:
        """Mark the rows that have no vector yet; None where all have one."""
        if not self.missing:
            return None
        marked: NDArray[np.bool_] = self._scales[rows] == 0
        return marked if marked.any() else None

    def grown(self, size: int) -> "ExactVectorIndex":
        """Add rows whose vectors come later."""
        room = self._room
        if size > len(room):
            spare = int(size * SPARE_SHARE) if self.size else 0
            room = np.zeros((size + spare, self.dimensions), np.int8)
            room[: self.size] = self._codes
        scales = np.concatenate([self._scales, np.zeros(size - self.size, np.float32)])
        return ExactVectorIndex(self.dimensions, self.model_id, room, scales)

    def compacted(self, rows: Rows) -> "ExactVectorIndex":
        """Keep only these rows; they move up."""
        return ExactVectorIndex(self.dimensions, self.model_id, self._room[rows], self._scales[rows])

    def with_vectors(self, rows: Rows, vectors: Vectors) -> "ExactVectorIndex":
        """Add the vectors of rows that have none."""
        codes, given = quantise(vectors)
        free = self._scales[rows] == 0
        self._room[rows[free]] = codes[free]
        scales = self._scales.copy()
        scales[rows[free]] = given[free]
        return ExactVectorIndex(self.dimensions, self.model_id, self._room, scales)

    def retrieve(self, query: Vectors, limit: int, among: Among) -> Candidates:
        """Return the nearest rows, with the mean and deviation of every row that may answer."""
        cosines = _combined(self.cosines(query))
        every = cosines if among.rows is None else cosines[among.rows]
        mean, deviation = mean_and_deviation(every) if len(every) else (0.0, 1.0)
        scores = masked(cosines, among.rows)
        rows = best(scores, limit)
        return Candidates(rows, scores[rows], int(np.count_nonzero(scores)), mean, deviation, cosines)

    def score(self, query: Vectors, rows: Rows) -> Scores:
        """Return the scores of some rows, the same that `retrieve` gives them."""
        return _combined(self._cosines(query, self._room[rows], self._scales[rows]))

    def cosines(self, queries: Vectors) -> Vectors:
        """Return the cosine of every row with each of the queries, one line per query."""
        return self._cosines(queries, self._codes, self._scales)

    def vectors(self, rows: Rows | list[int]) -> Vectors:
        restored: Vectors = self._codes[rows].astype(np.float32) * self._scales[rows, None]
        return restored

    def state(self) -> dict[str, NDArray[Any]]:
        return {"codes": self._codes, "scales": self._scales}

    @classmethod
    def restore(cls, model_id: str, arrays: Mapping[str, NDArray[Any]]) -> "ExactVectorIndex":
        codes = np.ascontiguousarray(arrays["codes"])
        return cls(codes.shape[1], model_id, codes, np.array(arrays["scales"]))

    def _cosines(self, queries: Vectors, codes: NDArray[np.int8], scales: NDArray[np.float32]) -> Vectors:
        if not len(scales):
            return np.zeros((len(queries), 0), np.float32)
        asked, asked_scales = quantise(queries[:, : self.dimensions])
        cosines = np.empty((len(asked), len(scales)), np.float32)
        numkong.cdist(asked, codes, metric="dot", out=cosines, out_dtype="float32")
        cosines *= scales
        cosines *= asked_scales[:, None]
        return cosines

    @property
    def _codes(self) -> NDArray[np.int8]:
        return self._room[: self.size]


def _combined(cosines: Vectors) -> Scores:
    """Score rows by the whole query and, where it asks for several things, half by the part nearest to each row.

    A query for several things is close to none of their tools as a whole.
    """
    whole: Scores = cosines[0]
    return whole if len(cosines) == 1 else (whole + cosines[1:].max(axis=0)) / 2


def quantise(vectors: Vectors) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each vector to int8 by its own largest component."""
    largest: Vectors = np.maximum.reduce(np.abs(vectors), axis=1, keepdims=True)
    scales = largest / LEVELS
    return np.rint(vectors / np.maximum(scales, SMALLEST)).astype(np.int8), scales[:, 0]


def mean_and_deviation(cosines: Vectors) -> tuple[float, float]:
    """Return the mean and standard deviation, summed in doubles so that the order of the rows hardly matters."""
    total, squares = numkong.moments(cosines)
    mean = total / len(cosines)
    return mean, math.sqrt(max(squares / len(cosines) - mean * mean, 1e-6))
