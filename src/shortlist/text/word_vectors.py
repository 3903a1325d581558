"""One shipped vector for each word piece: a text is their average, in microseconds and with numpy alone."""

import hashlib
import json
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import ModelError
from shortlist.text.pieces import Pieces

SHIPPED = Path(__file__).parent.parent / "weights" / "static"
MAX_TEXT_CHARS = 4_000
"""Longer than any model reads; a megabyte of text must not reach a tokenizer."""


class PieceVectors:
    """The vectors of a folder, which are read with the first text."""

    def __init__(self, folder: Path, dimensions: int, digest: str) -> None:
        self._folder, self._dimensions, self._digest = folder, dimensions, digest
        self._lock = threading.Lock()
        self._loaded: tuple[Pieces, NDArray[np.int8], NDArray[np.float32]] | None = None

    def of(self, texts: Sequence[str], tokens: int) -> NDArray[np.float32]:
        """Return a unit vector for each text, of its first word pieces."""
        pieces, table, scales = self._parts()
        summed = np.empty((len(texts), self._dimensions), np.float32)
        for row, found in enumerate(pieces([_whole(text[:MAX_TEXT_CHARS]) for text in texts])):
            ids = np.array(found[:tokens] or [0])
            summed[row] = scales[ids] @ table[ids].astype(np.float32)
        return unit(summed)

    def _parts(self) -> tuple[Pieces, NDArray[np.int8], NDArray[np.float32]]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Pieces, NDArray[np.int8], NDArray[np.float32]]:
        try:
            table = np.asarray(np.load(checked(self._folder / "vectors.npy", self._digest), mmap_mode="r"))
            scales = np.load(self._folder / "scales.npy").astype(np.float32)
        except (OSError, ValueError, EOFError) as error:
            raise ModelError(f"The vectors in {str(self._folder)!r} cannot be read ({error}); reinstall.") from None
        tokenizer = open_tokenizer(self._folder.parent / "small" / "tokenizer.json")
        needed = (tokenizer.get_vocab_size(), self._dimensions)
        if table.shape != needed or scales.shape != needed[:1]:
            raise ModelError(
                f"The vectors in {str(self._folder)!r} are of shape {table.shape}, not {needed}; reinstall."
            )
        return Pieces(tokenizer), table, scales


def _whole(text: str) -> str:
    """Replace halves of characters, which no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@cache
def shipped_word_vectors() -> PieceVectors:
    try:
        card = json.loads((SHIPPED / "model.json").read_text("utf-8"))
        return PieceVectors(SHIPPED, card["dimensions"], card["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"The vectors in {str(SHIPPED)!r} cannot be read ({error}); reinstall.") from None


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: NDArray[np.float32] = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return found


def checked(path: Path, digest: str) -> Path:
    """Return a file's path if the file has the digest that it was shipped with."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise ModelError(f"The weights {str(path)!r} are missing; reinstall the package.") from None
    if digest and found != digest:
        raise ModelError(f"The weights {str(path)!r} are damaged (sha256 {found[:12]}…); reinstall the package.")
    return path


def open_tokenizer(path: Path) -> Any:
    """Open a tokenizer that neither pads nor cuts texts."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415

        tokenizer = Tokenizer.from_file(str(path))
    except ImportError:
        raise ModelError("tokenizers is not installed; install it, or reinstall the package.") from None
    except Exception as error:
        raise ModelError(f"{str(path)!r} is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
