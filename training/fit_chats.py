"""Fit how the readings of a chat are weighed: python -m training.fit_chats --vectors FILE (torch, the benchmark data).

`data/chats.jsonl` holds 11,760 chats by 41 writers over servers of the catalogs, which `data/chat_servers.json` names;
`data/conversations.jsonl` holds 348 over real servers. Added are changes of the topic: the first request of another
chat at the end of a chat, where the request alone finds its tool; and training requests for tools of other catalogs,
where the request alone finds none, for which no tool is right. Features come from the package itself
(`shortlist.library.following`), and the vectors of whole chats from `training.chat_encoder`, out of fold: those of the
shipped encoder know the chats that it was trained on. Only chats that are ranked by the chat are fitted on. Prints how
often the right tool is first and among five (for requests without a tool: how often that is said), for servers held out
and for the rules alone, and writes `weights/search/chats.json`: the weights with the vector of the whole chat, and
those without, for other models. Takes 25 minutes on two cores.
"""

import argparse
import gzip
import json
import math
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist import ToolFilter
from shortlist.index.embedders import Vectors
from shortlist.library.choosing import cautious, is_new_topic, query_of, standing_alone
from shortlist.library.following import (
    ASKED,
    FEATURES,
    MESSAGE,
    SIGNS,
    THERE,
    WEIGHTS,
    WHOLE,
    WITH_WHOLE,
    WITHOUT_WHOLE,
    ChatEvidence,
    ChatWeights,
    chat_evidence,
    follows_a_chat,
    readings,
)
from shortlist.library.messages import read_context
from shortlist.library.options import FilterOptions
from shortlist.models import Query, SearchResult
from training.bench import chat_messages, data_folder, read_lines
from training.chat_vectors import chat_key, read_chat_vectors

DATA = Path(__file__).parent / "data"
REAL = Path(__file__).parents[1] / "benchmarks" / "understanding" / "data" / "servers.jsonl.gz"
CHANGED, SAME_SERVER, UNSERVED, AMONG = 0.4, 0.25, 0.25, 5
"""The share of chats that a change of the topic is made of, of these to another tool of the same server, the share that
a request without a tool is made of, and among how many hits of the request alone its tool must be: the first request of
a chat need not be clear by itself."""
NO_TOOL = "no tool"
UNDERSTOOD_ALONE = frozenset({"another request", "another topic", "fresh", "language", "new", "switch"})
"""Kinds of last turns that need no earlier ones, or of which some do not."""
FOLDS, EPOCHS, BATCH, RATE = 3, 30, 256, 0.02
PENALTY, SIGN_PENALTY = 0.05, 0.2
MISSING_WEIGHT = 4.0
"""What a request without a tool counts: there are fewer of them than of others."""
PLACES = 3
OF_EVIDENCE = frozenset(
    {
        "any",
        "message finds a tool",
        "catalog has a tool",
        "rules find a tool",
        "tools were called",
        "message finds the server called last",
        "message is sure",
        "message finds the server called last first",
        "repeats words",
        "points back",
        "whole chat is sure",
    }
)
"""The signs that say whether there is a tool; the others say how people talk, with and without one."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A written chat with the tools that are right for its last turn."""

    catalog: str
    group: str
    kind: str
    messages: Sequence[Mapping[str, Any]]
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Example:
    """A chat as the model sees it."""

    chat: Chat
    evidence: ChatEvidence
    without: ChatEvidence
    """The same without a vector of the whole chat."""
    by_rules: tuple[str, ...]
    """What the rules alone find, best first."""
    alone: tuple[str, ...]
    levels: tuple[str, str]
    """How sure the rules and the last message alone are."""

    def right(self, evidence: ChatEvidence) -> list[bool]:
        return [tool in self.chat.gold for tool in evidence.ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", help="the folder of the benchmark data")
    parser.add_argument("--vectors", type=Path, required=True, help="chat_vectors.npz of training.chat_encoder")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    data = str(data_folder(arguments.data))
    asked = [case["query"] for case in read_lines(Path(data) / "train" / "authored" / "queries.jsonl.gz")]
    chats = [*conversations(), *written(asked)]
    parts = [chats[start :: 4 * arguments.processes] for start in range(4 * arguments.processes)]
    with ProcessPoolExecutor(arguments.processes) as pool:
        work = partial(read, data, arguments.vectors)
        examples = [each for part in pool.map(work, parts) for each in part if usable(each)]
    sets = {WITH_WHOLE: examples, WITHOUT_WHOLE: [replace(each, evidence=each.without) for each in examples]}
    for name, each in sets.items():
        print(name)
        held_out(each)
    both = {name: fit(each) for name, each in sets.items()}
    head = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in (("features", FEATURES), ("signs", SIGNS))]
    fitted = [f"{json.dumps(name)}: {_written(weights)}" for name, weights in both.items()]
    WEIGHTS.write_text("{\n " + ",\n ".join([*head, *fitted]) + "\n}\n", "utf-8")
    print(f"{len(examples):,} chats; written to {WEIGHTS.name}")


