"""How this commit compares with another one in the same run: python -m benchmarks.commits --against COMMIT.

Search times, words and vectors: of requests that were asked before, so that their vectors are given, on one thread, and
of requests that are asked for the first time, with the vector that the shipped model makes. The catalog has the right
tools of the requests, as catalogs that people search do. `unserved` are the same requests over random tools with random
vectors: nearly all of them get `none`, and a `none` is judged again. And what a call through `shortlist serve` adds to
the same call direct. Each commit runs in processes of its own, from a git worktree, and they take turns that are short
enough for a busy machine to slow both alike. Both use the packages of the Python that runs this.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from benchmarks.gateway_setup import Bench, call_of, in_turns, is_listable, settled, until_it_answers
from benchmarks.measuring import THREADS, bench_file, publish

from shortlist.catalog.readers import read_catalog
from shortlist.evals.tables import Table

ROOT = Path(__file__).parent.parent
SIZES = (326, 3_605, 25_759)
CALLED_TOOLS = 60
PARTS = ("search", "unserved", "first", "calls")
FIRST_ASKED = 20
"""New requests in one turn; each is asked once."""

SEARCHES = """
import gc, json, random, sys, time
from benchmarks.measuring import RandomEmbedder, bench_file, rows, spread
from shortlist.catalog.readers import read_catalog
from shortlist.index.embedders import shipped
from shortlist.index.index import Index
from shortlist.models import Query
from shortlist.search.searcher import Searcher

class Given:
    def __init__(self, embedder):
        self.model_id, self.dimensions = embedder.model_id, embedder.dimensions
        self.embed_documents, self._embed_query, self._known = embedder.embed_documents, embedder.embed_query, {}

    def embed_query(self, text):
        if text not in self._known:
            self._known[text] = self._embed_query(text)
        return self._known[text]

size, sample, is_served = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "search"
tools = rows(bench_file("eval", "mcp_union", "tools.jsonl.gz"))
random.Random(3).shuffle(tools)
asked = spread(rows(bench_file("eval", "mcp_union", "queries.jsonl.gz")), sample)
if is_served:
    right = {tool for row in asked for tool in row["gold"]}
    tools.sort(key=lambda tool: tool["id"] not in right)
queries = [row["query"] for row in asked]
embedder = Given(shipped("small")) if is_served else RandomEmbedder()
searcher = Searcher(Index.build(read_catalog(tools[:size]).catalog), embedder)
searcher.prepare()
levels = [searcher.search(Query(text=query, limit=10)).confidence.level for query in queries]
gc.collect()
gc.freeze()
gc.disable()
print(levels.count("none"), flush=True)
for line in sys.stdin:
    wall, cpu = [], []
    for query in queries:
        started, used = time.perf_counter(), time.thread_time()
        searcher.search(Query(text=query, limit=10))
        cpu.append((time.thread_time() - used) * 1000)
        wall.append((time.perf_counter() - started) * 1000)
    print(json.dumps({"wall": wall, "cpu": cpu}), flush=True)
"""

FIRST = """
import gc, json, random, sys, time
from benchmarks.measuring import bench_file, rows
from shortlist.catalog.readers import read_catalog
from shortlist.index.embedders import shipped
from shortlist.index.index import Index
from shortlist.models import Query
from shortlist.search.searcher import Searcher
size, count = int(sys.argv[1]), int(sys.argv[2])
tools = rows(bench_file("eval", "mcp_union", "tools.jsonl.gz"))
random.Random(3).shuffle(tools)
queries = list(dict.fromkeys(row["query"] for row in rows(bench_file("eval", "mcp_union", "queries.jsonl.gz"))))
random.Random(4).shuffle(queries)
searcher = Searcher(Index.build(read_catalog(tools[:size]).catalog), shipped("small"))
searcher.prepare()
asked = iter(queries)
for _ in range(5 * count):
    searcher.search(Query(text=next(asked), limit=10))
gc.collect()
gc.freeze()
gc.disable()
print(0, flush=True)
for line in sys.stdin:
    wall, cpu = [], []
    for _ in range(count):
        query = next(asked)
        started, used = time.perf_counter(), time.process_time()
        searcher.search(Query(text=query, limit=10))
        cpu.append((time.process_time() - used) * 1000)
        wall.append((time.perf_counter() - started) * 1000)
    print(json.dumps({"wall": wall, "cpu": cpu}), flush=True)
