"""Embedders: what turns texts into unit vectors. Model runtimes are imported when a model is first used."""

import atexit
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import InvalidInput, ModelError
from shortlist.text.word_vectors import MAX_TEXT_CHARS, PieceVectors, checked, open_tokenizer, unit

Vectors: TypeAlias = NDArray[np.float32]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number done and the total."""
Tier: TypeAlias = Literal["small", "static", "none"]
EMBEDDERS = "small (the default), small:256 (the first of its dimensions), static, none, or a folder with a model.json"

MODEL_FILE, CHATS_FILE = "model.onnx", "chats.npz"
MASK = "attention_mask"
LAST_TEXT_SECONDS = 2.0
"""How long the end of the program waits for the texts that are being read, and for a model that is loading."""
FEW_TEXTS = 16
"""For this many texts, opening another session would take longer than embedding them."""
SPIN_MICROSECONDS = 10
"""How long a thread of the model waits awake for its next part of a text; longer only takes more CPU."""
NO_VALUES: Mapping[str, Vectors] = MappingProxyType({})
VNNI = frozenset(("avx512_vnni", "avx_vnni"))
WEIGHTS = Path(__file__).parent.parent / "weights"


@runtime_checkable
class Embedder(Protocol):
    """Unit vectors for documents and queries; equal `model_id`s give equal vectors."""

    @property
    def model_id(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors: ...

    def embed_query(self, text: str) -> Vectors: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The contents of `model.json`, which describes the weights."""

    name: str
    kind: Literal["onnx", "static"]
    dimensions: int
    digest: str
    """The sha256 of the file with the weights."""
    vectors: str = ""
    """The digest of an earlier file with the same weights, whose vectors stay valid; the file's own without one."""
    document_tokens: int = 160
    query_tokens: int = 256
    chats: str = ""
    """The sha256 of the file with the values that the model reads whole chats with; empty where there is none."""

    def __post_init__(self) -> None:
        for number in (self.dimensions, self.document_tokens, self.query_tokens):
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"{number!r} is not a number of dimensions or tokens")
        if self.kind not in ("onnx", "static"):
            raise ValueError(f"kind is {self.kind!r}; it is onnx or static")

    @property
    def model_id(self) -> str:
        """Name the vectors that the model makes."""
        return f"{self.name}@{(self.vectors or self.digest)[:12]}"

    @classmethod
    def read(cls, folder: Path) -> "ModelCard":
        path = folder / "model.json"
        try:
            raw: dict[str, Any] = json.loads(path.read_text("utf-8"))
            return cls(**{key: raw[key] for key in cls.__dataclass_fields__ if key in raw})
        except FileNotFoundError:
            raise ModelError(f"No model in {str(folder)!r}: {path.name} is missing.") from None
        except (ValueError, TypeError) as error:
            raise ModelError(f"{str(path)!r} does not describe a model: {error}.") from None


