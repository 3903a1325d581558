"""Train the passage classifier on a GPU, and measure it on families, writers and servers left out of training.

    python -m training.poison.prepare --out TABLES
    python -m training.poison.train --tables TABLES --small src/shortlist/weights/small/model.onnx --out FOLDER

Each fold leaves out some families or writers, and the tools of a fifth of the servers; the scores of all texts by each
fold are written to `FOLD.npz`, the final one's weights to `classifier0.npz` and `classifier1.npz`.
`training.poison.export` and `calibrate` read them.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from training.poison.base import small_weights
from training.poison.folds import Fold, Glosses, folds, learned
from training.poison.network import MASK_TOKEN, Classifier, Linear, from_encoder

TOKENS_A_BATCH = 24_000
AVERAGED_FROM = 0.4
"""The share of the steps after which the weights are averaged; their average is the final one."""
LAST_RATE = 0.25
"""What is left of the learning rate in the end: weights that keep moving average to a flatter minimum."""
TAGGED = 0.5
"""How much it counts to find the tokens that are poisoned, beside finding the passages."""
HARD_SHARE, HARD_TIMES = 0.03, 3
EASY_SHARE = 0.4
"""The share of the other real texts that come in each epoch but the first."""
LAYERS = 6
FINE_EPOCHS = 2
"""How many epochs pass before the weights are rounded to 4 bits."""
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


SEEDS = {18: Noise(), 5: Noise(), 7: Noise(), 9: Noise(masked=0.2, smoothing=0.05)}
"""One model is trained with each; the average of their weights finds more at the same rate of real tools flagged."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All texts as token ids on the device."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor
    mask_id: int

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        lengths = self.lengths[rows]
        steps = torch.arange(int(lengths.max()), device=rows.device)
        mask = steps < lengths[:, None]
        return self.flat[(self.starts[rows, None] + steps) * mask] * mask, mask

    def noisy(self, rows: Tensor, masked: float) -> tuple[Tensor, Tensor]:
        """Return a batch in which some tokens are masked, so that no single word decides."""
        ids, mask = self.batch(rows)
        hit = (torch.rand(ids.shape, device=ids.device) < masked) & mask
        hit[:, 0] = False
        return torch.where(hit, self.mask_id, ids), mask

    def batches(self, rows: Tensor, shuffle: bool) -> Iterator[Tensor]:
        """Yield rows of similar length together."""
        noise = torch.rand(len(rows), device=rows.device) * (8 if shuffle else 0)
        order = rows[torch.argsort(self.lengths[rows] + noise)]
        sizes = self.lengths[order].cpu().numpy()
        chunks, start, longest = [], 0, 0
        for end, size in enumerate(sizes):
            if max(longest, size) * (end + 1 - start) > TOKENS_A_BATCH * (1 if shuffle else 4):
                chunks.append(order[start:end])
                start, longest = end, 0
            longest = max(longest, size)
        chunks.append(order[start:])
        for place in np.random.permutation(len(chunks)) if shuffle else range(len(chunks)):
            yield chunks[place]


def read_tables(folder: Path, words: np.ndarray) -> tuple[Tables, dict[str, np.ndarray]]:
    raw = dict(np.load(folder / "tables.npz"))
    kept = raw["kept"]
    place = np.full(len(words), -1, np.int64)
    place[kept] = np.arange(len(kept))
    unit = words / np.linalg.norm(words, axis=1, keepdims=True).clip(1e-6)
    others = np.flatnonzero(place < 0)
    near = torch.from_numpy(unit[others]).cuda() @ torch.from_numpy(unit[kept]).cuda().T
    place[others] = near.argmax(1).cpu().numpy()
    raw["places"] = place.astype(np.uint16)
    lengths = raw["lengths"].astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    flat, begin, size = (torch.from_numpy(a).cuda() for a in (place[raw["ids"]], starts, lengths))
    return Tables(flat, begin, size, int(place[MASK_TOKEN])), raw


