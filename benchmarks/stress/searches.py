"""Searches a second through a gateway by catalog size, their CPU beside the library's, and calls meanwhile.

The queries are the labelled requests of a public set, in random order and each with a number of its own. What an agent
asks `search_tools` for is a line or two, and so are 95 % of them; the others are whole task descriptions of 400 to
2,200 characters, whose model reads sixteen times as many tokens. They make half of the work, so the requests of a line
or two are measured by themselves, and all together in a second row.

The library searches the same tools for every one of the same queries; in a sample, more or fewer long ones would move
its mean by a millisecond. Gateway and library take turns, each alone, since what a search costs on a shared machine
changes from minute to minute. Both search for one client at a time: two at once share what a core has, above all where
the two cores of a machine are threads of one, and each takes longer than it does alone. The library leaves the vectors
of the tools in the user's cache, which the gateway shares: they are computed once, not in every run. So are the pins
of the tools, which are kept beside the compiled data: the first scan of so many takes minutes, and no search depends
on it.
"""

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from benchmarks.gateway_setup import PROGRAMS, definition, is_listable
from benchmarks.measuring import bench_file, rows, spread
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import Gateway, gateway, stdio_server, usage

from shortlist.catalog.readers import read_catalog, tool_from_mcp
from shortlist.library.filter import ToolFilter
from shortlist.models import Tool
from shortlist.paths import cache_folder

SET = ("eval", "mcp_union")
OPTIONS = {"limits": {"tools_per_server": 50_000}}
CALL = {"name": "bench__echo", "arguments": {"text": "a short answer"}}
MANY = "many"
PINS = Path(__file__).parent.parent / ".cache" / "pins"
SETTLE_SECONDS = 1_800.0
"""How long the vectors of a large catalog may take; a search is fast before and after that, not meanwhile."""
SEED = 1
CLIENTS = 4
TURNS = 4
"""How often gateway and library take turns."""
LINE_CHARS = 400
MIXES: Mapping[str, int | None] = {f"up to {LINE_CHARS} characters": LINE_CHARS, "all": None}
"""The longest request of each mix."""
COLUMNS = (
    "tools",
    "requests",
    "searches/s",
    "gateway CPU ms",
    "library CPU ms",
    "added CPU ms",
    "search p95 ms",
    "call p95 ms meanwhile",
)


@dataclass(slots=True)
class Queries:
    """Queries that all differ, so that no cache answers them."""

    texts: Sequence[str]
    numbers: Iterator[int]
    asked: list[str] = field(default_factory=list)

    def __next__(self) -> str:
        number = next(self.numbers)
        text = f"{self.texts[number % len(self.texts)]} {number}"
        self.asked.append(text)
        return text


def measure(sizes: Sequence[int], seconds: float) -> list[tuple[str, ...]]:
    """Return a row for each size."""
    catalog = read_catalog(rows(bench_file(*SET, "tools.jsonl.gz"))).catalog
    every = [tool for tool in catalog.tools.values() if is_listable(tool)]
    texts = [str(row["query"]) for row in rows(bench_file(*SET, "queries.jsonl.gz"))]
    random.Random(SEED).shuffle(texts)  # long and short ones come from different sources
    found = []
    for size in sizes:
        tools = listed(spread(every, min(size, len(every))))
        library = ToolFilter([tool_from_mcp(tool, MANY) for tool in tools])
        library.search("anything")  # leaves the vectors of the tools in the cache
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tools.json"
            path.write_text(json.dumps(tools))
            many = {"command": sys.executable, "args": [str(PROGRAMS), "server", str(path)]}
            pins = PINS / f"{len(tools)}.sqlite"
            with gateway(
                {MANY: many, "bench": stdio_server()}, OPTIONS, cache=cache_folder().parent, pins=pins
            ) as running:
                settle(running)
                asyncio.run(until_vectors(running))
                numbers = count()
                mixes = {
                    name: Queries([text for text in texts if most is None or len(text) <= most], numbers)
                    for name, most in MIXES.items()
                }
                for name, mix in mixes.items():
                    cost = _cost(running, library, mix, seconds)
                    found.append((f"{len(tools):,}", name, *_row(cost, asyncio.run(_rates(running, mix, seconds)))))
                    print(found[-1], flush=True)
    return found


