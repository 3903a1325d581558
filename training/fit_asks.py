"""Fit which sentences of a long message ask for something, on requests beside pasted material.

    python -m training.fit_asks [--messages 14000] [--without LETTER]

Material, requests and the talk around them were written for this (`data/material.jsonl`, `asks.jsonl`, `around.jsonl`,
with a letter for each writer). Messages are put together from them, from the training requests of real tools in
fifteen languages and from errands, which are requests from end to end. `--without` leaves one writer out and measures
on messages made of that writer's pieces alone; nothing is saved then.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.text.asking import BUCKETS, best_path, features_of, hashed, is_word, sentences_of
from shortlist.text.asks import by_rules
from shortlist.text.phrasing import FIRST_WORD
from shortlist.text.tokens import ACTIONS
from training.bench import Folder, data_folder
from training.errands import Wish, errands
from training.holdout import is_held_out

NAMES = ("material", "asks", "around")
PIECES = Path(__file__).parent / "data"
SHIPPED = Path(__file__).parents[1] / "src" / "shortlist" / "text" / "data" / "asks.npz"
MEASURED = 2_000
LONGEST = 160
"""Longer messages are measured and not fitted on."""
PIECES_WITH_A_WORD, SOME_REQUESTS = 12, 1_200
"""How many pieces must have a word that counts, and how many training requests are among the pieces."""
EPOCHS, BATCH, RATE, DECAY, DROPPED = 6, 64, 0.01, 3e-5, 0.3
POLITE = (
    "Could you {}?",
    "Can you {}?",
    "could you please {}",
    "Please {}.",
    "Please {}",
    "please {}",
    "{}, please.",
    "I'd like you to {}.",
    "Would you {}? Thanks",
    "can u {}",
    "I want you to {}",
    "Kindly {}.",
    "We need to {}.",
    "Let's {}.",
    "so {}",
    "Now {}.",
    "Hi, could you {}?",
    "Could somebody {}?",
    "{} - thanks!",
    "{} for me",
)
SHARE_POLITE = 0.4
SHARE_ERRANDS, SHARE_TWO, SHARE_OTHER_LANGUAGE = 0.12, 0.07, 0.12


@dataclass(frozen=True, slots=True)
class Pieces:
    """What messages are made of."""

    material: tuple[str, ...]
    asks: tuple[str, ...]
    around: tuple[tuple[str, str], ...]
    requests: tuple[str, ...]
    foreign: tuple[str, ...]
    errands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A text, and which of its characters ask."""

    text: str
    asked: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Example:
    """The features of each sentence of a message, and whether it asks."""

    features: tuple[NDArray[np.int64], ...]
    asks: NDArray[np.float32]


def read_pieces(data: Path, writers: str, seed: int) -> Pieces:
    """Read what these writers wrote, with training requests that are not held out."""
    held = {name: [each for each in _lines(PIECES / f"{name}.jsonl") if each["writer"] in writers] for name in NAMES}
    authored = Folder(data / "train" / "authored")
    cases = [case for case in authored.cases if not is_held_out("authored", case.gold)]
    requests = [case.query for case in cases if 15 <= len(case.query) <= 300]
    foreign = [case["query"] for case in _lines(data / "languages" / "train.jsonl.gz")]
    wishes = [Wish(case.query, case.gold[0].partition("/")[0], number) for number, case in enumerate(cases)]
    long = [errand.text for errand in errands(wishes, 4_000, seed) if len(errand.text) > 400]
    return Pieces(
        tuple(each["text"].strip() for each in held["material"]),
        tuple(each["ask"].strip() for each in held["asks"]),
        tuple((each["text"].strip(), each["place"]) for each in held["around"]),
        tuple(requests),
        tuple(foreign),
        (*long, *(case.query for case in cases if len(case.query) > 400)),
    )


def messages(pieces: Pieces, count: int, seed: int) -> Iterator[Message]:
    """Put messages together."""
    chance = Random(seed)
    for _ in range(count):
        if chance.random() < SHARE_ERRANDS:
            text = chance.choice(pieces.errands)
            yield Message(text, ((0, len(text)),))
        else:
            yield _message(pieces, chance)


