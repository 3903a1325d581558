"""Builds what training reads: pairs, tool texts, development sets and evaluation sets, leakage removed."""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from shortlist.models import Tool
from shortlist.schema import parameters_of
from shortlist.text.documents import embedding_text
from training.bench import Case, Folder, data_folder, file_hashes, folders, write_lines
from training.errands import Errand, Wish, errands
from training.holdout import HOLDOUT_FILE, HoldOut, choose_holdout, is_held_out, write_holdout
from training.leakage import (
    EVAL_FILE,
    TRAIN_FILE,
    EvaluationGuard,
    Sketch,
    exposed_distractors,
    overlap,
    save,
    sketch_of,
)
from training.paraphrase import everyday, framed, imperative, typo, with_placeholders
from training.selfsupervised import pairs_of
from training.texts import tool_key

__all__ = ["Built", "build", "is_held_out", "main"]

MANIFEST_FILE = Path(__file__).with_name("data_manifest.json")
SUPERVISED_SETS = ("authored", "labelled")
LONGEST_QUERY = 600
"""Characters; few are longer, and the rest would only weigh on the files."""
ERRANDS, DEVELOPMENT_ERRANDS = 12_000, 400
TERSE = "agent_search"
"""A style of the authored queries: search words, which nobody strings together."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A query, the texts that answer it, and the kind it is sampled as."""

    query: str
    positives: tuple[int, ...]
    kind: str
    origin: str = ""
    """The written query that a variant was made from."""
    server: str = ""
    """Where it is done, for a query that may be one of several in an errand."""
    parts: tuple[int, ...] = ()
    """The pairs that an errand is made of."""


