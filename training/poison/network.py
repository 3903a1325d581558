"""The passage classifier: a transformer whose layers come from a pretrained encoder, over the words of `small`."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from training.poison.shape import BLOCK, EPSILON, HEADS, INNER, POSITIONS, WIDTH

MASK_TOKEN = 103
Arrays = Mapping[str, np.ndarray]


def rounded(weight: Tensor) -> Tensor:
    """Return a matrix as 4 bits hold it: blocks along the inputs, each with one scale."""
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    widest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scale = (widest / -8).half().to(weight.dtype)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return ((blocks / scale).round().clamp(-8, 7) * scale).reshape(weight.shape)


class Linear(nn.Linear):
    """A linear layer that may learn with the weights that 4 bits leave of its own."""

    coarse = False

    def forward(self, hidden: Tensor) -> Tensor:
        weight = self.weight
        if self.coarse:
            weight = weight + (rounded(weight.detach()) - weight.detach())
        return nn.functional.linear(hidden, weight, self.bias)


class Layer(nn.Module):
    """One BERT layer."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.qkv = Linear(WIDTH, 3 * WIDTH)
        self.mix = Linear(WIDTH, WIDTH)
        self.first = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.up = Linear(WIDTH, INNER)
        self.down = Linear(INNER, WIDTH)
        self.second = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        query, key, value = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        mixed = mixed.transpose(1, 2).reshape(batch, length, WIDTH)
        hidden = self.first(hidden + self.dropout(self.mix(mixed)))
        inner = self.down(nn.functional.gelu(self.up(hidden)))
        found: Tensor = self.second(hidden + self.dropout(inner))
        return found


class Words(nn.Module):
    """The word vectors of `small`, which stay, turned into those that the layers know."""

    fixed: Tensor

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.register_buffer("fixed", vectors, persistent=False)
        self.turn = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.turn(self.fixed[ids])
        return found


class Classifier(nn.Module):
    """Maps token ids to one logit: high where a passage tells the model more than how to use its tool."""

    def __init__(self, words: Tensor, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.words = Words(words)
        self.places = nn.Parameter(torch.zeros(POSITIONS, WIDTH))
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * WIDTH, 1)
        self.head_tags = nn.Linear(WIDTH, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.normal_(self.head_tags.weight, std=0.02)

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return what the last layer makes of each token."""
        hidden = self.norm(self.words(ids) + self.places[: ids.shape[1]])
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden

    @staticmethod
    def pooled(hidden: Tensor, mask: Tensor) -> Tensor:
        """Return mean and maximum over the tokens."""
        weights = mask[..., None].to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1)
        highest = hidden.masked_fill(~mask[..., None], -math.inf).amax(1)
        return torch.cat([mean, highest], -1).float()

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logit of each passage, and one of each token: high where it is part of what is poisoned."""
        hidden = self.read(ids, mask)
        pooled = self.pooled(hidden, mask)
        with torch.autocast(ids.device.type, enabled=False):
            return self.head(self.dropout(pooled))[:, 0], self.head_tags(self.dropout(hidden.float()))[..., 0]


def from_encoder(words: np.ndarray, arrays: Arrays) -> Classifier:
    """Return a classifier with the layers of an encoder, and word vectors turned into those of that encoder."""
    layers = sum(name.endswith("qkv.weight") for name in arrays)
    model = Classifier(torch.from_numpy(words), layers)
    state = model.state_dict()
    taken = {name: torch.from_numpy(arrays[name].astype(np.float32)) for name in state if name in arrays}
    model.load_state_dict({**state, **taken})
    return model