def _message(pieces: Pieces, chance: Random) -> Message:
    parts: list[tuple[str, bool]] = []
    place = chance.choices(("before", "after", "middle"), (0.38, 0.42, 0.2))[0]
    ask = _spoken(_ask(pieces, chance), place, chance)
    material = [
        _dressed(chance.choice(pieces.material), chance) for _ in range(chance.choices((1, 2, 4), (8, 2, 1))[0])
    ]
    if place == "middle":
        above, below = _halves(material, chance)
        parts = [(above, False), *_with_talk(ask, "between", pieces, chance), (below, False)]
    elif place == "before":
        parts = [*_with_talk(ask, "before", pieces, chance), *((each, False) for each in material)]
    else:
        parts = [*((each, False) for each in material), *_with_talk(ask, "after", pieces, chance)]
    if place == "before" and chance.random() < SHARE_TWO:
        parts.append((_spoken(_ask(pieces, chance), "after", chance), True))
    return _joined(parts, chance)


def _ask(pieces: Pieces, chance: Random) -> str:
    source = chance.choices((pieces.asks, pieces.requests, pieces.foreign), (0.5, 0.38, SHARE_OTHER_LANGUAGE))[0]
    return chance.choice(source)


def _spoken(ask: str, place: str, chance: Random) -> str:
    """Write a request as people type it."""
    first = FIRST_WORD.fullmatch(ask.partition(" ")[0])
    if first and first[1].lower() in ACTIONS and chance.random() < SHARE_POLITE:
        ask = chance.choice(POLITE).format(f"{ask[0].lower()}{ask[1:].rstrip('.!')}")
    if chance.random() < 0.35 and ask[1:2].islower():
        ask = ask[0].lower() + ask[1:]
    if chance.random() < 0.35:
        ask = ask.rstrip(".!")
    if place == "before" and chance.random() < 0.3:
        ask = f"{ask.rstrip('.!?')}:"
    if chance.random() < 0.04:
        ask = f"→ {ask}" if chance.random() < 0.5 else f"-> {ask}"
    return ask


def _dressed(material: str, chance: Random) -> str:
    kind = chance.random()
    if kind < 0.06:
        return f"```\n{material}\n```"
    if kind < 0.1:
        return "\n".join(f"> {line}" for line in material.split("\n"))
    if kind < 0.14:
        return f'"{material}"'
    if kind < 0.2:
        return f"---\n{material}\n---"
    return f"{material}\n" if kind < 0.25 else material


def _halves(material: list[str], chance: Random) -> tuple[str, str]:
    if len(material) > 1:
        return "\n\n".join(material[:1]), "\n\n".join(material[1:])
    cut = "\n\n" if "\n\n" in material[0] else "\n" if "\n" in material[0] else ". "
    pieces = material[0].split(cut)
    if len(pieces) == 1:
        return material[0], material[0]
    at = chance.randrange(1, len(pieces))
    return cut.join(pieces[:at]), cut.join(pieces[at:])


def _with_talk(ask: str, place: str, pieces: Pieces, chance: Random) -> list[tuple[str, bool]]:
    if chance.random() > 0.35:
        return [(ask, True)]
    talk = chance.choice([text for text, where in pieces.around if where == place])
    return (
        [(talk, False), (ask, True)]
        if chance.random() < (0.7 if place == "before" else 0.4)
        else [(ask, True), (talk, False)]
    )


def _joined(parts: Sequence[tuple[str, bool]], chance: Random) -> Message:
    text, asked = "", []
    for part, asks in parts:
        joint = chance.choices(("\n\n", "\n", " "), (0.55, 0.35, 0.1))[0] if text else ""
        text += joint
        if asks:
            asked.append((len(text), len(text) + len(part)))
        text += part
    return Message(text, tuple(asked))


def example(words: frozenset[str], message: Message) -> Example:
    """Read the features of a message, and which of its sentences are mostly asked."""
    sentences, guess = sentences_of(message.text), by_rules(message.text)
    asks, at = [], 0
    for each in sentences:
        at = max(message.text.find(each.text, at), at)
        end = at + len(each.text)
        inside = sum(max(min(end, last) - max(at, first), 0) for first, last in message.asked)
        asks.append(float(2 * inside > len(each.text)))
        at = end
    kept = (
        [each for each in found if not is_word(each) or each in words]
        for found in features_of(sentences, guess.text if guess.characters and guess.is_clear else "")
    )
    return Example(tuple(map(hashed, kept)), np.array(asks, np.float32))


def words_that_count(pieces: Pieces) -> frozenset[str]:
    """Return the features of words that occur in enough pieces: others would only be learnt by heart."""
    seen: Counter[str] = Counter()
    some = Random(0).sample(pieces.requests, SOME_REQUESTS)
    for text in (*pieces.material, *pieces.asks, *(text for text, _ in pieces.around), *some):
        seen.update({each for found in features_of(sentences_of(text), "") for each in found if is_word(each)})
    return frozenset(word for word, count in seen.items() if count >= PIECES_WITH_A_WORD)


