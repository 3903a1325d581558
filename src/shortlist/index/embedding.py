"""Vectors of documents, made once: what a cache holds is not embedded again, nor what another process embeds now."""

import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from shortlist.index.embedders import Embedder, Progress, Vectors

KEPT_AT_ONCE = 1_024
"""How many vectors are made before they are kept: what an interruption loses at most."""
PARTS = 16
"""Processes that share a cache claim parts of the missing texts, by hash, and make the vectors of different ones."""
RETRY_SECONDS = 0.2
"""How often a part that another process has claimed is asked for."""
PATIENCE_SECONDS = 120.0
"""How long a part may stay claimed before this process embeds it too: the other one may be stopped, not ended."""


class VectorCache(Protocol):
    """Keeps vectors by what was embedded, so that nothing is embedded twice."""

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]: ...

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None: ...


@runtime_checkable
class SharedVectorCache(VectorCache, Protocol):
    """A cache that several processes fill together."""

    def claim(self, model_id: str, parts: Sequence[int]) -> AbstractContextManager[frozenset[int]]:
        """Hold those of the parts that no other process holds, and yield them."""
        ...


def known_vectors(embedder: Embedder, name: str, texts: list[str], cache: VectorCache | None) -> dict[str, Vectors]:
    """Return the cached vectors of texts; those of a wrong size or with NaN are computed again."""
    found = cache.get(name, texts) if cache is not None else {}
    return {
        text: vector
        for text, vector in found.items()
        if vector.shape == (embedder.dimensions,) and np.isfinite(vector).all()
    }


def embed_cached(embedder: Embedder, texts: list[str], cache: VectorCache | None, progress: Progress | None) -> Vectors:
    """Embed each distinct text once, and not at all if the cache has it; vectors are cached as they are made."""
    distinct = list(dict.fromkeys(texts))
    known = known_vectors(embedder, embedder.model_id, distinct, cache)
    missing = sorted((text for text in distinct if text not in known), key=len)
    work = _Embedding(embedder, cache, progress, len(missing), known)
    if isinstance(cache, SharedVectorCache):
        work.share(missing, cache)
    else:
        work.make(missing)
    return np.stack([known[text] for text in texts]) if texts else np.zeros((0, embedder.dimensions), np.float32)


@dataclass(slots=True)
class _Embedding:
    """The missing vectors of one call, and how many of them are there."""

    embedder: Embedder
    cache: VectorCache | None
    progress: Progress | None
    total: int
    known: dict[str, Vectors]
    done: int = field(default=0, init=False)

    def make(self, texts: list[str]) -> None:
        """Embed texts, and add their vectors to the cache and to those that are known."""
        for start in range(0, len(texts), KEPT_AT_ONCE):
            part = texts[start : start + KEPT_AT_ONCE]
            fresh = dict(zip(part, self.embedder.embed_documents(part, self._report), strict=True))
            if self.cache is not None:
                self.cache.put(self.embedder.model_id, fresh)
            self.known.update(fresh)
            self.done += len(part)
            self._report(0, 0)

    def share(self, texts: list[str], cache: SharedVectorCache) -> None:
        """Embed texts beside other processes that lack the same ones: claim a part, look it up again, and make it.

        A part that another process holds is asked for until it is free; by then its vectors are in the cache.
        """
        waiting: dict[int, list[str]] = {}
        for text in texts:
            waiting.setdefault(zlib.crc32(text.encode("utf-8", "replace")) % PARTS, []).append(text)
        together = PARTS if len(texts) <= KEPT_AT_ONCE else 1
        patience = time.monotonic() + PATIENCE_SECONDS
        while waiting and time.monotonic() < patience:
            parts, before = list(waiting), self.done
            for start in range(0, len(parts), together):
                with cache.claim(self.embedder.model_id, parts[start : start + together]) as mine:
                    self._make_missing([text for part in mine for text in waiting[part][:KEPT_AT_ONCE]])
                for part in mine:
                    waiting[part] = waiting[part][KEPT_AT_ONCE:]
            waiting = {part: left for part, left in waiting.items() if left}
            if self.done > before:
                patience = time.monotonic() + PATIENCE_SECONDS
            else:
                time.sleep(RETRY_SECONDS)
        self._make_missing([text for left in waiting.values() for text in left])

    def _make_missing(self, texts: list[str]) -> None:
        if not texts:
            return
        found = known_vectors(self.embedder, self.embedder.model_id, texts, self.cache)
        self.known |= found
        self.done += len(found)
        self.make(sorted((text for text in texts if text not in found), key=len))

    def _report(self, done: int, _: int) -> None:
        """Report the progress of a part as progress of the whole."""
        if self.progress is not None:
            self.progress(self.done + done, self.total)
