"""Vectors kept by what was embedded and by which model, so that nothing is embedded twice."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from shortlist.index.embedders import Vectors
from shortlist.index.vectors import quantise
from shortlist.storage.port import StoredVector, VectorStore


class StoredVectors:
    """A vector cache over a store: vectors are quantised on the way in, as an index does."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]:
        """Return the vectors of the texts that were embedded before."""
        keys = {vector_key(model_id, text): text for text in texts}
        return {
            keys[key]: np.frombuffer(codes, np.int8).astype(np.float32) * np.float32(scale)
            for key, (scale, codes) in self._store.get(list(keys)).items()
        }

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None:
        """Keep vectors by the texts they stand for."""
        if not vectors:
            return
        codes, scales = quantise(np.stack(list(vectors.values())))
        self._store.put(
            {
                vector_key(model_id, text): StoredVector(float(scale), code.tobytes())
                for text, scale, code in zip(vectors, scales, codes, strict=True)
            }
        )

    @contextmanager
    def claim(self, model_id: str, parts: Sequence[int]) -> Iterator[frozenset[int]]:
        """Hold those of the parts of a model's texts that no other process embeds now, and yield them."""
        names = {f"vectors {model_id} {part}": part for part in parts}
        with self._store.claim(list(names)) as granted:
            yield frozenset(names[name] for name in granted)


def vector_key(model_id: str, text: str) -> bytes:
    """Return the key of a vector: a hash of the model that made it and the text that it stands for."""
    return hashlib.blake2b(f"{model_id}\0{text}".encode("utf-8", "replace"), digest_size=16).digest()
