"""Texts for the passage classifier as token tables: real tools, payloads in their surroundings, and ordinary sentences.

    python -m training.poison.prepare --out FOLDER

Nothing of `eval/` is in them. The tables hold token ids alone, so that `training.poison.train` needs no data but this
folder.
"""

import argparse
import gzip
import json
import multiprocessing
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import shortlist.weights
from shortlist.catalog.readers import read_catalog
from shortlist.demo import CATALOG
from shortlist.index.embedders import MODEL_FILE
from shortlist.index.passages import PassageClassifier, windows
from shortlist.trust.characters import unmasked
from shortlist.trust.definitions import (
    MAX_PASSAGE,
    Sentence,
    ToolDefinition,
    fields_of,
    name_parts,
    passages_of,
    sentences_of,
    values_of,
)
from shortlist.trust.reading import gloss_of
from training.bench import data_folder
from training.poison.base import deep_weights, exported_weights, packed, small_weights
from training.poison.compose import composed, translated
from training.poison.corpus import FOLDER, Example, corpus, filled, payloads
from training.poison.fit import REAL, collected_tools, real_tools
from training.poison.folds import SERVER_FOLDS, server_fold
from training.poison.written import UNSEEN, Written, written

LAYERS = 10
"""Of twelve: all of them find more in other languages, but exceed the size limit of the package."""
PER_PAYLOAD, PER_WRITTEN, PER_RULE = 4, 6, 6
COMPOSED = 12_000
AT_ONCE = 2_000
"""How many texts a process looks at together."""
MIXED = 8_000
"""Pairs of legitimate texts side by side: sentences that do not belong together are not poisoned for that."""
NEARLY_WORST = 1.0
"""How close to the worst passage of a poisoned definition another must score to be taken for poisoned too."""
SHIPPED = PassageClassifier()
LEAST_OVERLAP = 60
"""How many characters of a payload make a passage poisoned, or half of a shorter payload."""
LEAST_TAGGED = 3
"""How many tokens of a payload make a window of a long passage poisoned."""
Span = tuple[int, int]
RULES = ("rules0", "rules1")
"""The sources of honest rules; a fold leaves out one of them."""
_LANGUAGE = re.compile(r"^[a-z]{2}: ")
TOKENIZER = Path(next(iter(shortlist.weights.__path__))) / "small" / "tokenizer.json"


