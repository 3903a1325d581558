"""Query vectors shared by calls: kept by the whole text, bounded, and made once for all who ask at the same time."""

import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.errors import ModelError
from shortlist.index.embedders import Embedder, OnnxEmbedder, Progress, StaticEmbedder, Vectors

CAPACITY = 1_000
COOL_DOWN_SECONDS = 15.0
"""A provider that failed is left alone for this long: no turn should wait for its timeout again and again."""
SAME_LENGTH = 1e-3
"""Vectors whose length is this near to one are left as they are."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A query's vector, and whether somebody else had paid for it."""

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
        self._reports = len(inspect.signature(embedder.embed_documents).parameters) > 1

    @property
    def model_id(self) -> str:
        return self.embedder.model_id

    @property
    def dimensions(self) -> int:
        return self.embedder.dimensions

    @property
    def is_local(self) -> bool:
        """Whether the model runs in this process, so that nobody else has to be waited for."""
        return isinstance(self.embedder, OnnxEmbedder | StaticEmbedder)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Embed documents; an embedder of the user's own need not know of progress."""
        more = (progress,) if self._reports else ()
        return self._checked(self.embedder.embed_documents(texts, *more), len(texts))

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
            vector: Vectors = self._checked([self.embedder.embed_query(text)], 1)[0]
        except BaseException as error:
            with self._lock:
                del self._pending[text]
                if isinstance(error, ModelError):
                    self._failed = (self.clock(), error)
            own.set_exception(error)
            raise
        with self._lock:
            del self._pending[text]
            self._known[text] = vector
            if len(self._known) > self.capacity:
                self._known.popitem(last=False)
        own.set_result(vector)
        return vector

    def _checked(self, made: Any, wanted: int) -> Vectors:
        """Return vectors of length one as an array, or say what is wrong with them."""
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
