"""The static tier: one int8 vector per word piece, distilled from the tuned encoder and trained on the same pairs."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.metrics import Score, Vectors, development_macro, evaluate
from training.mining import forbidden
from training.modelling import (
    DOCUMENT_TOKENS,
    LONGEST_TEXT,
    QUERY_TOKENS,
    Encoder,
    TokenTable,
    embed_table,
)
from training.prepared import NOTHING, RankingSet
from training.train import Batch, Material, Recipe, batches, learning_rate, sampling_weights

WIDTH = 256
SMOOTHING = 1e-3
"""Where a word piece's share of all text halves its weight (SIF's a)."""
REMOVED_CHOICES = (0, 1, 2, 3)
MARKS = 2
"""`[CLS]` and `[SEP]` around every row of a token table; the static tier reads neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRecipe:
    """Everything that decides the static table."""

    seed: int = 0
    steps: int = 1500
    batch: int = 2048
    rate: float = 2e-3
    weight_rate: float = 1e-2
    temperature: float = 0.05
    follow: float = 1.0
    """How much the encoder's own similarities count beside the labels."""


class StaticModel(nn.Module):
    """Weighted sums of word-piece vectors; the weights are folded into the vectors when saved."""

    def __init__(self, vectors: Tensor, weights: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors.clone())
        self.log_weights = nn.Parameter(weights.clamp_min(1e-6).log())

    def forward(self, table: TokenTable, rows: Tensor) -> Tensor:
        ids, offsets = inner_tokens(table, rows)
        weights = self.log_weights.exp()[ids]
        summed = nn.functional.embedding_bag(ids, self.vectors, offsets, mode="sum", per_sample_weights=weights)
        return nn.functional.normalize(summed, dim=-1)

    def folded(self) -> Tensor:
        return (self.vectors * self.log_weights.exp()[:, None]).detach()