class OnnxEmbedder:
    """A transformer with pooling inside its graph, run by onnxruntime; loaded at the first text.

    Of its dimensions the first can be kept alone: a model trained for that says most in them.
    """

    def __init__(self, folder: Path, dimensions: int | None = None, *, for_chats: bool = False) -> None:
        whole = ModelCard.read(folder)
        self.card = replace(whole, dimensions=dimensions or whole.dimensions)
        self._kept = f":{self.dimensions}" if self.dimensions != whole.dimensions else ""
        self._folder = folder
        self._for_chats = for_chats
        """Whether it reads whole chats instead of requests."""
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._masked = True
        """Whether the graph takes a mask, which marks no padding: each text is read by itself."""
        self.is_shared = False
        """Whether many queries are embedded at the same time, as in a gateway; set before it is loaded.

        Each is then read by one thread: sharing a text between cores takes a third more CPU, and they have other texts.
        """

    @property
    def model_id(self) -> str:
        return f"{self.card.model_id}{self._kept}"

    @property
    def dimensions(self) -> int:
        return self.card.dimensions

    def for_chats(self) -> "OnnxEmbedder | None":
        """Return the same model as it reads chats and loose words; None where it was not trained for that."""
        if not self.card.chats:
            return None
        reader = OnnxEmbedder(self._folder, self.dimensions, for_chats=True)
        reader.is_shared = self.is_shared
        return reader

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Embed each text by itself, one on every core.

        In a batch they would be padded to the longest, and share one int8 range: slower, and no text's vector would be
        its own. A query may have all cores for itself; here every core has a text, so many are read by a session of
        one thread.
        """
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        session, tokenizer = self._parts()
        if len(texts) > FEW_TEXTS and not self.is_shared:
            with PROGRAM:
                session = self._session(threads=1)
        rows = iter(range(len(texts)))

        def embed(tell: Progress | None) -> None:
            try:
                for row in rows:  # each is taken by one thread
                    vectors[row] = self._vector(session, tokenizer, texts[row], self.card.document_tokens)
                    if tell:
                        tell(row + 1, len(texts))
            finally:
                deque(rows, maxlen=0)  # where one fails, nothing is left for the others

        _side_by_side(embed, progress)
        if progress and texts:
            progress(len(texts), len(texts))
        return vectors

    def embed_query(self, text: str) -> Vectors:
        return self._vector(*self._parts(), text, self.card.query_tokens)

    def load(self) -> None:
        """Load the model now rather than with the first text."""
        self._parts()

    def _vector(self, session: Any, tokenizer: Any, text: str, tokens: int) -> Vectors:
        ids = np.array([tokenizer.encode(text[:MAX_TEXT_CHARS]).ids[:tokens] or [0]], np.int64)
        with PROGRAM:
            (vectors,) = session.run(None, _inputs(ids, masked=self._masked))
        vector: Vectors = unit(np.asarray(vectors, np.float32)[:, : self.dimensions])[0]
        return vector

    def _parts(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                with PROGRAM:
                    self._loaded = self._load()
            return self._loaded

    def _session(self, threads: int) -> Any:
        values = chat_values(checked(self._folder / CHATS_FILE, self.card.chats)) if self._for_chats else NO_VALUES
        return onnx_session(self._folder / MODEL_FILE, threads, values)

    def _load(self) -> tuple[Any, Any]:
        model = self._folder / MODEL_FILE
        with ThreadPoolExecutor(1) as beside:  # a first search waits for all three
            opened = beside.submit(self._session, threads=1 if self.is_shared else 0)
            checked(model, self.card.digest)
            tokenizer = open_tokenizer(self._folder / "tokenizer.json")
            session = opened.result()
        self._masked = any(taken.name == MASK for taken in session.get_inputs())
        try:
            (probe,) = session.run(None, _inputs(np.ones((1, 2), np.int64), masked=self._masked))
        except Exception as error:
            raise ModelError(
                f"{str(model)!r} does not take input_ids and attention_mask alone: {error}. "
                "Export it with pooling inside the graph; see docs/models.md."
            ) from error
        if probe.ndim != 2 or probe.shape[1] < self.dimensions:
            raise ModelError(
                f"{str(model)!r} returns shape {probe.shape}; model.json declares {self.dimensions} dimensions."
            )
        return session, tokenizer


class StaticEmbedder:
    """Averages one vector per word piece; needs only numpy and takes microseconds per text."""

    def __init__(self, folder: Path) -> None:
        self.card = ModelCard.read(folder)
        self._words = PieceVectors(folder, self.card.dimensions, self.card.digest)

    @property
    def model_id(self) -> str:
        return self.card.model_id

    @property
    def dimensions(self) -> int:
        return self.card.dimensions

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), 1024):
            part = texts[start : start + 1024]
            vectors[start : start + len(part)] = self._words.of(part, self.card.document_tokens)
            if progress:
                progress(start + len(part), len(texts))
        return vectors

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self._words.of([text], self.card.query_tokens)[0]
        return vector


def shipped(tier: str) -> Embedder | None:
    """Return one of the models in the package, or one of a folder with `model.json` in it; `small:256` is narrower."""
    if tier == "none":
        return None
    name, kept = _parted(tier)
    if name in get_args(Tier) and name != "none":
        folder = WEIGHTS / name
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        raise InvalidInput(f"No embedder {tier!r}: there are {EMBEDDERS}.")
    return _opened(folder, kept)


def _parted(tier: str) -> tuple[str, int | None]:
    """Split a model name from the number of dimensions, if there is one."""
    found = None if Path(tier).is_dir() else re.fullmatch(r"(.+):(\d{1,5})", tier)
    return (found[1], int(found[2])) if found else (tier, None)


def _opened(folder: Path, dimensions: int | None) -> Embedder:
    card = ModelCard.read(folder)
    if card.kind == "static" and dimensions is not None:
        raise InvalidInput(f"{card.name} needs all of its {card.dimensions} dimensions; small can do with fewer.")
    if dimensions is not None and not 0 < dimensions <= card.dimensions:
        raise InvalidInput(f"{card.name} has {card.dimensions} dimensions; {dimensions} cannot be kept.")
    return StaticEmbedder(folder) if card.kind == "static" else OnnxEmbedder(folder, dimensions)


def runtime_available() -> bool:
    """Return whether onnxruntime can be imported, without importing it."""
    import importlib.util  # noqa: PLC0415

    return importlib.util.find_spec("onnxruntime") is not None


class _Program:
    """Ends between two texts: a thread that the interpreter stops inside the runtime would take the process down."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._ending = False
        atexit.register(self._end)

    def __enter__(self) -> None:
        with self._changed:
            if threading.current_thread() is not threading.main_thread():  # which the end waits for, and nobody stops
                self._changed.wait_for(lambda: not self._ending)
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.wait_for(lambda: not self._running, LAST_TEXT_SECONDS)


