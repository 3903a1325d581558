"""Vectors of tools and of queries.

Tools: exact cosine similarity over int8 vectors, one byte per dimension and SIMD, instead of an approximate graph.
Queries: vectors are kept by the whole text, bounded, and made once for all who ask at the same time.
"""

import inspect
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numkong
import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.index.embedders import Embedder, OnnxEmbedder, Progress, StaticEmbedder, Vectors
from shortlist.index.ports import Among, Candidates, Mask, Rows
from shortlist.models import Query, Scores
from shortlist.text.queries import MOST_CHARS

LEVELS = np.array(127, np.float32)
SMALLEST = np.array(np.finfo(np.float32).tiny)
"""Arrays, because converting a number takes numpy as long as the arithmetic on one vector."""
SPARE_SHARE = 0.05
"""Room left for later rows once an index has been updated."""
CAPACITY = 1_000
COOL_DOWN_SECONDS = 15.0
"""How long a failed provider is not contacted, so that not every turn waits for its timeout."""
SAME_LENGTH = 1e-3
"""Vectors whose length is this near to one are left as they are."""
LARGE = 2_000
"""With fewer scores than this, the best are found faster without a floor."""
BLOCKS = 4
"""Blocks per score that is sought: more give a closer floor, fewer are read faster."""


class ExactVectorIndex:
    """Vectors by row, rounded to int8 with a scale each; a row without a vector scores zero.

    A zero vector has the smallest scale: it is not asked for again, and counts as none.

    A value: `grown`, `compacted` and `with_vectors` return new indexes that share their codes. Codes are written only
    for rows whose scale is zero in every index that shares them, so older indexes never see a change.
    """

    def __init__(
        self,
        model_id: str,
        codes: NDArray[np.int8],
        scales: NDArray[np.float32],
        room: NDArray[np.int8] | None = None,
    ) -> None:
        self.dimensions: int = codes.shape[1]
        self.model_id = model_id
        self._codes = codes
        """Those of the first rows, which may lie in a mapped file: an update must not copy every vector."""
        self._room = codes[:0] if room is None else room
        """Those of the rows that came by updates, followed by room for more."""
        self._scales = scales
        self.missing = self.size - int(np.count_nonzero(scales))
        """How many rows still wait for their vector."""
        self.zeros = int(np.count_nonzero(scales == SMALLEST))
        """How many rows have a zero vector."""

    @classmethod
    def empty(cls, dimensions: int, model_id: str, rows: int = 0) -> "ExactVectorIndex":
        return cls(model_id, np.zeros((rows, dimensions), np.int8), np.zeros(rows, np.float32))

    @classmethod
    def of(cls, model_id: str, vectors: Vectors) -> "ExactVectorIndex":
        """Index vectors in the order they come."""
        codes, scales = quantise(vectors)
        return cls(model_id, codes, scales)

    @property
    def size(self) -> int:
        return len(self._scales)

    def rows_without_vector(self) -> Rows:
        return np.flatnonzero(self._scales == 0)

    def rows_with_zeros(self) -> Rows:
        return np.flatnonzero(self._scales == SMALLEST)

    def waiting(self, rows: Rows) -> NDArray[np.bool_] | None:
        """Mark the rows that have no vector yet, or a zero vector; None where all have one."""
        if not self.missing and not self.zeros:
            return None
        marked: NDArray[np.bool_] = self._scales[rows] <= SMALLEST
        return marked if marked.any() else None

    def grown(self, size: int) -> "ExactVectorIndex":
        """Add rows whose vectors come later."""
        room, later = self._room, size - len(self._codes)
        if later > len(room):
            room = np.zeros((later + int(size * SPARE_SHARE) * bool(self.size), self.dimensions), np.int8)
            room[: len(self._room)] = self._room
        scales = np.concatenate([self._scales, np.zeros(size - self.size, np.float32)])
        return ExactVectorIndex(self.model_id, self._codes, scales, room)

    def compacted(self, rows: Rows) -> "ExactVectorIndex":
        """Keep only these rows; they move up."""
        return ExactVectorIndex(self.model_id, self._codes_of(rows), self._scales[rows])

    def with_vectors(self, rows: Rows, vectors: Vectors) -> "ExactVectorIndex":
        """Add the vectors of rows that have none."""
        codes, given = quantise(vectors)
        free, first = self._scales[rows] == 0, rows < len(self._codes)
        self._codes[rows[free & first]] = codes[free & first]
        self._room[rows[free & ~first] - len(self._codes)] = codes[free & ~first]
        scales = self._scales.copy()
        scales[rows[free]] = np.maximum(given[free], SMALLEST)
        return ExactVectorIndex(self.model_id, self._codes, scales, self._room)

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
        return _combined(self._cosines(query, self._codes_of(rows), self._scales[rows]))

    def cosines(self, queries: Vectors) -> Vectors:
        """Return the cosine of every row with each of the queries, one line per query."""
        first, later = len(self._codes), self.size - len(self._codes)
        if not later:
            return self._cosines(queries, self._codes, self._scales)
        parts = (self._codes, self._scales[:first]), (self._room[:later], self._scales[first:])
        return np.concatenate([self._cosines(queries, *part) for part in parts if len(part[1])], axis=1)

    def vectors(self, rows: Rows | list[int]) -> Vectors:
        restored: Vectors = self._codes_of(np.asarray(rows, np.int64)).astype(np.float32) * self._scales[rows, None]
        return restored

    def state(self) -> dict[str, NDArray[Any]]:
        codes = self._codes if self.size == len(self._codes) else self._codes_of(np.arange(self.size))
        return {"codes": codes, "scales": self._scales}

    @classmethod
    def restore(cls, model_id: str, arrays: Mapping[str, NDArray[Any]]) -> "ExactVectorIndex":
        """Return saved vectors; the arrays are used as they are, and those of later rows are written into them."""
        return cls(model_id, arrays["codes"], arrays["scales"])

    def _cosines(self, queries: Vectors, codes: NDArray[np.int8], scales: NDArray[np.float32]) -> Vectors:
        if not len(scales):
            return np.zeros((len(queries), 0), np.float32)
        asked, asked_scales = quantise(queries[:, : self.dimensions])
        cosines = np.empty((len(asked), len(scales)), np.float32)
        numkong.cdist(asked, codes, metric="dot", out=cosines, out_dtype="float32")
        cosines *= scales
        cosines *= asked_scales[:, None]
        return cosines

    def _codes_of(self, rows: Rows) -> NDArray[np.int8]:
        first = len(self._codes)
        if self.size == first or not len(rows) or rows.max() < first:
            return self._codes[rows]
        codes = np.empty((len(rows), self.dimensions), np.int8)
        early = rows < first
        codes[early], codes[~early] = self._codes[rows[early]], self._room[rows[~early] - first]
        return codes


