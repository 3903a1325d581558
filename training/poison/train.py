"""Train the passage classifier on a GPU, and measure it on families, writers and servers left out of training.

    python -m training.poison.prepare --out TABLES --deep gte-small/onnx/model.onnx
    python -m training.poison.train --fold NAME --tables TABLES --small SMALL/model.onnx --out FOLDER

Each fold leaves out some families or writers, and the tools of a fifth of the servers; the scores of all texts by each
fold are written to `FOLD.npz`, the final one's weights to `classifier0.npz` and `classifier1.npz`.
`training.poison.export` and `calibrate` read them.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from training.poison.base import small_weights, unpacked
from training.poison.folds import UNSEEN_WRITERS, Fold, Glosses, folds, learned
from training.poison.network import MASK_TOKEN, Classifier, Linear, from_encoder

TOKENS_A_BATCH = 24_000
LENGTHS = (16, 24, 32, 40, 48, 64, 80, 96)
"""Texts are filled up to the next of these, so that a step is captured once for each and replayed."""
AVERAGED_FROM = 0.4
"""The share of the steps after which the weights are averaged; their average is the final one."""
LAST_RATE = 0.25
"""What is left of the learning rate in the end: weights that keep moving average to a flatter minimum."""
TAGGED = 0.5
"""How much it counts to find the tokens that are poisoned, beside finding the passages."""
HARD_SHARE, HARD_TIMES = 0.03, 3
EASY_SHARE = 0.4
"""The share of the other real texts that come in each epoch but the first."""
FINE_EPOCHS = 2
"""How many epochs pass before the weights are rounded to 4 bits."""
PARTS_OF_FILE = 3
PIECES, PAIRS, PAIR_GAPS, FEWEST_PAIRS = 30_522, 1 << 17, (1, 2), 6
PAIR_STEPS, PAIR_PENALTY = 120, 2e-7


@dataclass(frozen=True, slots=True)
class Noise:
    """What keeps a model from learning its texts by heart."""

    masked: float = 0.12
    """The share of the tokens that it does not see."""
    smoothing: float = 0.02
    """How far labels are from certainty: some of them are wrong."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long and how fast a model learns, and how often the texts by writers come."""

    epochs: int
    rate: float
    close_times: int


