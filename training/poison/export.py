"""Write the trained passage classifier as an ONNX file: word vectors of a passage in, its logit out.

python -m training.poison.export --trained FOLDER --out src/shortlist/weights/scanner

The word vectors are those of `small`: `model.json` says where its file has them.
"""

import argparse
import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from training.poison.base import four_bits
from training.poison.shape import BLOCK, EPSILON, HEADS, WIDTH

PIECES = 30_522
SMALL = Path(__file__).parents[2] / "src" / "shortlist" / "weights" / "small" / "model.onnx"
LARGEST_WEIGHT = 99.95
"""The percentile of the weights that int8 reaches to."""
OPSET = 20
RUNTIME = "com.microsoft"
"""The domain of onnxruntime's own operators."""
Weights = dict[str, NDArray[np.float32]]


class Graph:
    """Nodes and constants that are added one after another."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def add(self, kind: str, *inputs: str, outputs: Sequence[str] = (), domain: str = "", **attributes: object) -> str:
        """Add a node and return the name of its first output."""
        names = outputs or (f"{kind}{len(self.nodes)}",)
        self.nodes.append(helper.make_node(kind, list(inputs), list(names), domain=domain, **attributes))
        return names[0]

    def linear(self, hidden: str, name: str) -> str:
        """Multiply by a matrix of 4-bit numbers and add its bias."""
        weight = self.weights[f"{name}.weight"]
        outputs, inputs = weight.shape
        packed, scales = four_bits(weight)
        halves = self.constant(f"{name}.scales", scales)
        parts = self.constant(f"{name}.four", packed), self.add("Cast", halves, to=TensorProto.FLOAT)
        product = self.add(
            "MatMulNBits",
            hidden,
            *parts,
            domain=RUNTIME,
            K=inputs,
            N=outputs,
            bits=4,
            block_size=BLOCK,
            accuracy_level=4,
        )
        return self.add("Add", product, self.constant(f"{name}.bias", self.weights[f"{name}.bias"]))

    def normal(self, hidden: str, name: str) -> str:
        parts = [self.constant(f"{name}.{kind}", self.weights[f"{name}.{kind}"]) for kind in ("weight", "bias")]
        return self.add("LayerNormalization", hidden, *parts, axis=-1, epsilon=EPSILON)

    def layer(self, hidden: str, name: str) -> str:
        three = [f"{name}.{part}" for part in ("queries", "keys", "values")]
        self.add("Split", self.linear(hidden, f"{name}.qkv"), outputs=three, axis=-1, num_outputs=3)
        seen = self.add("MultiHeadAttention", *three, domain=RUNTIME, num_heads=HEADS)
        hidden = self.normal(self.add("Add", hidden, self.linear(seen, f"{name}.mix")), f"{name}.first")
        inner = self.add("Gelu", self.linear(hidden, f"{name}.up"))
        return self.normal(self.add("Add", hidden, self.linear(inner, f"{name}.down")), f"{name}.second")


def model(weights: Weights) -> onnx.ModelProto:
    """Return the classifier of passages whose word vectors it is given."""
    graph = Graph(weights)
    turned = graph.add("MatMul", "vectors", graph.constant("turn", weights["words.turn.weight"].T))
    words = graph.add("Add", turned, graph.constant("turn.bias", weights["words.turn.bias"]))
    first = graph.constant("first", np.array([0], np.int64))
    length = graph.add("Shape", "vectors", start=1, end=2)
    places = graph.add("Slice", graph.constant("places", weights["places"]), first, length, first)
    hidden = graph.normal(graph.add("Add", words, places), "norm")
    for number in range(sum(name.endswith("qkv.weight") for name in weights)):
        hidden = graph.layer(hidden, f"layers.{number}")
    along = graph.constant("along", np.array([1], np.int64))
    mean, highest = (graph.add(kind, hidden, along, keepdims=0) for kind in ("ReduceMean", "ReduceMax"))
    pooled = graph.add("Concat", mean, highest, axis=1)
    summed = graph.add("MatMul", pooled, graph.constant("head", weights["head.weight"].T))
    graph.add("Add", summed, graph.constant("bias", weights["head.bias"]), outputs=("logit",))
    inputs = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["one", "length", WIDTH])]
    outputs = [helper.make_tensor_value_info("logit", TensorProto.FLOAT, ["one", 1])]
    whole = helper.make_graph(graph.nodes, "passages", inputs, outputs, graph.constants)
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIME, 1)]
    return helper.make_model(whole, opset_imports=versions, ir_version=9)


def int8_pairs(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], float]:
    """Return the weights of word pieces and pairs as int8, and their scale."""
    scale = float(np.percentile(np.abs(weights[weights != 0]), LARGEST_WEIGHT) / 127)
    return np.clip(np.round(weights / scale), -127, 127).astype(np.int8), scale


def places_in_file(path: Path) -> dict[str, int]:
    """Return where the bytes of the word vectors and of their scales start in the file of `small`."""
    whole = path.read_bytes()
    values = {value.name: numpy_helper.to_array(value) for value in onnx.load(path).graph.initializer}
    found = {name: whole.index(np.ascontiguousarray(values[name]).tobytes()) for name in ("words", "scales")}
    return {"words_at": found["words"], "scales_at": found["scales"]}


def trained_weights(folder: Path) -> Weights:
    files = folder.glob("classifier*.npz")
    return {name: value.astype(np.float32) for path in files for name, value in np.load(path).items()}


def averaged(trained: Sequence[Weights]) -> Weights:
    """Return the mean of the weights of several trainings, which score hard texts more evenly than one."""
    return {name: np.mean([each[name] for each in trained], axis=0, dtype=np.float32) for name in trained[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trained", type=Path, nargs="+", required=True, help="the folders that `training.poison.train` wrote"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    weights = averaged([trained_weights(folder) for folder in options.trained])
    options.out.mkdir(parents=True, exist_ok=True)
    target, pairs = options.out / "model.onnx", options.out / "pairs.npy"
    onnx.save(model(weights), target)
    numbers, scale = int8_pairs(weights["pairs"])
    np.save(pairs, numbers)
    card = {
        "digest": sha256(target.read_bytes()).hexdigest(),
        "pairs_digest": sha256(pairs.read_bytes()).hexdigest(),
        "words_digest": sha256(SMALL.read_bytes()).hexdigest(),
        **places_in_file(SMALL),
        "pieces": PIECES,
        "scale": round(scale, 8),
        "bias": round(float(weights["pairs_bias"][0]), 6),
    }
    (options.out / "model.json").write_text(json.dumps(card, indent=1) + "\n")
    print(f"{target.stat().st_size:,} + {pairs.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
