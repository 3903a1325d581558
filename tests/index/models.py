"""Tiny models as files: real ONNX graphs and tokenizers of a dozen words, written by hand."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ("[UNK]", "create", "delete", "event", "calendar", "file", "read", "message", "send")
DIMENSIONS = 8
_FLOAT, _INT64 = 1, 7


def write_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_card(folder: Path, weights: Path, **more: Any) -> None:
    card = {
        "name": "tiny",
        "kind": "onnx",
        "dimensions": DIMENSIONS,
        "digest": hashlib.sha256(weights.read_bytes()).hexdigest(),
        **more,
    }
    (folder / "model.json").write_text(json.dumps(card), "utf-8")


def write_onnx(folder: Path, graph: bytes | None = None, **card: Any) -> Path:
    """Write a folder with a model that averages one vector a word."""
    write_tokenizer(folder)
    weights = folder / "model.onnx"
    weights.write_bytes(_model(pooled() if graph is None else graph))
    write_card(folder, weights, **card)
    return folder


def write_static(folder: Path, **card: Any) -> Path:
    """Write a folder with a vector for each word; its tokenizer is that of the small model beside it."""
    folder.mkdir(parents=True)
    write_tokenizer(folder.parent / "small")
    table = (table_of(DIMENSIONS) * 60).astype(np.int8)
    np.save(folder / "vectors.npy", table)
    np.save(folder / "scales.npy", np.full(len(WORDS), 1 / 60, np.float16))
    write_card(folder, folder / "vectors.npy", kind="static", **card)
    return folder


def table_of(dimensions: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(7).normal(size=(len(WORDS), dimensions)).clip(-2, 2).astype(np.float32)


def pooled(dimensions: int = DIMENSIONS) -> bytes:
    """One vector a text: the mean over its words."""
    return _graph(
        [
            _node("Gather", ["table", "input_ids"], "hidden"),
            _node("Cast", ["attention_mask"], "kept", _integer("to", _FLOAT)),
            _node("Unsqueeze", ["kept", "last"], "column"),
            _node("Mul", ["hidden", "column"], "masked"),
            _node("ReduceMean", ["masked"], "out", _integers("axes", [1]) + _integer("keepdims", 0)),
        ],
        _tensor("table", _FLOAT, table_of(dimensions)) + _tensor("last", _INT64, np.array([2], np.int64)),
    )


def unpooled() -> bytes:
    """One vector a word, as most exports have it."""
    nodes = [_node("Gather", ["table", "input_ids"], "out")]
    return _graph(nodes, _tensor("table", _FLOAT, table_of(DIMENSIONS)))


def unmasked() -> bytes:
    """A graph that takes no mask, because a text is always read without padding."""
    nodes = [
        _node("Gather", ["table", "input_ids"], "hidden"),
        _node("ReduceMean", ["hidden"], "out", _integers("axes", [1]) + _integer("keepdims", 0)),
    ]
    return _graph(nodes, _tensor("table", _FLOAT, table_of(DIMENSIONS)), inputs=("input_ids",))


def three_inputs() -> bytes:
    """A graph that also wants token types."""
    nodes = [_node("Add", ["input_ids", "token_type_ids"], "both"), _node("Cast", ["both"], "out", _integer("to", 1))]
    return _graph(nodes, b"", inputs=("input_ids", "attention_mask", "token_type_ids"))


def _model(graph: bytes) -> bytes:
    return _number(1, 8) + _bytes(8, _bytes(1, b"") + _number(2, 13)) + _bytes(7, graph)


def _graph(
    nodes: Iterable[bytes], initializers: bytes, inputs: tuple[str, ...] = ("input_ids", "attention_mask")
) -> bytes:
    given = b"".join(_bytes(11, _value(name, _INT64)) for name in inputs)
    return b"".join(nodes) + _bytes(2, b"g") + initializers + given + _bytes(12, _value("out", _FLOAT))


def _node(kind: str, inputs: list[str], output: str, attributes: bytes = b"") -> bytes:
    named = b"".join(_bytes(1, name.encode()) for name in inputs)
    return _bytes(1, named + _bytes(2, output.encode()) + _bytes(4, kind.encode()) + attributes)


def _integer(name: str, value: int) -> bytes:
    return _bytes(5, _bytes(1, name.encode()) + _number(3, value) + _number(20, 2))


def _integers(name: str, values: list[int]) -> bytes:
    return _bytes(5, _bytes(1, name.encode()) + b"".join(_number(8, v) for v in values) + _number(20, 7))


def _tensor(name: str, kind: int, values: np.ndarray[Any, Any]) -> bytes:
    shape = b"".join(_number(1, size) for size in values.shape)
    return _bytes(5, shape + _number(2, kind) + _bytes(8, name.encode()) + _bytes(9, values.tobytes()))


def _value(name: str, kind: int) -> bytes:
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _number(1, kind)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
