"""Growth of a catalog to a million tools: python -m benchmarks.growth [--sizes 25759 100000 1000000] [--resume].

The real 25,759 tools are among the tools of each size; the others are made of them with a seed (`made_tools`). For each
size an index is built and saved once, in `benchmarks/.cache/growth`. Separate processes then open it, as the workers of
a gateway do: with exact search over vectors, with compressed vectors scanned by faiss, and, up to 100,000 tools, with a
local file of Milvus. Recall is that of queries whose right tools are among the real ones, so it falls as others come
between. 10,000,000 tools are extrapolated, and the table says so.

Each figure is kept as soon as it is measured: `--resume` continues a run that was stopped.
"""

import argparse
import gc
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import bench_file, milliseconds, one_thread, publish, resident_megabytes, rows, spread

from shortlist.evals.tables import Table

SIZES = (25_759, 100_000, 1_000_000)
EXTRAPOLATED = 10_000_000
QUERIES = 120
ROUNDS = 2
CANDIDATES = 300
KINDS = ("exact", "approximate", "milvus")
MILVUS_UP_TO = 100_000
"""The local file of Milvus is meant for development; larger sizes are left to a server."""
INDEXES = Path(__file__).parent / ".cache" / "growth"
BUILT, PUBLISHED = "built.json", "published.json"
"""What building and publishing to Milvus took, written last: without them it is done again."""


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--resume", action="store_true", help="measure only what an earlier run has not measured")
    parser.add_argument("--build", type=int, help="build and save this size alone, and print what it took")
    parser.add_argument("--open", help="open SIZE:KIND alone, search, and print what it took")
    options = parser.parse_args()
    if options.build:
        print(json.dumps(build(options.build)))
    elif options.open:
        size, _, kind = options.open.partition(":")
        print(json.dumps(opened(int(size), kind, options.queries)), flush=True)
        sys.stdin.read()  # another process is measured while this one has the same files open
    else:
        pairs = [(size, kind) for size in options.sizes for kind in options.kinds]
        found = [_measured(s, k, options) for s, k in pairs if k != "milvus" or s <= MILVUS_UP_TO]
        publish("growth", [_table(found)], {"queries": options.queries, "sizes": found})


def build(size: int) -> dict[str, Any]:
    """Make the tools, index words and vectors, compress the vectors, and save everything."""
    import numpy as np
    from benchmarks.made_tools import Maker, grown_catalog, real_catalog, real_vectors

    from shortlist.cli import YOUNG_OBJECTS
    from shortlist.index.embedders import shipped
    from shortlist.index.index import Index
    from shortlist.index.nearest import ApproximateVectorIndex
    from shortlist.index.store import save_index

    gc.set_threshold(*YOUNG_OBJECTS)  # as the command does
    model, maker = shipped("small"), Maker(real_catalog())
    assert model is not None
    real = real_vectors(maker.real, model, size)
    _progress(f"{size:,}: making tools")
    catalog, sources = grown_catalog(maker, size)
    _progress(f"{size:,}: {len(catalog):,} tools")
    took: dict[str, float] = {}
    started = time.process_time()

    def step(name: str) -> None:
        nonlocal started
        took[name], started = round(time.process_time() - started, 1), time.process_time()
        _progress(f"{size:,}: {name} {took[name]} s, {resident_megabytes():.0f} MB")

    index = Index.build(catalog)
    step("words")
    places = {tool_id: place for place, tool_id in enumerate(maker.real.tools)}
    for start in range(0, index.size, 50_000):
        part = list(range(start, min(start + 50_000, index.size)))
        known = [row for row in part if index.ids[row] in places]
        made = [row for row in part if index.ids[row] not in places]
        index = index.with_vectors(model, np.array(known, np.int64), real[[places[index.ids[row]] for row in known]])
        if made:
            derived = maker.vectors([sources[index.ids[row]] for row in made], real, seed=start)
            index = index.with_vectors(model, np.array(made, np.int64), derived)
    step("vectors")
    assert index.dense is not None
    index = replace(index, dense=ApproximateVectorIndex.over(index.dense))
    step("compressed")
    save_index(index, INDEXES / str(size))
    step("saved")
    peak = round(int(next(line.split()[1] for line in _status() if line.startswith("VmHWM"))) / 1024)
    disk = sum(path.stat().st_size for path in (INDEXES / str(size)).iterdir())
    built = {"cpu_seconds": took, "peak_megabytes": peak, "disk_megabytes": round(disk / 1e6)}
    (INDEXES / str(size) / BUILT).write_text(json.dumps(built))
    return built