def fit(examples: Sequence[Example], seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit the weights of the features and of the steps between the states."""
    torch.manual_seed(seed)
    weights = torch.zeros(BUCKETS, requires_grad=True)
    steps = torch.zeros(2, 2, requires_grad=True)
    learner = torch.optim.Adam([weights, steps], lr=RATE)
    order = [each for each in examples if 0 < len(each.asks) <= LONGEST]
    chance, fates = Random(seed), np.random.default_rng(seed)
    for epoch in range(EPOCHS):
        chance.shuffle(order)
        losses = []
        for group in learner.param_groups:
            group["lr"] = RATE * (1 - epoch / EPOCHS)
        for start in range(0, len(order), BATCH):
            batch = [_thinned(each, fates) for each in order[start : start + BATCH]]
            loss = _loss(weights, steps, batch) + DECAY * (weights**2).sum()
            learner.zero_grad()
            loss.backward()
            learner.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: {np.mean(losses):.4f}", flush=True)
    return weights.detach().numpy(), steps.detach().numpy()


def _thinned(each: Example, fates: np.random.Generator) -> Example:
    """Drop some features of each sentence, so that none is relied on alone."""
    return Example(tuple(ids[fates.random(len(ids)) >= DROPPED] for ids in each.features), each.asks)


def _loss(weights: torch.Tensor, steps: torch.Tensor, batch: Sequence[Example]) -> torch.Tensor:
    ids = torch.from_numpy(np.concatenate([ids for each in batch for ids in each.features]))
    sizes = [len(ids) for each in batch for ids in each.features]
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    flat = torch.zeros(len(sizes)).index_add(0, owner, weights[ids])
    longest = max(len(each.asks) for each in batch)
    scores, labels = torch.zeros(len(batch), longest), torch.zeros(len(batch), longest, dtype=torch.long)
    known = torch.zeros(len(batch), longest, dtype=torch.bool)
    for row, part in enumerate(torch.split(flat, [len(each.asks) for each in batch])):
        scores[row, : len(part)] = part
        labels[row, : len(part)] = torch.from_numpy(batch[row].asks).long()
        known[row, : len(part)] = True
    emitted = torch.stack([torch.zeros_like(scores), scores], dim=2)
    total, right = emitted[:, 0], emitted[:, 0].gather(1, labels[:, :1]).squeeze(1)
    for at in range(1, longest):
        ahead = torch.logsumexp(total[:, :, None] + steps, dim=1) + emitted[:, at]
        total = torch.where(known[:, at, None], ahead, total)
        step = steps[labels[:, at - 1], labels[:, at]] + emitted[:, at].gather(1, labels[:, at : at + 1]).squeeze(1)
        right = right + torch.where(known[:, at], step, torch.zeros_like(step))
    return (torch.logsumexp(total, dim=1) - right).mean()


def _lines(file: Path) -> list[dict[str, str]]:
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _examples(found: Iterator[Message], words: frozenset[str]) -> list[Example]:
    with ProcessPoolExecutor() as workers:
        return list(workers.map(partial(example, words), found, chunksize=200))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--messages", type=int, default=14_000)
    parser.add_argument("--without", default="")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    writers = "".join(sorted({each["writer"] for each in _lines(PIECES / "material.jsonl")} - {given.without}))
    pieces = read_pieces(given.data, writers, given.seed)
    words = words_that_count(pieces)
    weights, steps = fit(_examples(messages(pieces, given.messages, given.seed), words), given.seed)
    scale = np.float32(np.abs(weights).max() / 127)
    small = np.round(weights / scale).astype(np.int8)
    if given.without:
        others = read_pieces(given.data, given.without, given.seed)
        _measure(small * scale, steps, _examples(messages(others, MEASURED, given.seed + 1), words))
    else:
        hashes = np.array(sorted(crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32)
        np.savez_compressed(SHIPPED, weights=small, scale=scale, steps=steps.astype(np.float32), words=hashes)


def _measure(weights: NDArray[np.float32], steps: NDArray[np.float32], examples: Sequence[Example]) -> None:
    exact = more = missed = 0
    for each in examples:
        found = best_path(np.array([weights[ids].sum() for ids in each.features]), steps)
        pairs = list(zip(found, each.asks.astype(bool).tolist(), strict=True))
        exact += all(one == other for one, other in pairs)
        more += any(one and not other for one, other in pairs)
        missed += not any(one and other for one, other in pairs)
    count = len(examples)
    print(
        f"{count} messages: exact {exact / count:.3f}, more than asked {more / count:.3f}, missed {missed / count:.3f}"
    )


if __name__ == "__main__":
    main()
