"""Calls through one, two and three workers that share a port, and what PostgreSQL adds to a call."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep

import psycopg
from benchmarks.stress.client import Era, RawClient
from benchmarks.stress.processes import UPSTREAM, Gateway, children, gateway, http_upstream, usage
from tests.storage.postgres import new_database

from shortlist.evals.tables import Table

CALL = {"name": "bench__echo", "arguments": {"text": "a short answer"}}
CPU_LIMIT, ADDED_LIMIT, SPEED_LIMIT = 1.15, 0.3, 1.8
ENOUGH_CORES = 6
ROUND_SECONDS = 5.0


@dataclass(slots=True)
class Crew:
    """A gateway of so many workers, and what was measured of it."""

    workers: int
    running: Gateway
    calls: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    times: list[float] = field(default_factory=list)

    def cpu(self) -> float:
        """Return the CPU time of all of its processes; servers are processes of others."""
        return sum(usage(pid).cpu_seconds for pid in (self.running.pid, *children(self.running.pid)) if _is_ours(pid))

    @property
    def cpu_milliseconds(self) -> float:
        return 1000 * self.cpu_seconds / self.calls


def _is_ours(pid: int) -> bool:
    return str(UPSTREAM).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


@contextmanager
def crew(workers: int, url: str) -> Iterator[Crew]:
    """Run a gateway on a database of its own until all of its workers are ready."""
    address = new_database()
    servers = {"bench": {"type": "http", "url": url}}
    options = ("--no-dashboard", "--workers", str(workers))
    with gateway(servers, {"storage": address}, options) as running, psycopg.connect(address) as connection:
        counted = "SELECT count(*) FROM shortlist.replicas"
        while connection.execute(counted).fetchone() != (workers,):
            connection.rollback()
            sleep(0.1)
        yield Crew(workers, running)


async def call_for(measured: Crew, era: Era, clients: int, seconds: float) -> None:
    """Call with so many clients as fast as answers come."""
    opened = [RawClient(measured.running.port, era) for _ in range(clients)]
    for client in opened:
        await client.open()
        await client.call("call_tool", CALL)
    before, began = measured.cpu(), perf_counter()

    async def keep_calling(client: RawClient) -> None:
        while perf_counter() - began < seconds:
            started = perf_counter()
            answer = await client.call("call_tool", CALL)
            measured.times.append(perf_counter() - started)
            if answer.get("result", {}).get("isError"):
                raise RuntimeError(f"a call failed: {answer}")
            measured.calls += 1

    await asyncio.gather(*map(keep_calling, opened))
    measured.seconds += perf_counter() - began
    measured.cpu_seconds += measured.cpu() - before
    for client in opened:
        await client.end()


async def alternate(ports: Sequence[int], seconds: float) -> list[list[float]]:
    """Call one gateway after the other, one call at a time; return the times of each."""
    clients = [RawClient(port, "modern") for port in ports]
    times: list[list[float]] = [[] for _ in ports]
    for client in clients:
        await client.open()
        for _ in range(20):
            await client.call("call_tool", CALL)
    began = perf_counter()
    while perf_counter() - began < seconds:
        for client, taken in zip(clients, times, strict=True):
            started = perf_counter()
            await client.call("call_tool", CALL)
            taken.append(perf_counter() - started)
    return times


async def straight(port: int, calls: int) -> list[float]:
    """Call the server itself."""
    client, times = RawClient(port, "legacy"), []
    await client.open()
    for _ in range(calls):
        started = perf_counter()
        await client.call("echo", CALL["arguments"])  # type: ignore[arg-type]
        times.append(perf_counter() - started)
    client.close()
    return times


def measure(counts: Sequence[int], seconds: float, clients: int) -> tuple[list[Table], bool]:
    """Measure everything in one run; return the tables, and whether the limits hold."""
    with ExitStack() as stack:
        _, url = stack.enter_context(http_upstream())
        crews = [stack.enter_context(crew(workers, url)) for workers in counts]
        for _ in range(max(1, round(seconds / ROUND_SECONDS))):
            for each in crews:
                asyncio.run(call_for(each, "modern", clients, min(seconds, ROUND_SECONDS)))
        direct = asyncio.run(straight(int(url.rpartition(":")[2].partition("/")[0]), 500))
    one = next((each for each in crews if each.workers == 1), crews[0])
    holds = True
    rows = []
    for each in crews:
        cpu, speed = each.cpu_milliseconds / one.cpu_milliseconds, each.calls / each.seconds
        limits = [f"CPU ≤ {CPU_LIMIT}"] if each.workers == 2 else []
        fits = each.workers != 2 or cpu <= CPU_LIMIT
        if each.workers == 2 and (os.cpu_count() or 1) >= ENOUGH_CORES:
            limits.append(f"calls/s ≥ {SPEED_LIMIT}")
            fits = fits and speed >= SPEED_LIMIT * one.calls / one.seconds
        holds = holds and fits
        shown = ("yes" if fits else "NO") if limits else ""
        figures = (f"{speed:,.0f}", f"{each.cpu_milliseconds:.2f}", f"{cpu:.2f}", *_percentiles(each.times))
        rows.append((str(each.workers), *figures, ", ".join(limits), shown))
    rows.append(("none: direct", "", "", "", *_percentiles(direct), "", ""))
    columns = ("workers", "calls/s", "gateway CPU ms a call", "CPU ÷ one", "p50 ms", "p95 ms", "limit", "holds")
    title = f"Workers: {clients} clients, {os.cpu_count()} cores shared with the generator, the server and PostgreSQL"
    added, fits = added_by_postgres(seconds)
    return [Table(title, columns, tuple(rows)), added], holds and fits


def added_by_postgres(seconds: float) -> tuple[Table, bool]:
    """Compare single calls through a gateway with each of the stores."""
    with ExitStack() as stack:
        _, url = stack.enter_context(http_upstream())
        files = stack.enter_context(gateway({"bench": {"type": "http", "url": url}}))
        shared = stack.enter_context(crew(1, url)).running
        times = asyncio.run(alternate([files.port, shared.port], seconds))
    medians = [1000 * sorted(each)[len(each) // 2] for each in times]
    added = medians[1] - medians[0]
    row = (f"{len(times[0]):,}", *(f"{each:.2f}" for each in medians), f"{added:.2f}", f"≤ {ADDED_LIMIT}")
    fits = added <= ADDED_LIMIT
    columns = ("calls each", "SQLite p50 ms", "PostgreSQL p50 ms", "added ms", "limit", "holds")
    return Table("One call at a time, alternating", columns, ((*row, "yes" if fits else "NO"),)), fits


def _percentiles(times: list[float]) -> tuple[str, str]:
    ordered = sorted(times)
    return f"{1000 * ordered[len(ordered) // 2]:.2f}", f"{1000 * ordered[int(len(ordered) * 0.95)]:.2f}"
