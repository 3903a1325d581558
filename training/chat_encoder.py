"""Train the values that the shipped encoder reads chats with: python -m training.chat_encoder --data DIR --out DIR.

A chat ("message [SEP] tools called [SEP] request before [SEP] last answer") learns to be near the tools that are right
for its last turn. The vectors of tools are fixed, and so are the matrices of the encoder. Trained are biases, norms and
one factor for each channel of a matrix, 0.3 % of all values. Requests are read with the file as it is, chats with these
values instead. Start from the weights that `training.make` exports; torch and onnx are needed.

Writes `chats.npz` for `weights/small`, and `chat_vectors.npz` for `training.fit_chats`: the vector of each chat by an
encoder that was trained without its server.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from shortlist.index.embedders import CHATS_FILE, MODEL_FILE, WEIGHTS, ModelCard, chat_values, onnx_session
from shortlist.text.word_vectors import MAX_TEXT_CHARS, open_tokenizer
from training.bench import data_folder
from training.chat_texts import (
    EARLIER_TURN,
    ChatText,
    all_chats,
    earlier_turns,
    read_chats,
    self_contained,
    tool_vectors,
)
from training.chat_vectors import write_chat_vectors
from training.fit_chats import FOLDS, fold_of
from training.poison.base import PARTS, small_weights
from training.poison.network import Arrays, Layer
from training.poison.shape import EPSILON, WIDTH

SHIPPED = WEIGHTS / "small"
SEPARATOR = 102
SEED = 0
EPOCHS, BATCH = 7, 96
RATE, WARM_UP, DROPOUT = 3e-3, 0.1, 0.1
TEMPERATURE = 0.05
REQUEST_WEIGHT = 2.0
"""Of the loss 1 - cosine between a chat and the shipped vector of its last turn as a self-contained request."""
PART_DROPPED = 0.1
"""How often a part of a chat other than its message is left out, so that the encoder does not depend on it."""
NOT_EVENED = "mix"
"""The part of a layer whose inputs have no factors in the file."""
FACTORS = (".scale", ".even")
GREATEST_CODE = 255
ENCODED_AT_ONCE = 512
NEEDS_EARLIER_TURNS = frozenset({"step", "undo", "same", "aspect", "yes", "answer", "correct", "back"})
COMPARED_CHATS = 200
"""On how many chats the written file is compared with the values in float32."""
TINY_EPOCHS, TINY_CHATS = 1, 36


class Scaled(nn.Module):
    """A linear layer whose matrix stays, with one factor for each output and, if evened, for each input."""

    def __init__(self, linear: nn.Linear, *, evened: bool) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = nn.Parameter(torch.ones(linear.out_features))
        self.even = nn.Parameter(torch.ones(linear.in_features)) if evened else None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.even is not None:
            hidden = hidden * self.even
        return nn.functional.linear(hidden, self.weight) * self.scale + self.bias


class Encoder(nn.Module):
    """Maps token ids to unit vectors as the shipped encoder does, in float32, until its vectors are trained."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        layers = {name.split(".")[1] for name in arrays if name.startswith("layers.")}
        self.words = nn.Embedding(*arrays["words"].shape)
        self.places = nn.Parameter(torch.zeros(arrays["places"].shape))
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.layers = nn.ModuleList(Layer(DROPOUT) for _ in layers)
        names = {"words": "words.weight"}
        self.load_state_dict({names.get(name, name): torch.tensor(array) for name, array in arrays.items()})
        for layer in self.layers:
            for part in PARTS:
                setattr(layer, part, Scaled(getattr(layer, part), evened=part != NOT_EVENED))
        for weight in self.parameters():
            weight.requires_grad_(weight.dim() == 1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.norm(self.words(ids) + self.places[: ids.shape[1]])
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return nn.functional.normalize((hidden * mask[..., None]).sum(1).float(), dim=-1)

    def trained_values(self) -> dict[str, Tensor]:
        """Return biases, norms and factors by their names in the file."""
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}


@dataclass(frozen=True, slots=True)
class Lessons:
    """Chats as token ids, and on the device the vectors that they are trained towards."""

    chats: Sequence[ChatText]
    rows: Sequence[Tensor]
    tools: Mapping[str, Tensor]
    requests: Tensor
    """By chat: the shipped vector of its self-contained request, or zeros."""


