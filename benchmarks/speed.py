"""How long a search takes and what an index costs: python -m benchmarks.speed, with the peers where they are installed.

Ours is everything: words, vectors, fusion, stages and confidence, given the query's vector, on one thread. The peers of
benchmarks/baselines answer the same queries over the same tools in the same run, taking turns with us. Vectors are
random unit vectors for everybody: no time depends on what they say, and no model is needed.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.baselines import BASELINES, Attempt, attempt
from benchmarks.measuring import (
    RandomEmbedder,
    Times,
    bench_file,
    in_a_process,
    interleaved,
    milliseconds,
    one_thread,
    publish,
    rows,
    spread,
)

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.evals.tables import Table
from shortlist.index.index import Index
from shortlist.index.store import load_index, save_index
from shortlist.models import Filters, Query
from shortlist.search.searcher import Searcher

SIZES = (100, 326, 1_000, 3_605, 10_000, 25_759)
OURS = "shortlist, words and vectors"
OUR_WORDS = "shortlist, words"
SLOW_MILLISECONDS = 50.0
"""A peer slower than this is asked fewer of them: its median needs no more."""
FEW = 8
LIMIT = 10
NO_SCORES = ("fastmcp-regex", "fastmcp-regex-words")
"""These list what a pattern matches, in catalog order: not a search to compare the time of."""

IMPORTING = """
import json, sys, time
started = time.perf_counter()
__import__(sys.argv[1])
seconds = time.perf_counter() - started
heavy = [name for name in ("onnxruntime", "tokenizers", "mcp", "starlette") if name in sys.modules]
print(json.dumps({"seconds": seconds, "heavy": heavy}))
"""
SEARCHING = """
import json, sys, time
from pathlib import Path
from benchmarks.measuring import RandomEmbedder, resident_megabytes
from shortlist.index.store import load_index
from shortlist.models import Query
from shortlist.search.searcher import Searcher
before, started = resident_megabytes(), time.perf_counter()
searcher = Searcher(load_index(Path(sys.argv[1])), RandomEmbedder())
loaded = time.perf_counter() - started
for text in ("send a message", "list open pull requests", "what is the weather in Paris tomorrow") * 10:
    searcher.search(Query(text=text))