"""


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out beside this one for as long as the body runs."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "commit"
        subprocess.run(["git", "worktree", "add", "--detach", str(place), commit], check=True, capture_output=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place)], check=True, capture_output=True)


def environment(root: Path) -> dict[str, str]:
    data = {"SHORTLIST_BENCH_DATA": str(bench_file("eval", "mcp_union", "tools.jsonl.gz").parents[2].resolve())}
    return {**os.environ, **data, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}


class Searching:
    """A process of one commit that searches when it is told to."""

    def __init__(self, root: Path, size: int, sample: int, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", FIRST if kind == "first" else SEARCHES, str(size), str(sample), kind],
            cwd=root,
            env={**environment(root), **dict.fromkeys(THREADS, "1")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.none = int(self._line())
        """How many of its requests it answers with `none`; not counted where each is asked once."""

    def times(self) -> dict[str, list[float]]:
        """Let it answer its queries once, or the next ones, and return the milliseconds of each."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        found: dict[str, list[float]] = json.loads(self._line())
        return found

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def search(roots: Mapping[str, Path], kind: str, options: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """Return the search times of both commits at each size."""
    found: dict[int, dict[str, Any]] = {}
    for size in options.sizes:
        print(f"searching {size:,} tools, {kind} …", file=sys.stderr)
        asked = {name: Searching(root, size, options.sample, kind) for name, root in roots.items()}
        times = _taking_turns(asked, options.rounds)
        found[size] = {name: {**_figures(each), "none": asked[name].none} for name, each in times.items()}
    return found


def first(roots: Mapping[str, Path], rounds: int) -> dict[str, Any]:
    """Return the times of requests that no commit has seen before, their vectors included."""
    print("searching for the first time …", file=sys.stderr)
    asked = {name: Searching(root, SIZES[0], FIRST_ASKED, "first") for name, root in roots.items()}
    times = _taking_turns(asked, rounds)
    return {
        name: {f"{kind}_p50_ms": float(np.median([each[kind] for each in found])) for kind in ("wall", "cpu")}
        for name, found in times.items()
    }


def _taking_turns(asked: Mapping[str, Searching], rounds: int) -> dict[str, list[dict[str, list[float]]]]:
    with ExitStack() as stack:
        for each in asked.values():
            stack.callback(each.close)
        times: dict[str, list[dict[str, list[float]]]] = {name: [] for name in asked}
        for _ in range(rounds):
            for name, each in asked.items():
                times[name].append(each.times())
    return times


def _figures(times: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Return the median of all answers, and the median over the queries of the fastest answer to each."""
    wall, cpu = (np.array([each[kind] for each in times]) for kind in ("wall", "cpu"))
    return {
        "p50_ms": float(np.median(wall)),
        "best_ms": float(np.median(wall.min(axis=0))),
        "best_cpu_ms": float(np.median(cpu.min(axis=0))),
    }


async def calls(roots: Mapping[str, Path], rounds: int) -> dict[str, Any]:
    """Time the same echo direct and through the gateway of each commit."""
    tools = read_catalog(bench_file("eval", "mcp_union", "tools.jsonl.gz")).catalog.tools
    listable = tuple(filter(is_listable, tools.values()))
    with tempfile.TemporaryDirectory() as folder:
        homes = {f"XDG_{kind}_HOME": str(Path(folder) / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
        bench = Bench(Path(folder), (), listable, (), None, rounds, os.environ | homes)
        direct = bench.server(CALLED_TOOLS)
        async with AsyncExitStack() as stack:
            asks = {"direct": call_of("direct", await stack.enter_async_context(bench.client(direct)))}
            for name, root in roots.items():
                own = Bench(Path(folder), (), listable, (), None, rounds, environment(root) | _homes(folder, name))
                client = await stack.enter_async_context(own.client(_serve(root, bench)))
                asks[name] = call_of("shortlist", client)
                await until_it_answers(asks[name])
                await until_it_answers(lambda client=client: settled(client))  # type: ignore[misc]
            times = await in_turns(asks, rounds)
    base = {q: float(np.percentile(times["direct"], q)) for q in (10, 50)}
    return {
        name: {f"added_p{q}_ms": float(np.percentile(found, q)) - base[q] for q in base}
        for name, found in times.items()
        if name != "direct"
    }


def _homes(folder: str, name: str) -> dict[str, str]:
    return {f"XDG_{kind}_HOME": str(Path(folder) / name / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}


def _serve(root: Path, bench: Bench) -> list[str]:
    """Return the command that serves in its own process; older commits know no other way."""
    shared = (root / "src" / "shortlist" / "cli" / "relaying.py").exists()
    config = bench.config({"bench": bench.server(CALLED_TOOLS)})
    command = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())", "serve"]
    return [*command, *(("--own",) if shared else ()), "--config", config]


def tables_of(data: Mapping[str, Any]) -> list[Table]:
    tables = [_search_table(kind, data[kind]) for kind in ("search", "unserved") if kind in data]
    if "first" in data:
        new = [
            (name, f"{each['wall_p50_ms']:.2f}", f"{each['cpu_p50_ms']:.2f}") for name, each in data["first"].items()
        ]
        title = f"A new request at {SIZES[0]} tools, with its vector: milliseconds"
        notes = (
            "Earlier commits let the threads of the model wait awake, until the next text: less time, more CPU, and "
            "other searches are slower.",
        )
        tables.append(Table(title, ("commit", "p50", "p50, CPU"), tuple(new), notes))
    if "calls" in data:
        added = [
            (name, f"{each['added_p10_ms']:.2f}", f"{each['added_p50_ms']:.2f}") for name, each in data["calls"].items()
        ]
        tables.append(
            Table("One call: milliseconds added to the same call direct", ("commit", "p10", "p50"), tuple(added))
        )
    return tables


def _search_table(kind: str, data: Mapping[Any, Mapping[str, Any]]) -> Table:
    lines = [
        (
            f"{size:,} tools, {name}",
            *(f"{each[key]:.3f}" for key in ("p50_ms", "best_ms", "best_cpu_ms")),
            str(each["none"]),
        )
        for size, found in data.items()
        for name, each in found.items()
    ]
    notes = (
        "Median of all answers; median over the queries of the fastest answer to each, wall and CPU time; how many of "
        "the queries get `none`.",
    )
    title = "Search" if kind == "search" else "Search, requests without a tool and random vectors"
    return Table(f"{title}, milliseconds", ("commit", "p50", "best", "best, CPU", "none"), tuple(lines), notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--sample", type=int, default=50, help="how many queries, spread over the set")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    data: dict[str, Any] = {"against": options.against}
    with checked_out(options.against) as older:
        roots = {options.against: older, "this commit": ROOT}
        for kind in ("search", "unserved"):
            if kind in options.only:
                data[kind] = search(roots, kind, options)
        if "first" in options.only:
            data["first"] = first(roots, options.rounds)
        if "calls" in options.only:
            data["calls"] = anyio.run(calls, roots, options.rounds * 10)
    publish("commits", tables_of(data), data)


if __name__ == "__main__":
    main()
