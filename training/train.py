"""Contrastive fine-tuning of the encoder, chosen on the development part alone."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.metrics import Score, development_macro, evaluate
from training.mining import Arrays, arrays_of, forbidden, mine
from training.modelling import (
    DOCUMENT_TOKENS,
    QUERY_TOKENS,
    Encoder,
    TokenTable,
    TorchEmbedder,
    autocast,
    chunks_by_length,
    embed_table,
    mixed,
    token_table,
)
from training.prepared import NOTHING, RankingSet, TrainingSet

State = dict[str, Tensor]
Learn = Callable[[Tensor, torch.Generator], float]
"""Leaves the gradients of a batch of rows in a model, and gives the loss."""
SHARES = {"written_authored": 0.26, "written": 0.24, "variant": 0.12, "self": 0.38}
"""What part of a batch each kind fills, of all that are named; a longer prefix is matched first."""
ALPHAS = (0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides a training run."""

    seed: int = 0
    steps: int = 600
    batch: int = 1024
    hard: int = 5
    temperature: float = 0.05
    rate: float = 1e-4
    warm_up: float = 0.1
    decay: float = 0.01
    dropout: float = 0.0
    dimensions: tuple[int, ...] = (384, 256, 128)
    dimension_weights: tuple[float, ...] = (1.0, 0.4, 0.3)
    backward: float = 0.2
    distil: float = 0.0
    distil_temperature: float = 1.0
    contrast: float = 1.0
    """What the labels count beside a panel's opinion."""
    averaging: float = 0.99
    flattening: float = 0.5
    """Exponent on how often a tool is asked for: 1 keeps the data's frequencies, 0 makes tools equal."""
    tokens_a_chunk: int = 2**30
    """Below the batch's size, vectors are made twice and memory stays small (for CPUs and small GPUs)."""
    shares: Mapping[str, float] = field(default_factory=lambda: dict(SHARES))


@dataclass(frozen=True, slots=True)
class Teacher:
    """Scores of a stronger model for some pairs: the positive first, then the mined negatives."""

    rows: Tensor
    scores: Tensor
    """By pair; NaN where there is none."""


@dataclass(frozen=True, slots=True)
class Material:
    """The training set, tokenized, on the device."""

    data: TrainingSet
    arrays: Arrays
    queries: TokenTable
    texts: TokenTable

    @property
    def device(self) -> torch.device:
        return self.arrays.groups.device


def prepare(data: TrainingSet, base: Encoder, tokenizer: Tokenizer, device: torch.device) -> Material:
    """Tokenize everything and embed the texts once with the untuned model, for masking and mining."""
    queries = token_table(tokenizer, data.queries, QUERY_TOKENS, device)
    texts = token_table(tokenizer, data.texts, DOCUMENT_TOKENS, device)
    return Material(data, arrays_of(data, embed_table(base.to(device).eval(), texts)), queries, texts)


def mined_with(encoder: Encoder, material: Material) -> Tensor:
    encoder.eval()
    return mine(material.arrays, embed_table(encoder, material.queries), embed_table(encoder, material.texts))


def sampling_weights(data: TrainingSet, recipe: Recipe) -> np.ndarray:
    """Fill the shares, and within them ask less often for tools that very many queries name."""
    kinds = np.array([_share_of(kind, recipe.shares) for kind in data.kinds])
    first = data.groups[data.positives[:, 0]].astype(np.int64)
    weights = np.zeros(len(kinds))
    for kind, share in recipe.shares.items():
        chosen = np.flatnonzero(kinds == kind)
        if not len(chosen):
            continue
        _, place, counts = np.unique(first[chosen], return_inverse=True, return_counts=True)
        flat = counts[place] ** (recipe.flattening - 1.0)
        weights[chosen] = share * flat / flat.sum()
    return weights / weights.sum()


def _share_of(kind: str, shares: Mapping[str, float]) -> str:
    return max((name for name in shares if kind.startswith(name)), key=len, default="")