def opened(size: int, kind: str, asked: int) -> dict[str, Any]:
    """Open a saved index in this process, search, and compare approximate with exact search."""
    started = time.perf_counter()
    import numpy as np

    from shortlist.cli import YOUNG_OBJECTS
    from shortlist.evals.metrics import marks
    from shortlist.index.embedders import shipped
    from shortlist.index.nearest import ApproximateVectorIndex
    from shortlist.index.store import load_index
    from shortlist.index.vectors import ExactVectorIndex, QueryVectors, query_vectors
    from shortlist.models import Query
    from shortlist.search.searcher import Searcher

    gc.set_threshold(*YOUNG_OBJECTS)
    published = _published(size) if kind == "milvus" else None
    imported = time.perf_counter()
    index = load_index(INDEXES / str(size))
    assert index.dense is not None
    every_vector = ExactVectorIndex.restore(index.dense.model_id, index.dense.state())
    exact = replace(index, dense=every_vector)
    if published is not None:
        from shortlist.index.milvus import Collection, by_milvus

        index = replace(exact, dense=by_milvus(exact, Collection.open(str(INDEXES / f"{size}.db"), exact)))
    model = shipped("small")
    assert model is not None
    embedder = QueryVectors(model)
    searcher = Searcher(exact if kind == "exact" else index, embedder)
    loaded = time.perf_counter()
    cases = spread(rows(bench_file("eval", "mcp_union", "queries.jsonl.gz")), asked)
    embedder.embed_query("x")
    before = time.perf_counter()
    searcher.search(Query(text=cases[0]["query"], limit=10))
    first = time.perf_counter() - before
    queries = [Query(text=case["query"], limit=10) for case in cases]
    answers = [[hit.tool.id for hit in searcher.search(query).hits] for query in queries]
    times = [milliseconds(partial(searcher.search, query)) for _ in range(ROUNDS) for query in queries]
    groups = [[frozenset(group) for group in case["gold_groups"]] for case in cases]
    recall = [sum(marks(found, wanted)[:10]) / len(wanted) for found, wanted in zip(answers, groups, strict=True)]
    found = {
        "tools": size,
        "kind": kind,
        "open_seconds": round(loaded - imported, 2),
        "import_seconds": round(imported - started, 2),
        "first_search_seconds": round(first, 2),
        "p50": round(float(np.percentile(times, 50)), 1),
        "p95": round(float(np.percentile(times, 95)), 1),
        "recall_10": round(float(np.mean(recall)), 4),
        **_memory(),
    }
    if published is not None:
        found["published_seconds"] = published
    if kind != "exact":
        other, everything = Searcher(exact, embedder), index.among(queries[0].filters)
        asked_for = [query_vectors(embedder, searcher.texts_to_embed(query)[:1]) for query in queries]
        shares = []
        assert isinstance(index.dense, ApproximateVectorIndex)
        for vectors in asked_for:
            named = len(index.dense.finder.near(vectors, CANDIDATES, everything))
            assert named < size, "the engine did not answer, and this process compared every vector"
            near, all_near = (d.retrieve(vectors, CANDIDATES, everything).rows for d in (index.dense, every_vector))
            shares.append(len(np.intersect1d(near, all_near)) / len(all_near))
        same = [
            [hit.tool.id for hit in other.search(query).hits] == answer
            for query, answer in zip(queries, answers, strict=True)
        ]
        found |= {"recall_300": round(float(np.mean(shares)), 4), "same_ten": round(float(np.mean(same)), 4)}
    return found


def _published(size: int) -> float:
    """Publish a saved index to a local file of Milvus once, and return the CPU time it took."""
    from shortlist.index.milvus import Collection
    from shortlist.index.store import load_index

    kept, file = INDEXES / str(size) / PUBLISHED, INDEXES / f"{size}.db"
    if not kept.exists():
        shutil.rmtree(file, ignore_errors=True)
        started = time.process_time()
        Collection.open(str(file), load_index(INDEXES / str(size))).close()
        kept.write_text(json.dumps(round(time.process_time() - started, 1)))
    return float(json.loads(kept.read_text()))


