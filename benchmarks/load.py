"""Calls a second, CPU a call and added latency of one gateway process.

    python -m benchmarks.load [--seconds 20] [--concurrency 1 8 64] [--searches 1000 25759] [--save]
    python -m benchmarks.load --kinds --searches 1000 25759     searches alone

Each row is one era, one kind of upstream server and one number of clients that call at the same time, each as soon as
its last call was answered. A generator over raw sockets runs in this process; its CPU, the gateway's and the servers'
are read from /proc. The second table repeats the calls at half of that rate, alternating with calls straight to the
same server, and shows what the gateway adds. With --searches a third table shows searches by catalog size: all queries
differ, so that no cache answers them, and the same searches are timed in the library.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time

from benchmarks.measuring import machine, publish
from benchmarks.stress.client import Era, RawClient
from benchmarks.stress.processes import UPSTREAM, Gateway, children, gateway, http_upstream, stdio_server, usage
from benchmarks.stress.searches import COLUMNS, measure, settle

from shortlist.evals.tables import Table, to_markdown

OPTIONS = {"telemetry": {"enabled": True}, "logs": {"level": "info"}}
CALL = {"name": "bench__echo", "arguments": {"text": "a short answer"}}


@dataclass(frozen=True, slots=True)
class Setup:
    """One gateway in front of one server, and how that server is called without it."""

    kind: str
    running: Gateway
    upstream_pid: int
    direct_port: int | None


@contextmanager
def setups(kind: str) -> Iterator[Setup]:
    """Start a gateway in front of a stdio or an HTTP server."""
    if kind == "http":
        with http_upstream() as (pid, url), gateway({"bench": {"type": "http", "url": url}}, OPTIONS) as running:
            yield Setup(kind, running, pid, int(url.rpartition(":")[2].partition("/")[0]))
        return
    with gateway({"bench": stdio_server()}, OPTIONS) as running:
        (pid,) = [child for child in children(running.pid) if _is_upstream(child)]
        yield Setup(kind, running, pid, None)


def _is_upstream(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return str(UPSTREAM).encode() in file.read()


async def throughput(setup: Setup, era: Era, clients: int, seconds: float) -> list[str | float]:
    """Call as fast as answers come; return the row of the table."""
    opened = [RawClient(setup.running.port, era) for _ in range(clients)]
    for client in opened:
        await client.open()
    for client in opened:
        await client.call("call_tool", CALL)
    times: list[float] = []
    before = usage(setup.running.pid), usage(setup.upstream_pid), process_time()
    began = perf_counter()

    async def keep_calling(client: RawClient) -> None:
        while perf_counter() - began < seconds:
            started = perf_counter()
            answer = await client.call("call_tool", CALL)
            times.append(perf_counter() - started)
            if answer.get("result", {}).get("isError"):
                raise RuntimeError(f"a call failed: {answer}")

    await asyncio.gather(*map(keep_calling, opened))
    took = perf_counter() - began
    after = usage(setup.running.pid), usage(setup.upstream_pid), process_time()
    for client in opened:
        await client.end()
    cpu = [
        1000 * (after[0].cpu_seconds - before[0].cpu_seconds) / len(times),
        1000 * (after[1].cpu_seconds - before[1].cpu_seconds) / len(times),
        1000 * (after[2] - before[2]) / len(times),
    ]
    return [era, setup.kind, clients, round(len(times) / took), *(round(each, 2) for each in cpu), *_percentiles(times)]


async def added(setup: Setup, era: Era, rate: float, seconds: float) -> list[str | float]:
    """Call at a given rate, every second time without the gateway; return the row of the table."""
    clients = [RawClient(setup.running.port, era) for _ in range(8)]
    for client in clients:
        await client.open()
    direct, stop = await _direct(setup)
    through: list[float] = []
    straight: list[float] = []
    began = perf_counter()
    number = 0
    waiting: set[asyncio.Task[None]] = set()
    free = list(clients)

    async def one(client: RawClient) -> None:
        started = perf_counter()
        await client.call("call_tool", CALL)
        through.append(perf_counter() - started)
        free.append(client)

    while perf_counter() - began < seconds:
        number += 1
        await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
        if free:
            task = asyncio.create_task(one(free.pop()))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        if number % 8 == 0:
            started = perf_counter()
            await direct()
            straight.append(perf_counter() - started)
    await asyncio.gather(*waiting)
    for client in clients:
        await client.end()
    await stop()
    mine, theirs = _percentiles(through), _percentiles(straight)
    return [era, setup.kind, round(rate), *mine, *theirs, *(round(a - b, 2) for a, b in zip(mine, theirs, strict=True))]


async def _direct(setup: Setup) -> tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[None]]]:
    """Return how the server is called without the gateway, and how that ends."""
    if setup.direct_port is not None:
        client = RawClient(setup.direct_port, "legacy")
        await client.open()

        async def close() -> None:
            client.close()

        return lambda: client.call("echo", CALL["arguments"]), close  # type: ignore[arg-type]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(UPSTREAM), "stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    params = {"name": "echo", "arguments": CALL["arguments"]}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n"

    async def call() -> object:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the server was started without pipes")
        process.stdin.write(line)
        return await process.stdout.readline()

    async def kill() -> None:
        process.kill()
        await process.wait()

    return call, kill


def _percentiles(times: list[float]) -> list[float]:
    ordered = sorted(times)
    return [round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2) for share in (0.5, 0.95, 0.99)]


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each row is measured (default: 20)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64], help="clients at the same time")
    parser.add_argument("--kinds", nargs="*", default=["stdio", "http"], help="stdio, http, or none: searches alone")
    parser.add_argument("--eras", nargs="+", default=["legacy", "modern"], choices=["legacy", "modern"])
    parser.add_argument("--searches", type=int, nargs="*", default=[], help="catalog sizes to search in (needs data)")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/load-COMMIT.json")
    arguments = parser.parse_args()
    rows, latencies = [], []
    for kind in arguments.kinds:
        for era in arguments.eras:
            with setups(kind) as setup:
                settle(setup.running)
                best = 0.0
                for clients in arguments.concurrency:
                    rows.append(asyncio.run(throughput(setup, era, clients, arguments.seconds)))
                    best = max(best, float(rows[-1][3]))
                    print(rows[-1], flush=True)
                latencies.append(asyncio.run(added(setup, era, best / 2, arguments.seconds)))
                print(latencies[-1], flush=True)
    tables = [
        Table(
            f"Calls through one gateway process ({os.cpu_count()} cores)",
            (
                "era",
                "server",
                "clients",
                "calls/s",
                "gateway CPU ms",
                "server CPU ms",
                "generator CPU ms",
                "p50 ms",
                "p95 ms",
                "p99 ms",
            ),
            tuple(tuple(map(str, row)) for row in rows),
        ),
        Table(
            "Latency at half load, and what the gateway adds",
            (
                "era",
                "server",
                "calls/s",
                "p50 ms",
                "p95 ms",
                "p99 ms",
                "direct p50",
                "direct p95",
                "direct p99",
                "added p50",
                "added p95",
                "added p99",
            ),
            tuple(tuple(map(str, row)) for row in latencies),
        ),
    ]
    tables = tables if rows else []
    print(to_markdown(tables))
    if arguments.searches:
        found = measure(arguments.searches, arguments.seconds)
        tables.append(Table("Searches through one gateway process", COLUMNS, tuple(found)))
        print(to_markdown(tables[-1:]))
    if arguments.save:
        publish("load", tables, {"machine": machine(), "tables": tables})


if __name__ == "__main__":
    main()
