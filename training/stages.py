"""The stages between data and export: encoder, static table, reranker."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from training.cross_encoder import (
    STUDENTS,
    TEACHER,
    cross_recipe,
    from_encoder,
    rerank_scores,
    teach,
    train_cross_encoder,
)
from training.metrics import Score
from training.modelling import averaged, read_weights, save_weights
from training.static import StaticEmbedder, StaticModel, StaticRecipe, distilled, quantised, save_static, train_static
from training.train import SHARES, Choice, Recipe, State, Teacher, choose_alpha, mined_with, train
from training.workbench import Workbench

FIRST = Recipe(steps=330)
FINAL = Recipe(steps=480, distil=1.0)
COMPANION = Recipe(steps=280, hard=3)
TOGETHER = Recipe(steps=400, distil=2.0, contrast=0.1, shares={**SHARES, "errand": 0.1})
STATIC = StaticRecipe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long each part trains."""

    first: Recipe = FIRST
    final: Recipe = FINAL
    companion: Recipe = COMPANION
    together: Recipe = TOGETHER
    seeds: tuple[int, ...] = (0, 1, 2)
    teacher_steps: int = 700
    student_steps: int = 800
    lists_a_batch: int = 128
    static: StaticRecipe = STATIC


def tiny_plan() -> Plan:
    """Touch every line in a minute on a CPU; the numbers mean nothing."""
    small = Recipe(steps=2, batch=8, hard=2, tokens_a_chunk=400)
    return Plan(
        first=small,
        final=replace(small, distil=1.0, tokens_a_chunk=2**30),
        companion=small,
        together=replace(TOGETHER, steps=2, batch=8, hard=2),
        seeds=(0, 1),
        teacher_steps=2,
        student_steps=2,
        lists_a_batch=4,
        static=StaticRecipe(steps=3, batch=32),
    )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The chosen encoder and what later stages take from its making."""

    choice: Choice
    mined: Tensor
    teacher: Teacher


def run_encoder(bench: Workbench, plan: Plan) -> Tuned:
    """Train once, mine again, teach a teacher, then train every seed with it and average them."""
    clock = Clock()
    bench.judge("untuned", bench.base_state)
    clock("untuned judged")
    encoder = bench.encoder(dropout=plan.first.dropout)
    first = train(encoder, bench.material, mined_with(encoder, bench.material), plan.first)
    bench.judge("first pass", first, evaluation=False)
    clock("first pass")
    mined = mined_with(bench.encoder(first), bench.material)
    teacher = make_teacher(bench, plan, first, mined)
    clock("teacher")
    states = []
    for seed in plan.seeds:
        recipe = replace(plan.final, seed=seed)
        states.append(train(bench.encoder(dropout=recipe.dropout), bench.material, mined, recipe, teacher))
        alpha = choose_alpha(bench.embedder, states[-1], bench.base_state, bench.dev, (0.8,))
        bench.judge(f"seed {seed}, alpha 0.8", alpha.state)
        clock(f"seed {seed}")
    choice = choose_alpha(bench.embedder, averaged(states), bench.base_state, bench.dev)
    bench.judge(f"soup, alpha {choice.alpha}", choice.state)
    save_weights(choice.state, bench.out / "soup.safetensors")
    clock("soup")
    return Tuned(choice, mined, teacher)


def resume(bench: Workbench, plan: Plan) -> Tuned:
    """Continue from a trained encoder: mine negatives with it and train a teacher again."""
    saved = bench.out / "soup.safetensors"
    state = read_weights(saved) if saved.exists() else bench.base_state
    score = bench.judge("resumed", state, evaluation=False)
    mined = mined_with(bench.encoder(state), bench.material)
    return Tuned(Choice(1.0, state, score), mined, make_teacher(bench, plan, state, mined))


def make_teacher(bench: Workbench, plan: Plan, first: State, mined: Tensor) -> Teacher:
    recipe = cross_recipe(0, plan.teacher_steps, plan.lists_a_batch, 0.0)
    model = from_encoder(bench.encoder(first), TEACHER, recipe.dropout).to(bench.device)
    model.load_state_dict(train_cross_encoder(model, bench.material, mined, recipe))
    bench.embedder.encoder.load_state_dict(first)
    keep_rerank(bench, "teacher over first pass", rerank_scores(model, bench.embedder, bench.tokenizer, bench.dev))
    return teach(model, bench.material, mined)


def keep_rerank(bench: Workbench, name: str, scores: dict[float, Score]) -> None:
    bench.keep(name, {f"mix {mix}": score for mix, score in scores.items()})


def run_static(bench: Workbench, plan: Plan, tuned: Tuned) -> None:
    """Distil the table from the chosen encoder, train it, judge it as it is saved."""
    clock = Clock()
    encoder = bench.encoder(tuned.choice.state)
    model = distilled(encoder, bench.tokenizer, bench.material, bench.dev)
    keep_static(bench, "static, distilled", model)
    keep_static(bench, "static, trained", train_static(model, encoder, bench.material, tuned.mined, plan.static))
    save_static(model, bench.out / "static", "shortlist-static")
    clock("static")


def keep_static(bench: Workbench, name: str, model: StaticModel) -> None:
    bench.judge_embedder(name, StaticEmbedder(bench.tokenizer, *quantised(model.folded())))


def run_rerank(bench: Workbench, plan: Plan, tuned: Tuned, names: Sequence[str] = tuple(STUDENTS)) -> None:
    """Train the small pair scorers; the best on the development part is saved without its shared word vectors."""
    clock = Clock()
    bench.embedder.encoder.load_state_dict(tuned.choice.state)
    best: tuple[float, str, State] = (-1.0, "", {})
    for name in names:
        recipe = cross_recipe(0, plan.student_steps, plan.lists_a_batch, 1.0)
        model = from_encoder(bench.encoder(tuned.choice.state), STUDENTS[name], 0.0).to(bench.device)
        model.load_state_dict(train_cross_encoder(model, bench.material, tuned.mined, recipe, tuned.teacher))
        scores = rerank_scores(model, bench.embedder, bench.tokenizer, bench.dev)
        keep_rerank(bench, f"{name} over soup, development", scores)
        judged = [each for each in bench.eval if not each.name.startswith("mcp_union")]
        keep_rerank(
            bench, f"{name} over soup, evaluation", rerank_scores(model, bench.embedder, bench.tokenizer, judged)
        )
        kept = {n: t for n, t in model.state_dict().items() if "word_embeddings" not in n}
        best = max(best, (max(score.top1 for score in scores.values()), name, kept), key=lambda each: each[0])
        clock(name)
    save_weights(best[2], bench.out / f"{best[1]}.safetensors")


class Clock:
    """Prints the duration of each step."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, name: str) -> None:
        now = time.monotonic()
        print(f"-- {name}: {now - self._last:.0f} s", flush=True)
        self._last = now
