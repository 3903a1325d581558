"""Train an exported passage classifier further on more writers, on a CPU: an hour on two cores.

    python -m training.poison.further --writers cd ce cf --start src/shortlist/weights/scanner --out FOLDER
    python -m training.poison.export --trained FOLDER --out src/shortlist/weights/scanner

It starts from exported weights, as their 4 bits hold them. So that nothing is forgotten, the texts of the new
writers come with a part of what was learned before: other writers, composed sentences, honest rules, and the real
tools whose words look worst. The weights of word pieces and pairs stay as they are.
"""

import argparse
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from shortlist.index.embedders import MODEL_FILE
from shortlist.index.passages import PassageClassifier
from training.poison.base import exported_weights, small_weights
from training.poison.export import SMALL
from training.poison.fit import REAL, collected_tools, real_tools
from training.poison.folds import SERVERS_OF_FINAL, server_fold
from training.poison.network import MASK_TOKEN, Classifier, Linear, from_encoder
from training.poison.prepare import SHIPPED, Maker, cut, glosses, of_rules, of_writers, own, passages, tagged
from training.poison.written import FOLDER, written

FROZEN = 2
"""How many of the lowest layers stay as they are: they take time, and learn little that is new."""
TOKENS_A_BATCH = 4_000
RATE, WARM, LAST_RATE, AVERAGED_FROM = 5e-5, 0.06, 0.15, 0.5
MASKED, SMOOTHING = 0.1, 0.02
PAIRS_BEFORE, OWN_BEFORE = 0.15, 0.08
"""The shares of what other writers wrote and of our own sentences that are learned again."""
WORST_REAL, OTHER_REAL, REPEATED_REAL = 20_000, 8_000, 3_000
"""How many texts of real tools are learned: those whose words look worst, others, and how many of the worst twice."""
TOKENS = 4_200_000
"""How much is read in an hour; if there is more, some texts are left out."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """The tokens of texts, and whether they are bad."""

    ids: Sequence[np.ndarray]
    bad: np.ndarray

    def batches(self, chance: random.Random) -> list[list[int]]:
        """Return texts of similar length together, in any order."""
        order = sorted(range(len(self.ids)), key=lambda text: (len(self.ids[text]) + chance.randrange(6), text))
        found: list[list[int]] = [[]]
        for text in order:
            if (len(found[-1]) + 1) * len(self.ids[text]) > TOKENS_A_BATCH:
                found.append([])
            found[-1].append(text)
        chance.shuffle(found)
        return found


def exported_classifier(folder: Path) -> Classifier:
    """Return an exported classifier, which computes with 4 bits."""
    model = from_encoder(small_weights(SMALL)["words"], exported_weights(folder / MODEL_FILE))
    for layer in model.modules():
        if isinstance(layer, Linear):
            layer.coarse = True
    return model


def worst_first(texts: Sequence[str]) -> list[str]:
    """Return texts by what their words look like."""
    scores = [max(quick for quick, _ in windows) for windows in SHIPPED.glance(texts)]
    return [texts[n] for n in np.argsort(scores)[::-1]]


def lesson_of(new: Collection[str], chance: random.Random) -> Lesson:
    """Collect what is learned: everything of the new writers, and a part of what was learned before."""
    tools = [d for d in (*real_tools(*REAL), *collected_tools()) if server_fold(d.server) not in SERVERS_OF_FINAL]
    again = {(w.writer, w.pair) for w in written() if w.writer not in new and chance.random() < PAIRS_BEFORE}
    maker = Maker(tools)
    own(maker)
    maker.found = chance.sample(maker.found, int(OWN_BEFORE * len(maker.found)))
    of_rules(maker)
    of_writers(maker, [w for w in written() if w.writer in new or (w.writer, w.pair) in again])
    real = worst_first(list(dict.fromkeys(p for d in tools for p in passages(d))))
    others = chance.sample(real[WORST_REAL:], OTHER_REAL)
    return labelled(maker, [*real[:WORST_REAL], *real[:REPEATED_REAL], *others])


def labelled(maker: Maker, real: Sequence[str]) -> Lesson:
    """Return tokens and labels; what other languages say is learned word by word in English too."""
    texts = list(maker.texts.numbers)
    used = sorted({label.text for label in maker.found})
    said = glosses([texts[n] for n in used])
    after = {used[n]: len(texts) + place for place, n in enumerate(said)}
    texts += [*said.values(), *real]
    rows = cut(texts)
    bad, good = set[int](), set[int]()
    for label in maker.found:
        found = {row for row, *_ in tagged(rows, label)}
        if label.text in after:
            found |= set(rows.of(after[label.text]))
        (bad if label.bad else good).update(found)
    of_real = [row for text in range(len(texts) - len(real), len(texts)) for row in rows.of(text)]
    worst = {tuple(rows.ids[row]) for row in bad}
    harmless = [row for row in (*sorted(good - bad), *of_real) if tuple(rows.ids[row]) not in worst]
    print(f"{len(bad)} bad, {len(harmless)} harmless, {len(of_real)} of these of real tools", flush=True)
    return within_budget([rows.ids[row] for row in (*sorted(bad), *harmless)], len(bad), maker.chance)


def within_budget(ids: Sequence[np.ndarray], bad: int, chance: random.Random) -> Lesson:
    """Return the lesson of as many texts as there is time for; the first ones are bad."""
    share = min(1.0, TOKENS / sum(map(len, ids)))
    kept = sorted(chance.sample(range(len(ids)), int(share * len(ids))))
    return Lesson([ids[text] for text in kept], np.array(kept) < bad)


def padded(texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return token ids in a rectangle, some of them masked so that no single word decides, and where they are."""
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    mask = torch.arange(longest) < torch.tensor([len(text) for text in texts])[:, None]
    hidden = (torch.rand(ids.shape) < MASKED) & mask
    hidden[:, 0] = False
    return torch.where(hidden, MASK_TOKEN, ids), mask


