"""Weights by the names that `network.py` uses: those of `small`, and those that the classifier starts from."""

import re
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from training.poison.shape import BLOCK, POSITIONS

PARTS = ("qkv", "mix", "up", "down")


def small_weights(path: Path) -> dict[str, np.ndarray]:
    """Read the int8 file back: matrices, and what evens out their inputs, as one matrix each."""
    values = {value.name: numpy_helper.to_array(value) for value in onnx.load(path).graph.initializer}
    found = {
        "words": values["words"].astype(np.float32) * values["scales"],
        "places": values["places"],
        "norm.weight": values["norm.weight"],
        "norm.bias": values["norm.bias"],
    }
    layers = {name.rsplit(".", 2)[0] for name in values if name.startswith("layers.")}
    for layer in sorted(layers):
        for part in PARTS:
            whole, zero, scale = (values[f"{layer}.{part}.{each}"] for each in ("quantized", "zero_point", "scale"))
            exact = (whole.astype(np.float32) - zero.astype(np.float32)) * scale
            even = values.get(f"{layer}.{part}.even")
            found[f"{layer}.{part}.weight"] = (exact if even is None else even[:, None] * exact).T.copy()
            found[f"{layer}.{part}.bias"] = values[f"{layer}.{part}.bias"].copy()
        for norm in ("first", "second"):
            for kind in ("weight", "bias"):
                found[f"{layer}.{norm}.{kind}"] = values[f"{layer}.{norm}.{kind}"].copy()
    return found


def deep_weights(path: Path, words: np.ndarray, layers: int) -> dict[str, np.ndarray]:
    """Read the first layers of gte-small from its ONNX file, and what turns the words of `small` into its own.

    Both go back to MiniLM-L12, of which `small` kept every second layer, so that a linear map brings them close.
    """
    graph = onnx.load(path).graph
    values = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
    nodes = [(node.name, i) for node in graph.node if node.op_type == "MatMul" for i in node.input]
    products = {name: values[i] for name, i in nodes if i in values}
    own = values["embeddings.word_embeddings.weight"]
    places = values["embeddings.position_embeddings.weight"] + values["embeddings.token_type_embeddings.weight"][0]
    found = {
        "words.turn.weight": np.linalg.lstsq(words, own, rcond=None)[0].T,
        "words.turn.bias": np.zeros(words.shape[1], np.float32),
        "places": places[:POSITIONS],
        "norm.weight": values["embeddings.LayerNorm.weight"],
        "norm.bias": values["embeddings.LayerNorm.bias"],
    }
    parts = {
        "qkv": [f"attention/self/{part}" for part in ("query", "key", "value")],
        "mix": ["attention/output/dense"],
        "up": ["intermediate/dense"],
        "down": ["output/dense"],
    }
    norms = {"first": "attention.output.LayerNorm", "second": "output.LayerNorm"}
    for name in products:
        layer = re.search(r"layer\.(\d+)/attention/self/query/", name)
        if layer is None or int(layer[1]) >= layers:
            continue
        ours, theirs = f"layers.{layer[1]}", f"encoder.layer.{layer[1]}"
        before = name[: layer.start()] + f"layer.{layer[1]}/"
        for part, sources in parts.items():
            found[f"{ours}.{part}.weight"] = np.concatenate([products[f"{before}{s}/MatMul"] for s in sources], 1).T
            biases = [values[f"{theirs}.{s.replace('/', '.')}.bias"] for s in sources]
            found[f"{ours}.{part}.bias"] = np.concatenate(biases)
        for norm, source in norms.items():
            found |= {f"{ours}.{norm}.{kind}": values[f"{theirs}.{source}.{kind}"] for kind in ("weight", "bias")}
    return {name: np.array(value, np.float32, order="C") for name, value in found.items()}


def exported_weights(path: Path) -> dict[str, np.ndarray]:
    """Read the weights of an exported classifier by the names that `network` uses."""
    stored = {value.name: numpy_helper.to_array(value) for value in onnx.load(path).graph.initializer}
    found = {
        "words.turn.weight": stored["turn"].T,
        "words.turn.bias": stored["turn.bias"],
        "head.weight": stored["head"].T,
        "head.bias": stored["bias"].reshape(1),
    }
    for name, value in stored.items():
        matrix, _, kind = name.rpartition(".")
        if kind == "four":
            numbers = np.stack([value & 15, value >> 4], -1).reshape(len(value), -1).astype(np.float32) - 8
            scales = stored[f"{matrix}.scales"].astype(np.float32).reshape(len(value), -1)
            found[f"{matrix}.weight"] = numbers * np.repeat(scales, numbers.shape[1] // scales.shape[1], axis=1)
        elif name == "places" or kind in ("weight", "bias"):
            found[name] = value
    return {name: np.array(value, np.float32) for name, value in found.items() if name != "turn.bias"}


def four_bits(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as 4-bit numbers, two in a byte, and the scale of every block of its inputs."""
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    widest = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], 2)
    scales = np.where(widest == 0, 1, widest / -8).astype(np.float16)
    numbers = (np.clip(np.round(blocks / scales.astype(np.float32)), -8, 7) + 8).astype(np.uint8)
    packed = (numbers[..., 0::2] | numbers[..., 1::2] << np.uint8(4)).astype(np.uint8)
    return packed, scales[..., 0]


def packed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights with the matrices of layers in 8 bits, each row with a scale."""
    found: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        if name.startswith("layers.") and value.ndim == 2:
            scales = (np.maximum(np.abs(value).max(1, keepdims=True), 1e-12) / 127).astype(np.float32)
            found[name], found[f"{name}.scales"] = np.round(value / scales).astype(np.int8), scales
        else:
            found[name] = value
    return found


def unpacked(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what `packed` was given, as 8 bits hold it."""
    return {
        name: value * arrays[f"{name}.scales"] if f"{name}.scales" in arrays else value
        for name, value in arrays.items()
        if not name.endswith(".scales")
    }
