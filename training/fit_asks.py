"""Fit which sentences of a long message ask for something, on messages with pasted text.

    python -m training.fit_asks [--copies 6] [--without LETTERS]

`data/pasted.jsonl` holds messages that were written for this, with the words that ask (`ask`; all of them where it is
missing) and a letter for each writer. Each is fitted on as it is and with its request exchanged for another one: of
these messages, of `data/asks.jsonl` and `data/chats.jsonl`, and of the training requests of real tools in fifteen
languages. With them come errands, which are requests from end to end, and pasted material without any
(`data/material.jsonl`). `--without` leaves writers out and measures on their messages; nothing is saved then. How
likely another sentence is the request than the one that is taken for it is fitted on them, too.
"""

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.text.asking import (
    BUCKETS,
    SHARPNESS,
    Model,
    asking,
    best_left,
    features_of,
    hashed,
    is_word,
    meanings,
    scores_of,
    sentences_of,
)
from shortlist.text.asks import guess_of, read_long
from shortlist.text.phrasing import FIRST_WORD
from shortlist.text.tokens import ACTIONS
from training.bench import Folder, data_folder
from training.errands import Wish, errands
from training.holdout import is_held_out

PIECES = Path(__file__).parent / "data"
SHIPPED = Path(__file__).parents[1] / "src" / "shortlist" / "text" / "data" / "asks.npz"
LONGEST = 120
"""Longer messages, in sentences, are measured and not fitted on."""
MESSAGES_WITH_A_WORD = 6
"""How many messages must have a word that counts."""
FEATURE_SEEN = 20
"""How many sentences must have a feature that is kept."""
NETWORKS, SHAPES, MEANINGS, HIDDEN = 2, 8, 12, 48
EPOCHS, BATCH, RATE, DECAY, DROPPED, BLURRED = 7, 128, 0.01, 3e-5, 0.3, 0.2
LENGTH, SLOWER, MASKED = 10.0, 0.2, 0.1
"""What meanings are multiplied by, how much slower the layer that reads them learns, and how much of it is dropped."""
AS_WRITTEN, ALL_REQUEST = 4, 16
"""How often each message is fitted on as it is, and each that is all request."""
ERRANDS, MATERIAL, COMPOSED = 2_400, 150, 3_000
"""How many errands, pieces of material and made messages come with them."""
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
_PARAGRAPHS = re.compile(r"\n\s*\n")
_WORD = re.compile(r"[぀-ヿ一-鿿]|[^\W぀-ヿ一-鿿]+")


@dataclass(frozen=True, slots=True)
class Message:
    """A text, and which of its characters ask."""

    text: str
    asked: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Requests:
    """Where the requests come from that are put in the place of others, and how often."""

    written: tuple[str, ...]
    chats: tuple[str, ...]
    tools: tuple[str, ...]
    foreign: tuple[str, ...]

    def draw(self, chance: Random) -> str:
        return chance.choice(chance.choices((self.written, self.chats, self.tools, self.foreign), (7, 7, 4, 2))[0])


@dataclass(frozen=True, slots=True)
class Example:
    """The features and the meaning of each sentence of a message, and whether it asks."""

    features: tuple[NDArray[np.int64], ...]
    meant: NDArray[np.float16]
    asks: NDArray[np.float32]


def written(writers: str) -> list[Message]:
    """Read the messages of these writers."""
    return [_message(each) for each in _lines(PIECES / "pasted.jsonl") if each["writer"] in writers]


def _message(each: dict[str, Any]) -> Message:
    text, found, at = each["text"], [], 0
    for ask in sorted(each.get("ask", [each["text"]]), key=text.find):
        at = text.index(ask, at)
        found.append((at, at + len(ask)))
        at += len(ask)
    return Message(text, tuple(found))


def requests(messages: Sequence[Message], data: Path) -> Requests:
    """Gather requests; of the training requests only those of tools that are not held out."""
    own = [message.text[start:end] for message in messages for start, end in message.asked if end - start <= 300]
    turns = [
        text
        for chat in _lines(PIECES / "chats.jsonl")
        for said in [[text for speaker, text in chat["turns"] if speaker == "u"]]
        for text in (said[0], chat.get("plain", said[-1]), said[-1])
    ]
    cases = [case for case in Folder(data / "train" / "authored").cases if not is_held_out("authored", case.gold)]
    return Requests(
        (*own, *(each["ask"].strip() for each in _lines(PIECES / "asks.jsonl"))),
        tuple(turns),
        tuple(case.query for case in cases if 15 <= len(case.query) <= 300),
        tuple(each["query"] for each in _lines(data / "languages" / "train.jsonl.gz")),
    )


