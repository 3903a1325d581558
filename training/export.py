"""The encoder as one int8 ONNX file, pooling and normalisation inside, written with the runtime's fused operators."""

import argparse
import json
import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig

from training.fusing import fused
from training.modelling import TorchEmbedder, base_folder, load_encoder, load_tokenizer, read_config, read_weights
from training.prepared import read_training

LARGEST_FILE = 25_000_000
SMALLEST_COSINE = 0.97
MASKED = -1e4
SMOOTHING = 0.8
"""How much of an input's size its weights take over; of 0.35 to 1 the closest to float32 on training texts."""
CALIBRATION_TEXTS, CALIBRATION_TOKENS = 300, 160
PROBES = (
    "list all open pull requests in the repository",
    "github: create issue. Create a new issue in a repository (owner, repo, title)",
    "天気を教えて",
    "send email",
)


class Smoothed(nn.Module):
    """A linear layer whose inputs are evened out: int8 has one scale for all of them, and a few are far larger."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.even = nn.Buffer(torch.ones(inputs))

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.linear(hidden * self.even)
        return result

    def smooth(self, largest: Tensor) -> None:
        """Move the size of each input, as far as it was seen to go, from the input to its weights."""
        by_weight = self.linear.weight.abs().amax(0).clamp_min(1e-5)
        scale = largest.clamp_min(1e-5) ** SMOOTHING / by_weight ** (1 - SMOOTHING)
        scale = scale / scale.mean()
        self.linear.weight.data *= scale
        self.even.copy_(1 / scale)


class PlainLayer(nn.Module):
    """One BERT layer written out with plain matrix products, so that the graph is small and quantises whole."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.heads, self.depth = config.num_attention_heads, width // config.num_attention_heads
        self.qkv, self.mix = Smoothed(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = Smoothed(width, inner), Smoothed(inner, width)
        self.first = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.second = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        query, key, value = (
            part.view(batch, length, self.heads, self.depth).transpose(1, 2)
            for part in self.qkv(hidden).split(width, dim=-1)
        )
        weights = (query @ key.transpose(-1, -2) * self.depth**-0.5 + bias).softmax(-1)
        seen = (weights @ value).transpose(1, 2).reshape(batch, length, width)
        hidden = self.first(hidden + self.mix(seen))
        return self.second(hidden + self.down(nn.functional.gelu(self.up(hidden))))


class PlainEncoder(nn.Module):
    """Ids and mask to unit vectors; word vectors are int8 with a scale each, which one scale for all would blur."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.words = nn.Buffer(torch.zeros(config.vocab_size, config.hidden_size, dtype=torch.int8))
        self.scales = nn.Buffer(torch.zeros(config.vocab_size, 1))
        self.places = nn.Parameter(torch.zeros(config.max_position_embeddings, config.hidden_size))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(PlainLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.float()
        real = mask[..., None]  # what stands in the padding would stretch the range that int8 has for the rest
        words = self.words[input_ids].float() * self.scales[input_ids]
        hidden = self.norm(words + self.places[: input_ids.shape[1]]) * real
        bias = (1.0 - mask[:, None, None, :]) * MASKED
        for layer in self.layers:
            hidden = layer(hidden, bias) * real
        pooled = hidden.sum(1)
        return pooled / pooled.pow(2).sum(-1, keepdim=True).clamp_min(1e-18).sqrt()


def plain_encoder(weights: Path, base: Path) -> PlainEncoder:
    """Fill the plain encoder with BERT's weights; the one token type is folded into the places."""
    read = read_weights(weights)
    model = PlainEncoder(read_config(base, read))
    state = {name.removeprefix("bert."): tensor for name, tensor in read.items()}
    model.load_state_dict(_renamed(state, len(model.layers)))
    return model.eval()


@torch.no_grad()
def smooth(model: PlainEncoder, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Even out the inputs of the matrix products by how large they become over some texts."""
    largest: dict[Smoothed, Tensor] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, Smoothed)
        seen = inputs[0].abs().flatten(0, -2).amax(0)
        largest[layer] = torch.maximum(largest.get(layer, seen), seen)

    hooks = [layer.register_forward_pre_hook(note) for layer in model.modules() if isinstance(layer, Smoothed)]
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids[:CALIBRATION_TOKENS]])
        model(ids, torch.ones_like(ids))
    for hook in hooks:
        hook.remove()
    for layer, size in largest.items():
        layer.smooth(size)


def calibration_texts(work: Path) -> list[str]:
    """Take queries and tool texts of the training set, evenly spread, and the probes for what it hardly has."""
    data = read_training(work)
    half = CALIBRATION_TEXTS // 2
    spread = [texts[:: max(1, len(texts) // half)][:half] for texts in (data.texts, data.queries)]
    return [*PROBES, *(text for texts in spread for text in texts)]


def _renamed(state: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    head = "embeddings"
    words = state[f"{head}.word_embeddings.weight"]
    scales = words.abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
    found = {
        "words": (words / scales).round().to(torch.int8),
        "scales": scales,
        "places": state[f"{head}.position_embeddings.weight"] + state[f"{head}.token_type_embeddings.weight"][0],
        "norm.weight": state[f"{head}.LayerNorm.weight"],
        "norm.bias": state[f"{head}.LayerNorm.bias"],
    }
    parts = {
        "mix": "attention.output.dense",
        "first": "attention.output.LayerNorm",
        "up.linear": "intermediate.dense",
        "down.linear": "output.dense",
        "second": "output.LayerNorm",
    }
    for layer in range(layers):
        old = f"encoder.layer.{layer}"
        for kind in ("weight", "bias"):
            attention = [state[f"{old}.attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
            found[f"layers.{layer}.qkv.linear.{kind}"] = torch.cat(attention)
            for new, name in parts.items():
                found[f"layers.{layer}.{new}.{kind}"] = state[f"{old}.{name}.{kind}"]
        width = found["places"].shape[1]
        found |= {f"layers.{layer}.{name}.even": torch.ones(width) for name in ("qkv", "up")}
        found[f"layers.{layer}.down.even"] = torch.ones(found[f"layers.{layer}.down.linear.weight"].shape[1])
    return found


def write_onnx(model: PlainEncoder, path: Path) -> None:
    ids = torch.ones(2, 7, dtype=torch.long)
    torch.onnx.export(
        model,
        (ids, ids),
        str(path),
        input_names=["input_ids", "attention_mask"],
        output_names=["embedding"],
        dynamic_axes={
            "input_ids": {0: "batch", 1: "length"},
            "attention_mask": {0: "batch", 1: "length"},
            "embedding": {0: "batch"},
        },
        opset_version=17,
        dynamo=False,
    )


def quantise(source: Path, target: Path) -> None:
    """Write the matrices as int8, one scale per channel."""
    quantize_dynamic(
        source,
        target,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True},
    )
    size = target.stat().st_size
    if size > LARGEST_FILE:
        raise SystemExit(f"{target} is {size} bytes; the limit is {LARGEST_FILE}")


def run(path: Path, texts: tuple[str, ...], tokenizer: Any) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = [np.array([tokenizer.encode(text).ids], np.int64) for text in texts]
    return np.concatenate([session.run(None, {"input_ids": row})[0] for row in rows])


def parity(weights: Path, small: Path, base: Path) -> float:
    """Return the lowest cosine between the trained encoder's vectors and the file's over the probes."""
    tokenizer = load_tokenizer(base)
    exact = TorchEmbedder(load_encoder(base, weights), tokenizer, torch.device("cpu"))
    return float((exact(PROBES, False) * run(small, PROBES, tokenizer)).sum(1).min())


def export_all(out: Path, work: Path, base: Path | None = None) -> Path:
    """Export `encoder.safetensors` to `small/`: model, tokenizer and the description that the package reads."""
    base = base or base_folder()
    folder, exact = out / "small", out / "float32.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    model = plain_encoder(out / "encoder.safetensors", base)
    smooth(model, load_tokenizer(base), calibration_texts(work))
    write_onnx(model, exact)
    quantise(exact, folder / "model.onnx")
    onnx.save(fused(onnx.load(folder / "model.onnx")), folder / "model.onnx")
    cosine = parity(out / "encoder.safetensors", folder / "model.onnx", base)
    print(f"int8 against float32: lowest cosine {cosine:.4f}, {(folder / 'model.onnx').stat().st_size} bytes")
    if cosine < SMALLEST_COSINE:
        raise SystemExit(f"Quantisation moved a vector to cosine {cosine:.4f}; the floor is {SMALLEST_COSINE}")
    exact.unlink()
    onnx.checker.check_model(str(folder / "model.onnx"))
    save_tokenizer(base, folder)
    digest = sha256((folder / "model.onnx").read_bytes()).hexdigest()
    card = {"name": "shortlist-small", "kind": "onnx", "dimensions": 384, "digest": digest}
    (folder / "model.json").write_text(json.dumps(card, indent=1) + "\n")
    return folder


def save_tokenizer(base: Path, folder: Path) -> None:
    """Keep the tokenizer without the padding and cut that its file asks for."""
    shutil.copy(base / "tokenizer.json", folder / "tokenizer.json")
    load_tokenizer(base).save(str(folder / "tokenizer.json"), pretty=False)


def main() -> None:
    """Export trained weights."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder with encoder.safetensors")
    parser.add_argument("--work", type=Path, default=Path("training/.work"), help="prepared data, to calibrate on")
    parser.add_argument("--base", type=Path)
    arguments = parser.parse_args()
    export_all(arguments.out, arguments.work, arguments.base)


if __name__ == "__main__":
    main()