PROGRAM = _Program()


def _side_by_side(work: Callable[[Progress | None], None], progress: Progress | None) -> None:
    """Work on every core, reporting progress, in threads that end with the program."""
    failures: list[Exception] = []

    def guarded() -> None:
        try:
            work(None)
        except Exception as error:  # raised below, where somebody listens
            failures.append(error)

    helpers = [threading.Thread(target=guarded, daemon=True) for _ in range(_cores() - 1)]
    for helper in helpers:
        helper.start()
    work(progress)
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]


def _cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _inputs(ids: NDArray[np.int64], *, masked: bool) -> dict[str, NDArray[np.int64]]:
    return {"input_ids": ids, MASK: np.ones_like(ids)} if masked else {"input_ids": ids}


def chat_values(path: Path) -> dict[str, Vectors]:
    """Read the values that replace those of a model: bytes between the least and the greatest value of each."""
    try:
        with np.load(path) as stored:
            codes, lengths, least, steps = (stored[name] for name in ("codes", "lengths", "least", "steps"))
            names = stored["names"].tolist()
        parts = np.split(codes.astype(np.float32), np.cumsum(lengths)[:-1])
        return {name: part * step + low for name, part, step, low in zip(names, parts, steps, least, strict=True)}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ModelError(f"The values in {str(path)!r} cannot be used ({error}); reinstall the package.") from None


def onnx_session(model: Path, threads: int, values: Mapping[str, Vectors] = NO_VALUES) -> Any:
    """Open a model whose texts are read by some threads each; 0 means one for every core.

    `values` replace values of the same names in the file.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read once, at its import: its releases report to their makers
    try:
        import onnxruntime  # noqa: PLC0415
    except ImportError:
        raise ModelError("onnxruntime is not installed; use --embedder static, or install it.") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # A thread that waits awake for its next part of a text saves an eighth of the time. Older runtimes would wait for
    # too long.
    can_spin_briefly = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 26)
    waits = ("spin_duration_us", str(SPIN_MICROSECONDS)) if can_spin_briefly else ("allow_spinning", "0")
    options.add_session_config_entry(f"session.intra_op.{waits[0]}", waits[1])
    if not sums_exactly():  # fast instructions would let sums of 8-bit products overflow: every vector a bit wrong
        options.add_session_config_entry("session.x64quantprecision", "1")
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in values.items()}
    try:
        for name, value in held.items():
            options.add_initializer(name, value)
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(f"{str(model)!r} is not a model that onnxruntime can run: {error}") from error
    session.held = held  # the session reads them for as long as it lives
    return session


@cache
def sums_exactly(description: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this x86-64 processor adds up 8-bit products in 32 bits (VNNI); without a description, no."""
    try:
        flags = next((line for line in description.read_text().splitlines() if line.startswith("flags")), "")
    except OSError:
        return False
    return not VNNI.isdisjoint(flags.split())
