"""How cost grows with the number of tools: python -m benchmarks.scaling [--sizes 1000 10000 100000 250000].

The catalog is the union of the benchmark's catalogs, repeated under other server names with noise in names and
descriptions: some words dropped, some made up, so that the vocabulary grows as it would. Each size runs in a process
of its own, on one thread, and reports its own memory. Vectors are random.
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.measuring import (
    RandomEmbedder,
    Times,
    bench_file,
    interleaved,
    milliseconds,
    one_thread,
    publish,
    resident_megabytes,
    rows,
    spread,
)

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog, tool_from_mcp
from shortlist.evals.datasets import data_root
from shortlist.evals.tables import Table
from shortlist.index.index import Index
from shortlist.models import Query, Tool
from shortlist.search.searcher import Searcher

SIZES = (1_000, 10_000, 25_000, 50_000, 100_000, 250_000)
NOISE = 0.15
"""The share of words that a repetition drops or makes up."""
QUERIES = 40


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--one", type=int, help="measure this size alone and print it as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(options.one)))
        return
    found = [_in_a_process(size) for size in options.sizes]
    publish("scaling", [_table(found)], {"sizes": found})


def _in_a_process(size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scaling", "--one", str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{size:,} tools: search {found['search']['p50']} ms", file=sys.stderr)
    return found


def _measured(size: int) -> dict[str, Any]:
    catalog = Catalog.of(_tools(size))
    before, built = resident_megabytes(), list[Index]()
    building = milliseconds(lambda: built.append(Index.build(catalog))) / 1000
    index, embedder = built[0], RandomEmbedder()
    words = resident_megabytes() - before
    index = index.embedded(embedder)
    searcher = Searcher(index, embedder)
    queries = [row["query"] for row in spread(rows(bench_file("eval", "mcp_union", "queries.jsonl.gz")), QUERIES)]
    search = interleaved({"search": lambda text: searcher.search(Query(text=text, limit=10))}, queries)["search"]
    return {
        "tools": len(catalog),
        "terms": len(index.lexical.vocabulary),
        "build_seconds": round(building, 2),
        "words_megabytes": round(words, 1),
        "vectors_megabytes": round(len(catalog) * embedder.dimensions / 1e6, 1),
        "search": {"p50": search.p50, "p95": search.p95, "best": search.best},
        "update_milliseconds": _updated(searcher).p50,
        "process_megabytes": round(resident_megabytes(), 0),
    }


def _updated(searcher: Searcher) -> Times:
    """Change one tool at a time, catalog and index together."""
    times = []
    for number, tool_id in enumerate(spread(searcher.index.ids, 10)):
        catalog, tool = searcher.catalog, searcher.catalog.tools[tool_id]
        changed = replace(tool, description=f"{tool.description} Changed.", content_hash=f"changed {number}")
        tools = [changed if each.id == tool_id else each for each in catalog.of_server(tool.server)]
        server = catalog.servers[tool.server]
        times.append(milliseconds(lambda c=catalog, s=server, t=tools: searcher.update(c.with_server(s, t))))  # type: ignore[misc]
    return Times.of([times])


def _tools(size: int) -> Iterator[Tool]:
    """Return the tools of all catalogs, then the same again with noise, until there are enough."""
    tools = _union()
    draw = random.Random(5)
    draw.shuffle(tools)
    for number in range(size):
        turn, at = divmod(number, len(tools))
        yield tools[at] if turn == 0 else _noisy(tools[at], turn, draw)


def _union() -> list[Tool]:
    files = sorted(data_root().glob("catalogs/*/tools.jsonl.gz"))
    files.append(bench_file("eval", "mcp_union", "tools.jsonl.gz"))
    return list({tool.id: tool for file in files for tool in read_catalog(file).catalog.tools.values()}.values())


def _noisy(tool: Tool, turn: int, draw: random.Random) -> Tool:
    name = f"{tool.name}_{_word(draw)}" if draw.random() < 0.5 else tool.name
    words = (_word(draw) if draw.random() < NOISE / 3 else w for w in tool.description.split() if draw.random() > NOISE)
    raw = {**tool.mcp(), "name": name, "description": " ".join(words)}
    return tool_from_mcp(raw, f"{tool.server}-{turn}", tool_id=f"{tool.id}#{turn}")


def _word(draw: random.Random) -> str:
    """Make up a word that can be spoken: a few syllables, a few thousand different ones in all."""
    return "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 3)))


def _table(found: Sequence[Mapping[str, Any]]) -> Table:
    lines = [
        (
            f"{f['tools']:,}",
            f"{f['terms']:,}",
            f"{f['search']['p50']:.2f} / {f['search']['p95']:.2f} / {f['search']['best']:.2f}",
            f"{f['build_seconds']:.1f} s",
            f"{f['update_milliseconds']:.1f} ms",
            f"{f['words_megabytes']:.0f} MB",
            f"{f['vectors_megabytes']:.0f} MB",
            f"{f['process_megabytes']:.0f} MB",
        )
        for f in found
    ]
    columns = ("tools", "terms", "search, ms", "build", "one changed tool", "words", "vectors", "process with catalog")
    note = "Search: median / 95th percentile / the fastest of a query's answers, words and vectors, one thread."
    return Table("Cost by size", columns, tuple(lines), (note,))


if __name__ == "__main__":
    main()
