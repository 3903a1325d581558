"""How long calls, searches and a start take, for `benchmarks.gateway`."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

import anyio
import numpy as np
from benchmarks.gateway_setup import (
    SHORTLIST,
    UP_TO_THEN_SECONDS,
    Ask,
    Bench,
    Found,
    call_of,
    called,
    in_turns,
    settled,
    until_it_answers,
)
from mcp import Client

from shortlist.evals.tables import Table

SIZES = (60, 6_000)
SEARCH_SIZE = 600
SERVERS = 10


async def calls(bench: Bench) -> Found:
    """Time the same echo direct, through the gateway with few and many tools, and through FastMCP's mounted proxy."""
    commands = {"direct": bench.server(SIZES[0])}
    commands |= {f"shortlist, {size:,} tools": bench.gateway(size) for size in SIZES}
    if bench.peers:
        # With few tools only: it lists them all again for a call, which takes minutes at the other size.
        commands[f"FastMCP proxy, {SIZES[0]:,} tools"] = bench.fastmcp(SIZES[0])
    async with AsyncExitStack() as stack:
        asks: dict[str, Ask] = {}
        for name, command in commands.items():
            client = await stack.enter_async_context(bench.client(command))
            asks[name] = call_of(name, client)
            await until_it_answers(asks[name])
            if name.startswith("shortlist"):
                await until_it_answers(lambda client=client: settled(client))  # type: ignore[misc]
        times = await in_turns(asks, bench.rounds)
    base = {q: float(np.percentile(times["direct"], q)) for q in (10, 50)}
    rows = [
        {"way": name, **{f"added_p{q}_ms": float(np.percentile(found, q)) - base[q] for q in base}}
        for name, found in times.items()
    ]
    table = Table(
        "One call over stdio: milliseconds added to the same call direct",
        ("way", "p10", "p50"),
        tuple((str(r["way"]), f"{r['added_p10_ms']:.2f}", f"{r['added_p50_ms']:.2f}") for r in rows),
        (f"Direct: p10 {base[10]:.2f}, p50 {base[50]:.2f} ms; {bench.rounds} rounds in turns.",),
    )
    return [table], {"calls": {"direct_p10_ms": base[10], "direct_p50_ms": base[50], "rows": rows}}


# Search


async def search(bench: Bench) -> Found:
    """search_tools from the client's side, over one server with so many tools."""
    commands = {"shortlist": bench.gateway(SEARCH_SIZE)}
    if bench.peers:
        commands["FastMCP search"] = bench.fastmcp(SEARCH_SIZE, "fastmcp-search")
    turns = {name: cycle(bench.queries) for name in commands}
    async with AsyncExitStack() as stack:
        asks: dict[str, Ask] = {}
        for name, command in commands.items():
            client = await stack.enter_async_context(bench.client(command))
            asks[name] = searching(client, turns[name], name == "shortlist")
            await until_it_answers(asks[name])
        times = await in_turns(asks, max(bench.rounds // 2, 20))
    rows = [
        {"way": name, **{f"p{q}_ms": float(np.percentile(t, q)) for q in (10, 50, 95)}} for name, t in times.items()
    ]
    table = Table(
        f"search_tools end to end over stdio, {SEARCH_SIZE} tools: milliseconds",
        ("way", "p10", "p50", "p95"),
        tuple((str(r["way"]), *(f"{r[f'p{q}_ms']:.2f}" for q in (10, 50, 95))) for r in rows),
    )
    return [table], {"search": {"tools": SEARCH_SIZE, "rows": rows}}


def searching(client: Client, queries: Any, ours: bool) -> Ask:
    async def ask() -> None:
        found = await called(client, "search_tools", {"query": next(queries)})
        if ours and "Still connecting" in found:
            raise RuntimeError(found)

    return ask


# Start


async def start(bench: Bench) -> Found:
    """From the start of the process to its first answered search, and the CPU that a start takes."""
    servers = {f"server{n}": bench.server(20 + n) for n in range(SERVERS - 1)}
    servers["hangs"] = [sys.executable, "-c", "import time; time.sleep(3600)"]
    command = [str(SHORTLIST), "serve", "--own", "--config", bench.config(servers)]
    await first_run(bench, command)
    seconds, yardstick = [], []
    for _ in range(5):
        yardstick.append(wall([sys.executable, "-c", "import mcp"]))
        seconds.append(await first_search(bench, command))
    empty = [str(SHORTLIST), "serve", "--own", "--config", bench.config({})]
    cpu = {"import mcp": [sys.executable, "-c", "import mcp"], "shortlist serve": empty}
    used = {name: min(times) for name, times in cpu_of(bench, cpu).items()}
    above = used["shortlist serve"] - used["import mcp"]
    table = Table(
        "Start",
        ("what", "seconds"),
        (
            (
                f"start to first answered search: {SERVERS} servers, one hanging, saved catalog (median)",
                f"{statistics.median(seconds):.2f}",
            ),
            ("the same, fastest of five", f"{min(seconds):.2f}"),
            ("a process that only imports mcp, in turns with it: median", f"{statistics.median(yardstick):.2f}"),
            ("the same, fastest of five", f"{min(yardstick):.2f}"),
            ("CPU of `import mcp`", f"{used['import mcp']:.2f}"),
            ("CPU of `shortlist serve` until it has answered `initialize` and ended", f"{used['shortlist serve']:.2f}"),
            ("CPU above `import mcp`", f"{above:.2f}"),
        ),
        ("CPU seconds are the least of seven starts in turns. Whatever else runs on the machine only ever adds.",),
    )
    return [table], {
        "start": {"first_search_s": seconds, "import_mcp_s": yardstick, "cpu_s": used, "cpu_above_import_mcp_s": above}
    }


def wall(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


async def first_run(bench: Bench, command: Sequence[str]) -> None:
    """Let every server connect once, until the catalogs of those that answer are saved."""
    async with bench.client(command):
        with anyio.fail_after(UP_TO_THEN_SECONDS):
            while len(list(bench.folder.glob("data/**/catalog/*.json"))) < SERVERS - 1:
                await anyio.sleep(0.2)


async def first_search(bench: Bench, command: Sequence[str]) -> float:
    started = time.perf_counter()
    async with bench.client(command) as client:
        answer = await called(client, "search_tools", {"query": "say a text back"})
        seconds = time.perf_counter() - started
    if "echo" not in answer:
        raise RuntimeError(f"The first search found nothing: {answer}")
    return seconds


def cpu_of(bench: Bench, commands: Mapping[str, Sequence[str]], turns: int = 7) -> dict[str, list[float]]:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                command, input=line, text=True, check=True, capture_output=True, env=os.environ | bench.environment
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return times
