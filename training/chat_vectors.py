"""The vectors of chats that `training.chat_encoder` writes and `training.fit_chats` reads."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def chat_key(catalog: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """Name a chat by its contents: chats are made anew in each run."""
    return hashlib.sha1(json.dumps([catalog, messages]).encode()).hexdigest()


def write_chat_vectors(path: Path, keys: Sequence[str], vectors: NDArray[np.float32]) -> None:
    np.savez_compressed(path, keys=np.array(keys), vectors=vectors.astype(np.float16))


def read_chat_vectors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the vectors by the key of their chat."""
    with np.load(path) as saved:
        return dict(zip(saved["keys"].tolist(), saved["vectors"].astype(np.float32), strict=True))