def batches(weights: np.ndarray, recipe: Recipe, device: torch.device) -> Iterator[Tensor]:
    """Draw batches without repeating a pair inside one."""
    random = np.random.default_rng(recipe.seed)
    size = min(recipe.batch, int((weights > 0).sum()))
    cumulative = np.cumsum(weights)
    for _ in range(recipe.steps):
        drawn = np.unique(np.searchsorted(cumulative, random.random(int(size * 1.3))))
        rows = random.permutation(np.minimum(drawn, len(weights) - 1))[:size]
        yield torch.from_numpy(rows).to(device)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of pairs, the documents they meet, and which of those are no fair negatives."""

    rows: Tensor
    documents: Tensor
    unfair: Tensor
    own: Tensor
    """For each row: the places of its positive and its own negatives among the documents."""
    taught: Tensor | None = None


def assemble(
    material: Material, rows: Tensor, mined: Tensor, recipe: Recipe, teacher: Teacher | None, random: torch.Generator
) -> Batch:
    """Draw one positive and some hard negatives for each row and mask what is right for others."""
    arrays, size = material.arrays, len(rows)
    golds = arrays.positives[rows]
    draw = torch.rand(golds.shape, generator=random, device=rows.device).masked_fill(golds == NOTHING, -1)
    positive = golds.gather(1, draw.argmax(1, keepdim=True))
    choice = torch.rand(size, mined.shape[1], generator=random, device=rows.device).argsort(1)[:, : recipe.hard]
    hard = mined[rows].gather(1, choice)
    missing = hard == NOTHING
    hard = torch.where(missing, positive, hard)
    documents = torch.cat([positive[:, 0], hard.flatten()])
    own = torch.cat(
        [
            torch.arange(size, device=rows.device)[:, None],
            size + torch.arange(size * hard.shape[1], device=rows.device).view(size, -1),
        ],
        1,
    )
    unfair = forbidden(arrays, rows, documents)
    unfair[torch.arange(size), torch.arange(size)] = False
    return Batch(rows, documents, unfair, own, _taught(teacher, rows, choice, missing))


def _taught(teacher: Teacher | None, rows: Tensor, choice: Tensor, missing: Tensor) -> Tensor | None:
    if teacher is None:
        return None
    scores = teacher.scores[rows]
    hard = scores[:, 1:].gather(1, choice).masked_fill(missing, -torch.inf)
    return torch.cat([scores[:, :1], hard], 1)


def batch_loss(recipe: Recipe, batch: Batch, queries: Tensor, documents: Tensor) -> Tensor:
    """Sum the contrastive loss over the nested dimensions, both ways, and the teacher's opinion."""
    total = queries.new_zeros(())
    for width, weight in zip(recipe.dimensions, recipe.dimension_weights, strict=True):
        left = nn.functional.normalize(queries[:, :width], dim=-1)
        right = nn.functional.normalize(documents[:, :width], dim=-1)
        similarity = left @ right.T / recipe.temperature
        total = total + weight * _contrastive(recipe, batch, similarity)
    return total / sum(recipe.dimension_weights)


def _contrastive(recipe: Recipe, batch: Batch, similarity: Tensor) -> Tensor:
    target = torch.arange(len(batch.rows), device=similarity.device)
    fair = similarity.masked_fill(batch.unfair, -torch.inf)
    loss = nn.functional.cross_entropy(fair, target)
    if recipe.backward:
        square = fair[:, : len(target)].masked_fill(batch.unfair[:, : len(target)].T, -torch.inf)
        loss = loss + recipe.backward * nn.functional.cross_entropy(square.T, target)
    if batch.taught is not None and recipe.distil:
        loss = loss + recipe.distil * _divergence(batch.taught, similarity.gather(1, batch.own), recipe)
    return loss


def _divergence(taught: Tensor, similarity: Tensor, recipe: Recipe) -> Tensor:
    """Compare teacher and student over a row's own candidates, where the teacher was asked."""
    known = taught[:, 0].isfinite()
    if not known.any():
        return similarity.new_zeros(())
    absent = taught[known].isinf()
    goal = (taught[known] / recipe.distil_temperature).softmax(1)
    own = similarity[known].masked_fill(absent, -1e4).log_softmax(1)
    terms = goal * (goal.clamp_min(1e-9).log() - own)
    return terms.masked_fill(absent, 0).sum(1).mean()


def encoded(encoder: Encoder, table: TokenTable, rows: Tensor, tokens: int) -> Tensor:
    parts = chunks_by_length(table, rows, tokens)
    vectors = [encoder(*table.batch(rows[part])) for part in parts]
    return torch.cat(vectors)[torch.argsort(torch.cat(parts))]


