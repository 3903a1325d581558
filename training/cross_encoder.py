"""Pair scorers: a six-layer teacher for distillation, and a small student as candidate for the shipped reranker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from training.metrics import Score, judged, macro, rank, score_of
from training.mining import KEPT
from training.modelling import (
    DOCUMENT_TOKENS,
    QUERY_TOKENS,
    Encoder,
    TokenTable,
    TorchEmbedder,
    autocast,
    token_table,
)
from training.prepared import NOTHING, RankingSet
from training.train import Material, Recipe, State, Teacher, descend

CLOSING = 102
PAIRS_AT_ONCE = 4096
RERANKED = 20
MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)
RERANK_SHARES = {"written": 0.7, "variant": 0.15, "self": 0.15}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShape:
    """How long a pair may be, and how deep its scorer is."""

    layers: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    query_tokens: int = 48
    tokens: int = 160
    frozen_words: bool = False
    """Keep the encoder's word vectors, so that a package can share one table between both models."""


TEACHER = PairShape()
STUDENTS = {
    "rerank2": PairShape(layers=(0, 5), query_tokens=32, tokens=96, frozen_words=True),
    "rerank3": PairShape(layers=(0, 2, 5), query_tokens=32, tokens=96, frozen_words=True),
}


class CrossEncoder(nn.Module):
    """Reads query and document together and gives one score."""

    def __init__(self, bert: BertModel, shape: PairShape) -> None:
        super().__init__()
        self.bert, self.shape = bert, shape
        self.head = nn.Linear(bert.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        output = self.bert(input_ids=ids, attention_mask=mask.long(), token_type_ids=types.long())
        hidden = output.last_hidden_state
        weights = mask[..., None].to(hidden.dtype)
        return self.head((hidden * weights).sum(1) / weights.sum(1))[:, 0].float()


def from_encoder(encoder: Encoder, shape: PairShape, dropout: float) -> CrossEncoder:
    """Start from an encoder's embeddings and some of its layers."""
    config = BertConfig(**encoder.bert.config.to_dict())
    sources = [layer for layer in shape.layers if layer < config.num_hidden_layers]
    config.num_hidden_layers = len(sources)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    bert = BertModel(config, add_pooling_layer=False)
    bert.embeddings.load_state_dict(encoder.bert.embeddings.state_dict())
    for target, source in enumerate(sources):
        bert.encoder.layer[target].load_state_dict(encoder.bert.encoder.layer[source].state_dict())
    bert.embeddings.word_embeddings.weight.requires_grad_(not shape.frozen_words)
    return CrossEncoder(bert, shape)


def pair_batch(
    queries: TokenTable, texts: TokenTable, pairs: tuple[Tensor, Tensor], shape: PairShape
) -> tuple[Tensor, ...]:
    """Write `[CLS] query [SEP] document [SEP]` for each pair, cutting first the document, padded to the longest."""
    query_rows, text_rows = pairs
    first = queries.lengths[query_rows].clamp(max=shape.query_tokens)
    second = torch.minimum(texts.lengths[text_rows] - 1, shape.tokens - first)
    whole = first + second
    steps = torch.arange(int(whole.max()), device=first.device)
    in_query, mask = steps < first[:, None], steps < whole[:, None]
    from_query = queries.flat[(queries.starts[query_rows, None] + steps) * in_query]
    in_text = mask & ~in_query
    from_text = texts.flat[(texts.starts[text_rows, None] + 1 + steps - first[:, None]) * in_text]
    ids = torch.where(in_query, from_query, from_text) * mask
    closing = (steps == first[:, None] - 1) | (steps == whole[:, None] - 1)
    return ids.masked_fill(closing, CLOSING), mask, in_text


@torch.inference_mode()
def score_pairs(model: CrossEncoder, queries: TokenTable, texts: TokenTable, pairs: tuple[Tensor, Tensor]) -> Tensor:
    """Score many pairs, sorted by length so that little is padded."""
    model.eval()
    lengths = queries.lengths[pairs[0]] + texts.lengths[pairs[1]]
    order = torch.argsort(lengths)
    scores = torch.empty(len(order), device=order.device)
    for part in order.split(PAIRS_AT_ONCE):
        with autocast(order.device):
            scores[part] = model(*pair_batch(queries, texts, (pairs[0][part], pairs[1][part]), model.shape))
    return scores


def lists(
    material: Material, rows: Tensor, mined: Tensor, count: int, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return a positive and `count` negatives for each row, and the columns drawn."""
    choice = torch.rand(len(rows), mined.shape[1], generator=random, device=rows.device).argsort(1)[:, :count]
    positive = material.arrays.positives[rows, :1]
    return torch.cat([positive, mined[rows].gather(1, choice)], 1), choice


def train_cross_encoder(
    model: CrossEncoder, material: Material, mined: Tensor, recipe: Recipe, teacher: Teacher | None = None
) -> State:
    """Train listwise: the positive over its hard negatives, and like the teacher where there is one."""

    def learn(rows: Tensor, random: torch.Generator) -> float:
        documents, choice = lists(material, rows, mined, recipe.hard, random)
        absent = documents == NOTHING
        scores = _list_scores(model, material, rows, documents.masked_fill(absent, 0)).masked_fill(absent, -1e4)
        loss = nn.functional.cross_entropy(scores, scores.new_zeros(len(rows), dtype=torch.long))
        loss = loss + recipe.distil * _teacher_loss(teacher, rows, choice, scores, absent)
        loss.backward()
        return float(loss.detach())

    return descend(model, material, recipe, learn, reports=4)


def _list_scores(model: CrossEncoder, material: Material, rows: Tensor, documents: Tensor) -> Tensor:
    repeated = rows[:, None].expand_as(documents).flatten()
    with autocast(material.device):
        batch = pair_batch(material.queries, material.texts, (repeated, documents.flatten()), model.shape)
        return model(*batch).view(documents.shape)


def _teacher_loss(teacher: Teacher | None, rows: Tensor, choice: Tensor, scores: Tensor, absent: Tensor) -> Tensor:
    if teacher is None:
        return scores.new_zeros(())
    every = teacher.scores[rows]
    taught = torch.cat([every[:, :1], every[:, 1:].gather(1, choice)], 1)
    known = taught[:, 0].isfinite()
    goal = taught[known].masked_fill(absent[known], -1e4).softmax(1)
    return nn.functional.kl_div(scores[known].log_softmax(1), goal, reduction="sum") / max(1, int(known.sum()))


def teach(model: CrossEncoder, material: Material, mined: Tensor) -> Teacher:
    """Ask the teacher about the candidates of every written or rephrased query."""
    asked = [index for index, kind in enumerate(material.data.kinds) if not kind.startswith("self_")]
    rows = torch.tensor(asked, device=material.device)
    scores = torch.full((len(material.data.kinds), 1 + KEPT), torch.nan, device=material.device)
    documents = torch.cat([material.arrays.positives[rows, :1], mined[rows]], 1)
    repeated = rows[:, None].expand_as(documents).flatten()
    flat = score_pairs(model, material.queries, material.texts, (repeated, documents.clamp_min(0).flatten()))
    scores[rows] = flat.view(documents.shape).masked_fill(documents == NOTHING, -torch.inf)
    return Teacher(rows, scores)


def rerank_scores(
    model: CrossEncoder, embedder: TorchEmbedder, tokenizer: Tokenizer, sets: Sequence[RankingSet]
) -> dict[float, Score]:
    """Rerank the dense top 20 of every set, mixing both scores; give the macro average for each mix."""
    found: dict[float, list[Score]] = {mix: [] for mix in MIXES}
    for each in sets:
        for mix, score in _reranked(model, embedder, tokenizer, each):
            found[mix].append(score)
    return {
        mix: macro({str(i): s for i, s in enumerate(scores)}, list(map(str, range(len(scores)))))
        for mix, scores in found.items()
    }


def _reranked(
    model: CrossEncoder, embedder: TorchEmbedder, tokenizer: Tokenizer, each: RankingSet
) -> Iterator[tuple[float, Score]]:
    left, right = embedder(each.queries, True), embedder(each.texts, False)
    ranking = rank(left, right, RERANKED)
    queries = token_table(tokenizer, each.queries, QUERY_TOKENS, embedder.device)
    texts = token_table(tokenizer, each.texts, DOCUMENT_TOKENS, embedder.device)
    rows = torch.arange(len(ranking), device=embedder.device)[:, None].expand(ranking.shape).flatten()
    documents = torch.from_numpy(ranking).to(embedder.device).flatten()
    pair_scores = score_pairs(model, queries, texts, (rows, documents)).view(ranking.shape).cpu().numpy()
    dense = np.einsum("qd,qnd->qn", left, right[ranking])
    for mix in MIXES:
        blend = mix * _spread(pair_scores) + (1 - mix) * _spread(dense)
        order = np.argsort(-blend, axis=1, kind="stable")
        yield mix, score_of(judged(np.take_along_axis(ranking, order, axis=1), each.golds))


def _spread(scores: np.ndarray) -> np.ndarray:
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return (scores - low) / np.maximum(high - low, 1e-6)


def cross_recipe(seed: int, steps: int, batch: int, distil: float) -> Recipe:
    """Return the settings that differ from the encoder's."""
    return replace(
        Recipe(),
        seed=seed,
        steps=steps,
        batch=batch,
        hard=15,
        rate=1e-4,
        dropout=0.1,
        distil=distil,
        averaging=0.99,
        shares=dict(RERANK_SHARES),
    )
