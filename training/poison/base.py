"""The shipped encoder's weights in float32, by the names that `network.py` uses."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

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
