"""How long `ToolFilter` takes from start to answer, beside other libraries with the same model.

    peers/bin/python -m benchmarks.filter

Cold is a query that nobody asked before: its embedding is part of the time, for us and for the peers that rank by
vectors. Cached is the same query again. The model is the shipped one; what it takes for itself stands beside. Starts
read the tools, index and embed them: the first with empty caches, the second with what the first left on disk. Peers
keep no vectors, so theirs come from the cache that searches share, and are made there once.
"""

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.baselines import Attempt, attempt
from benchmarks.measuring import (
    Times,
    bench_file,
    interleaved,
    milliseconds,
    one_thread,
    publish,
    rows,
    spread,
)

from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder, Vectors, shipped
from shortlist.index.embedding import embed_cached
from shortlist.library.filter import ToolFilter
from shortlist.paths import cache_folder
from shortlist.storage.sqlite_vectors import SqliteVectors

SIZES = (10, 100, 500, 1_000, 5_000, 25_000)
BY_VECTORS = ("langgraph-bigtool", "llama-index")
BY_WORDS = ("haystack", "pydantic-ai", "fastmcp-bm25")
OURS = "shortlist"
MODEL = "the model alone"
LIMIT = 10
SLOW_MILLISECONDS = 200.0
FEW = 6
FIRST_START = 5_000
"""Above this many tools a first start is not timed, and takes vectors from the shared cache: the model's documents per
second say how long it would be."""
PORTKEY = (
    "Portkey's own table (M1 Max, TypeScript): 2 to 8 ms cold, under 1 to 2 ms cached, 4 s to start with 1,000 tools."
)


