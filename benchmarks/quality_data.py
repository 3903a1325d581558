"""What the quality tables are made of: the sets, our pipelines and the peers on them, one value a query and metric."""

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

import numpy as np
from benchmarks.baselines import BASELINES, attempt
from benchmarks.measuring import rows

from shortlist.evals.bench import Bench
from shortlist.evals.cases import Case
from shortlist.evals.datasets import Dataset, read_catalogs
from shortlist.evals.metrics import Groups, Metric, marks, ndcg, recall, strict_groups, top_1
from shortlist.evals.runner import LIMIT
from shortlist.evals.significance import Values
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder, Progress, Vectors
from shortlist.index.embedding import embed_cached
from shortlist.index.vectors import QueryVectors
from shortlist.models import ToolId

SINGLE = (
    "azure_mcp",
    "azure_mcp_jan2026",
    "mcptoolbenchpp",
    "mcpbench",
    "mcpproxy_golden",
    "stackone_270",
    "portkey_120",
    "nodebench_175",
    "metatool:heldout_tools",
    "toolret_apigen",
    "sealtools_out_domain",
)
"""One catalog each; the macro average is over these."""
BY_SPLIT = ("mcp_union", "mcp_union_unseen", "authored_dev")
"""Macro over their splits, lenient: public servers are forked a lot, and any copy of the right tool is right."""
OTHERS = ("metatool:multi", "toollens_test", "toolbench_g3")
SETS = (*SINGLE, *BY_SPLIT, *OTHERS)

BARE = "bare mix"
"""The two arms by their best fixed weight, and nothing else; `weighted` has all the other parts of the default."""

METRICS: Mapping[str, Metric] = {"top1": top_1, "r@5": recall(5), "ndcg@10": ndcg(10)}
ANY_AT_5 = "any@5"
"""Whether any of the right tools is among the first five: what NodeBench calls recall."""
MEASURED: Mapping[str, Metric] = {**METRICS, ANY_AT_5: lambda found, _wanted: float(any(found[:5]))}
RENAMED = {"plain-dense": "dense", "plain-rrf": "rrf"}
"""Reference points that share a name with a pipeline of ours."""
PEERS = {**{name: name for name in BASELINES if name not in RENAMED.values()}, **RENAMED}
BY_VECTORS = frozenset({"langgraph-bigtool", "llama-index", "toolhive", "portkey", "dense", "rrf"})
LARGE = 5_000
"""Above so many tools most peers take longer for a query than we take for a hundred."""
KEPT = Path(__file__).parent / ".cache" / "quality"
LOGGED_EVERY = 500
REMEMBERED = 100_000
"""Queries and their parts: more than all sets have together."""

Ranked: TypeAlias = Mapping[str, Sequence[ToolId]]
"""The ranking for each case, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A contender's marks on one set, a value for each query in the set's order."""

    ids: tuple[str, ...]
    splits: tuple[str, ...]
    values: Mapping[str, Values]
    empty: int
    """Queries that were answered with nothing."""
    note: str = ""

    def strata(self, metric: str, *, by_split: bool) -> list[Values]:
        """Return the values as what a macro average is taken over: the splits, or the whole."""
        if not by_split:
            return [self.values[metric]]
        return [self.of_split(metric, split) for split in dict.fromkeys(self.splits)]

    def of_split(self, metric: str, split: str) -> Values:
        kept: Values = self.values[metric][np.array(self.splits) == split]
        return kept

    def only(self, ids: Sequence[str]) -> "Answers":
        """Keep some queries, in the order given."""
        row = {each: position for position, each in enumerate(self.ids)}
        rows = [row[each] for each in ids]
        return Answers(
            ids=tuple(ids),
            splits=tuple(self.splits[at] for at in rows),
            values={metric: values[rows] for metric, values in self.values.items()},
            empty=self.empty,
            note=self.note,
        )


class Model(QueryVectors):
    """An embedder that embeds a query once, whoever asks, and documents never twice: they are kept on disk."""

    def __init__(self, embedder: Embedder, cache: StoredVectors) -> None:
        super().__init__(embedder, capacity=REMEMBERED)
        self.cache = cache

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Serve the peers, which embed queries and documents alike: one text is a query."""
        if len(texts) == 1:
            return self.embed_query(texts[0])[None]
        return embed_cached(self.embedder, list(texts), self.cache, progress("vectors for a peer"))


def bench_of(dataset: Dataset, model: Model | None) -> Bench:
    """Index a set's catalog; its vectors come from the cache that searches share."""
    catalog = read_catalogs(dataset.catalogs).catalog
    vectors = model.cache if model else None
    return Bench(catalog, model, vectors=vectors, progress=progress(f"{dataset.name} vectors"))


