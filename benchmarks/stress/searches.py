"""Searches a second through a gateway by catalog size, their CPU beside the library's, and calls meanwhile."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time, sleep

from benchmarks.gateway_setup import PROGRAMS, definition, is_listable
from benchmarks.measuring import bench_file, rows, spread
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import Gateway, gateway, stdio_server, usage

from shortlist.catalog.readers import read_catalog
from shortlist.library.filter import ToolFilter
from shortlist.models import Tool

SET = ("eval", "mcp_union")
OPTIONS = {"limits": {"tools_per_server": 50_000}}
CALL = {"name": "bench__echo", "arguments": {"text": "a short answer"}}
SETTLE_SECONDS = 1_800.0
"""How long the vectors of a large catalog may take; a search is fast before and after that, not meanwhile."""
COLUMNS = (
    "tools",
    "searches/s",
    "gateway CPU ms",
    "library CPU ms",
    "added CPU ms",
    "search p95 ms",
    "call p95 ms meanwhile",
)


def measure(sizes: Sequence[int], seconds: float) -> list[tuple[str, ...]]:
    """Return a row for each size; every query is a different one, so that no cache answers."""
    catalog = read_catalog(rows(bench_file(*SET, "tools.jsonl.gz"))).catalog
    every = [tool for tool in catalog.tools.values() if is_listable(tool)]
    queries = [str(row["query"]) for row in rows(bench_file(*SET, "queries.jsonl.gz"))]
    found = []
    for size in sizes:
        tools = spread(every, min(size, len(every)))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tools.json"
            path.write_text(
                json.dumps([{**definition(tool), "name": f"t{n}_{tool.name}"[:60]} for n, tool in enumerate(tools)])
            )
            many = {"command": sys.executable, "args": [str(PROGRAMS), "server", str(path)]}
            with gateway({"many": many, "bench": stdio_server()}, OPTIONS) as running:
                settle(running)
                row = asyncio.run(_searched(running, queries, seconds))
        found.append((f"{len(tools):,}", *_with_library(row, tools, queries)))
        print(found[-1], flush=True)
    return found


def settle(running: Gateway) -> None:
    """Wait until the gateway has done what it does after its start."""
    last, deadline = -1.0, perf_counter() + SETTLE_SECONDS
    while perf_counter() < deadline:
        now = usage(running.pid).cpu_seconds
        if now - last < 0.1:
            return
        last = now
        sleep(2)


async def _searched(running: Gateway, queries: Sequence[str], seconds: float) -> tuple[float, float, float, float, int]:
    """Return searches a second, CPU milliseconds a search, both p95 figures, and how many searches there were."""
    clients = [RawClient(running.port, "modern") for _ in range(4)]
    caller = RawClient(running.port, "modern")
    for client in (*clients, caller):
        await client.open()
    waiting, times, calls = iter(queries * 50), [], []
    before, began = usage(running.pid).cpu_seconds, perf_counter()

    async def search(client: RawClient) -> None:
        while perf_counter() - began < seconds:
            started = perf_counter()
            await client.call("search_tools", {"query": f"{next(waiting)} {len(times)}"})
            times.append(perf_counter() - started)

    async def call() -> None:
        while perf_counter() - began < seconds:
            started = perf_counter()
            await caller.call("call_tool", CALL)
            calls.append(perf_counter() - started)
            await asyncio.sleep(0.05)

    await asyncio.gather(*map(search, clients), call())
    took, cpu = perf_counter() - began, usage(running.pid).cpu_seconds - before
    return len(times) / took, 1000 * cpu / len(times), _p95(times), _p95(calls), len(times)


def _with_library(
    row: tuple[float, float, float, float, int], tools: Sequence[Tool], queries: Sequence[str]
) -> tuple[str, ...]:
    """Add what the same searches cost the library in this process."""
    rate, cpu, searches, calls, count = row
    ours = ToolFilter(list(tools))
    for query in queries[:20]:
        ours.search(query)
    asked, began = [f"{query} {n}" for n, query in enumerate(queries[: min(count, 400)])], process_time()
    for query in asked:
        ours.search(query)
    library = 1000 * (process_time() - began) / len(asked)
    return (f"{rate:.0f}", f"{cpu:.2f}", f"{library:.2f}", f"{cpu - library:.2f}", f"{searches:.1f}", f"{calls:.1f}")


def _p95(times: Sequence[float]) -> float:
    return 1000 * sorted(times)[int(len(times) * 0.95)] if times else 0.0