@dataclass(slots=True)
class SharedModel:
    """The model as a peer sees it: documents by a cache on disk, queries anew or from memory."""

    embedder: Embedder
    cache: StoredVectors
    cold: bool = False
    _known: dict[str, Vectors] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        if len(texts) > 1:
            return embed_cached(self.embedder, list(texts), self.cache, None)
        (text,) = texts
        if self.cold or text not in self._known:
            self._known[text] = self.embedder.embed_query(text)
        return self._known[text][None]


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--sample", type=int, default=30, help="how many queries, spread over the set")
    parser.add_argument("--model", default="small", help="small or static")
    parser.add_argument("--peers", nargs="*", default=[*BY_VECTORS, *BY_WORDS])
    options = parser.parse_args()
    embedder = shipped(options.model)
    if embedder is None:
        parser.error("the comparison needs a model")
    tools = rows(bench_file("eval", "mcp_union", "tools.jsonl.gz"))
    random.Random(3).shuffle(tools)
    asked = spread(rows(bench_file("eval", "mcp_union", "queries.jsonl.gz")), options.sample)
    queries = [row["query"] for row in asked]
    model = SharedModel(embedder, StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite")))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # from here on a start finds nothing that an earlier run left
        for name in options.peers:  # their imports are no part of a start
            attempt(name, tools[:3], model)
        sizes = {size: _measured(tools[:size], queries, model, options.peers) for size in options.sizes}
    publish("filter", [_start_table(sizes), _answer_table(sizes)], {"model": embedder.model_id, "sizes": sizes})


def _measured(
    tools: Sequence[Mapping[str, Any]], queries: Sequence[str], model: SharedModel, peers: Sequence[str]
) -> dict[str, Any]:
    """Start everybody over the same tools, and ask in turns."""
    ours, starts = _started(tools, model)
    tried = [attempt(name, tools, model) for name in peers]
    asks = {**_ours(ours, model.embedder), **_theirs(tried, model)}
    quick = {name: ask for name, ask in asks.items() if _is_quick(ask, queries[0])}
    times = interleaved(quick, queries)
    times |= interleaved({name: asks[name] for name in asks if name not in quick}, spread(queries, FEW), 1)
    starts |= {found.name: found.build_seconds for found in tried if found.baseline}
    left_out = {found.name: f"{found.status}: {found.detail}" for found in tried if found.status != "runs"}
    return {"times": times, "starts": starts, "left_out": left_out}


def _is_quick(ask: Callable[[str], object], query: str) -> bool:
    ask(query)  # what a first answer makes for all that follow is no part of it
    return milliseconds(lambda: ask(query)) < SLOW_MILLISECONDS


def _started(tools: Sequence[Mapping[str, Any]], model: SharedModel) -> tuple[ToolFilter, dict[str, float]]:
    """Start from nothing, then with everything on disk."""
    made: list[ToolFilter] = []
    timed = len(tools) <= FIRST_START
    cache = StoredVectors(SqliteVectors(cache_folder() / f"{len(tools)}.sqlite")) if timed else model.cache

    def start() -> None:
        made[:] = [ToolFilter(list(tools), embedding=model.embedder, vector_cache=cache)]

    model.embedder.embed_query("load the model before the clock runs")
    first = milliseconds(start) / 1000
    second = min(milliseconds(start) for _ in range(3)) / 1000
    return made[0], {"first": first, "second": second} if timed else {"second": second}


def _ours(ours: ToolFilter, embedder: Embedder) -> dict[str, Callable[[str], object]]:
    words = ToolFilter(ours.catalog, embedding=None)

    def cold(text: str) -> None:
        ours.clear_cache()
        ours.filter(text, limit=LIMIT)

    return {
        f"{OURS}, cold": cold,
        f"{OURS}, cached": lambda text: ours.filter(text, limit=LIMIT),
        f"{OURS}, words": lambda text: words.filter(text, limit=LIMIT),
        MODEL: embedder.embed_query,
    }


def _theirs(tried: Sequence[Attempt], model: SharedModel) -> dict[str, Callable[[str], object]]:
    asks: dict[str, Callable[[str], object]] = {}
    for found in tried:
        if found.baseline is not None and found.name in BY_VECTORS:
            asks[f"{found.name}, cold"] = _asking(found, model, cold=True)
            asks[f"{found.name}, cached"] = _asking(found, model, cold=False)
        elif found.baseline is not None:
            asks[found.name] = _asking(found, model, cold=False)
    return asks


def _asking(found: Attempt, model: SharedModel, *, cold: bool) -> Callable[[str], object]:
    baseline = found.baseline
    assert baseline is not None

    def ask(text: str) -> None:
        model.cold = cold
        baseline.rank(text, LIMIT)

    return ask


def _start_table(sizes: Mapping[int, Mapping[str, Any]]) -> Table:
    names = {"first": f"{OURS}, first start", "second": f"{OURS}, second start"}
    found = dict.fromkeys(name for measured in sizes.values() for name in measured["starts"])
    rows_ = tuple(
        (
            names.get(name, f"{name}, vectors given" if name in BY_VECTORS else name),
            *(_seconds(m["starts"].get(name)) for m in sizes.values()),
        )
        for name in found
    )
    return Table("Start, in seconds", ("", *(f"{size:,} tools" for size in sizes)), rows_, (PORTKEY,))


def _answer_table(sizes: Mapping[int, Mapping[str, Any]]) -> Table:
    found = dict.fromkeys(name for measured in sizes.values() for name in measured["times"])
    rows_ = tuple((name, *(_answer(m["times"].get(name)) for m in sizes.values())) for name in found)
    left_out = dict.fromkeys(f"{name}: {why}" for m in sizes.values() for name, why in m["left_out"].items())
    notes = ("Median of the fastest answers in milliseconds, and the 95th percentile of all.", *left_out)
    return Table(f"One answer of {LIMIT} tools", ("", *(f"{size:,} tools" for size in sizes)), rows_, notes)


def _answer(times: Times | None) -> str:
    return "–" if times is None else f"{times.best:.2f} ({times.p95:.2f})"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