def exchanged(message: Message, pool: Requests, chance: Random) -> Message:
    """Put other requests in the place of those of a message, typed as they are."""
    text, asked, at = "", [], 0
    for start, end in message.asked:
        other = _typed_like(message.text[start:end], _polite(pool.draw(chance), chance))
        text += message.text[at:start]
        asked.append((len(text), len(text) + len(other)))
        text, at = f"{text}{other}", end
    return Message(text + message.text[at:], tuple(asked))


def _polite(ask: str, chance: Random) -> str:
    first = FIRST_WORD.fullmatch(ask.partition(" ")[0])
    if first and first[1].lower() in ACTIONS and chance.random() < SHARE_POLITE:
        return chance.choice(POLITE).format(f"{ask[0].lower()}{ask[1:].rstrip('.!')}")
    return ask


def _typed_like(one: str, other: str) -> str:
    """Write a request with a capital and a full stop where the other has them."""
    if one[0].islower() and other[1:2].islower():
        other = other[0].lower() + other[1:]
    elif one[0].isupper():
        other = other[0].upper() + other[1:]
    if one[-1] not in ".!?:":
        return other.rstrip(".!")
    return f"{other.rstrip('.!')}{one[-1]}" if one[-1] != "?" and other[-1] != "?" else other


def all_request(data: Path, seed: int) -> list[Message]:
    """Return errands and long training requests, which ask from end to end."""
    cases = [case for case in Folder(data / "train" / "authored").cases if not is_held_out("authored", case.gold)]
    wishes = [Wish(case.query, case.gold[0].partition("/")[0], number) for number, case in enumerate(cases)]
    long = [errand.text for errand in errands(wishes, 4_000, seed) if len(errand.text) > 400]
    texts = [*long, *(case.query for case in cases if len(case.query) > 400)]
    return [Message(text, ((0, len(text)),)) for text in Random(seed).sample(texts, min(ERRANDS, len(texts)))]


def no_request(seed: int) -> list[Message]:
    """Return pasted material alone."""
    texts = [each["text"].strip() for each in _lines(PIECES / "material.jsonl")]
    return [Message(text, ()) for text in Random(seed).sample(texts, MATERIAL)]


def composed(pool: Requests, count: int, seed: int) -> Iterator[Message]:
    """Put requests before, after or into pieces of material: messages longer than those that were written."""
    chance, texts = Random(seed), [each["text"].strip() for each in _lines(PIECES / "material.jsonl")]
    for _ in range(count):
        ask = _polite(pool.draw(chance), chance)
        pieces = [
            part for text in chance.sample(texts, chance.choice((1, 1, 2, 4))) for part in _PARAGRAPHS.split(text)
        ]
        at = chance.choice((0, len(pieces), chance.randrange(len(pieces) + 1)))
        joints = [chance.choice(("\n\n", "\n")) for _ in range(2)]
        above, below = "\n\n".join(pieces[:at]), "\n\n".join(pieces[at:])
        before = f"{above}{joints[0]}" if above else ""
        text = f"{before}{ask}{joints[1]}{below}"
        yield Message(text, ((len(before), len(before) + len(ask)),))


def example(words: frozenset[str], message: Message) -> Example:
    """Read the features of a message, and which of its sentences are mostly asked."""
    sentences = sentences_of(message.text)
    asks, at = [], 0
    for each in sentences:
        at = max(message.text.find(each.text, at), at)
        end = at + len(each.text)
        inside = sum(max(min(end, last) - max(at, first), 0) for first, last in message.asked)
        asks.append(float(2 * inside > len(each.text)))
        at = end
    kept = (
        [each for each in found if not is_word(each) or each in words]
        for found in features_of(sentences, guess_of(message.text))
    )
    return Example(
        tuple(map(hashed, kept)),
        meanings([each.text for each in sentences]).astype(np.float16),
        np.array(asks, np.float32),
    )


def words_that_count(messages: Sequence[Message]) -> frozenset[str]:
    """Return the features of words that occur in enough messages: others would only be learnt by heart."""
    seen: Counter[str] = Counter()
    for message in messages:
        seen.update({each for found in features_of(sentences_of(message.text), "") for each in found if is_word(each)})
    return frozenset(word for word, count in seen.items() if count >= MESSAGES_WITH_A_WORD)


