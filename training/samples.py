"""The development queries with all that a search knows of their candidates, for fitting on."""

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder
from shortlist.index.embedding import embed_cached
from shortlist.models import Query
from shortlist.search.fusion import Background
from shortlist.search.pipeline import Evidence
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.text.documents import embedding_text
from training.bench import Case, Folder
from training.holdout import is_held_out

SEED = 20_26
SETS = ("authored", "toolalpaca", "apibank", "restbench_tmdb", "restbench_spotify", "labelled")
NARROW = ("restbench_tmdb", "restbench_spotify", "apibank")
SMALL_CATALOGS = 12
SMALL_SERVERS = (6, 60)
CASES_PER_SET = 700
LARGEST = 8_000
BACKGROUND_TOOLS = 1_000


@dataclass(frozen=True, slots=True)
class Task:
    """Queries over one catalog; `answerable` is False where the right tools were left out on purpose."""

    name: str
    catalog: Catalog
    cases: tuple[Case, ...]
    answerable: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One query's candidates, which of them are right, and where it came from."""

    task: str
    evidence: Evidence
    right: NDArray[np.bool_]
    answerable: bool
    parameters: NDArray[np.bool_]
    """Which of the candidates say what they take."""
    at_large: float


def tasks(data: Path) -> Iterator[Task]:
    """Return the development queries over catalogs of many sizes, and over catalogs that cannot answer them."""
    chance = random.Random(SEED)
    for name in SETS:
        folder = Folder(data / "train" / name)
        for source, group in _by_source(folder):
            yield Task(f"{name}/{source}", _catalog_of(folder, source), tuple(_some(group, chance)))
    yield from _unrelated(data, chance)
    authored = Folder(data / "train" / "authored")
    held = [case for case in authored.cases if is_held_out("authored", case.gold)]
    for number in range(SMALL_CATALOGS):
        yield from _small(authored, held, chance, number)
    yield _large(data, authored, held, chance)


def _by_source(folder: Folder) -> Iterator[tuple[str, list[Case]]]:
    groups: dict[str, list[Case]] = {}
    for case in folder.cases:
        if is_held_out(case.source, case.gold):
            groups.setdefault(case.source, []).append(case)
    return iter(groups.items())


def _some(cases: Sequence[Case], chance: random.Random) -> list[Case]:
    return chance.sample(list(cases), min(CASES_PER_SET, len(cases)))


def _catalog_of(folder: Folder, source: str) -> Catalog:
    prefixed = [tool for tool in folder.tools if tool.id.startswith(f"{source}|")] or list(folder.tools)
    wanted = {tool_id for case in folder.cases for tool_id in case.gold}
    return Catalog.of([tool for tool in prefixed if tool.id in wanted or len(prefixed) <= LARGEST or _kept(tool.id)])


def _kept(tool_id: str) -> bool:
    """Keep a third of the distractors of very large catalogs, by hash."""
    return zlib.crc32(tool_id.encode()) % 3 == 0


def _small(authored: Folder, held: list[Case], chance: random.Random, number: int) -> Iterator[Task]:
    """Take a few servers at a time, as most people have: with the queries they answer, and with those they do not."""
    servers = sorted({tool.server for tool in authored.tools})
    chosen = set(chance.sample(servers, chance.randint(*SMALL_SERVERS)))
    wanted = {case.gold[0] for case in held}
    chosen |= set(chance.sample(sorted({t.server for t in authored.tools if t.id in wanted}), 6))
    tools = [tool for tool in authored.tools if tool.server in chosen]
    there = {tool.id for tool in tools}
    answered = [case for case in held if case.gold[0] in there]
    absent = [case for case in held if case.gold[0] not in there]
    yield Task(f"small/{number}", Catalog.of(tools), tuple(_some(answered, chance)))
    yield Task(f"absent/{number}", Catalog.of(tools), tuple(chance.sample(absent, min(150, len(absent)))), False)


def _unrelated(data: Path, chance: random.Random) -> Iterator[Task]:
    """Put queries of broad sources over narrow catalogs: films, music, and a few everyday services."""
    asked = [group for _, group in _by_source(Folder(data / "train" / "labelled"))]
    for name in NARROW:
        cases = [case for group in asked for case in chance.sample(group, min(40, len(group)))]
        yield Task(f"absent/{name}", Catalog.of(Folder(data / "train" / name).tools), tuple(cases), False)


def _large(data: Path, authored: Folder, held: list[Case], chance: random.Random) -> Task:
    folders = [Folder(folder) for folder in sorted((data / "catalogs").iterdir())]
    known = {(tool.name, tool.description) for tool in authored.tools}
    more = [
        tool
        for folder in folders
        for tool in folder.tools
        if (tool.name, tool.description) not in known and _kept(tool.server)
    ]
    return Task("large", Catalog.of([*more, *authored.tools]), tuple(chance.sample(held, min(600, len(held)))))


def background_of(data: Path, embedder: Embedder, cache: StoredVectors) -> Background:
    """Embed a sample of the unlabelled catalogs' tools."""
    every = {embedding_text(t) for folder in sorted((data / "catalogs").iterdir()) for t in Folder(folder).tools}
    chosen = random.Random(SEED).sample(sorted(every), BACKGROUND_TOOLS)
    return Background.of(embed_cached(embedder, chosen, cache, None))


def collect(
    every: Iterable[Task], embedder: Embedder | None, cache: StoredVectors, background: Background | None
) -> list[Sample]:
    """Run every query and keep its evidence."""
    samples = []
    for task in every:
        if not task.cases:
            continue
        searcher = Searcher(task.catalog, embedder, options=SearchOptions(cache=cache))
        searcher.prepare()
        for case in task.cases:
            evidence = searcher.evidence(Query(text=case.query))
            gold = {searcher.index.rows[i] for i in case.gold if i in searcher.index.rows}
            right = np.isin(evidence.rows, list(gold))
            takes = np.array([searcher.index.lexical.fills(row, "parameters") for row in evidence.rows], np.bool_)
            others = background.nearness(embedder.embed_query(case.query)[None]) if background and embedder else 0.0
            samples.append(Sample(task.name, evidence, right, task.answerable, takes, others))
        print(f"{task.name}: {len(task.cases)} queries over {len(task.catalog)} tools", flush=True)
    return samples


def group_of(task: str) -> str:
    """Name the set; the small catalogs count as one."""
    return task.partition("/")[0] if task.startswith(("small", "absent")) else task


def logits(sample: Sample, theta: NDArray[np.float32]) -> NDArray[np.float32]:
    return sample.evidence.candidates @ (theta @ sample.evidence.query)
