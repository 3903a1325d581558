"""How long a query takes, for peers and for us in one process: python -m benchmarks.speed_peers TOOLS QUERIES.

TOOLS and QUERIES are .jsonl or .jsonl.gz. Embedding the query is not counted, for nobody: vectors are remembered
during a warm pass. `measure` takes anything with `rank(query, limit)`, so that our pipeline goes through it too.
"""

import argparse
import gc
import gzip
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.baselines import BASELINES, Attempt, Baseline, Embed, NotInstalled, Tools, attempt, memoised
from benchmarks.baselines.wordllama import embedder

LIMIT = 10
REPEATS = 3


def measure(baseline: Baseline, queries: Sequence[str], *, limit: int = LIMIT, repeats: int = REPEATS) -> float:
    """Median over the queries of the fastest of `repeats` answers, in milliseconds, after one that is not timed.

    The fastest, because whatever else runs on the machine only ever adds.
    """
    for query in queries:
        baseline.rank(query, limit)
    gc.collect()
    gc.disable()
    try:
        times = [min(_milliseconds(baseline, query, limit) for _ in range(repeats)) for query in queries]
    finally:
        gc.enable()
    return statistics.median(times)


def table(attempts: Iterable[Attempt], queries: Sequence[str]) -> str:
    lines = ["| baseline | status | build s | median ms |", "|---|---|---|---|"]
    for tried in attempts:
        if tried.baseline is None:
            lines.append(f"| {tried.name} | {tried.status}: {tried.detail} | – | – |")
            continue
        cost = f"{tried.build_seconds:.1f} | {measure(tried.baseline, queries):.2f}"
        lines.append(f"| {tried.name} | {tried.status} | {cost} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--only", nargs="+", choices=BASELINES, default=list(BASELINES))
    parser.add_argument("--sample", type=int, default=50, help="how many queries, spread over the file")
    options = parser.parse_args()
    texts = [row["query"] for row in _rows(options.queries)]
    queries = texts[:: max(len(texts) // options.sample, 1)][: options.sample]
    tools: Tools = _rows(options.tools)
    embed = _embed()
    print(f"{len(tools)} tools, {len(queries)} queries, limit {LIMIT}\n")
    print(table((attempt(name, tools, embed) for name in options.only), queries))


def _milliseconds(baseline: Baseline, query: str, limit: int) -> float:
    start = time.perf_counter()
    baseline.rank(query, limit)
    return (time.perf_counter() - start) * 1000


def _embed() -> Embed | None:
    try:
        return memoised(embedder())
    except NotInstalled:
        return None


def _rows(path: Path) -> list[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
