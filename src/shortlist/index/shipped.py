"""Vectors that come with the package: the bundled demo is searched by meaning before anything was embedded."""

import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import numpy as np

from shortlist.index.cache import StoredVectors, vector_key
from shortlist.index.embedders import WEIGHTS, Vectors
from shortlist.index.embedding import SharedVectorCache
from shortlist.index.vectors import quantise
from shortlist.storage.port import VectorStore

DEMO_VECTORS = WEIGHTS.parent / "demo" / "vectors.npz"
"""Those of the bundled demo's tools, by the model `small`; `python -m training.demo_vectors` makes them again."""


def open_vectors(store: VectorStore) -> SharedVectorCache:
    """Return a cache over a store, with the vectors of the package below it."""
    return ShippedVectors(StoredVectors(store))


class ShippedVectors:
    """A cache that also gives what a file holds; keys name model and text, so that an outdated file gives nothing."""

    def __init__(self, cache: SharedVectorCache, path: Path = DEMO_VECTORS) -> None:
        self._cache, self._path = cache, path

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]:
        found = self._cache.get(model_id, texts)
        missing = {vector_key(model_id, text): text for text in texts if text not in found}
        return found | {missing[key]: self._shipped[key] for key in missing.keys() & self._shipped.keys()}

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None:
        self._cache.put(model_id, vectors)

    def claim(self, model_id: str, parts: Sequence[int]) -> AbstractContextManager[frozenset[int]]:
        return self._cache.claim(model_id, parts)

    @cached_property
    def _shipped(self) -> Mapping[bytes, Vectors]:
        try:
            with np.load(self._path) as arrays:
                vectors = arrays["codes"].astype(np.float32) * arrays["scales"][:, None]
                return dict(zip(map(bytes, arrays["keys"]), vectors, strict=True))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}  # whatever is missing is embedded


def write_shipped(path: Path, model_id: str, vectors: Mapping[str, Vectors]) -> None:
    """Write vectors by what was embedded, rounded as an index rounds them."""
    codes, scales = quantise(np.stack(list(vectors.values())))
    keys = np.stack([np.frombuffer(vector_key(model_id, text), np.uint8) for text in vectors])
    with path.open("wb") as file:
        np.savez(file, keys=keys, codes=codes, scales=scales)