def schedule(step: int, steps: int) -> float:
    warm = max(1, steps // 12)
    return min(1.0, step / warm) * max(LAST_RATE, 1 - (1 - LAST_RATE) * step / steps)


def optimiser(model: Classifier, rate: float) -> torch.optim.AdamW:
    fresh = [p for name, p in model.named_parameters() if name.startswith("head")]
    old = [p for name, p in model.named_parameters() if not name.startswith("head") and p.requires_grad]
    groups = [{"params": old, "lr": rate, "base": rate}, {"params": fresh, "lr": 1e-3, "base": 1e-3}]
    return torch.optim.AdamW(groups, weight_decay=0.01, fused=True)


def stepped(model: Classifier, optimise: torch.optim.AdamW, loss: Tensor, step: int, steps: int) -> None:
    for group in optimise.param_groups:
        group["lr"] = group["base"] * schedule(step, steps)
    optimise.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimise.step()


@torch.inference_mode()
def scores(model: Classifier, tables: Tables, rows: Tensor) -> Tensor:
    model.eval()
    found = torch.full((len(tables.lengths),), math.nan, device=rows.device)
    for chunk in tables.batches(rows, shuffle=False):
        with torch.autocast("cuda", torch.bfloat16):
            found[chunk] = model(*tables.batch(chunk))[0]
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
    with torch.autocast("cuda", torch.bfloat16):
        logits, tokens = model(ids, mask)
    start, end = tags.T
    steps = torch.arange(ids.shape[1], device=ids.device)
    inside = (steps >= start[:, None]) & (steps < end[:, None])
    known = mask & ((labels < 0.5) | (end > 0))[:, None]
    each = nn.functional.binary_cross_entropy_with_logits(tokens, inside.float(), reduction="none")
    by_text = (each * known).sum(1) / mask.sum(1)
    passages = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return passages + TAGGED * by_text.mean()


def trained(tables: Tables, model: Classifier, lesson: Lesson, recipe: Recipe, noise: Noise) -> Classifier:
    """Fine-tune on labels; after an epoch real texts that look worst come more often, and the others less."""
    labels = torch.full((len(tables.lengths),), noise.smoothing, device="cuda")
    labels[lesson.bad] = 1 - noise.smoothing
    average = AveragedModel(model)
    taught = torch.cat([lesson.bad, lesson.good, lesson.close.repeat(recipe.close_times - 1)])
    sizes = [int(tables.lengths[rows].sum()) for rows in (taught, lesson.real)]
    share = EASY_SHARE + HARD_SHARE * HARD_TIMES
    steps = int(1.06 * (recipe.epochs * sizes[0] + (1 + (recipe.epochs - 1) * share) * sizes[1]) / TOKENS_A_BATCH)
    optimise, step = optimiser(model, recipe.rate), 0
    real = lesson.real
    for epoch in range(recipe.epochs):
        model.train()
        rounds_weights(model, epoch >= FINE_EPOCHS)
        for rows in tables.batches(torch.cat([taught, real]), shuffle=True):
            loss = loss_of(model, tables.noisy(rows, noise.masked), labels[rows], lesson.tags[rows])
            stepped(model, optimise, loss, step, steps)
            step += 1
            if step > AVERAGED_FROM * steps and step % 4 == 0:
                average.update_parameters(model)
        order = scores(model, tables, lesson.real)[lesson.real].argsort(descending=True)
        worst, others = order[: int(HARD_SHARE * len(order))], order[int(HARD_SHARE * len(order)) :]
        others = others[torch.rand(len(others), device="cuda") < EASY_SHARE]
        real = torch.cat([lesson.real[worst].repeat(HARD_TIMES), lesson.real[others]])
    model.load_state_dict(average.module.state_dict())
    return model


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
    if "rules0" in fold.sources:
        row("rules, left out", highest(found, raw, "rule")[::2])
    return "\n".join(lines)


def _second_part(name: str) -> bool:
    return name.startswith("layers.") and int(name.split(".")[1]) > 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--small", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fold", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.3e-4)
    parser.add_argument("--close", type=int, default=3)
    options = parser.parse_args()
    began = time.monotonic()
    torch.set_num_threads(2)
    small = small_weights(options.small)
    tables, raw = read_tables(options.tables, small["words"])
    names = json.loads((options.tables / "names.json").read_text())
    (fold,) = (each for each in folds(names) if each.name == options.fold)
    lesson = lesson_of(fold, raw, names)
    arrays = {**small, "words": small["words"][raw["kept"]]}
    everything = torch.arange(len(tables.lengths), device="cuda")
    states, recipe = [], Recipe(options.epochs, options.rate, options.close)
    for seed, noise in SEEDS.items():
        torch.manual_seed(seed)
        np.random.seed(seed)
        start = from_encoder(arrays, LAYERS).cuda()
        states.append(trained(tables, start, lesson, recipe, noise).state_dict())
    model = from_encoder(arrays, LAYERS).cuda()
    model.load_state_dict({name: torch.stack([each[name] for each in states]).mean(0) for name in states[0]})
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
        state["places_of"] = raw["places"]
        for number in range(2):
            part = {name: value for name, value in state.items() if _second_part(name) == bool(number)}
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