@dataclass(slots=True)
class Texts:
    """Unique texts by number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass(frozen=True, slots=True)
class Labelled:
    """A passage to learn from; `fold` is that of the server whose text surrounds it, or -1; `span` is what is bad."""

    text: int
    bad: bool
    families: tuple[str, ...]
    voice: str
    source: str
    fold: int
    span: Span = (0, 0)


def passages(definition: ToolDefinition) -> list[str]:
    """Return the passages of a definition as the scanner classifies them."""
    return list(dict.fromkeys(passage.text for text in readable_texts(definition) for passage in passages_of(text)))


def readable_texts(definition: ToolDefinition) -> Iterator[str]:
    for each in fields_of(definition)[0]:
        yield unmasked(each.text)
        yield from (value.text for value in values_of(each))


def overlapping(passages: Iterable[Sentence], start: int, end: int) -> Iterator[tuple[str, Span]]:
    """Yield the passages that hold most of a part of their text, each with the place of that part in it."""
    needed = min(LEAST_OVERLAP, (end - start) // 2)
    for p in passages:
        first, last = max(start, p.start), min(end, p.end)
        if last - first >= max(1, needed):
            yield p.text, (first - p.start, last - p.start)


def surrounded(text: str, carrier: str, chance: random.Random) -> list[tuple[str, Span]]:
    """Return the passages of a description that hold most of a text which was put into it, and where they hold it."""
    ends = [0, len(carrier), *(s.end for s in sentences_of(carrier))]
    spot = chance.choice(ends)
    before, after = carrier[:spot].rstrip(), carrier[spot:].lstrip()
    gap = chance.choice((" ", " ", "\n", "\n\n"))
    joined = f"{before}{gap if before else ''}{text}{gap if after else ''}{after}"
    start = len(before) + (len(gap) if before else 0)
    return list(overlapping(passages_of(joined), start, start + len(text)))


class Maker:
    """Puts texts into descriptions of real tools, and numbers the passages."""

    def __init__(self, carriers: Sequence[ToolDefinition]) -> None:
        self.texts, self.chance = Texts(), random.Random(18)
        self.carriers = [c for c in carriers if 20 < len(str(c.tool.get("description", ""))) < 1500]
        self.found: list[Labelled] = []

    def add(self, text: str, bad: bool, families: tuple[str, ...], voice: str, source: str, bare: float = 0.35) -> None:
        tool = self.chance.choice(self.carriers)
        whole = unmasked(filled(text, str(tool.tool["name"]), self.chance))
        fold = -1
        if self.chance.random() < bare:
            made = [(p.text, (0, len(p.text))) for p in passages_of(whole)]
        else:
            fold, made = server_fold(tool.server), surrounded(whole, str(tool.tool["description"]), self.chance)
        for passage, span in made:
            number = self.texts.number(passage)
            self.found.append(Labelled(number, bad, families, voice, source, fold, span if bad else (0, 0)))


def own(maker: Maker) -> None:
    """Add payloads and composed sentences, and ordinary sentences in the same places."""
    for p in payloads():
        for _ in range(PER_PAYLOAD):
            maker.add(p.text, True, (p.family,), p.voice, "own")
    for c in composed(COMPOSED):
        maker.add(c.text, bool(c.families), c.families, "composed", "own")
    for c in translated():
        maker.add(c.text, bool(c.families), c.families, "composed", "own")
    for name, separator in (("negatives.txt", " | "), ("negatives_languages.txt", ": ")):
        for line in (FOLDER / name).read_text("utf-8").splitlines() * PER_PAYLOAD:
            if line and not line.startswith("#"):
                maker.add(line.partition(separator)[2], False, (), "plain", "own")
    with gzip.open(data_folder() / "languages" / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            maker.add(str(json.loads(line)["query"]), False, (), "plain", "own", bare=0.6)


def of_rules(maker: Maker) -> None:
    """Add honest sentences in a strong voice."""
    for number, rule in enumerate(rules()):
        for _ in range(PER_RULE):
            maker.add(rule, False, (), "plain", RULES[number % len(RULES)])


def rules() -> list[str]:
    """Return the honest sentences in a strong voice."""
    lines = (FOLDER / "rules.txt").read_text("utf-8").splitlines()
    return [_LANGUAGE.sub("", line) for line in lines if line and not line.startswith("#")]


def mixed(maker: Maker, rows: Sequence[Sequence[int]], folds: Sequence[int]) -> None:
    """Add texts of real tools of the same fold side by side."""
    texts = list(maker.texts.numbers)
    short: dict[int, list[str]] = {}
    for fold, row in zip(folds, rows, strict=True):
        short.setdefault(fold, []).extend(texts[n] for n in row if len(texts[n]) < MAX_PASSAGE // 2)
    for number in range(MIXED):
        fold = number % SERVER_FOLDS
        joined = maker.chance.choice(("{} ({})", "{}\n{}", "{} {}", "{}. {}")).format(
            *maker.chance.sample(short[fold], 2)
        )
        maker.found.append(Labelled(maker.texts.number(joined), False, (), "plain", "own", fold))


def of_writers(maker: Maker, pairs: Sequence[Written]) -> None:
    """Add what is poisoned, as it stands and in descriptions of real tools, and what is honest."""
    twins: dict[tuple[str, int, bool], Written] = {(w.writer, w.pair, w.poisoned): w for w in pairs}
    for w in pairs:
        other = twins.get((w.writer, w.pair, not w.poisoned))
        families = () if w.family.startswith("honest") else (w.family,)
        poison = poisoned_passages(w, other) if w.poisoned else {}
        exact = bool(w.bad)
        for p in passages(w.definition):
            if not w.poisoned or p in poison or exact:
                bad, span = p in poison, poison.get(p, (0, 0))
                number = maker.texts.number(p)
                maker.found.append(Labelled(number, bad, families, w.voice, w.writer, -1, span))
        for text in payloads_of(w, other, maker.chance):
            maker.add(text, w.poisoned, families, w.voice, w.writer, bare=0.2)


def poisoned_passages(w: Written, other: Written | None) -> dict[str, Span]:
    """Return the passages that hold the marked text, or else what the honest partner does not say."""
    marked: dict[str, Span] = {}
    parts = {unmasked(bad) for bad in w.bad} | {" ".join(name_parts(bad)) for bad in w.bad if len(bad.split()) == 1}
    for text in readable_texts(w.definition):
        for bad in parts:
            place = text.find(bad)
            if place >= 0:
                marked |= dict(overlapping(passages_of(text), place, place + len(bad)))
    if marked:
        return marked
    if other is None:
        return {p: (0, len(p)) for p in worst_passages(w.definition)}
    shared, known = set(passages(other.definition)), set(_sentences(other.definition))
    return {p: _new_part(p, known) for p in passages(w.definition) if p not in shared}


def _new_part(passage: str, known: Collection[str]) -> Span:
    new = [s for s in sentences_of(passage) if s.text not in known]
    return (new[0].start, new[-1].end) if new else (0, len(passage))


def payloads_of(w: Written, other: Written | None, chance: random.Random) -> list[str]:
    """Return what to put into descriptions of real tools: the marked text, or sentences that the partner has not."""
    if w.bad:
        long_enough = [text for text in w.bad if len(text.split()) >= 5 or not text.isascii()]
        return [" ".join(long_enough)] * PER_WRITTEN if long_enough else []
    known = set(_sentences(other.definition)) if other else set()
    fresh = [s for s in _sentences(w.definition) if s not in known and len(s.split()) >= 5]
    if not fresh or (w.poisoned and (other is None or len(fresh) > 3)):
        return []
    return [" ".join(fresh[:4]) if w.poisoned else chance.choice(fresh) for _ in range(PER_WRITTEN)]


def worst_passages(definition: ToolDefinition) -> list[str]:
    """Return the passages of a poisoned definition without a partner that the shipped classifier finds the worst."""
    every = passages(definition)
    best = [max(quick for quick, _ in windows) for windows in SHIPPED.glance(every)]
    return [passage for passage, score in zip(every, best, strict=True) if score > max(best) - NEARLY_WORST]


def _sentences(definition: ToolDefinition) -> list[str]:
    return [s.text for f in fields_of(definition)[0] for s in sentences_of(unmasked(f.text))]


def ragged(rows: Sequence[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows], np.int32)
    return np.array([n for row in rows for n in row], np.int32), lengths


@dataclass(frozen=True, slots=True)
class Rows:
    """The tokens of all texts: the first window of each, and after them the later windows of long ones."""

    ids: list[np.ndarray]
    starts: list[np.ndarray]
    """Where the tokens start in their text; the opening and the closing mark start at -1."""
    later: dict[int, list[int]]

    def of(self, text: int) -> tuple[int, ...]:
        return (text, *self.later.get(text, ()))


def cut(texts: Sequence[str]) -> Rows:
    """Return the windows of each text."""
    encoded = Tokenizer.from_file(str(TOKENIZER)).encode_batch(texts)
    rows: list[np.ndarray] = []
    starts: list[np.ndarray] = []
    rest: list[tuple[int, np.ndarray, np.ndarray]] = []
    for text, each in enumerate(encoded):
        ids = np.array(each.ids, np.int64)
        places = np.array([first for first, _ in each.offsets], np.int64)
        places[0] = places[-1] = -1
        for number, (window, place) in enumerate(zip(windows(ids), windows(places), strict=True)):
            if number:
                rest.append((text, window, place))
            else:
                rows.append(window)
                starts.append(place)
    later: dict[int, list[int]] = {}
    for text, window, place in rest:
        later.setdefault(text, []).append(len(rows))
        rows.append(window)
        starts.append(place)
    return Rows(rows, starts, later)


def tagged(rows: Rows, label: Labelled) -> Iterator[tuple[int, int, int]]:
    """Yield the windows that a label is about, and from where to where their tokens are bad."""
    for row in rows.of(label.text):
        places = rows.starts[row]
        inside = np.flatnonzero((places >= label.span[0]) & (places < label.span[1]))
        if not label.bad:
            yield row, 0, 0
        elif len(inside) >= min(LEAST_TAGGED, len(places) - 2):
            yield row, int(inside[0]), int(inside[-1]) + 1


def glosses(texts: Sequence[str]) -> dict[int, str]:
    """Return what texts in other languages say word by word in English."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        said = processes.map(gloss_of, texts, chunksize=AT_ONCE)
        return {number: words for number, words in enumerate(said) if words}