def texts_to_read(texts: Sequence[str]) -> Sequence[str]:
    """Return which texts of a query a model reads: of a long one the parts alone.

    The whole would cost as much again, and a model cuts it off.
    """
    return texts[1:] if len(texts) > 2 and len(texts[0]) > MOST_CHARS else texts


def query_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Embed the texts of one query: the whole of it, and its parts where it asks for several things.

    Where the whole is not read, the mean of its parts stands for it, by their length.
    """
    read = texts_to_read(texts)
    found = np.array([embedder.embed_query(text) for text in read], np.float32)
    if len(read) == len(texts):
        return found
    whole = np.array([len(text) for text in read], np.float32) @ found
    return np.concatenate([whole[None] / np.maximum(np.linalg.norm(whole), SMALLEST), found])


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


@dataclass(frozen=True, slots=True)
class Looked:
    """A query's vector, and whether it was cached or computed by another call."""

    vector: Vectors
    hit: bool


class QueryVectors:
    """An embedder whose query vectors are remembered; documents go through as they are."""

    def __init__(
        self, embedder: Embedder, capacity: int = CAPACITY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.embedder = embedder
        self.capacity = capacity
        self.clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._pending: dict[str, Future[Vectors]] = {}
        self._failed: tuple[float, ModelError] | None = None
        self._chats: QueryVectors | None = None
        self._reports = len(inspect.signature(embedder.embed_documents).parameters) > 1

    @property
    def model_id(self) -> str:
        return self.embedder.model_id

    @property
    def dimensions(self) -> int:
        return self.embedder.dimensions

    @property
    def is_local(self) -> bool:
        """Whether the model runs in this process, without waiting for a provider."""
        return isinstance(self.embedder, OnnxEmbedder | StaticEmbedder)

    def for_chats(self) -> "QueryVectors | None":
        """Return the same for chats, one for all who ask; None where the model was not trained to read them."""
        with self._lock:
            if self._chats is None and isinstance(self.embedder, OnnxEmbedder):
                reader = self.embedder.for_chats()
                self._chats = QueryVectors(reader, self.capacity, self.clock) if reader is not None else None
            return self._chats

    def reading(self, query: Query) -> "QueryVectors":
        """Return what reads a query: beside a paste people ask as loosely as in chats."""
        return (self.for_chats() if query.beside_paste else None) or self

    def share(self) -> None:
        """Expect queries at the same time: each is embedded a little later, and more of them in a second."""
        if isinstance(self.embedder, OnnxEmbedder):
            self.embedder.is_shared = True

    def load(self) -> None:
        """Load a model that takes a moment to load; its first text would do that otherwise."""
        if isinstance(self.embedder, OnnxEmbedder):
            self.embedder.load()

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Embed documents; an embedder of the user's own need not know of progress."""
        more = (progress,) if self._reports else ()
        try:
            made = self.embedder.embed_documents(texts, *more)
        except Exception as error:
            raise self._failure(error) from error
        return self._checked(made, len(texts))

    def embed_query(self, text: str) -> Vectors:
        return self.look_up(text).vector

    def look_up(self, text: str) -> Looked:
        """Return the vector of a text; one call of many for the same text embeds it, the others wait for that."""
        with self._lock:
            if text in self._known:
                self._known.move_to_end(text)
                return Looked(self._known[text], hit=True)
            shared = self._pending.get(text)
            if shared is None:
                self._refuse_while_down()
                own = self._pending[text] = Future()
        if shared is not None:
            return Looked(shared.result(), hit=True)
        return Looked(self._make(text, own), hit=False)

    def look_up_all(self, texts: Sequence[str]) -> bool:
        """Make the vectors of several texts side by side; say whether all were there already."""
        if sum(text not in self._known for text in texts) < 2:
            looked = [self.look_up(text) for text in texts]
        else:
            with ThreadPoolExecutor(len(texts), thread_name_prefix="shortlist-query") as threads:
                looked = list(threads.map(self.look_up, texts))
        return all(each.hit for each in looked)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self._failed = None

    @property
    def size(self) -> int:
        return len(self._known)

    def _make(self, text: str, own: "Future[Vectors]") -> Vectors:
        try:
            vector = self._asked(text)
        except BaseException as error:
            with self._lock:
                del self._pending[text]
            own.set_exception(error)
            raise
        with self._lock:
            del self._pending[text]
            self._known[text] = vector
            if len(self._known) > self.capacity:
                self._known.popitem(last=False)
        own.set_result(vector)
        return vector

    def _asked(self, text: str) -> Vectors:
        """Embed a query; a model that fails is left alone for a while, one that returns a wrong vector is not."""
        try:
            made = self.embedder.embed_query(text)
        except Exception as error:
            failure = self._failure(error)
            with self._lock:
                self._failed = (self.clock(), failure)
            raise failure from error
        if made is None:
            raise ModelError(f"{self.model_id} returned None instead of the query's vector.")
        vector: Vectors = self._checked([made], 1)[0]
        if not vector.any():
            raise ModelError(f"{self.model_id} returned a zero vector for the query.")
        return vector

    def _failure(self, error: Exception) -> ModelError:
        """Return an error of the model as it is, and what else an embedder raises as one."""
        if isinstance(error, ModelError):
            return error
        return ModelError(f"{self.model_id} failed with {type(error).__name__}: {error}")

    def _checked(self, made: Any, wanted: int) -> Vectors:
        """Return normalised vectors as an array; raise if they are invalid."""
        try:
            vectors: Vectors = np.asarray(made, np.float32)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{self.model_id} did not return vectors of numbers: {error}.") from None
        if vectors.shape != (wanted, self.dimensions):
            raise ModelError(
                f"{self.model_id} returned vectors of shape {vectors.shape} for {wanted} texts and "
                f"{self.dimensions} dimensions."
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise ModelError(f"{self.model_id}: the provider returned NaN or infinity in an embedding.")
        if (np.abs(lengths - 1) < SAME_LENGTH).all():
            return vectors
        unit: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return unit

    def _refuse_while_down(self) -> None:
        if self._failed is None:
            return
        since, error = self._failed
        if self.clock() - since < COOL_DOWN_SECONDS:
            raise error
        self._failed = None


def best(scores: Scores, limit: int) -> Rows:
    """Return the rows of the best `limit` positive scores, with all that tie with the last of them.

    With many scores, the best of each block sets a floor that at least `limit` of them reach, and only scores above it
    are looked at again.
    """
    blocks = BLOCKS * limit
    if len(scores) <= max(LARGE, blocks):
        last = _score_at(scores, limit)
        return (scores >= last if last > 0 else scores > 0).nonzero()[0]
    each = len(scores) // blocks
    floor = _score_at(np.maximum.reduce(scores[: each * blocks].reshape(each, blocks), axis=0), limit)
    (rows,) = (scores >= floor if floor > 0 else scores > 0).nonzero()
    found = scores[rows]
    last = _score_at(found, limit)
    return rows[found >= last] if last > floor else rows


def _score_at(scores: Scores, depth: int) -> float:
    """Return the score at rank `depth`, or zero where there are fewer."""
    if len(scores) < depth:
        return 0.0
    ordered = scores.copy()
    ordered.partition(-depth)
    return ordered.item(-depth)


def masked(scores: Scores, mask: Mask | None) -> Scores:
    """Set the scores of rows that may not answer to zero."""
    if mask is None:
        return scores
    kept: Scores = np.where(mask, scores, np.float32(0))
    return kept