def inner_tokens(table: TokenTable, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the word pieces of the rows end to end, without the marks around them, and where each row starts."""
    lengths = (table.lengths[rows] - MARKS).clamp_min(1)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)[:-1]])
    owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    steps = torch.arange(len(owner), device=rows.device) - offsets[owner]
    return table.flat[table.starts[rows][owner] + 1 + steps], offsets


def piece_vectors(encoder: Encoder, tokenizer: Tokenizer, device: torch.device) -> Tensor:
    """Send every word piece through the encoder alone."""
    size = tokenizer.get_vocab_size()
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    ids = torch.arange(size, device=device)
    flat = torch.stack([torch.full_like(ids, first), ids, torch.full_like(ids, last)], 1).flatten()
    table = TokenTable(flat, 3 * ids, torch.full_like(ids, 3))
    return embed_table(encoder.to(device).eval(), table)


def piece_weights(material: Material, size: int) -> Tensor:
    """Weigh word pieces down by how common they are in tools and queries."""
    counts = torch.bincount(material.texts.flat, minlength=size) + torch.bincount(material.queries.flat, minlength=size)
    share = counts.double() / counts.sum()
    return (SMOOTHING / (SMOOTHING + share)).float()


def reduced(vectors: Tensor, weights: Tensor, removed: int) -> Tensor:
    """Centre, drop the first principal components, keep the next `WIDTH`."""
    centred = vectors - (vectors * weights[:, None]).sum(0) / weights.sum()
    _, _, axes = torch.linalg.svd(centred.double() * weights[:, None].double().sqrt(), full_matrices=False)
    return (centred.double() @ axes[removed : removed + WIDTH].T).float()


def distilled(encoder: Encoder, tokenizer: Tokenizer, material: Material, sets: Sequence[RankingSet]) -> StaticModel:
    """Make the untrained table; the development part says how many first components to remove."""
    vectors = piece_vectors(encoder, tokenizer, material.device)
    weights = piece_weights(material, len(vectors))
    tried = []
    for removed in REMOVED_CHOICES:
        model = StaticModel(reduced(vectors, weights, removed), weights).to(material.device)
        score = static_score(model, tokenizer, sets)
        print(f"  static, {removed} removed: {score}", flush=True)
        tried.append((score.ndcg10, removed, model))
    return max(tried, key=lambda each: each[:2])[2]


def static_score(model: StaticModel, tokenizer: Tokenizer, sets: Sequence[RankingSet]) -> Score:
    table, scales = quantised(model.folded())
    return development_macro(evaluate(sets, StaticEmbedder(tokenizer, table, scales), lenient=False))


def train_static(
    model: StaticModel, encoder: Encoder, material: Material, mined: Tensor, recipe: StaticRecipe
) -> StaticModel:
    """Train the table on the labels and on the encoder's own similarities."""
    torch.manual_seed(recipe.seed)
    random = torch.Generator(material.device).manual_seed(recipe.seed)
    goal = [embed_table(encoder.eval(), table) for table in (material.queries, material.texts)]
    shared = Recipe(seed=recipe.seed, steps=recipe.steps, batch=recipe.batch, temperature=recipe.temperature)
    optimiser = torch.optim.Adam(
        [{"params": [model.vectors]}, {"params": [model.log_weights], "lr": recipe.weight_rate}], lr=recipe.rate
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, learning_rate(shared))
    began = time.monotonic()
    for step, rows in enumerate(batches(sampling_weights(material.data, shared), shared, material.device), 1):
        batch = _static_batch(material, rows, mined, random)
        loss = _static_loss(model, material, batch, goal, recipe)
        loss.backward()
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step % max(1, recipe.steps // 4) == 0:
            print(
                f"  static {step}/{recipe.steps} loss {float(loss.detach()):.3f} {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return model


def _static_batch(material: Material, rows: Tensor, mined: Tensor, random: torch.Generator) -> Batch:
    column = torch.randint(mined.shape[1], (len(rows), 1), generator=random, device=rows.device)
    positive = material.arrays.positives[rows, 0]
    hard = mined[rows].gather(1, column)[:, 0]
    documents = torch.cat([positive, torch.where(hard == NOTHING, positive, hard)])
    unfair = forbidden(material.arrays, rows, documents)
    places = torch.arange(len(rows), device=rows.device)
    unfair[places, places] = False
    return Batch(rows, documents, unfair, places[:, None])


def _static_loss(
    model: StaticModel, material: Material, batch: Batch, goal: Sequence[Tensor], recipe: StaticRecipe
) -> Tensor:
    queries, documents = model(material.queries, batch.rows), model(material.texts, batch.documents)
    similarity = (queries @ documents.T / recipe.temperature).masked_fill(batch.unfair, -1e4)
    target = torch.arange(len(batch.rows), device=similarity.device)
    followed = (goal[0][batch.rows] @ goal[1][batch.documents].T / recipe.temperature).masked_fill(batch.unfair, -1e4)
    divergence = nn.functional.kl_div(
        similarity.log_softmax(1), followed.log_softmax(1), log_target=True, reduction="batchmean"
    )
    return nn.functional.cross_entropy(similarity, target) + recipe.follow * divergence


def quantised(vectors: Tensor) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Write each vector as int8 with its own scale."""
    scales = (vectors.abs().amax(1).clamp_min(1e-8) / 127).cpu().numpy().astype(np.float16)
    wide = np.maximum(scales.astype(np.float32), 1e-7)[:, None]
    return np.clip(np.rint(vectors.cpu().numpy() / wide), -127, 127).astype(np.int8), scales


def save_static(model: StaticModel, folder: Path, name: str) -> None:
    """Write the table, the scales and the description that the package reads."""
    folder.mkdir(parents=True, exist_ok=True)
    table, scales = quantised(model.folded())
    np.save(folder / "vectors.npy", table)
    np.save(folder / "scales.npy", scales)
    digest = sha256((folder / "vectors.npy").read_bytes()).hexdigest()
    card = {"name": name, "kind": "static", "dimensions": WIDTH, "digest": digest}
    (folder / "model.json").write_text(json.dumps(card, indent=1) + "\n")


class StaticEmbedder:
    """The saved table at work, as the package computes it."""

    def __init__(self, tokenizer: Tokenizer, table: NDArray[np.int8], scales: NDArray[np.float16]) -> None:
        self.tokenizer, self.vectors = tokenizer, table.astype(np.float32) * scales.astype(np.float32)[:, None]

    def __call__(self, texts: Sequence[str], queries: bool) -> Vectors:
        limit = QUERY_TOKENS if queries else DOCUMENT_TOKENS
        encoded = self.tokenizer.encode_batch_fast([t[:LONGEST_TEXT] for t in texts], add_special_tokens=False)
        rows = [e.ids[:limit] or [0] for e in encoded]
        starts = np.cumsum([0, *map(len, rows[:-1])])
        summed = np.add.reduceat(self.vectors[np.concatenate(rows)], starts, axis=0)
        return summed / np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-9)