@dataclass(slots=True)
class TextTable:
    """Document texts by number; views of one tool and its forks share a group, so none is another's negative."""

    texts: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    negatives: list[bool] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, text: str, key: str, *, negative: bool) -> int:
        group = self.keys.setdefault(key, len(self.keys))
        number = self._numbers.setdefault((text, group), len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
            self.groups.append(group)
            self.negatives.append(False)
        self.negatives[number] |= negative
        return number

    def records(self) -> Iterator[Mapping[str, object]]:
        for text, group, negative in zip(self.texts, self.groups, self.negatives, strict=True):
            yield {"t": text, "g": group, "n": int(negative)}


@dataclass(frozen=True, slots=True)
class Built:
    """The whole training set, and what was left out of it and why."""

    pairs: tuple[Pair, ...]
    table: TextTable
    dropped: Mapping[str, int]
    guard: EvaluationGuard

    def sketch(self) -> Sketch:
        written = [pair.query for pair in self.pairs if pair.kind.startswith("written")]
        return sketch_of((pair.query for pair in self.pairs), written, self.table.keys)


def build(data: Path, holdout: HoldOut, seed: int = 0) -> Built:
    """Build the training set; whatever evaluation or development data touches is dropped and counted."""
    train = {folder.name: folder for folder in folders(data, "train")}
    catalogs = folders(data, "catalogs")
    guard = EvaluationGuard(folders(data, "eval"))
    supervised = [train[name] for name in SUPERVISED_SETS if name in train]
    barred = barred_keys(train.values(), catalogs, holdout)
    trainable = right_keys(supervised, holdout) - guard.gold_keys - barred
    allowed = Allowed(trainable, guard.gold_keys | guard.catalog_keys | barred)
    table, dropped = TextTable(), Counter[str]()
    candidates = [
        *_supervised_pairs(supervised, holdout, allowed, table, seed),
        *_self_supervised_pairs((*supervised, *catalogs), allowed, table, seed),
    ]
    kept = list(_without_leaks(candidates, guard, dropped))
    together = _without_leaks(_errand_pairs(kept, seed), guard, dropped)
    return Built((*kept, *together), table, dict(dropped), guard)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which tools training may see: right tools of training queries, and all that no judged catalog holds."""

    trainable: frozenset[str]
    barred: frozenset[str]

    def __call__(self, tool: Tool) -> bool:
        key = tool_key(tool)
        return key in self.trainable or key not in self.barred


def right_keys(supervised: Iterable[Folder], holdout: HoldOut) -> frozenset[str]:
    """Name the right tools of the training queries."""
    return frozenset(
        tool_key(folder.by_id[tool_id])
        for folder in supervised
        for case in folder.cases
        if not holdout.holds(case.source, case.gold)
        for tool_id in case.gold
    )


def barred_keys(train: Iterable[Folder], catalogs: Iterable[Folder], holdout: HoldOut) -> frozenset[str]:
    """Name the tools of the development part."""
    held = [tool for folder in catalogs for tool in folder.tools if holdout.holds_server(tool.server)]
    for folder in train:
        if folder.name in holdout.whole_sets:
            held += folder.tools
        if folder.name == "authored":
            held += [tool for tool in folder.tools if holdout.holds_server(tool.server)]
        held += [
            folder.by_id[tool_id]
            for case in folder.cases
            for tool_id in case.gold
            if holdout.holds_gold(case.source, tool_id)
        ]
    return frozenset(map(tool_key, held))


def _supervised_pairs(
    supervised: Iterable[Folder], holdout: HoldOut, allowed: Allowed, table: TextTable, seed: int
) -> Iterator[Pair]:
    for folder in supervised:
        for case in folder.cases:
            golds = [folder.by_id[tool_id] for tool_id in case.gold]
            tools = [tool for tool in golds if allowed(tool)]
            if tools and not holdout.holds(case.source, case.gold):
                numbers = tuple(table.add(embedding_text(t), tool_key(t), negative=True) for t in tools)
                query = case.query[:LONGEST_QUERY]
                server = tools[0].server if folder.name == "authored" and case.split != TERSE else ""
                yield Pair(query, numbers, f"written_{case.source}", server=server)
                yield Pair(_variant(query, tools[0], seed), numbers, f"variant_{case.source}", query)


def _variant(query: str, tool: Tool, seed: int) -> str:
    """Rephrase a written query by rule: placeholders, a slip, a frame, or everyday verbs."""
    random = Random(f"{seed}:{query}")
    names = tuple(parameter.name for parameter in parameters_of(tool))
    plain = imperative(query.rstrip(".!? "))
    changes = (
        lambda: with_placeholders(query, names, random),
        lambda: typo(query, random),
        lambda: framed(plain, random),
        lambda: everyday(plain, random),
        lambda: query.lower().rstrip(".?!"),
    )
    return random.choice(changes)()


def _errand_pairs(pairs: Sequence[Pair], seed: int) -> Iterator[Pair]:
    """Put some of the written queries together, as somebody does who has several things to do."""
    rows = {(pair.query, pair.positives[0]): row for row, pair in enumerate(pairs) if pair.server}
    wishes = [Wish(query, pairs[row].server, answer) for (query, answer), row in rows.items()]
    for errand in errands(wishes, ERRANDS, seed):
        positives = tuple(wish.answer for wish in errand.wishes)
        parts = tuple(rows[wish.text, wish.answer] for wish in errand.wishes)
        yield Pair(errand.text, positives, "errand_authored", parts=parts)


def _self_supervised_pairs(sources: Iterable[Folder], allowed: Allowed, table: TextTable, seed: int) -> Iterator[Pair]:
    seen: set[str] = set()
    for folder in sources:
        for tool in folder.tools:
            key, full = tool_key(tool), embedding_text(tool)
            if full in seen or not allowed(tool):
                continue
            seen.add(full)
            table.add(full, key, negative=True)
            for pair in pairs_of(tool, seed):
                yield Pair(pair.query, (table.add(pair.document, key, negative=False),), f"self_{pair.kind}")


def _without_leaks(pairs: Iterable[Pair], guard: EvaluationGuard, dropped: Counter[str]) -> Iterator[Pair]:
    seen: set[tuple[str, tuple[int, ...]]] = set()
    leaked: set[str] = set()
    for pair in pairs:
        if (pair.query, pair.positives) in seen:
            continue
        seen.add((pair.query, pair.positives))
        reason = "variant of a dropped" if pair.origin in leaked else _leak(pair, guard)
        if reason:
            leaked.add(pair.query)
            dropped[f"{reason} {pair.kind.partition('_')[0]}"] += 1
        else:
            yield pair


def _leak(pair: Pair, guard: EvaluationGuard) -> str:
    if guard.is_same(pair.query):
        return "same"
    return "near" if guard.is_near(pair.query) else ""


def development_sets(data: Path, holdout: HoldOut) -> Iterator[Mapping[str, object]]:
    """Return the held-out queries per source, each with the whole pool of tools it is searched in."""
    catalogs = folders(data, "catalogs")
    for folder in folders(data, "train"):
        by_source: defaultdict[str, list[Case]] = defaultdict(list)
        for case in folder.cases:
            if holdout.holds(case.source, case.gold):
                by_source[case.source].append(case)
        for source, cases in by_source.items():
            yield ranking_set(source, _pool(folder, source, catalogs, holdout), cases)
        if folder.name == "authored":
            yield ranking_set(
                "errands", _pool(folder, "authored", catalogs, holdout), held_out_errands(folder, holdout)
            )


def held_out_errands(authored: Folder, holdout: HoldOut) -> list[Case]:
    """Make errands of the held-out queries, as those that training sees are made of the others."""
    held = [case for case in authored.cases if case.split != TERSE and holdout.holds("authored", case.gold)]
    number = {tool.id: place for place, tool in enumerate(authored.tools)}
    wishes = [Wish(c.query, authored.by_id[c.gold[0]].server, number[c.gold[0]]) for c in held]
    return [_case_of(errand, authored) for errand in errands(wishes, DEVELOPMENT_ERRANDS, seed=0)]


def _case_of(errand: Errand, authored: Folder) -> Case:
    gold = tuple(authored.tools[wish.answer].id for wish in errand.wishes)
    return Case(errand.text, gold, tuple((tool_id,) for tool_id in gold), "errands", "")


def _pool(folder: Folder, source: str, catalogs: Sequence[Folder], holdout: HoldOut) -> list[Tool]:
    """Choose distractors as unseen as the right tools, wherever there are enough of them."""
    if folder.name == "authored":
        every = [tool for each in (folder, *catalogs) for tool in each.tools if holdout.holds_server(tool.server)]
        return list({tool_key(tool): tool for tool in reversed(every)}.values())
    if folder.name == "labelled":
        return [tool for tool in folder.tools if tool.id.startswith(f"{source}|")]
    return list(folder.tools)


def evaluation_sets(data: Path) -> Iterator[Mapping[str, object]]:
    for folder in folders(data, "eval"):
        yield ranking_set(folder.name, folder.tools, folder.cases)


def ranking_set(name: str, tools: Sequence[Tool], cases: Iterable[Case]) -> Mapping[str, object]:
    """Write ids as numbers into the pool; `g` strict, `e` with each right tool's equivalents."""
    number = {tool.id: index for index, tool in enumerate(tools)}
    return {
        "name": name,
        "texts": [embedding_text(tool) for tool in tools],
        "cases": [
            {
                "q": case.query,
                "g": [number[tool_id] for tool_id in case.gold],
                "e": [[number[i] for i in group if i in number] for group in case.groups],
                "s": case.split,
            }
            for case in cases
        ],
    }


def record_of(pair: Pair) -> Mapping[str, object]:
    return {"q": pair.query, "p": pair.positives, "k": pair.kind} | ({"c": pair.parts} if pair.parts else {})


def manifest(built: Built, data: Path) -> Mapping[str, object]:
    """Record what the weights are made of, so that a reader can tell whether they have the same data."""
    return {
        "files": file_hashes(data),
        "pairs": dict(sorted(Counter(pair.kind for pair in built.pairs).items())),
        "texts": len(built.table.texts),
        "tools": len(built.table.keys),
        "dropped": dict(sorted(built.dropped.items())),
        "exposed": exposed_distractors(built.guard, built.table.keys),
    }


def main() -> None:
    """Build everything into a folder and refresh the committed hold-out, sketches and manifest."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=Path("training/.work"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_all(data_folder(arguments.data), arguments.out, arguments.seed)


def write_all(data: Path, out: Path, seed: int) -> Built:
    train = data / "train"
    holdout = choose_holdout(Folder(train / "labelled"), Folder(train / "authored"), folders(data, "catalogs"))
    built = build(data, holdout, seed)
    training, evaluation = built.sketch(), built.guard.sketch()
    found = overlap(training, evaluation)
    if not found.clean:
        raise SystemExit(f"Training data still overlaps evaluation data: {found}")
    write_holdout(holdout, HOLDOUT_FILE)
    save(evaluation, EVAL_FILE)
    save(training, TRAIN_FILE)
    MANIFEST_FILE.write_text(json.dumps(manifest(built, data), indent=1) + "\n")
    write_lines(out / "texts.jsonl.gz", built.table.records())
    write_lines(out / "pairs.jsonl.gz", map(record_of, built.pairs))
    write_lines(out / "dev.jsonl.gz", development_sets(data, holdout))
    write_lines(out / "eval.jsonl.gz", evaluation_sets(data))
    print(json.dumps(json.loads(MANIFEST_FILE.read_text()) | {"files": "…"}, indent=1))
    return built


if __name__ == "__main__":
    main()