@dataclass(frozen=True, slots=True)
class Tables:
    """All texts as token ids on the device."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor

    def batch(self, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
        steps = torch.arange(length, device=rows.device)
        mask = steps < self.lengths[rows][:, None]
        return self.flat[(self.starts[rows, None] + steps) * mask] * mask, mask

    def noisy(self, rows: Tensor, length: int, masked: Tensor) -> tuple[Tensor, Tensor]:
        """Return a batch in which some tokens are masked, so that no single word decides."""
        ids, mask = self.batch(rows, length)
        hit = (torch.rand(ids.shape, device=ids.device) < masked) & mask
        hit[:, 0] = False
        return torch.where(hit, MASK_TOKEN, ids), mask

    def batches(self, rows: Tensor, tokens: int = TOKENS_A_BATCH) -> list[tuple[int, Tensor]]:
        """Return rows of similar length together, in any order, each batch of a length filled up to the same size."""
        found = []
        for shorter, length in pairwise((0, *LENGTHS)):
            held = rows[(self.lengths[rows] > shorter) & (self.lengths[rows] <= length)]
            if not len(held):
                continue
            size = tokens // length
            missing = -len(held) % size
            filled = torch.cat([held, held[torch.randint(len(held), (missing,), device=rows.device)]])
            found += [(length, each) for each in filled[torch.randperm(len(filled), device=rows.device)].split(size)]
        return [found[place] for place in np.random.permutation(len(found))]


def read_tables(folder: Path) -> tuple[Tables, dict[str, np.ndarray]]:
    raw = dict(np.load(folder / "tables.npz"))
    lengths = raw["lengths"].astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return Tables(*(torch.from_numpy(a).cuda() for a in (raw["ids"].astype(np.int64), starts, lengths))), raw


def schedule(step: int, steps: int) -> float:
    warm = max(1, steps // 12)
    return min(1.0, step / warm) * max(LAST_RATE, 1 - (1 - LAST_RATE) * step / steps)


def optimiser(model: Classifier, rate: float) -> torch.optim.AdamW:
    fresh = [p for name, p in model.named_parameters() if name.startswith("head")]
    old = [p for name, p in model.named_parameters() if not name.startswith("head")]
    groups = [
        {"params": old, "lr": torch.tensor(rate, device="cuda"), "base": rate},
        {"params": fresh, "lr": torch.tensor(1e-3, device="cuda"), "base": 1e-3},
    ]
    return torch.optim.AdamW(groups, weight_decay=0.01, fused=True, capturable=True)


@torch.inference_mode()
def scores(model: Classifier, tables: Tables, rows: Tensor) -> Tensor:
    model.eval()
    found = torch.full((len(tables.lengths),), math.nan, device=rows.device)
    for length, chunk in tables.batches(rows, 8 * TOKENS_A_BATCH):
        with torch.autocast("cuda", torch.bfloat16):
            found[chunk] = model(*tables.batch(chunk, length))[0]
    return found


@dataclass(frozen=True, slots=True)
class Lesson:
    """The texts of a fold; `close` are those by the writers, which come more often."""

    bad: Tensor
    good: Tensor
    real: Tensor
    close: Tensor
    tags: Tensor
    """From where to where the tokens of each text are bad; nowhere if that is not known."""


def lesson_of(fold: Fold, raw: dict[str, np.ndarray], names: dict[str, list[Any]]) -> Lesson:
    bad, good, real = learned(fold, raw, names)
    by_writers = np.array([source != "own" for _, _, source in names["learned"]])
    close = np.unique(raw["learned"][by_writers])
    close = np.intersect1d(np.union1d(bad, good), np.union1d(close, Glosses(names).of(close)))
    tags = np.zeros((len(raw["lengths"]), 2), np.int64)
    tags[raw["learned"][raw["learned_bad"]]] = raw["learned_tags"][raw["learned_bad"]]
    return Lesson(*(torch.from_numpy(rows).long().cuda() for rows in (bad, good, real, close, tags)))


def rounds_weights(model: Classifier, coarse: bool) -> None:
    """Let a model compute with the weights that 4 bits leave, or with its own."""
    for layer in model.modules():
        if isinstance(layer, Linear):
            layer.coarse = coarse


def loss_of(model: Classifier, batch: tuple[Tensor, Tensor], labels: Tensor, tags: Tensor) -> Tensor:
    """Return the loss of finding passages, and the poisoned tokens in those where they are known."""
    ids, mask = batch
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        logits, tokens = model(ids, mask)
    start, end = tags.T
    steps = torch.arange(ids.shape[1], device=ids.device)
    inside = (steps >= start[:, None]) & (steps < end[:, None])
    known = mask & ((labels < 0.5) | (end > 0))[:, None]
    each = nn.functional.binary_cross_entropy_with_logits(tokens, inside.float(), reduction="none")
    by_text = (each * known).sum(1) / mask.sum(1)
    passages = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return passages + TAGGED * by_text.mean()


class Steps:
    """Training steps as CUDA graphs: launching thousands of small kernels takes ten times as long as running them."""

    def __init__(self, tables: Tables, model: Classifier, rate: float, tags: Tensor) -> None:
        self.tables, self.model, self.tags = tables, model, tags
        self.optimise = optimiser(model, rate)
        self.masked = torch.zeros((), device="cuda")
        self.labels = torch.zeros(len(tables.lengths), device="cuda")
        self._graphs: dict[tuple[int, bool], tuple[Tensor, torch.cuda.CUDAGraph]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def begin(self, state: dict[str, Tensor]) -> None:
        """Start anew from a model's values."""
        self.model.load_state_dict(state)
        for moments in self.optimise.state.values():
            for each in moments.values():
                each.zero_()

    def capture(self) -> None:
        for coarse in (False, True):
            rounds_weights(self.model, coarse)
            for length in LENGTHS:
                rows = torch.zeros(TOKENS_A_BATCH // length, dtype=torch.int64, device="cuda")
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(2):
                        self._step(rows, length)
                torch.cuda.current_stream().wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                self.optimise.zero_grad(set_to_none=True)
                with torch.cuda.graph(graph, pool=self._pool):
                    self._step(rows, length)
                self._graphs[length, coarse] = rows, graph

    def _step(self, rows: Tensor, length: int) -> None:
        self.optimise.zero_grad(set_to_none=True)
        batch = self.tables.noisy(rows, length, self.masked)
        loss_of(self.model, batch, self.labels[rows], self.tags[rows]).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimise.step()

    def __call__(self, rows: Tensor, length: int, *, coarse: bool, share: float) -> None:
        """Learn from a batch, with a share of the learning rate."""
        for group in self.optimise.param_groups:
            group["lr"].fill_(group["base"] * share)
        place, graph = self._graphs[length, coarse]
        place.copy_(rows)
        graph.replay()


def trained(steps: Steps, lesson: Lesson, recipe: Recipe, noise: Noise) -> dict[str, Tensor]:
    """Fine-tune on labels; after an epoch real texts that look worst come more often, and the others less."""
    tables, model = steps.tables, steps.model
    steps.masked.fill_(noise.masked)
    steps.labels.fill_(noise.smoothing)
    steps.labels[lesson.bad] = 1 - noise.smoothing
    average = AveragedModel(model)
    taught = torch.cat([lesson.bad, lesson.good, lesson.close.repeat(recipe.close_times - 1)])
    sizes = [len(tables.batches(rows)) for rows in (taught, lesson.real)]
    share = EASY_SHARE + HARD_SHARE * HARD_TIMES
    planned, step = int(recipe.epochs * sizes[0] + (1 + (recipe.epochs - 1) * share) * sizes[1]), 0
    real = lesson.real
    for epoch in range(recipe.epochs):
        model.train()
        for length, rows in tables.batches(torch.cat([taught, real])):
            steps(rows, length, coarse=epoch >= FINE_EPOCHS, share=schedule(step, planned))
            step += 1
            if step > AVERAGED_FROM * planned and step % 4 == 0:
                average.update_parameters(model)
        rounds_weights(model, epoch >= FINE_EPOCHS)
        print(f"epoch {epoch + 1} of {recipe.epochs}, {step} of {planned} steps", flush=True)
        order = scores(model, tables, lesson.real)[lesson.real].argsort(descending=True)
        worst, others = order[: int(HARD_SHARE * len(order))], order[int(HARD_SHARE * len(order)) :]
        others = others[torch.rand(len(others), device="cuda") < EASY_SHARE]
        real = torch.cat([lesson.real[worst].repeat(HARD_TIMES), lesson.real[others]])
    return {name: value.clone() for name, value in average.module.state_dict().items()}


class Pairs:
    """Word pieces and pairs of them as a logistic regression, which decides what the classifier reads at all."""

    def __init__(self, raw: dict[str, np.ndarray]) -> None:
        ids, lengths = raw["ids"].astype(np.int64), raw["lengths"].astype(np.int64)
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        inner = np.ones(len(ids), np.bool_)
        inner[ends - lengths] = inner[ends - 1] = False
        rows, columns = [owner[inner]], [ids[inner]]
        for gap in PAIR_GAPS:
            both = (owner[:-gap] == owner[gap:]) & inner[:-gap] & inner[gap:]
            rows.append(owner[:-gap][both])
            columns.append(PIECES + pair_numbers(ids[:-gap][both], ids[gap:][both], gap, PAIRS))
        self.texts, row = len(lengths), np.concatenate(rows)
        counts = np.bincount(row, minlength=self.texts)
        values = (1 / np.sqrt(np.maximum(counts, FEWEST_PAIRS)))[row].astype(np.float32)
        self.rows, self.columns, self.values = (
            torch.from_numpy(each).cuda() for each in (row, np.concatenate(columns), values)
        )

    def summed(self, weights: Tensor, bias: Tensor) -> Tensor:
        return (
            torch.zeros(self.texts, device="cuda").index_add(0, self.rows, weights[self.columns] * self.values) + bias
        )

    def fitted(self, lesson: Lesson) -> tuple[Tensor, Tensor]:
        """Return the weights and the intercept."""
        labels = torch.zeros(self.texts, device="cuda")
        labels[lesson.bad] = 1
        used = torch.cat([lesson.bad, lesson.good, lesson.real])
        weights = torch.zeros(PIECES + PAIRS, device="cuda", requires_grad=True)
        bias = torch.full((1,), -2.0, device="cuda", requires_grad=True)
        optimise = torch.optim.Adam([weights, bias], lr=0.1)
        for _ in range(PAIR_STEPS):
            optimise.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(self.summed(weights, bias)[used], labels[used])
            (loss + PAIR_PENALTY * weights.square().sum()).backward()
            optimise.step()
        return weights.detach(), bias.detach()


def pair_numbers(first: np.ndarray, second: np.ndarray, gap: int, numbers: int) -> np.ndarray:
    """Return the number of each pair of word pieces that stand `gap` apart, as `shortlist.index.passages` does."""
    return (first * 1_000_003 + second * 7_919 + gap * 104_729) % numbers


def highest(found: np.ndarray, raw: dict[str, np.ndarray], group: str) -> np.ndarray:
    """Return the highest score among the passages of each definition."""
    counts = raw[f"{group}_counts"]
    best = np.full(len(counts), -99, np.float32)
    np.maximum.at(best, np.repeat(np.arange(len(counts)), counts), found[raw[f"{group}_passages"]])
    return best


def report(fold: Fold, found: np.ndarray, raw: dict[str, np.ndarray], names: dict[str, list[Any]]) -> str:
    real = highest(found, raw, "real")
    held = real[np.isin(raw["real_fold"], sorted(fold.servers))] if fold.servers else real
    limits = [float(np.quantile(held, 1 - rate)) for rate in (0.01, 0.003, 0.0005)]
    demo = highest(found, raw, "demo")
    lines = [f"limits {[round(x, 2) for x in limits]} n={len(held)} demo {[int((demo > x).sum()) for x in limits]}"]

    def row(name: str, best: np.ndarray) -> None:
        if len(best):
            lines.append(f"   {name:34} {len(best):5} " + " ".join(f"{(best > x).mean():.3f}" for x in limits))

    best = highest(found, raw, "example")
    every = not (fold.families or fold.sources)
    row("own, left out", best[[f != "benign" and (every or f in fold.families) for _, f, *_ in names["examples"]]])
    best = highest(found, raw, "written")
    left = np.array([every or w in fold.sources or family in fold.families for w, _, family, *_ in names["written"]])
    poisoned = np.array([each[1] for each in names["written"]])
    tones = np.array([each[4] for each in names["written"]])
    english = np.array([each[5] == "en" for each in names["written"]])
    row("written, poisoned", best[left & poisoned])
    row("written, not English", best[left & poisoned & ~english])
    for tone in ("blatant", "plain", "subtle"):
        row(f"written, {tone}", best[left & poisoned & (tones == tone)])
    row("written, honest", best[left & ~poisoned])
    unseen = np.array([w in UNSEEN_WRITERS for w, *_ in names["written"]])
    row("unseen, poisoned, English", best[unseen & poisoned & english])
    row("unseen, poisoned, other languages", best[unseen & poisoned & ~english])
    row("unseen, honest, English", best[unseen & ~poisoned & english])
    row("unseen, honest, other languages", best[unseen & ~poisoned & ~english])
    if "rules0" in fold.sources:
        row("rules, left out", highest(found, raw, "rule")[::2])
    return "\n".join(lines)


def part_of(name: str) -> int:
    """Return the number of the file that holds a weight: each holds four layers."""
    return int(name.split(".")[1]) // 4 if name.startswith("layers.") else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--small", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fold", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.3e-4)
    parser.add_argument("--close", type=int, default=2)
    parser.add_argument("--seed", type=int, default=18)
    options = parser.parse_args()
    began = time.monotonic()
    torch.set_num_threads(2)
    words = small_weights(options.small)["words"]
    tables, raw = read_tables(options.tables)
    names = json.loads((options.tables / "names.json").read_text())
    (fold,) = (each for each in folds(names) if each.name == options.fold)
    lesson = lesson_of(fold, raw, names)
    arrays = unpacked(dict(np.load(options.tables / "layers.npz")))
    everything = torch.arange(len(tables.lengths), device="cuda")
    recipe = Recipe(options.epochs, options.rate, options.close)
    model = from_encoder(words, arrays).cuda().train()
    steps = Steps(tables, model, recipe.rate, lesson.tags)
    steps.capture()
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    steps.begin(from_encoder(words, arrays).state_dict())
    model.load_state_dict(trained(steps, lesson, recipe, Noise()))
    rounds_weights(model, True)
    pairs = Pairs(raw)
    weights, bias = pairs.fitted(lesson)
    found = {
        "network": scores(model, tables, everything).cpu().numpy(),
        "pairs": pairs.summed(weights, bias).cpu().numpy(),
    }
    half = {name: value.astype(np.float16) for name, value in found.items()}
    np.savez_compressed(options.out / f"{fold.name}.npz", **half)
    if fold.name == "final":
        state = {name: value.half().cpu().numpy() for name, value in model.state_dict().items()}
        state |= {"pairs": weights.half().cpu().numpy(), "pairs_bias": bias.cpu().numpy()}
        for number in range(PARTS_OF_FILE):
            part = {name: value for name, value in state.items() if part_of(name) == number}
            np.savez_compressed(options.out / f"classifier{number}.npz", **part)
    print(
        f"{fold.name}: {len(lesson.bad)} bad, {len(lesson.good)} good, {len(lesson.real)} real; "
        f"{time.monotonic() - began:.0f} s",
        *(f"{name}: {report(fold, each, raw, names)}" for name, each in found.items()),
        sep="\n",
        flush=True,
    )


if __name__ == "__main__":
    main()