def ours(dataset: Dataset, bench: Bench, pipeline: str) -> Answers:
    """Ask one of our pipelines everything."""
    rank = (bench.bare("weighted") if pipeline == BARE else bench.contender(pipeline)).rank
    return marked(dataset, dataset.cases, asked(dataset.cases, lambda text: rank(text, LIMIT).ids, dataset.name))


def peer(dataset: Dataset, label: str, model: Model | None, most: int, *, fresh: bool = False) -> Answers | str:
    """Ask a peer, or say why it cannot be asked; on a large catalog it gets a part of the queries.

    A peer does not change when we do: rankings are kept, and asked for again when the data, the adapters or the model
    are others.
    """
    cases, kept = asked_of_peers(dataset, most), KEPT / dataset.name.replace(":", "-")
    path = kept / f"{label}-{_key(dataset, label, model, cases)}.json"
    if fresh or not path.is_file():
        found = attempt(PEERS[label], rows(dataset.catalogs[0]), model)
        if found.baseline is None:
            return f"{found.status}: {found.detail}"
        baseline = found.baseline
        ranked = asked(cases, lambda text: baseline.rank(text, LIMIT), f"{dataset.name} {label}")
        kept.mkdir(parents=True, exist_ok=True)
        note = _note(found.status, found.detail, len(baseline.failures))
        path.write_text(json.dumps({"note": note, "ranked": ranked}), "utf-8")
    stored = json.loads(path.read_text("utf-8"))
    return marked(dataset, cases, stored["ranked"], stored["note"])


def asked_of_peers(dataset: Dataset, most: int) -> tuple[Case, ...]:
    """Return what peers are asked: everything, or of a large catalog's queries as many of every split as there are."""
    if _size(dataset.catalogs[0]) <= LARGE or len(dataset.cases) <= most:
        return dataset.cases
    by_split: dict[str, list[Case]] = defaultdict(list)
    for case in dataset.cases:
        by_split[case.split].append(case)
    spread = [_evenly(cases, most) for cases in by_split.values()]
    turns = [case for turn in zip_longest(*spread) for case in turn if case is not None]
    chosen = {case.id for case in turns[:most]}
    return tuple(case for case in dataset.cases if case.id in chosen)


def marked(dataset: Dataset, cases: Sequence[Case], ranked: Ranked, note: str = "") -> Answers:
    lenient = dataset.name in BY_SPLIT
    found = [(marks(ranked[case.id], groups), len(groups)) for case in cases for groups in [_groups(case, lenient)]]
    return Answers(
        ids=tuple(case.id for case in cases),
        splits=tuple(case.split for case in cases),
        values={name: np.array([metric(*each) for each in found]) for name, metric in MEASURED.items()},
        empty=sum(not ranked[case.id] for case in cases),
        note=note,
    )


def progress(what: str) -> Progress:
    """Write few lines into a log."""

    def show(done: int, total: int) -> None:
        if done == total or done % LOGGED_EVERY == 0:
            say(f"{what}: {done}/{total}")

    return show


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def asked(cases: Sequence[Case], rank: Callable[[str], Sequence[ToolId]], what: str) -> dict[str, list[ToolId]]:
    show, found = progress(what), {}
    for done, case in enumerate(cases, start=1):
        found[case.id] = list(rank(case.query))
        show(done, len(cases))
    return found


def _groups(case: Case, lenient: bool) -> Groups:
    return case.groups if lenient and case.groups else strict_groups(case.gold)


def _evenly(cases: Sequence[Case], count: int) -> Sequence[Case]:
    """Take cases so that any first part of them lies evenly over the whole."""
    order = sorted(range(len(cases)), key=lambda at: (int(f"{at:016b}"[::-1], 2), at))
    return [cases[at] for at in order[:count]]


def _note(status: str, detail: str, failures: int) -> str:
    said = [] if status == "runs" else [f"{status} ({detail})"]
    return "; ".join([*said, *([f"fails on {failures} queries"] if failures else [])])


def _key(dataset: Dataset, label: str, model: Model | None, cases: Sequence[Case]) -> str:
    vectors = model.model_id if model and PEERS[label] in BY_VECTORS else ""
    parts = [_adapters(), vectors, _digest(dataset.catalogs[0]), *(f"{case.id} {case.query}" for case in cases)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@cache
def _adapters() -> str:
    sources: Iterator[Path] = iter(sorted((Path(__file__).parent / "baselines").glob("*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _size(path: Path) -> int:
    return len(rows(path))
