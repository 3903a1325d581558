"""The last stage: a second, deeper model is tuned as well, and the encoder learns what all of them say together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from training.metrics import Score, development_macro, judged, score_of, top_of
from training.mining import forbidden, mine
from training.modelling import (
    DOCUMENT_TOKENS,
    QUERY_TOKENS,
    Encoder,
    autocast,
    averaged,
    embed_table,
    load_encoder,
    mixed,
    read_weights,
    save_weights,
    token_table,
)
from training.prepared import NOTHING, RankingSet
from training.stages import Clock, Plan
from training.train import (
    TRAINING_CHUNK,
    Batch,
    Learn,
    Material,
    Recipe,
    State,
    assemble,
    choose_alpha,
    descend,
    encoded,
    mined_with,
    train,
)
from training.workbench import Workbench

ALPHAS = (0.8, 0.9, 1.0)
COMPANION_ALPHA = 0.8
FITTING_STEPS, FITTING_RATE = 150, 0.1
UNIT = 10.0
"""What a member's share is measured in, so that steps of one size suit it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Several models as one: the product of a query's and a text's vectors is the sum of their weighted cosines."""

    queries: Tensor
    texts: Tensor
    parts: Tensor
    """The rows that each row is made of: an errand of several, any other of itself."""
    weight: float
    """Of all members together; divided by it, products are cosines again."""

    def opinion(self, rows: Tensor, documents: Tensor) -> Tensor:
        """Return the probability that each document is right for each row; for an errand, for any of its wishes."""
        wishes = self.parts[rows]
        owner, _ = (wishes != NOTHING).nonzero(as_tuple=True)
        each = (self.queries[wishes[wishes != NOTHING]] @ self.texts[documents].T).float().softmax(1)
        summed = each.new_zeros(len(rows), len(documents)).index_add_(0, owner, each)
        return summed / (wishes != NOTHING).sum(1, keepdim=True)

    def negatives(self, material: Material) -> Tensor:
        scale = self.weight**-0.5
        return mine(material.arrays, self.queries.float() * scale, self.texts.float() * scale)


def run_ensemble(bench: Workbench, plan: Plan, companion: Path) -> None:
    """Tune the companion, weigh the members on the development part, and teach every seed what they agree on."""
    clock = Clock()
    soup = read_weights(bench.out / "soup.safetensors", bench.layers)
    members = [bench.encoder(soup), *tuned_companion(bench, plan, soup, companion), bench.encoder()]
    clock("companion")
    weights = fitted_weights(bench, members)
    panel = panel_of(bench.material, members, weights)
    negatives = panel.negatives(bench.material)
    clock("panel")
    states = []
    for seed in plan.seeds:
        student = bench.encoder(soup)
        recipe = replace(plan.together, seed=seed)
        learn = learner(student, bench.material, negatives, panel, recipe)
        states.append(descend(student, bench.material, recipe, learn, reports=4))
        bench.judge(f"ensemble, seed {seed}", states[-1], evaluation=False)
        clock(f"seed {seed}")
    choice = choose_alpha(bench.embedder, averaged(states), bench.base_state, bench.dev, ALPHAS)
    bench.judge(f"ensemble, soup, alpha {choice.alpha}", choice.state)
    save_weights(choice.state, bench.out / "encoder.safetensors")


def tuned_companion(bench: Workbench, plan: Plan, soup: State, path: Path) -> tuple[Encoder, Encoder]:
    """Return the companion tuned on the soup's negatives, mostly, and as it came."""
    untuned = load_encoder(bench.base, path, layers=bench.layers).to(bench.device)
    before = {name: value.clone() for name, value in untuned.state_dict().items()}
    negatives = mined_with(bench.encoder(soup), bench.material)
    after = train(load_encoder(bench.base, path, layers=bench.layers), bench.material, negatives, plan.companion)
    tuned = load_encoder(bench.base, path, layers=bench.layers)
    tuned.load_state_dict(mixed(after, before, COMPANION_ALPHA))
    return tuned.to(bench.device), untuned


def fitted_weights(bench: Workbench, members: Sequence[Encoder]) -> Tensor:
    """Find the weights under which the right tools of the development part are likeliest, every set counting alike."""
    sets = [(each, _cosines(bench, members, each), _right(each, bench.device)) for each in bench.dev]
    raw = torch.full((len(members),), 2.0, device=bench.device, requires_grad=True)
    optimiser = torch.optim.Adam([raw], lr=FITTING_RATE)
    for _ in range(FITTING_STEPS):
        weights = UNIT * nn.functional.softplus(raw)
        losses = [_unlikelihood(weights, cosines, right) for _, cosines, right in sets]
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        optimiser.step()
    weights = (UNIT * nn.functional.softplus(raw)).detach()
    scores = {each.name: _score(each, weights, cosines) for each, cosines, _ in sets}
    print("weights of the members: " + ", ".join(f"{w:.1f}" for w in weights.tolist()), flush=True)
    bench.keep("panel development", scores | {"MACRO of the development part": development_macro(scores)})
    return weights


