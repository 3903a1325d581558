"""Approximate search over vectors, for catalogs in which looking at every vector takes too long.

A finder names rows that are probably the nearest: `VectorCells` in this process, or an engine (`index.milvus`). The
exact index scores them. Rows that came after the finder was made are always looked at, and rows that may not answer are
left out before the cut, so filters hold and an update is visible at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import InvalidInput
from shortlist.index.embedders import Vectors
from shortlist.index.ports import Among, Candidates, Rows
from shortlist.index.vectors import ExactVectorIndex, best, mean_and_deviation

FEW_PASSING = 20_000
"""When a filter leaves no more rows than this, all of them are looked at."""
TRAINED_ON = 64
"""Vectors per cell that the centroids are found with; faiss asks for 39 at least."""
ROUNDS = 8
"""Rounds of k-means: more hardly move the centroids."""
LOOKED_AT = 0.08
"""The share of the cells that a query looks at; `benchmarks.growth` prints the recall."""
ENOUGH = 60
"""A query looks at further cells until so many times the wanted rows may answer."""
SAMPLED = 50_000
"""Rows that the mean and deviation of all scores are estimated from."""
UNPLACED_SHARE = 0.2
"""Cells are made again once this share of the rows came after them."""


class Finder(Protocol):
    """Finds rows that are probably near to a query."""

    def near(self, query: Vectors, limit: int, among: Among) -> Rows:
        """Return rows that may answer, among them nearly all of the nearest `limit`."""
        ...


@dataclass(frozen=True, slots=True)
class VectorCells:
    """Which rows lie around which centroid. faiss finds the centroids (k-means); searching does not need it."""

    centroids: NDArray[np.float32]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    """Those of the first cell, of the second …"""

    @classmethod
    def of(cls, vectors: ExactVectorIndex, seed: int = 19) -> "VectorCells":
        """Divide the vectors of an index into about twice as many cells as the root of their number."""
        faiss = _faiss()
        count = max(int(2 * math.sqrt(vectors.size)), 1)
        rows = np.sort(np.random.default_rng(seed).permutation(vectors.size)[: TRAINED_ON * count])
        kmeans = faiss.Kmeans(vectors.dimensions, count, niter=ROUNDS, seed=seed, spherical=True, verbose=False)
        kmeans.train(vectors.vectors(rows))
        places = np.empty(vectors.size, np.int64)
        for start in range(0, vectors.size, SAMPLED):
            part = np.arange(start, min(start + SAMPLED, vectors.size))
            places[part] = kmeans.index.search(vectors.vectors(part), 1)[1][:, 0]
        sizes = np.bincount(places, minlength=count)
        order = np.argsort(places, kind="stable").astype(np.int32)
        return cls(kmeans.centroids, np.concatenate([[0], np.cumsum(sizes)]), order)

    def near(self, query: Vectors, limit: int, among: Among) -> Rows:
        order = np.argsort(-(query[:, : self.centroids.shape[1]] @ self.centroids.T).max(axis=0), kind="stable")
        looked, count = 0, max(int(LOOKED_AT * len(order)), 1) * len(query)
        found, total = [np.empty(0, np.int64)], 0
        while looked < len(order) and (not looked or total < ENOUGH * limit):
            cells = order[looked : looked + count].tolist()
            rows = np.concatenate([self.rows[self.starts[cell] : self.starts[cell + 1]] for cell in cells])
            found.append(rows.astype(np.int64) if among.rows is None else rows[among.rows[rows]].astype(np.int64))
            total, looked, count = total + len(found[-1]), looked + count, 2 * count
        return np.concatenate(found)


class ApproximateVectorIndex(ExactVectorIndex):
    """Vectors by row of which a query looks at those that a finder names; scores are those of the exact index."""

    def __init__(self, exact: ExactVectorIndex, finder: Finder, placed: int) -> None:
        super().__init__(exact.model_id, exact._codes, exact._scales, exact._room)
        self._finder = finder
        self._placed = placed
        """The rows that the finder knows; later ones are always looked at."""

    @classmethod
    def over(cls, exact: ExactVectorIndex) -> "ApproximateVectorIndex":
        """Divide the vectors of an exact index into cells."""
        return cls(exact, VectorCells.of(exact), exact.size)

    @property
    def is_outdated(self) -> bool:
        """Whether the finder lacks so many rows that a new one is due."""
        return self.size - self._placed > UNPLACED_SHARE * self.size

    def grown(self, size: int) -> "ApproximateVectorIndex":
        return ApproximateVectorIndex(super().grown(size), self._finder, self._placed)

    def with_vectors(self, rows: Rows, vectors: Vectors) -> "ApproximateVectorIndex":
        return ApproximateVectorIndex(super().with_vectors(rows, vectors), self._finder, self._placed)

    def retrieve(self, query: Vectors, limit: int, among: Among) -> Candidates:
        """Return the nearest of the rows that were looked at; mean and deviation are those of a sample."""
        rows = self._looked_at(query, limit, among)
        scores = self.score(query, rows)
        chosen = best(scores, limit)
        mean, deviation = self._spread(query, among)
        return Candidates(rows[chosen], scores[chosen], int(np.count_nonzero(scores)), mean, deviation)

    def _looked_at(self, query: Vectors, limit: int, among: Among) -> Rows:
        """Return the rows to score, ascending."""
        if among.rows is not None and np.count_nonzero(among.rows) <= max(FEW_PASSING, ENOUGH * limit):
            few: Rows = among.rows.nonzero()[0]
            return few
        later = np.arange(self._placed, self.size)
        passing = later if among.rows is None else later[among.rows[self._placed :]]
        return np.sort(np.concatenate([self._finder.near(query, limit, among), passing]))

    def _spread(self, query: Vectors, among: Among) -> tuple[float, float]:
        rows = np.arange(self.size) if among.rows is None else among.rows.nonzero()[0]
        if not len(rows):
            return 0.0, 1.0
        return mean_and_deviation(self.score(query, rows[:: max(len(rows) // SAMPLED, 1)]))

    def state(self) -> dict[str, NDArray[Any]]:
        state = super().state()
        if isinstance(self._finder, VectorCells) and self._placed == self.size:
            cells = self._finder
            state |= {"centroids": cells.centroids, "cell_starts": cells.starts, "cell_rows": cells.rows}
        return state

    @classmethod
    def restore(cls, model_id: str, arrays: Mapping[str, NDArray[Any]]) -> ExactVectorIndex:
        """Return saved vectors, with their cells where they were saved with some."""
        exact = ExactVectorIndex.restore(model_id, arrays)
        if "cell_rows" not in arrays:
            return exact
        cells = VectorCells(*(arrays[name] for name in ("centroids", "cell_starts", "cell_rows")))
        if cells.starts[-1] != len(cells.rows) or len(cells.rows) != exact.size:
            raise ValueError("the cells and the vectors differ in size")
        return cls(exact, cells, exact.size)


def is_available() -> bool:
    """Return whether the library that finds centroids is installed."""
    return find_spec("faiss") is not None


def _faiss() -> Any:
    try:
        import faiss  # noqa: PLC0415
    except ImportError:
        raise InvalidInput(
            "Approximate search needs the extra 'ann': run pip install 'shortlist-mcp[ann]', "
            "or set search.index to 'exact'."
        ) from None
    return faiss