class Batch:
    """Some messages as flat arrays: for each sentence its message and its neighbours, -1 where there is none."""

    def __init__(self, examples: Sequence[Example]) -> None:
        sizes = torch.tensor([len(each.asks) for each in examples])
        ids = [found for each in examples for found in each.features]
        self.ids = np.concatenate(ids)
        self.starts = np.cumsum([0, *map(len, ids)])[:-1]
        self.asks = torch.from_numpy(np.concatenate([each.asks for each in examples]))
        self.message = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        self.sizes = sizes.float()
        self.meant = LENGTH * torch.from_numpy(np.concatenate([each.meant for each in examples]).astype(np.float32))
        first = (torch.cumsum(sizes, 0) - sizes)[self.message]
        number = torch.arange(len(self.asks))
        self.place = number - first
        self.before = torch.where(self.place > 0, number - 1, -1)
        self.after = torch.where(self.place + 1 < sizes[self.message], number + 1, -1)

    def thinned(self, fates: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Drop some features of each sentence, so that none is relied on alone."""
        kept = fates.random(len(self.ids)) >= DROPPED
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return torch.from_numpy(self.ids[kept]), torch.from_numpy(starts)


class Network(torch.nn.Module):
    """What `shortlist.text.asking.Network` computes."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.EmbeddingBag(BUCKETS, 1, mode="sum")
        self.shapes = torch.nn.EmbeddingBag(BUCKETS, SHAPES, mode="mean")
        self.meaning = torch.nn.Linear(meanings([""]).shape[1], 1 + MEANINGS)
        self.hidden = torch.nn.Linear(4 * (SHAPES + MEANINGS) + 7, HIDDEN)
        self.last = torch.nn.Linear(HIDDEN, 1)
        torch.nn.init.zeros_(self.weights.weight)
        torch.nn.init.normal_(self.shapes.weight, 0, 0.3)
        torch.nn.init.zeros_(self.last.weight)
        torch.nn.init.zeros_(self.meaning.weight[0])

    def forward(self, batch: Batch, fates: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        ids, starts = batch.thinned(fates)
        said = self.meaning(torch.nn.functional.dropout(batch.meant, MASKED))
        alone = self.weights(ids, starts)[:, 0] + said[:, 0]
        shapes = torch.cat([torch.tanh(SHARPNESS * self.shapes(ids, starts)), torch.tanh(said[:, 1:])], 1)
        shapes = torch.nn.functional.dropout(shapes, BLURRED)
        return alone, alone + self.last(torch.relu(self.hidden(_around(batch, alone, shapes))))[:, 0]


def _around(batch: Batch, alone: torch.Tensor, shapes: torch.Tensor) -> torch.Tensor:
    count, of = len(batch.sizes), batch.message
    padded = torch.cat([shapes, torch.zeros(1, shapes.shape[1])])
    likely = torch.cat([torch.tanh(alone / 3), torch.full((1,), -1.0)])
    best = torch.full((count,), -1e9).scatter_reduce(0, of, alone, "amax")
    mean = torch.zeros(count).index_add(0, of, torch.sigmoid(alone)) / batch.sizes
    whole = torch.zeros(count, shapes.shape[1]).index_add(0, of, shapes) / batch.sizes[:, None]
    single = [
        likely[:-1],
        likely[batch.before],
        likely[batch.after],
        torch.tanh((alone - best[of]) / 3),
        mean[of],
        torch.exp(-batch.place / 3),
        1 / batch.sizes[of],
    ]
    return torch.cat([shapes, padded[batch.before], padded[batch.after], whole[of], torch.stack(single, 1)], 1)


def fit(examples: Sequence[Example], seed: int) -> Network:
    """Fit the table and the layer above it; a message counts by the root of its length."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    network = Network()
    slow = list(network.meaning.parameters())
    fast = [each for each in network.parameters() if all(each is not other for other in slow)]
    learner = torch.optim.Adam([{"params": fast, "pace": 1.0}, {"params": slow, "pace": SLOWER}])
    order = [each for each in examples if 0 < len(each.asks) <= LONGEST]
    chance, fates = Random(seed), np.random.default_rng(seed)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    for epoch in range(EPOCHS):
        chance.shuffle(order)
        losses = []
        for start in range(0, len(order), BATCH):
            for group in learner.param_groups:
                group["lr"] = RATE * group["pace"] * (1 - (epoch + start / len(order)) / EPOCHS)
            batch = Batch(order[start : start + BATCH])
            alone, scores = network(batch, fates)
            share = 1 / batch.sizes[batch.message].sqrt()
            loss = loss_of(scores, batch.asks, weight=share) + 0.3 * loss_of(alone, batch.asks, weight=share)
            learner.zero_grad()
            (8 * loss + DECAY * (network.weights.weight**2).sum()).backward()
            learner.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: {np.mean(losses):.4f}", flush=True)
    return network


def saved(networks: Sequence[Network], examples: Sequence[Example], words: frozenset[str], file: Path) -> None:
    """Save the rows of the tables that were seen often enough, a byte for each number, and the layers above."""
    seen = np.zeros(BUCKETS, np.int64)
    for each in examples:
        for ids in each.features:
            np.add.at(seen, ids, 1)
    rows = np.flatnonzero(seen >= FEATURE_SEEN)
    with torch.no_grad():
        tables = [torch.cat([each.weights.weight, each.shapes.weight], 1).numpy()[rows] for each in networks]
        scales = [(np.abs(table).max(axis=0) / 127).astype(np.float32) for table in tables]
        meaning = [torch.cat([LENGTH * each.meaning.weight.T, each.meaning.bias[None]]).numpy() for each in networks]
        np.savez_compressed(
            file,
            rows=rows.astype(np.uint16),
            tables=np.array([np.round(t / s) for t, s in zip(tables, scales, strict=True)], np.int8),
            scales=np.array(scales),
            meaning=np.array(meaning, np.float16),
            factors=np.array([each.hidden.weight.numpy().T for each in networks]),
            offsets=np.array([each.hidden.bias.numpy() for each in networks]),
            last=np.array([torch.cat([each.last.weight[0], each.last.bias]).numpy() for each in networks]),
            words=np.array(sorted(crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32),
        )


def measure(messages: Sequence[Message], model: Model) -> None:
    """Print how well a model reads messages: by words, since a sentence may be part request."""
    good = missed = more = 0
    for message in messages:
        sentences, guess = sentences_of(message.text), guess_of(message.text)
        asking_ones = asking(sentences, scores_of(sentences, guess, model), guess)
        found = _words(" ".join(each.text for each in asking_ones))
        asked = _words(_asked_in(message))
        both = (found & asked).total()
        recall, precision = both / max(asked.total(), 1), both / max(found.total(), 1)
        good += recall >= 0.7 and precision >= 0.6
        missed += recall < 0.4
        more += precision < 0.4
    count = len(messages)
    print(f"{count} messages: right {good / count:.3f}, missed {missed / count:.3f}, more {more / count:.3f}")


def _asked_in(message: Message) -> str:
    return " ".join(message.text[start:end] for start, end in message.asked)


def _words(text: str) -> Counter[str]:
    """Count the words of a text; each character of Chinese and Japanese is one."""
    return Counter(_WORD.findall(text.lower()))


def doubt(messages: Sequence[Message], model: Model) -> None:
    """Fit and print how likely the best sentence that was left aside asks more than what was taken for the request."""
    behind, is_other = [], []
    for message in messages:
        sentences, guess, wanted = sentences_of(message.text), guess_of(message.text), _words(_asked_in(message))
        ask = read_long(message.text, model)
        left = best_left(ask.text, sentences, scores_of(sentences, guess, model))
        if wanted and ask.characters and left:
            taken, other = ((_words(text) & wanted).total() for text in (ask.text, left[0]))
            behind.append([1.0, max(left[1], 0.0)])
            is_other.append(other > taken)
    seen, answers = np.array(behind), np.array(is_other)
    weights = np.zeros(2)
    for _ in range(50):  # Newton's method
        chance = 1 / (1 + np.exp(-seen @ weights))
        bend = (seen * (chance * (1 - chance))[:, None]).T @ seen
        weights += np.linalg.solve(bend, seen.T @ (answers - chance))
    print(
        f"{len(answers)} read in part, {answers.sum()} ask the other; offset {-weights[0]:.2f}, slope {-weights[1]:.3f}"
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _examples(found: Sequence[Message], words: frozenset[str]) -> list[Example]:
    with ProcessPoolExecutor() as workers:
        return list(workers.map(partial(example, words), found, chunksize=100))


def _fitted_on(messages: Sequence[Message], copies: int, data: Path, seed: int) -> Iterator[Message]:
    pool, chance = requests(messages, data), Random(seed)
    pasted = [message for message in messages if message.asked != ((0, len(message.text)),)]
    yield from (message for message in pasted for _ in range(AS_WRITTEN))
    yield from (message for message in messages if message not in pasted for _ in range(ALL_REQUEST))
    yield from (exchanged(message, pool, chance) for message in pasted for _ in range(copies))
    yield from composed(pool, COMPOSED, seed)
    yield from all_request(data, seed)
    yield from no_request(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--without", default="")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    everybody = {each["writer"] for each in _lines(PIECES / "pasted.jsonl")}
    messages = written("".join(everybody - set(given.without)))
    words = words_that_count(messages)
    examples = _examples(list(_fitted_on(messages, given.copies, given.data, given.seed)), words)
    print(f"{len(messages)} messages, {len(examples)} examples, {len(words)} words", flush=True)
    networks = [fit(examples, given.seed + number) for number in range(NETWORKS)]
    if not given.without:
        saved(networks, examples, words, SHIPPED)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / SHIPPED.name
        saved(networks, examples, words, file)
        model, others = Model.read(file), written(given.without)
        measure(others, model)
        doubt(others, model)


if __name__ == "__main__":
    main()