def backpropagate(encoder: Encoder, material: Material, recipe: Recipe, batch: Batch) -> float:
    """Run one batch forwards and backwards, in one go or in chunks when memory is small."""
    texts = material.texts
    whole = int(texts.lengths[batch.documents].sum()) <= recipe.tokens_a_chunk
    with autocast(material.device):
        if whole:
            queries = encoded(encoder, material.queries, batch.rows, TRAINING_CHUNK)
            documents = encoded(encoder, texts, batch.documents, TRAINING_CHUNK)
    if whole:
        loss = batch_loss(recipe, batch, queries, documents)
        loss.backward()
        return float(loss.detach())
    return _in_chunks(encoder, material, recipe, batch)


TRAINING_CHUNK = 60_000
"""Tokens padded together while training: small enough that short texts are not padded to long ones."""


def _in_chunks(encoder: Encoder, material: Material, recipe: Recipe, batch: Batch) -> float:
    """Encode without gradients, take the loss's gradient at the vectors, then encode again chunk by chunk."""
    sides = ((material.queries, batch.rows), (material.texts, batch.documents))
    with torch.no_grad(), autocast(material.device):
        vectors = [encoded(encoder, table, rows, recipe.tokens_a_chunk) for table, rows in sides]
    leaves = [vector.detach().requires_grad_() for vector in vectors]
    loss = batch_loss(recipe, batch, *leaves)
    loss.backward()
    for (table, rows), leaf in zip(sides, leaves, strict=True):
        for part in chunks_by_length(table, rows, recipe.tokens_a_chunk):
            with autocast(material.device):
                again = encoder(*table.batch(rows[part]))
            again.backward(leaf.grad[part])
    return float(loss.detach())


def learning_rate(recipe: Recipe) -> Callable[[int], float]:
    warm = max(1, int(recipe.warm_up * recipe.steps))

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, recipe.steps - warm)))

    return factor


def optimiser_of(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": recipe.decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98), fused=named[0][1].is_cuda)


def train(encoder: Encoder, material: Material, mined: Tensor, recipe: Recipe, teacher: Teacher | None = None) -> State:
    """Fine-tune a copy of nothing: `encoder` itself moves; the running average of its weights comes back."""

    def learn(rows: Tensor, random: torch.Generator) -> float:
        return backpropagate(encoder, material, recipe, assemble(material, rows, mined, recipe, teacher, random))

    return descend(encoder, material, recipe, learn, reports=6)


def descend(model: nn.Module, material: Material, recipe: Recipe, learn: Learn, *, reports: int) -> State:
    """Take a recipe's steps, each by the gradients that `learn` leaves; give the running average of the weights."""
    torch.manual_seed(recipe.seed)
    random = torch.Generator(material.device).manual_seed(recipe.seed)
    model.to(material.device).train()
    optimiser = optimiser_of(model, recipe)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, learning_rate(recipe))
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    began, losses = time.monotonic(), list[float]()
    weights = sampling_weights(material.data, recipe)
    for step, rows in enumerate(batches(weights, recipe, material.device), 1):
        losses.append(learn(rows, random))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        update_average(average, model, min(recipe.averaging, step / (step + 9)))
        if step % max(1, recipe.steps // reports) == 0:
            report_progress(step, recipe.steps, losses[-20:], began)
    return average


@torch.no_grad()
def update_average(average: State, model: nn.Module, keep: float) -> None:
    current = model.state_dict()
    names = [name for name in average if average[name].is_floating_point()]
    torch._foreach_lerp_([average[name] for name in names], [current[name] for name in names], 1 - keep)


def report_progress(step: int, steps: int, losses: Sequence[float], began: float) -> None:
    print(f"  step {step}/{steps} loss {np.mean(losses):.3f} {time.monotonic() - began:.0f} s", flush=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """The share of the tuned weights that ranks the development part best."""

    alpha: float
    state: State
    score: Score


def choose_alpha(
    embedder: TorchEmbedder, tuned: State, base: State, sets: Sequence[RankingSet], alphas: Sequence[float] = ALPHAS
) -> Choice:
    """Try shares of tuned and untuned weights; the development macro nDCG@10 decides."""
    tried = []
    for alpha in alphas:
        state = mixed(tuned, base, alpha)
        embedder.encoder.load_state_dict(state)
        score = development_macro(evaluate(sets, embedder, lenient=False))
        print(f"  alpha {alpha:.1f}: {score}", flush=True)
        tried.append(Choice(alpha, state, score))
    return max(tried, key=lambda choice: (choice.score.ndcg10, -choice.alpha))