def _measured(size: int, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    folder = INDEXES / str(size)
    built, kept = folder / BUILT, folder / f"measured-{kind}.json"
    if not built.exists():
        _run("--build", str(size))
    if not (options.resume and kept.exists()):
        _progress(f"{size:,}: measuring {kind}")
        kept.write_text(json.dumps(_searched(size, kind, options.queries)))
    found = json.loads(kept.read_text())
    _progress(str(found))
    return {**found, "built": json.loads(built.read_text())}


def _searched(size: int, kind: str, queries: int) -> dict[str, Any]:
    """Measure a process that opens the index while another one has it open, whose pages it shares."""
    arguments = ("--open", f"{size}:{kind}", "--queries", str(queries))
    if kind == "milvus":  # a local file has one user
        return _run(*arguments)
    command = [sys.executable, "-m", "benchmarks.growth", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = _run(*arguments)
        other.communicate("")
    return found


def _run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.growth", *arguments]
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _memory() -> dict[str, float]:
    """Return what this process holds: alone, and in pages that another process shares."""
    fields = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    kilobytes = {name.rstrip(":"): int(value) for name, value, *_ in fields}
    own = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    shared = kilobytes["Shared_Clean"] + kilobytes["Shared_Dirty"]
    return {"own_megabytes": round(own / 1024), "shared_megabytes": round(shared / 1024)}


def _status() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(found: Sequence[Mapping[str, Any]]) -> Table:
    lines = [_line(f) for f in found]
    for kind in ("exact", "approximate"):
        lines += _extrapolated([f for f in found if f["kind"] == kind])
    columns = (
        "tools",
        "vectors",
        "build, CPU",
        "disk",
        "open",
        "first search",
        "own / shared memory",
        "p50 / p95",
        "recall@10",
        "of exact: 300 / same ten",
    )
    notes = (
        "Tools beyond the real 25,759 are made from them with a seed; their vectors are derived, not embedded.",
        "Build: words, vectors, compressing them or publishing to Milvus, saving; and peak memory.",
        "10,000,000 tools are extrapolated from the two largest sizes and were not measured; nor was a Milvus cluster.",
        "Open: from the folder to a searcher, without imports; memory of a second process beside the first.",
        "Search: words and vectors, limit 10, one thread, the query's vector known.",
        "Recall@10: right tools of the benchmark's queries, all among the real 25,759, in the first ten.",
        "Of exact: the share of exact search's first 300 by vectors that approximate search finds, and the share of "
        "queries with the same first ten in the same order.",
    )
    return Table("Growth", columns, tuple(lines), notes)


def _line(f: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{f['tools']:,}",
        f["kind"],
        f"{_build_seconds(f):.0f} s, {f['built']['peak_megabytes']:,} MB",
        f"{f['built']['disk_megabytes']:,} MB",
        f"{f['open_seconds']:.2f} s",
        f"{f['first_search_seconds']:.2f} s",
        f"{f['own_megabytes']:,} / {f['shared_megabytes']:,} MB",
        f"{f['p50']:.1f} / {f['p95']:.1f} ms",
        f"{100 * f['recall_10']:.1f} %",
        f"{100 * f['recall_300']:.2f} / {100 * f['same_ten']:.1f} %" if "recall_300" in f else "",
    )


def _build_seconds(f: Mapping[str, Any]) -> float:
    seconds: Mapping[str, float] = f["built"]["cpu_seconds"]
    unused = 0 if f["kind"] == "approximate" else seconds["compressed"]
    return float(sum(seconds.values()) - unused + f.get("published_seconds", 0))


def _extrapolated(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Continue the line through the two largest sizes, for what grows in proportion."""
    if len(found) < 2 or found[-1]["tools"] >= EXTRAPOLATED:
        return []
    one, two = found[-2:]

    def at(value: Any) -> float:
        low, high = (float(value(f)) for f in (one, two))
        return high + (high - low) * float((EXTRAPOLATED - two["tools"]) / (two["tools"] - one["tools"]))

    return [
        (
            f"{EXTRAPOLATED:,} (extrapolated)",
            two["kind"],
            f"{at(_build_seconds):.0f} s, {at(lambda f: f['built']['peak_megabytes']):,.0f} MB",
            f"{at(lambda f: f['built']['disk_megabytes']):,.0f} MB",
            f"{at(lambda f: f['open_seconds']):.1f} s",
            "",
            f"{at(lambda f: f['own_megabytes']):,.0f} / {at(lambda f: f['shared_megabytes']):,.0f} MB",
            f"{at(lambda f: f['p50']):.0f} / {at(lambda f: f['p95']):.0f} ms",
            "",
            "",
        )
    ]


if __name__ == "__main__":
    main()