def _cosines(bench: Workbench, members: Sequence[Encoder], each: RankingSet) -> Tensor:
    """One matrix of queries and texts for each member."""
    queries = token_table(bench.tokenizer, each.queries, QUERY_TOKENS, bench.device)
    texts = token_table(bench.tokenizer, each.texts, DOCUMENT_TOKENS, bench.device)
    products = [embed_table(m.eval(), queries) @ embed_table(m, texts).T for m in members]
    return torch.stack(products).clone()


def _right(each: RankingSet, device: torch.device) -> Tensor:
    right = torch.zeros(len(each.queries), len(each.texts), dtype=torch.bool)
    for row, golds in enumerate(each.golds):
        right[row, [number for group in golds for number in group]] = True
    return right.to(device)


def _unlikelihood(weights: Tensor, cosines: Tensor, right: Tensor) -> Tensor:
    likelihood = torch.einsum("m,mqt->qt", weights, cosines).log_softmax(1)
    return -likelihood.masked_fill(~right, -1e9).logsumexp(1).mean()


def _score(each: RankingSet, weights: Tensor, cosines: Tensor) -> Score:
    scores = torch.einsum("m,mqt->qt", weights, cosines).cpu().numpy()
    return score_of(judged(top_of(scores, 10), each.golds))


def panel_of(material: Material, members: Sequence[Encoder], weights: Tensor) -> Panel:
    """Lay the members' vectors end to end, each as long as its weight."""
    scaled = list(zip(members, weights.sqrt(), strict=True))
    kind = torch.bfloat16 if material.device.type == "cuda" else torch.float32
    queries = torch.cat([embed_table(m.eval(), material.queries) * w for m, w in scaled], 1).to(kind)
    texts = torch.cat([embed_table(m, material.texts) * w for m, w in scaled], 1).to(kind)
    parts = torch.from_numpy(material.data.parts).long().to(material.device)
    return Panel(queries, texts, parts, float(weights.sum()))


def learner(encoder: Encoder, material: Material, negatives: Tensor, panel: Panel, recipe: Recipe) -> Learn:
    """Learn the panel's opinion of every document in the batch, and a little of the labels."""

    def learn(rows: Tensor, random: torch.Generator) -> float:
        batch = with_every_answer(material, assemble(material, rows, negatives, recipe, None, random))
        goal = panel.opinion(batch.rows, batch.documents)
        with autocast(material.device):
            queries = encoded(encoder, material.queries, batch.rows, TRAINING_CHUNK)
            documents = encoded(encoder, material.texts, batch.documents, TRAINING_CHUNK)
        loss = agreement(recipe, goal, batch.unfair, queries, documents)
        loss.backward()
        return float(loss.detach())

    return learn


def with_every_answer(material: Material, batch: Batch) -> Batch:
    """Put all the answers of a batch's errands into it: of the wishes of one, only one is drawn."""
    errands = batch.rows[material.arrays.several[batch.rows]]
    answers = material.arrays.positives[errands]
    more = answers[answers != NOTHING]
    unfair = torch.cat([batch.unfair, forbidden(material.arrays, batch.rows, more)], 1)
    return replace(batch, documents=torch.cat([batch.documents, more]), unfair=unfair)


def agreement(recipe: Recipe, goal: Tensor, unfair: Tensor, queries: Tensor, documents: Tensor) -> Tensor:
    """Sum over the nested dimensions how far the encoder is from the goal and, `contrast` of it, from the labels."""
    target = torch.arange(len(queries), device=queries.device)
    certainty = (goal * goal.clamp_min(1e-9).log()).sum(1)
    total = queries.new_zeros(())
    for width, weight in zip(recipe.dimensions, recipe.dimension_weights, strict=True):
        left = nn.functional.normalize(queries[:, :width], dim=-1)
        right = nn.functional.normalize(documents[:, :width], dim=-1)
        similarity = left @ right.T / recipe.temperature
        apart = (certainty - (goal * similarity.log_softmax(1)).sum(1)).mean()
        labels = nn.functional.cross_entropy(similarity.masked_fill(unfair, -torch.inf), target)
        total = total + weight * (recipe.distil * apart + recipe.contrast * labels)
    return total / sum(recipe.dimension_weights)