def trained(model: Classifier, lesson: Lesson, chance: random.Random) -> Classifier:
    """Fine-tune on labels, and return the average of the later weights."""
    for part in (model.words, *model.layers[:FROZEN], model.norm):
        part.requires_grad_(False)
    model.places.requires_grad_(False)
    for layer in model.layers:
        layer.dropout.p = 0.0  # masked tokens are noise enough, and dropout takes a third of the time
    optimise = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.01)
    batches = lesson.batches(chance)
    average, began, mean = AveragedModel(model), time.monotonic(), 0.0
    model.train()
    for step, batch in enumerate(batches):
        done = step / len(batches)
        for group in optimise.param_groups:
            group["lr"] = RATE * min(1.0, done / WARM) * (1 - (1 - LAST_RATE) * done)
        labels = torch.from_numpy(np.where(lesson.bad[batch], 1 - SMOOTHING, SMOOTHING)).float()
        logits, _ = model(*padded([lesson.ids[text] for text in batch]))
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        optimise.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimise.step()
        mean = loss.item() if not step else 0.98 * mean + 0.02 * loss.item()
        if done > AVERAGED_FROM and step % 4 == 0:
            average.update_parameters(model)
        if step % 50 == 0:
            print(f"step {step} of {len(batches)}, loss {mean:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return average.module


def saved(model: Classifier, start: Path, folder: Path) -> None:
    """Write the weights as `export` reads them, with those of word pieces and pairs that it started from."""
    folder.mkdir(parents=True, exist_ok=True)
    card = PassageClassifier(start).card
    state = {name: value.numpy() for name, value in model.state_dict().items() if not name.startswith("head_tags")}
    state["pairs"] = np.load(start / "pairs.npy").astype(np.float32) * np.float32(card.scale)
    state["pairs_bias"] = np.array([card.bias], np.float32)
    np.savez(folder / "classifier0.npz", **state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    writers = sorted(path.name for path in FOLDER.iterdir())
    parser.add_argument("--writers", nargs="+", required=True, choices=writers, metavar="NAME", help="the new writers")
    parser.add_argument("--start", type=Path, required=True, help="the folder of the exported classifier to start from")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(18)
    chance = random.Random(18)
    model = exported_classifier(options.start)
    saved(trained(model, lesson_of(options.writers, chance), chance), options.start, options.out)


if __name__ == "__main__":
    main()