def padded(rows: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask of a batch."""
    ids = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return ids.to(device), (torch.arange(ids.shape[1]) < lengths[:, None]).to(device)


@torch.no_grad()
def encoded(encoder: Encoder, rows: Sequence[Tensor]) -> Tensor:
    encoder.eval()
    device = encoder.places.device
    order = np.argsort([len(row) for row in rows], kind="stable")
    found = torch.zeros(len(rows), WIDTH, device=device)
    for start in range(0, len(rows), ENCODED_AT_ONCE):
        chunk = order[start : start + ENCODED_AT_ONCE]
        found[torch.from_numpy(chunk).to(device)] = encoder(*padded([rows[at] for at in chunk], device))
    return found


def tokenized(texts: Iterable[str]) -> list[Tensor]:
    """Return as much of each text as the package reads of a query."""
    tokenizer, tokens = open_tokenizer(SHIPPED / "tokenizer.json"), ModelCard.read(SHIPPED).query_tokens
    return [torch.tensor(tokenizer.encode(text[:MAX_TEXT_CHARS]).ids[:tokens]) for text in texts]


def lessons_of(shipped: Encoder, chats: Sequence[ChatText], tools: Arrays) -> Lessons:
    device = shipped.places.device
    requests = torch.zeros(len(chats), WIDTH, device=device)
    if written := [at for at, chat in enumerate(chats) if chat.request]:
        requests[written] = encoded(shipped, tokenized(chats[at].request for at in written))
    on_device = {name: torch.from_numpy(vectors).to(device) for name, vectors in tools.items()}
    return Lessons(chats, tokenized(chat.text for chat in chats), on_device, requests)


def trained(start: Arrays, lessons: Lessons, taught: Sequence[int], epochs: int) -> Encoder:
    """Return an encoder trained on the chats of the given numbers."""
    torch.manual_seed(SEED)
    lot = np.random.default_rng(SEED)
    encoder = Encoder(start).to(lessons.requests.device).train()
    weights = list(encoder.trained_values().values())
    batches = [batch for _ in range(epochs) for batch in epoch(lessons, taught, lot)]
    optimiser = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=len(batches), pct_start=WARM_UP)
    for batch in batches:
        optimiser.zero_grad()
        chat_loss(encoder, lessons, batch, lot).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        schedule.step()
    return encoder


def epoch(lessons: Lessons, taught: Sequence[int], lot: np.random.Generator) -> Iterator[list[int]]:
    """Yield batches in random order, each of chats about one catalog."""
    by_catalog: defaultdict[str, list[int]] = defaultdict(list)
    for number in taught:
        by_catalog[lessons.chats[number].chat.catalog].append(number)
    batches = []
    for numbers in by_catalog.values():
        mixed = lot.permutation(numbers).tolist()
        batches += [mixed[start : start + BATCH] for start in range(0, len(mixed), BATCH)]
    for place in lot.permutation(len(batches)):
        yield batches[place]


def chat_loss(encoder: Encoder, lessons: Lessons, batch: Sequence[int], lot: np.random.Generator) -> Tensor:
    """Return the loss of finding the right tools in the catalog, and of being near the self-contained request."""
    tools = lessons.tools[lessons.chats[batch[0]].chat.catalog]
    inputs = padded([with_parts_dropped(lessons.rows[number], lot) for number in batch], tools.device)
    with torch.autocast(tools.device.type, torch.bfloat16, enabled=tools.device.type == "cuda"):
        vectors = encoder(*inputs)
    right = torch.zeros(len(batch), len(tools), dtype=torch.bool)
    for place, number in enumerate(batch):
        right[place, list(lessons.chats[number].right)] = True
    logs = torch.log_softmax(vectors @ tools.T / TEMPERATURE, 1).masked_fill(~right.to(tools.device), -1e9)
    loss = -torch.logsumexp(logs, 1).mean()
    requests = lessons.requests[list(batch)]
    known = requests.any(1)
    return loss + REQUEST_WEIGHT * (1 - (vectors * requests).sum(1))[known].mean() if known.any() else loss


def with_parts_dropped(row: Tensor, lot: np.random.Generator) -> Tensor:
    """Leave out some parts of a chat, never its message; separators stay."""
    is_separator = row == SEPARATOR
    part = is_separator.cumsum(0)
    kept = torch.from_numpy(lot.random(int(part[-1]) + 1) >= PART_DROPPED)
    kept[0] = True
    return row[kept[part] | is_separator]


def out_of_fold(start: Arrays, lessons: Lessons, epochs: int) -> Tensor:
    """Return the vector of each chat by an encoder that was trained without its server."""
    found = torch.zeros_like(lessons.requests)
    for fold in range(FOLDS):
        numbers = [at for at, chat in enumerate(lessons.chats) if fold_of(chat.chat.group) == fold]
        taught = [at for at, chat in enumerate(lessons.chats) if chat.right and fold_of(chat.chat.group) != fold]
        found[numbers] = encoded(trained(start, lessons, taught, epochs), [lessons.rows[at] for at in numbers])
    return found


def first_right(lessons: Lessons, vectors: Tensor) -> float:
    """Return the top-1 accuracy for chats that need their earlier turns."""
    hits = [
        int((lessons.tools[chat.chat.catalog] @ vector).argmax()) in chat.right
        for chat, vector in zip(lessons.chats, vectors, strict=True)
        if chat.chat.kind in NEEDS_EARLIER_TURNS and chat.right
    ]
    return float(np.mean(hits))


def in_file(values: Arrays) -> dict[str, np.ndarray]:
    """Return trained values as the shipped file has them: its own factors times those that were trained."""
    initializers = onnx.load(SHIPPED / MODEL_FILE).graph.initializer
    shipped = {each.name: numpy_helper.to_array(each) for each in initializers if each.name.endswith(FACTORS)}
    return {name: shipped[name] * value if name.endswith(FACTORS) else value for name, value in values.items()}


def write_values(path: Path, values: Arrays) -> None:
    """Write vectors in 256 levels each, between its least and its greatest value, for `chat_values`."""
    names = sorted(values)
    least = np.array([values[name].min() for name in names], np.float32)
    steps = np.array([np.ptp(values[name]) / GREATEST_CODE or 1.0 for name in names], np.float32)
    codes = [np.rint((values[name] - low) / step) for name, low, step in zip(names, least, steps, strict=True)]
    np.savez_compressed(
        path,
        names=np.array(names),
        lengths=np.array([len(values[name]) for name in names]),
        least=least,
        steps=steps,
        codes=np.concatenate(codes).clip(0, GREATEST_CODE).astype(np.uint8),
    )


def cosine_in_use(path: Path, rows: Sequence[Tensor], vectors: Tensor) -> float:
    """Return the mean cosine between vectors and those that the package computes with a written file."""
    session = onnx_session(SHIPPED / MODEL_FILE, threads=1, values=chat_values(path))
    (ids,) = session.get_inputs()
    used = np.concatenate([session.run(None, {ids.name: row[None].numpy()})[0] for row in rows])
    return float((used * vectors.cpu().numpy()).sum(1).mean())


def read_texts(data: Path, most: int | None) -> list[ChatText]:
    """Return all chats, or about as many as given, taken at equal distances."""
    chats = all_chats(data)
    everything = [*chats, *earlier_turns(chats)]
    step = 1 if most is None else len(everything) // most
    return read_chats(data, everything[::step], self_contained(chats))


def run(data: Path, out: Path, *, epochs: int, most: int | None) -> None:
    start = small_weights(SHIPPED / MODEL_FILE)
    shipped = Encoder(start).to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    lessons = lessons_of(shipped, read_texts(data, most), tool_vectors(data))
    chats, rows = lessons.chats, lessons.rows
    print(f"{len(chats):,} chats", flush=True)
    vectors = out_of_fold(start, lessons, epochs)
    numbers = [at for at, chat in enumerate(chats) if chat.chat.kind != EARLIER_TURN]
    write_chat_vectors(out / "chat_vectors.npz", [chats[at].key for at in numbers], vectors[numbers].cpu().numpy())
    before, after = (first_right(lessons, each) for each in (encoded(shipped, rows), vectors))
    print(f"out of fold, chats that need earlier turns: {after:.1%} top-1 accuracy, {before:.1%} before", flush=True)
    encoder = trained(start, lessons, [at for at, chat in enumerate(chats) if chat.right], epochs)
    file, compared = out / CHATS_FILE, rows[:COMPARED_CHATS]
    write_values(
        file, in_file({name: value.detach().cpu().numpy() for name, value in encoder.trained_values().items()})
    )
    print(f"mean cosine {cosine_in_use(file, compared, encoded(encoder, compared)):.4f} with the vectors in float32")
    print(f'"chats" of weights/small/model.json: {sha256(file.read_bytes()).hexdigest()}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="benchmark folder; default: SHORTLIST_BENCH_DATA or benchmarks/data")
    parser.add_argument("--out", type=Path, required=True, help="where the values and the vectors are written")
    parser.add_argument("--tiny", action="store_true", help="half a minute on a CPU, to see that everything runs")
    arguments = parser.parse_args()
    began = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    epochs, most = (TINY_EPOCHS, TINY_CHATS) if arguments.tiny else (EPOCHS, None)
    run(data_folder(arguments.data), arguments.out, epochs=epochs, most=most)
    print(f"written to {arguments.out} after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