def definition_of_example(example: Example) -> ToolDefinition:
    return ToolDefinition(example.id, example.server, example.tool, example.server_instructions)


def demo_tools() -> Iterator[ToolDefinition]:
    for tool in read_catalog(CATALOG).catalog.tools.values():
        yield ToolDefinition(
            tool.id, tool.server, {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--deep", type=Path, help="the ONNX file of gte-small, whose layers are trained")
    start.add_argument("--start", type=Path, help="the folder of an exported classifier, which is trained further")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    real, demo = [*real_tools(*REAL), *collected_tools()], list(demo_tools())
    pairs = [*written(), *written(UNSEEN)]
    maker = Maker(real)
    number = maker.texts.number
    real_rows = [[number(p) for p in passages(d)] for d in real]
    real_folds = [server_fold(d.server) for d in real]
    mixed(maker, real_rows, real_folds)
    own(maker)
    of_rules(maker)
    of_writers(maker, pairs)
    for tool in demo:
        maker.found += [Labelled(number(p), False, (), "plain", "demo", -1) for p in passages(tool)]
    trained = len(maker.texts.numbers)
    examples = corpus()
    groups = {
        "real": real_rows,
        "demo": [[number(p) for p in passages(d)] for d in demo],
        "example": [[number(p) for p in passages(definition_of_example(e))] for e in examples],
        "written": [[number(p) for p in passages(w.definition)] for w in pairs],
        "rule": [[number(unmasked(filled(rule, "tool", random.Random(18))))] for rule in rules()],
    }
    said = {text: number(words) for text, words in glosses(list(maker.texts.numbers)).items()}
    texts = list(maker.texts.numbers)
    rows = cut(texts)
    groups = {name: [[n for text in row for n in rows.of(text)] for row in each] for name, each in groups.items()}
    tags = [(f, *tag) for f in maker.found for tag in tagged(rows, f)]
    flat, lengths = ragged(rows.ids)
    arrays: dict[str, Any] = {
        "ids": flat.astype(np.uint16),
        "lengths": lengths.astype(np.uint8),
        "real_fold": np.array(real_folds, np.int8),
        "learned": np.array([row for _, row, _, _ in tags], np.int32),
        "learned_bad": np.array([f.bad for f, *_ in tags]),
        "learned_fold": np.array([f.fold for f, *_ in tags], np.int8),
        "learned_tags": np.array([place for _, _, *place in tags], np.uint8),
    }
    for name, each in groups.items():
        arrays[f"{name}_passages"], arrays[f"{name}_counts"] = ragged(each)
    np.savez_compressed(options.out / "tables.npz", **arrays)
    names = {
        "later": [[row, text] for text, each in rows.later.items() for row in each],
        "glosses": list(said.items()),
        "learned": [[list(f.families), f.voice, f.source] for f, *_ in tags],
        "examples": [[e.id, e.family, e.voice, e.language, e.place] for e in examples],
        "written": [[w.writer, w.poisoned, w.family, w.voice, w.tone, w.language] for w in pairs],
    }
    (options.out / "names.json").write_text(json.dumps(names))
    if options.start:
        first = exported_weights(options.start / MODEL_FILE)
    else:
        first = deep_weights(options.deep, small_weights(TOKENIZER.with_name(MODEL_FILE))["words"], LAYERS)
    layers: dict[str, Any] = packed(first)
    np.savez_compressed(options.out / "layers.npz", **layers)
    (options.out / "texts.json").write_text(json.dumps(texts, ensure_ascii=False))
    by_source = Counter((f.source, f.bad) for f in maker.found)
    print(
        f"{len(real)} + {len(demo)} tools, {len(texts)} texts, {trained} to train on, {by_source}; "
        f"{flat.size} tokens, mean {lengths.mean():.1f}; "
        f"{(options.out / 'tables.npz').stat().st_size:,} bytes"
    )


if __name__ == "__main__":
    main()