print(json.dumps({"load_seconds": loaded, "imports": before, "megabytes": resident_megabytes()}))
"""


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--sample", type=int, default=50, help="how many queries, spread over the set")
    parser.add_argument("--peers", nargs="*", choices=list(BASELINES), help="only these; none for ours alone")
    options = parser.parse_args()
    peers = [p for p in BASELINES if p not in NO_SCORES] if options.peers is None else options.peers
    tools = rows(bench_file("eval", "mcp_union", "tools.jsonl.gz"))
    queries = [
        row["query"] for row in spread(rows(bench_file("eval", "mcp_union", "queries.jsonl.gz")), options.sample)
    ]
    random.Random(3).shuffle(tools)
    costs = _costs(read_catalog(tools[: max(options.sizes)]).catalog)
    sizes = {size: _searches(tools[:size], queries, peers) for size in options.sizes}
    publish("speed", [_search_table(sizes), _cost_table(costs)], {"search": sizes, "costs": costs})


def _searches(tools: Sequence[Mapping[str, Any]], queries: Sequence[str], peers: Iterable[str]) -> dict[str, Any]:
    """Time ours and every peer over the same tools; those that are slow are asked fewer queries."""
    tried = [attempt(name, tools, RandomEmbedder().embed) for name in peers]
    asks = {**_ours(read_catalog(tools).catalog), **{t.name: _asking(t) for t in tried if t.baseline}}
    slow = {name for name, ask in asks.items() if _second(ask, queries[0]) > SLOW_MILLISECONDS}
    quick = {name: ask for name, ask in asks.items() if name not in slow}
    times = interleaved(quick, queries)
    times |= interleaved({name: asks[name] for name in asks if name in slow}, spread(queries, FEW), 1)
    return {"times": times, "build_seconds": {t.name: t.build_seconds for t in tried}, "left_out": _left_out(tried)}


def _second(ask: Callable[[str], object], text: str) -> float:
    """Time an answer that is not the first: many make something ready when they are first asked."""
    ask(text)
    return milliseconds(lambda: ask(text))


def _ours(catalog: Catalog) -> dict[str, Callable[[str], object]]:
    both, words = Searcher(Index.build(catalog), RandomEmbedder()), Searcher(Index.build(catalog))
    both.prepare()
    return {
        OURS: lambda text: both.search(Query(text=text, limit=LIMIT)),
        OUR_WORDS: lambda text: words.search(Query(text=text, limit=LIMIT)),
    }


def _asking(tried: Attempt) -> Callable[[str], object]:
    baseline = tried.baseline
    assert baseline is not None
    return lambda text: baseline.rank(text, LIMIT)


def _left_out(tried: Iterable[Attempt]) -> dict[str, str]:
    return {t.name: f"{t.status}: {t.detail}" for t in tried if t.status != "runs"}


def _costs(catalog: Catalog) -> dict[str, Any]:
    built: list[Index] = []
    building = milliseconds(lambda: built.append(Index.build(catalog))) / 1000
    index, embedder = built[0], RandomEmbedder()
    index = index.embedded(embedder)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "index"
        saving = milliseconds(lambda: save_index(index, place)) / 1000
        loading = min(milliseconds(lambda: load_index(place)) for _ in range(3)) / 1000
        process = in_a_process(SEARCHING, str(place))
        disk = sum(file.stat().st_size for file in place.iterdir()) / 1e6
    return {
        "tools": len(catalog),
        "build_seconds": building,
        "save_seconds": saving,
        "load_seconds": loading,
        "disk_megabytes": disk,
        "bytes_per_vector": index.dense.state()["codes"].nbytes / len(catalog) if index.dense else 0,
        "dimensions": embedder.dimensions,
        "update": _updates(index),
        "filters": _filters(index, embedder),
        "imports": {name: _importing(name) for name in ("shortlist", "shortlist.search.searcher")},
        "search_process": process,
    }


def _importing(module: str) -> dict[str, Any]:
    tries = [in_a_process(IMPORTING, module) for _ in range(5)]
    return {"seconds": min(t["seconds"] for t in tries), "heavy": tries[0]["heavy"]}


def _updates(index: Index) -> dict[str, Times]:
    """Change one tool at a time: the new catalog, and the index that follows it."""
    catalogs: list[float] = []
    indexes: list[float] = []
    for number, tool_id in enumerate(spread(index.ids, 20)):
        catalog, tool = index.catalog, index.catalog.tools[tool_id]
        changed = replace(tool, description=f"{tool.description} Changed.", content_hash=f"changed {number}")
        tools = [changed if each.id == tool_id else each for each in catalog.of_server(tool.server)]
        server, made = catalog.servers[tool.server], list[Catalog]()
        catalogs.append(milliseconds(lambda c=catalog, s=server, t=tools, m=made: m.append(c.with_server(s, t))))  # type: ignore[misc]
        followed = list[Index]()
        indexes.append(milliseconds(lambda i=index, m=made, f=followed: f.append(i.updated(m[0])[0])))  # type: ignore[misc]
        index = followed[0]
    return {"catalog": Times.of([catalogs]), "index": Times.of([indexes])}


def _filters(index: Index, embedder: RandomEmbedder) -> dict[str, dict[str, float]]:
    """Time what a filter adds: its mask made anew, and a search with it."""
    searcher = Searcher(index, embedder)
    servers = spread(list(index.catalog.members), 10)
    asked = {
        "none": Filters(),
        "10 servers": Filters(servers=frozenset(servers)),
        "read-only": Filters(read_only=True),
        "5,000 ids": Filters(among=frozenset(spread(list(index.rows), 5_000))),
    }
    index.facets.mask(asked["10 servers"], index.ids, index.rows, index.size)
    text = "list the open issues of a project"
    return {
        name: {
            "mask_milliseconds": min(
                milliseconds(partial(index.facets.mask, f, index.ids, index.rows, index.size)) for _ in range(7)
            ),
            "search_milliseconds": min(
                milliseconds(lambda f=f: searcher.search(Query(text=text, filters=f)))  # type: ignore[misc]
                for _ in range(15)
            ),
        }
        for name, f in asked.items()
    }


def _search_table(sizes: Mapping[int, Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for found in sizes.values() for name in found["times"]))
    last = list(sizes.values())[-1]
    lines = [
        (name, *(_cell(found["times"].get(name)) for found in sizes.values()), last["left_out"].get(name, "")[:60])
        for name in names
    ]
    absent = sorted({name for found in sizes.values() for name in found["left_out"] if name not in names})
    notes = [
        "Milliseconds per query, one thread, the query's vector given:",
        "median / 95th percentile / median of the fastest of a query's answers.",
    ]
    notes += [f"Not run here: {', '.join(absent)}."] if absent else []
    columns = ("search", *(f"{size:,} tools" for size in sizes), "note")
    return Table("Search", columns, tuple(lines), tuple(notes))


def _cell(times: Times | None) -> str:
    return f"{times.p50:.2f} / {times.p95:.2f} / {times.best:.2f}" if times else "–"


def _cost_table(costs: Mapping[str, Any]) -> Table:
    update, process = costs["update"], costs["search_process"]
    lines = [
        ("build the words", f"{costs['build_seconds']:.2f} s"),
        ("save, with vectors", f"{costs['save_seconds']:.2f} s, {costs['disk_megabytes']:.0f} MB"),
        ("load", f"{costs['load_seconds']:.3f} s"),
        ("one changed tool: catalog", f"{update['catalog'].p50:.2f} ms"),
        ("one changed tool: index", f"{update['index'].p50:.2f} ms"),
        ("a vector", f"{costs['bytes_per_vector']:.0f} bytes at {costs['dimensions']} dimensions"),
        ("memory of a process that searches", f"{process['megabytes']:.0f} MB ({process['imports']:.0f} after import)"),
        *((f"import {name}", f"{found['seconds']:.2f} s") for name, found in costs["imports"].items()),
        *(
            (f"filter: {name}", f"mask {f['mask_milliseconds']:.2f} ms, search {f['search_milliseconds']:.2f} ms")
            for name, f in costs["filters"].items()
        ),
    ]
    return Table(f"Costs at {costs['tools']:,} tools", ("what", "figure"), tuple(lines))


if __name__ == "__main__":
    main()
