"""Assembles an evaluation: labelled queries, their catalog, a model and exemplars."""

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shortlist.catalog.catalog import Catalog
from shortlist.cli.progress import counted, say
from shortlist.errors import InvalidInput
from shortlist.evals.bench import Bench
from shortlist.evals.cases import find_problems
from shortlist.evals.contender import Contender
from shortlist.evals.datasets import Dataset, load_dataset, own_dataset, read_catalogs
from shortlist.evals.learned import Learned, read_learned
from shortlist.evals.runner import LIMIT, Run, Runner
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.shipped import open_vectors
from shortlist.models import Tool, ToolId
from shortlist.storage.local import local_vectors

PROBLEMS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Loaded:
    """A dataset with its indexed catalog."""

    dataset: Dataset
    bench: Bench

    @property
    def tools(self) -> Mapping[ToolId, Tool]:
        return self.bench.catalog.tools

    def runner(self, name: str, limit: int = LIMIT) -> Runner:
        return Runner(
            tools=self.tools,
            fingerprint=self.bench.catalog.fingerprint,
            limit=limit,
            progress=counted(f"{self.dataset.name} {name}"),
        )

    def run(self, contender: Contender, limit: int = LIMIT) -> Run:
        return self.runner(contender.pipeline, limit).run(self.dataset, contender)


def read_datasets(args: argparse.Namespace, default: str) -> list[Dataset]:
    """Read the sets that are named and the caller's own; the default if there are none."""
    if bool(args.catalog) != bool(args.cases):
        raise InvalidInput("--catalog and --cases go together: your tools and your labelled queries.")
    own = [own_dataset(args.catalog, args.cases)] if args.cases else []
    names = args.datasets or ([] if own else [default])
    found = [dataset.only(split=args.split) for dataset in (*map(load_dataset, names), *own)]
    for dataset in found:
        if not dataset.cases:
            raise InvalidInput(f"There are no labelled queries in {dataset.name!r}: write one JSON object per line.")
    return found


def read_exemplars(args: argparse.Namespace) -> Learned | None:
    return read_learned(args.exemplars, args.caller) if args.exemplars else None


def load(
    dataset: Dataset, embedder: Embedder | None, more: Sequence[Path] = (), learned: Learned | None = None
) -> Loaded:
    """Read and index a dataset's catalog, and say what is wrong with its labels."""
    catalog = _with_distractors(read_catalog(dataset.catalogs), read_catalog(tuple(more)) if more else None)
    problems = find_problems(dataset.cases, catalog.tools)
    _warn(dataset.name, [f"{each.kind} ({', '.join(each.cases)}): {each.message}" for each in problems])
    if learned is not None:
        given, learned = learned, learned.besides(case.query for case in dataset.cases)
        left_out = len(given.exemplars) - len(learned.exemplars)
        say(f"{dataset.name}: {len(learned.exemplars)} exemplars, {left_out} left out: they ask what a case asks")
    return Loaded(dataset, open_bench(catalog, embedder, learned, f"{dataset.name} vectors"))


@functools.lru_cache(maxsize=1)
def read_catalog(paths: tuple[Path, ...]) -> Catalog:
    reading = read_catalogs(paths)
    _warn("catalog", [str(problem) for problem in reading.problems])
    return reading.catalog


def _with_distractors(catalog: Catalog, more: Catalog | None) -> Catalog:
    """Add tools that are not copies of the set's own, under ids that cannot be mistaken for its gold."""
    if more is None:
        return catalog
    ours = {(tool.name, tool.description) for tool in catalog.tools.values()}
    fresh = [t for t in more.tools.values() if (t.name, t.description) not in ours and t.id not in catalog.tools]
    return Catalog.of((*catalog.tools.values(), *fresh), (*more.servers.values(), *catalog.servers.values()))


@functools.lru_cache(maxsize=2)
def open_embedder(name: str) -> Embedder | None:
    return shipped(name)


def open_bench(
    catalog: Catalog, embedder: Embedder | None, learned: Learned | None = None, label: str = "vectors"
) -> Bench:
    """Index a catalog; its vectors are those that searches keep on disk."""
    vectors = open_vectors(local_vectors()) if embedder else None
    return Bench(catalog, embedder, vectors=vectors, progress=counted(label), learned=learned)


def _warn(place: str, problems: Sequence[str]) -> None:
    for problem in problems[:PROBLEMS_SHOWN]:
        say(f"{place}: {problem}")
    if len(problems) > PROBLEMS_SHOWN:
        say(f"{place}: and {len(problems) - PROBLEMS_SHOWN} more problems")
