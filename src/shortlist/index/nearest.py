"""Approximate search over vectors, for catalogs in which looking at every vector takes too long.

A finder names rows that are probably the nearest: `CompressedVectors` in this process, or an engine (`index.milvus`).
The exact index scores them. Rows that came after the finder was made are always looked at, and rows that may not answer
are left out before the cut, so filters hold and an update is visible at once.
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
from shortlist.index.vectors import ExactVectorIndex, best, mean_and_deviation, quantise

FEW_PASSING = 20_000
"""When a filter leaves no more rows than this, all of them are looked at."""
TRAINED_ON = 50_000
"""Vectors that the axes and the codes are trained on."""
KEPT_SQUARES = 0.9
"""Principal axes are kept until they hold this share of the squared components: half of them with the shipped model."""
OVERSAMPLED = 13
"""Rows looked at for each wanted one: four-bit codes order rows roughly. `benchmarks.growth` prints the recall."""
FEWEST_DIMENSIONS = 2
"""Codes stand for pairs of axes, so shorter vectors are not compressed."""
SAMPLED = 50_000
"""Rows that the mean and deviation are estimated from, where a filter or a query of several parts needs it."""
AT_ONCE = 50_000
"""Vectors restored to floats at a time."""
UNPLACED_SHARE = 0.2
"""A new finder is made once this share of the rows came after the last one."""


NO_ROWS: Rows = np.empty(0, np.int64)


class Finder(Protocol):
    """Finds rows that are probably near to a query."""

    def near(self, query: Vectors, limit: int, among: Among) -> Rows:
        """Return rows that may answer, among them nearly all of the nearest `limit`."""
        ...


@dataclass(frozen=True, slots=True)
class CompressedVectors:
    """Vectors on their principal axes with four bits for each two of them, which faiss compares 32 at a time.

    A row takes an eighth of the bytes that the exact index reads for it.
    """

    scanned: Any
    """A faiss index: the axes, and product quantisation in a single list, whose search can skip rows."""

    @classmethod
    def of(cls, vectors: ExactVectorIndex, seed: int = 19) -> "CompressedVectors":
        """Train axes and codes on a sample, and encode every vector."""
        faiss = _faiss()
        chosen = np.random.default_rng(seed).permutation(vectors.size)[:TRAINED_ON]
        sample = vectors.vectors(np.sort(chosen))
        axes = _principal_axes(sample)
        turn = faiss.LinearTransform(vectors.dimensions, len(axes), False)
        faiss.copy_array_to_vector(axes.ravel(), turn.A)
        turn.is_trained = True
        only_list = faiss.IndexFlatIP(len(axes))
        only_list.add(np.zeros((1, len(axes)), np.float32))
        codes = faiss.IndexIVFPQFastScan(only_list, len(axes), 1, len(axes) // 2, 4, faiss.METRIC_INNER_PRODUCT)
        codes.by_residual = False
        codes.pq.cp.min_points_per_centroid = 1  # no warning about a small catalog
        codes.train(turn.apply(sample))
        for start in range(0, vectors.size, AT_ONCE):
            codes.add(turn.apply(vectors.vectors(np.arange(start, min(start + AT_ONCE, vectors.size)))))
        return cls(faiss.IndexPreTransform(turn, codes))

    @property
    def size(self) -> int:
        return int(self.scanned.ntotal)

    def near(self, query: Vectors, limit: int, among: Among) -> Rows:
        faiss = _faiss()
        asked = np.ascontiguousarray(query[:, : self.scanned.d], np.float32)
        parameters = None
        if among.rows is not None:
            passing = faiss.IDSelectorBitmap(np.packbits(among.rows[: self.size], bitorder="little"))
            parameters = faiss.SearchParametersPreTransform(index_params=faiss.IVFSearchParameters(sel=passing))
        _, found = self.scanned.search(asked, min(OVERSAMPLED * limit, self.size), params=parameters)
        rows: Rows = np.unique(found)
        return rows[rows >= 0]

    def state(self) -> dict[str, NDArray[Any]]:
        return {"compressed": _faiss().serialize_index(self.scanned)}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> "CompressedVectors":
        try:
            return cls(_faiss().deserialize_index(arrays["compressed"]))
        except RuntimeError as error:
            raise ValueError(f"the compressed vectors cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Moments:
    """The mean of all vectors and of the products of their components: any query's mean and deviation follow."""

    mean: NDArray[np.float32]
    products: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: ExactVectorIndex) -> "Moments":
        total, products = np.zeros(vectors.dimensions), np.zeros((vectors.dimensions, vectors.dimensions))
        for start in range(0, vectors.size, AT_ONCE):
            part = vectors.vectors(np.arange(start, min(start + AT_ONCE, vectors.size)))
            total += part.sum(axis=0, dtype=np.float64)
            products += part.T @ part
        count = max(vectors.size, 1)
        return cls((total / count).astype(np.float32), (products / count).astype(np.float32))

    def of_scores(self, query: Vectors) -> tuple[float, float]:
        """Return the mean of the scores of all rows, and that of their squares."""
        codes, scales = quantise(query[:, : len(self.mean)])
        asked = codes[0] * scales[0]
        return float(asked @ self.mean), float(asked @ self.products @ asked)