def _written(weights: ChatWeights) -> str:
    rows = ",\n   ".join(json.dumps(row) for row in weights.by_sign.round(PLACES).tolist())
    missing = json.dumps(weights.no_tool.round(PLACES).tolist())
    return f'{{\n  "{NO_TOOL}": {missing},\n  "weights": [\n   {rows}\n  ]\n }}'


def fold_of(group: str) -> int:
    return zlib.crc32(group.encode()) % FOLDS


def conversations() -> Iterator[Chat]:
    for line in (DATA / "conversations.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        yield Chat("real", f"real/{case['catalog']}", case["kind"], case["messages"], frozenset(case["gold"]))


def written(asked: Sequence[str]) -> Iterator[Chat]:
    """Yield the chats, and changes of the topic made of them: to requests of other chats, and of other catalogs."""
    cases = [json.loads(line) for line in (DATA / "chats.jsonl").read_text("utf-8").splitlines()]
    first = [case for case in cases if case["turns"][1][0] == "c" and case["kind"] != "language"]
    lot = random.Random(3)
    for case in cases:
        yield _chat(case, case["kind"], case["turns"], case["gold"])
        if lot.random() < UNSERVED:
            yield _chat(case, NO_TOOL, [*case["turns"][:-1], ["u", lot.choice(asked)]], [])
        if lot.random() >= CHANGED:
            continue
        is_near = lot.random() < SAME_SERVER
        others = [
            other
            for other in first
            if other["set"] == case["set"]
            and fold_of(other["server"]) == fold_of(case["server"])  # else its tool would be known to the encoder
            and (other["server"] == case["server"]) == is_near
            and other is not case
        ]
        other = lot.choice(others)
        turns = [*case["turns"][:-1], other["turns"][0]]
        yield _chat(case, "another request" if is_near else "another topic", turns, [other["turns"][1][1]])


def _chat(case: Mapping[str, Any], kind: str, turns: Sequence[Sequence[str]], gold: Iterable[str]) -> Chat:
    return Chat(f"set {case['set']}", case["server"], kind, chat_messages(turns), frozenset(gold))


@cache
def catalogs(data: str) -> dict[str, ToolFilter]:
    """Return the catalogs that the chats are about, each ready to be searched."""
    with gzip.open(REAL, "rt", encoding="utf-8") as lines:
        found = {"real": [json.loads(line) for line in lines]}
    named = json.loads((DATA / "chat_servers.json").read_text("utf-8"))
    by_source = {(each["catalog"], each["server"]): (name, each["set"]) for name, each in named.items()}
    tools: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for catalog in sorted({each["catalog"] for each in named.values()}):
        for tool in read_lines(Path(data) / "catalogs" / catalog / "tools.jsonl.gz"):
            if place := by_source.get((catalog, tool["server"])):
                schema = tool.get("input_schema") or {"type": "object"}
                tools[place].append({"name": tool["name"], "description": tool["description"], "inputSchema": schema})
    for (name, part), listed in sorted(tools.items()):
        found.setdefault(f"set {part}", []).append({"name": name, "tools": listed})
    return {name: ToolFilter(servers, embedding="small") for name, servers in found.items()}


def read(data: str, vectors: Path, chats: Sequence[Chat]) -> list[Example]:
    """Read chats as a filter does; leave out those that it does not rank by the chat."""
    options, by_key, found = FilterOptions(), read_chat_vectors(vectors), []
    for chat in chats:
        source = catalogs(data)[chat.catalog]
        view = source._view
        context = read_context(chat.messages, messages=options.context_messages, tokens=options.max_context_tokens)
        asked = source._ask(query_of(context, view, options, view.narrow(options)))
        alone = standing_alone(context, asked.query)
        if alone is not None and is_new_topic(standing := source._ask(alone)):
            asked = standing
        asked = replace(asked, confidence=cautious(asked.confidence, asked, context))
        if not follows_a_chat(context, asked):
            continue
        results = readings(asked, context, partial(_search, source, by_key[chat_key(chat.catalog, chat.messages)]))
        without = chat_evidence({name: each for name, each in results.items() if name != WHOLE}, context)
        message = results.get(MESSAGE, asked)
        levels = (asked.confidence.level, message.confidence.level)
        evidence = chat_evidence(results, context)
        found.append(Example(chat, evidence, without, _first(results[ASKED]), _first(message), levels))
    return found


def _search(
    source: ToolFilter, chat: Vectors, queries: Sequence[Query], whole: Query
) -> tuple[list[SearchResult], SearchResult]:
    return [*map(source._ask, queries)], source._searcher.nearest(whole, chat)


def _first(result: SearchResult) -> tuple[str, ...]:
    return tuple(hit.tool.id for hit in result.hits[:AMONG])


def usable(example: Example) -> bool:
    """Return whether a chat can teach: its tool was found, and a made change of the topic is clear."""
    is_made = example.chat.kind.startswith("another")
    if example.chat.kind == NO_TOOL:
        return example.levels[1] in ("none", "low")
    return any(example.right(example.evidence)) and (not is_made or not example.chat.gold.isdisjoint(example.alone))


def held_out(examples: Sequence[Example]) -> None:
    """Print the figures for servers that were not fitted on."""
    places: defaultdict[str, list[tuple[bool, ...]]] = defaultdict(list)
    for fold in range(FOLDS):
        weights = fit([example for example in examples if fold_of(example.chat.group) != fold])
        for example in (example for example in examples if fold_of(example.chat.group) == fold):
            scores = weights.scores(example.evidence)
            order = [example.evidence.ids[at] for at in np.argsort(-scores, kind="stable")[:AMONG]]
            by_rules = example.levels[0] == "none"
            none = (by_rules and weights.there(example.evidence) < THERE, by_rules)
            if example.chat.kind == NO_TOOL:
                places[NO_TOOL].append((none[0], none[0], none[1], none[1]))
                continue
            places["with a tool, none"].append((none[0], none[0], none[1], none[1]))
            both = (order, example.by_rules)
            hits = tuple(not example.chat.gold.isdisjoint(each[:n]) for each in both for n in (1, AMONG))
            places[example.chat.kind].append(hits)
            if example.chat.kind not in UNDERSTOOD_ALONE:
                places["all that need earlier turns"].append(hits)
    print(f"{'last turn':<27} {'chats':>5} {'first':>6} {'in 5':>6}   rules alone: first, in 5")
    for kind, found in sorted(places.items()):
        first, five, rules_first, rules_five = 100 * np.mean(found, axis=0)
        print(f"{kind:<27} {len(found):>5} {first:>6.1f} {five:>6.1f} {rules_first:>20.1f} {rules_five:>6.1f}")


def fit(examples: Sequence[Example]) -> ChatWeights:
    """Return the likeliest weights, drawn towards none: of features by sign, and of signs for that there is no tool."""
    ranked = [example for example in examples if any(example.right(example.evidence))]
    return ChatWeights(_ranking(ranked), _no_tool(examples))


def _ranking(examples: Sequence[Example]) -> np.ndarray:
    tools, right, signs = _padded(examples)
    weights = torch.zeros(len(SIGNS), len(FEATURES), requires_grad=True)
    penalty = torch.full((len(SIGNS), 1), SIGN_PENALTY)
    penalty[0] = PENALTY

    def loss(rows: Tensor) -> Tensor:
        scores = torch.einsum("nf,nkf->nk", signs[rows] @ weights, tools[rows]).masked_fill(right[rows] < 0, -1e9)
        logs = torch.log_softmax(scores, 1).masked_fill(right[rows] <= 0, -1e9)
        return -torch.logsumexp(logs, 1).mean() + (penalty * weights**2).sum() / len(examples) ** 0.5

    return _minimised(loss, weights, len(examples))


def _no_tool(examples: Sequence[Example]) -> np.ndarray:
    counted = torch.tensor([float(sign in OF_EVIDENCE) for sign in SIGNS])
    signs = torch.tensor(np.stack([example.evidence.signs for example in examples]), dtype=torch.float32) * counted
    missing = torch.tensor([not example.chat.gold for example in examples], dtype=torch.float32)
    weights = torch.zeros(len(SIGNS), requires_grad=True)

    def loss(rows: Tensor) -> Tensor:
        wrong = torch.nn.functional.binary_cross_entropy_with_logits(
            signs[rows] @ weights, missing[rows], pos_weight=torch.tensor(MISSING_WEIGHT)
        )
        return wrong + PENALTY * (weights**2).sum() / len(examples) ** 0.5

    return _minimised(loss, weights, len(examples))


def _minimised(loss: Callable[[Tensor], Tensor], weights: Tensor, count: int) -> np.ndarray:
    torch.manual_seed(0)
    optimiser = torch.optim.Adam([weights], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS * math.ceil(count / BATCH))
    for _ in range(EPOCHS):
        for rows in torch.randperm(count).split(BATCH):
            optimiser.zero_grad()
            loss(rows).backward()
            optimiser.step()
            schedule.step()
    return weights.detach().numpy().astype(np.float64)


def _padded(examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, whether tools are right (1, 0, and -1 where there is none), and signs."""
    most = max(len(example.evidence.ids) for example in examples)
    tools = torch.zeros(len(examples), most, len(FEATURES))
    right = torch.full((len(examples), most), -1.0)
    for at, example in enumerate(examples):
        count = len(example.evidence.ids)
        tools[at, :count] = torch.from_numpy(example.evidence.tools)
        right[at, :count] = torch.tensor(example.right(example.evidence), dtype=torch.float32)
    return tools, right, torch.tensor(np.stack([example.evidence.signs for example in examples]), dtype=torch.float32)


if __name__ == "__main__":
    main()
