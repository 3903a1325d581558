"""What the gateway costs: calls, searches and start against FastMCP, and tokens against other shapes of menu.

    python -m benchmarks.gateway --peers PYTHON            # PYTHON: of an environment with FastMCP in it
    python -m benchmarks.gateway --only tokens             # or calls, search, start, restart

Everything that is compared is timed in turns in one run, since only ratios hold on a busy machine. FastMCP's pin is in
benchmarks/baselines/requirements.txt; exact tokens need `python benchmarks/tokens.py ranks` once.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from benchmarks.gateway_setup import Bench, Found, is_listable
from benchmarks.gateway_times import SIZES, calls, search, start
from benchmarks.gateway_tokens import tokens
from benchmarks.measuring import publish, spread
from benchmarks.restart import TARGET_SECONDS, TOOLS, above, measure, table_of

from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.evals.tables import Table

DATA = "mcp_union"
QUERIES = 40
PARTS = ("calls", "search", "start", "tokens", "restart")


async def run(bench: Bench, parts: Sequence[str]) -> Found:
    ways = {"calls": calls, "search": search, "start": start, "tokens": tokens, "restart": restart}
    tables: list[Table] = []
    data: dict[str, Any] = {}
    for part in parts:
        print(f"measuring {part} …", file=sys.stderr)
        more, facts = await ways[part](bench)
        tables += more
        data |= facts
    return tables, data


async def restart(_: Bench) -> Found:
    """Start a gateway that knows 25,759 tools again, until its first search is answered."""
    runs = await anyio.to_thread.run_sync(measure, TOOLS, None, 5)
    best = min(runs, key=above)
    seconds = {"import_mcp_s": best["reached"]["import mcp"]["seconds"], "above_import_mcp_s": above(best)}
    return [table_of(runs)], {"restart": seconds}


def verdicts(data: Mapping[str, Any]) -> Table:
    """Hold the figures against what was asked of them."""
    rows: list[tuple[str, str, str, bool]] = []
    if "calls" in data:
        added = {row["way"]: row["added_p10_ms"] for row in data["calls"]["rows"]}
        ours = [added[f"shortlist, {size:,} tools"] for size in SIZES]
        rows.append(
            (
                "call, added p10, many tools over few",
                "flat: ≤ 1.25",
                f"{ours[1] / ours[0]:.2f}",
                ours[1] <= ours[0] * 1.25,
            )
        )
        theirs = added.get(f"FastMCP proxy, {SIZES[0]:,} tools")
        if theirs:
            rows.append(("call, added p10 over FastMCP's", "≤ 0.50", f"{ours[0] / theirs:.2f}", ours[0] <= theirs / 2))
    if "search" in data and len(data["search"]["rows"]) > 1:
        mine, its = (row["p50_ms"] for row in data["search"]["rows"])
        rows.append(("search p50 over FastMCP's", "≤ 0.33", f"{mine / its:.2f}", mine <= its / 3))
    if "start" in data:
        first, above = min(data["start"]["first_search_s"]), data["start"]["cpu_above_import_mcp_s"]
        rows.append(("start to first search, fastest of five", "< 2 s", f"{first:.2f} s", first < 2))
        rows.append(("start, CPU above `import mcp`", "≤ 0.60 s", f"{above:.2f} s", above <= 0.6))
    if "restart" in data:
        seconds = data["restart"]["above_import_mcp_s"]
        asked = f"≤ {TARGET_SECONDS} s"
        rows.append(
            (
                f"restart to first search, {TOOLS:,} tools, above `import mcp`",
                asked,
                f"{seconds:.2f} s",
                seconds <= TARGET_SECONDS,
            )
        )
    for row in data.get("tokens", ()):
        if row["tools"] == 500:
            share = row["shortlist"] / row["all upfront"]
            rows.append(("tokens of a task over 500 tools", "≤ 3 % of all upfront", f"{share:.1%}", share <= 0.03))
            rows.append(
                ("default search answer, median", "≤ 500", f"{row['search_median']:.0f}", row["search_median"] <= 500)
            )
    return Table(
        "Against the targets",
        ("figure", "target", "measured", "holds"),
        tuple((figure, target, seen, "yes" if holds else "no") for figure, target, seen, holds in rows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="the Python of an environment with FastMCP")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    dataset = load_dataset(DATA)
    cases = spread(dataset.cases, QUERIES)
    collected = read_catalogs(dataset.catalogs).catalog.tools
    known = {tool_id: tool for tool_id, tool in collected.items() if is_listable(tool)}
    wanted = {gold: known[gold] for case in cases for gold in case.gold if gold in known}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
        queries = [case.query for case in cases]
        bench = Bench(
            folder,
            tuple(wanted.values()),
            tuple(known.values()),
            queries,
            options.peers,
            options.rounds,
            os.environ | homes,
        )
        tables, data = anyio.run(run, bench, options.only)
    publish("gateway", [*tables, verdicts(data)], data)


if __name__ == "__main__":
    main()