class ApproximateVectorIndex(ExactVectorIndex):
    """Vectors by row of which a query looks at those that a finder names; scores are those of the exact index."""

    def __init__(
        self,
        exact: ExactVectorIndex,
        finder: Finder,
        placed: int | None = None,
        moments: Moments | None = None,
        late: Rows = NO_ROWS,
    ) -> None:
        super().__init__(exact.model_id, exact._codes, exact._scales, exact._room)
        self.finder = finder
        self._placed = exact.size if placed is None else placed
        """How many rows there were when the finder was made; later ones are always looked at."""
        self._late = late
        """Rows among those whose vectors came after the finder was made; they are always looked at too."""
        self._moments = moments
        """Those of the rows that the finder knows; without them the mean and deviation are those of a sample."""

    @classmethod
    def over(cls, exact: ExactVectorIndex) -> "ApproximateVectorIndex":
        """Compress the vectors of an exact index."""
        return cls(exact, CompressedVectors.of(exact), moments=Moments.of(exact))

    @property
    def is_outdated(self) -> bool:
        """Whether the finder lacks so many rows that a new one is due."""
        return self.size - self._placed + len(self._late) > UNPLACED_SHARE * self.size

    def exact(self) -> ExactVectorIndex:
        """Return the same vectors without the finder."""
        return ExactVectorIndex(self.model_id, self._codes, self._scales, self._room)

    def grown(self, size: int) -> "ApproximateVectorIndex":
        return ApproximateVectorIndex(super().grown(size), self.finder, self._placed, self._moments, self._late)

    def with_vectors(self, rows: Rows, vectors: Vectors) -> "ApproximateVectorIndex":
        filled = rows[(rows < self._placed) & (self._scales[rows] == 0)]
        late = np.union1d(self._late, filled)
        more = super().with_vectors(rows, vectors)
        return ApproximateVectorIndex(more, self.finder, self._placed, self._moments, late)

    def retrieve(self, query: Vectors, limit: int, among: Among) -> Candidates:
        """Return the nearest of the rows that were looked at."""
        rows = self._looked_at(query, limit, among)
        scores = self.score(query, rows)
        chosen = best(scores, limit)
        mean, deviation = self._spread(query, among)
        return Candidates(rows[chosen], scores[chosen], int(np.count_nonzero(scores)), mean, deviation)

    def _looked_at(self, query: Vectors, limit: int, among: Among) -> Rows:
        """Return the rows to score, ascending."""
        if among.rows is not None and np.count_nonzero(among.rows) <= max(FEW_PASSING, OVERSAMPLED * limit):
            few: Rows = among.rows.nonzero()[0]
            return few
        near = self.finder.near(query, limit, among)
        return np.union1d(near, self._unknown(among)) if self._has_unknown else np.sort(near)

    @property
    def _has_unknown(self) -> bool:
        return bool(self._placed < self.size or len(self._late))

    def _unknown(self, among: Among) -> Rows:
        """Return the rows that may answer and whose vectors the finder does not know."""
        unknown = np.concatenate([self._late, np.arange(self._placed, self.size)])
        return unknown if among.rows is None else unknown[among.rows[unknown]]

    def _spread(self, query: Vectors, among: Among) -> tuple[float, float]:
        """Return the mean and deviation of the rows that may answer, or those of a sample of them."""
        known = among.rows[: self._placed] if among.rows is not None else None
        hidden = np.flatnonzero(~known) if known is not None else np.empty(0, np.int64)
        if self._moments is None or len(query) > 1 or len(hidden) > SAMPLED:
            rows = np.arange(self.size) if among.rows is None else among.rows.nonzero()[0]
            every = self.score(query, rows[:: max(len(rows) // SAMPLED, 1)])
            return mean_and_deviation(every) if len(every) else (0.0, 1.0)
        # A late row is one of the placed ones, in whose moments it counts as zero; a hidden one is taken out as such.
        unknown, known_hidden = self._unknown(among), np.setdiff1d(hidden, self._late)
        more, without = (self.score(query, rows).astype(np.float64) for rows in (unknown, known_hidden))
        later = int(np.count_nonzero(unknown >= self._placed))
        count, (mean, square) = self._placed - len(hidden) + later, self._moments.of_scores(query)
        if not count:
            return 0.0, 1.0
        mean = (self._placed * mean + float(more.sum() - without.sum())) / count
        square = (self._placed * square + float(np.vdot(more, more) - np.vdot(without, without))) / count
        return mean, math.sqrt(max(square - mean * mean, 1e-6))

    def state(self) -> dict[str, NDArray[Any]]:
        state = super().state()
        if isinstance(self.finder, CompressedVectors) and self._moments is not None and not self._has_unknown:
            state |= self.finder.state() | {"mean": self._moments.mean, "products": self._moments.products}
        return state

    @classmethod
    def restore(cls, model_id: str, arrays: Mapping[str, NDArray[Any]]) -> ExactVectorIndex:
        """Return saved vectors, with their compressed form where they were saved with it and faiss is installed."""
        exact = ExactVectorIndex.restore(model_id, arrays)
        if "compressed" not in arrays or not is_available():
            return exact
        finder, moments = CompressedVectors.restore(arrays), Moments(arrays["mean"], arrays["products"])
        if finder.size != exact.size or moments.products.shape != (exact.dimensions, exact.dimensions):
            raise ValueError("the compressed vectors and the vectors differ in size")
        return cls(exact, finder, moments=moments)


def is_available() -> bool:
    """Return whether the library that compresses vectors and scans them is installed."""
    return find_spec("faiss") is not None


def _principal_axes(sample: Vectors) -> Vectors:
    """Return the axes with most of the squared components, the longest first and an even number: codes are of pairs."""
    squares, axes = np.linalg.eigh(sample.T @ sample)
    held = np.cumsum(squares[::-1]) / max(float(squares.sum()), 1e-9)
    kept = int(np.searchsorted(held, KEPT_SQUARES)) + 1
    return np.ascontiguousarray(axes[:, ::-1].T[: min(kept + kept % 2, len(axes) - len(axes) % 2)], np.float32)


def _faiss() -> Any:
    try:
        import faiss  # noqa: PLC0415
    except ImportError:
        raise InvalidInput(
            "Approximate search needs the extra 'ann': run pip install 'shortlist-mcp[ann]', "
            "or set search.index to 'exact'."
        ) from None
    return faiss