def listed(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the definitions that one server lists, each under a name of its own."""
    return [{**definition(tool), "name": f"t{number}_{tool.name}"[:60]} for number, tool in enumerate(tools)]


def settle(running: Gateway) -> None:
    """Wait until the gateway has done what it does after its start."""
    last, deadline = -1.0, perf_counter() + SETTLE_SECONDS
    while perf_counter() < deadline:
        now = usage(running.pid).cpu_seconds
        if now - last < 0.1:
            return
        last = now
        sleep(2)


async def until_vectors(running: Gateway) -> None:
    """Wait until the gateway searches by the chosen model, and for every tool."""
    client = RawClient(running.port, "modern")
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            await client.call("call_tool", CALL)  # searches with no call between them are answered as a circle
            answer = str(await client.call("search_tools", {"query": f"anything {perf_counter()}"}))
            if "not ready yet" not in answer and "have no vectors yet" not in answer:
                break
            await asyncio.sleep(1)
    client.close()


def _cost(running: Gateway, library: ToolFilter, queries: Queries, seconds: float) -> tuple[float, float]:
    """Return the CPU milliseconds that a search costs the gateway and that the same search costs the library."""
    gateway_seconds = library_seconds = 0.0
    asked = 0
    for _ in range(TURNS):
        queries.asked.clear()
        before = usage(running.pid).cpu_seconds
        asyncio.run(_searched(running, queries, seconds / TURNS, clients=1))
        gateway_seconds += usage(running.pid).cpu_seconds - before
        before = process_time()
        for query in queries.asked:
            library.search(query, collapse=True)  # as the gateway searches
        library_seconds += process_time() - before
        asked += len(queries.asked)
    return 1000 * gateway_seconds / asked, 1000 * library_seconds / asked


async def _rates(running: Gateway, queries: Queries, seconds: float) -> tuple[float, float, float]:
    """Return searches a second and the p95 of searches and calls, while clients search and another one calls."""
    caller = RawClient(running.port, "modern")
    await caller.open()
    times, calls = await asyncio.gather(
        _searched(running, queries, seconds, CLIENTS),
        _each([caller], lambda: ("call_tool", CALL), seconds, pause=0.05),
    )
    return len(times) / seconds, _p95(times), _p95(calls)


async def _searched(running: Gateway, queries: Queries, seconds: float, clients: int) -> list[float]:
    asking = [RawClient(running.port, "modern") for _ in range(clients)]
    for client in asking:
        await client.open()
    times = await _each(asking, lambda: ("search_tools", {"query": next(queries)}), seconds)
    for client in asking:
        client.close()
    return times


async def _each(
    clients: Sequence[RawClient], ask: Callable[[], tuple[str, dict[str, Any]]], seconds: float, pause: float = 0.0
) -> list[float]:
    """Let each client ask as soon as its last request was answered; return how long the answers took."""
    times: list[float] = []
    began = perf_counter()

    async def keep_asking(client: RawClient) -> None:
        while (started := perf_counter()) - began < seconds:
            await client.call(*ask())
            times.append(perf_counter() - started)
            await asyncio.sleep(pause)

    await asyncio.gather(*map(keep_asking, clients))
    return times


def _row(cost: tuple[float, float], rates: tuple[float, float, float]) -> tuple[str, ...]:
    (gateway_ms, library_ms), (rate, searches, calls) = cost, rates
    added = gateway_ms - library_ms
    return (f"{rate:.0f}", f"{gateway_ms:.2f}", f"{library_ms:.2f}", f"{added:.2f}", f"{searches:.1f}", f"{calls:.1f}")


def _p95(times: Sequence[float]) -> float:
    return 1000 * sorted(times)[int(len(times) * 0.95)] if times else 0.0
