"""Memory, descriptors, threads, disk and pauses of a gateway over time.

    python -m benchmarks.soak [--minutes 30] [--rate 60] [--sessions 1000]

First, everything that the gateway remembers within a bound is filled: sessions and their searches, queries and large
results. Then clients of both eras call at a steady rate, a session ends after ten calls, and large results are kept.
Every ten seconds the use of the process is read from /proc. Slopes are fitted to the means of six blocks, with their
95 % confidence interval: a slope whose interval contains zero is noise. Samples that follow one another are alike, so
an interval from single samples would be far too narrow. Two slopes are printed: of the whole run, which contains what
the allocator still adds while sizes of all kinds are first freed and used again, and of the second half. A figure
grows if both intervals are above zero; bytes on disk do, until the bounds of what is recorded are reached. The gateway
itself notes how long its event loop and its garbage collections paused (see benchmarks.stress.watched). At the end idle
legacy sessions are opened, weighed and ended again.
"""

import argparse
import asyncio
from dataclasses import dataclass
from time import perf_counter

from benchmarks.measuring import machine, publish
from benchmarks.stress.client import RawClient
from benchmarks.stress.growth import growth
from benchmarks.stress.processes import Gateway, gateway, stdio_server, usage

from shortlist.config.settings import DEFAULT_LIMITS
from shortlist.evals.tables import Table, to_markdown
from shortlist.gateway.recording import REMEMBERED_SESSIONS
from shortlist.telemetry.ledger import REMEMBERED_WORKSPACES

SAMPLE_SECONDS = 10.0
CALLS_PER_SESSION = 10
QUERIES = 100
LARGE = "a long answer " * 4_000
FILLED_SESSIONS = max(REMEMBERED_WORKSPACES, REMEMBERED_SESSIONS) + 100
FILLED_RESULTS = DEFAULT_LIMITS.results + 50
LEAST_MINUTES = 2.0
"""A shorter run only shows that the command works; no slope is fitted to so few samples, and nothing is filled."""
CLIENTS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process takes at one moment."""

    minutes: float
    memory_megabytes: float
    descriptors: int
    threads: int
    disk_megabytes: float


def sample(running: Gateway, began: float) -> Sample:
    """Read the use of a gateway."""
    now = usage(running.pid)
    disk = sum(path.stat().st_size for path in running.folder.rglob("*") if path.is_file())
    minutes = (perf_counter() - began) / 60
    return Sample(minutes, now.memory_bytes / 1e6, now.descriptors, now.threads, disk / 1e6)


async def fill(running: Gateway) -> None:
    """Fill what the gateway remembers to its bounds, with legacy sessions that search, call and end."""

    async def some(first: int) -> None:
        for number in range(first, FILLED_SESSIONS, CLIENTS):
            client = RawClient(running.port, "legacy")
            await client.open()
            await search(client, number)
            await echo(client, LARGE if number < FILLED_RESULTS else f"answer {number}")
            await client.end()

    await asyncio.gather(*(some(number) for number in range(CLIENTS)))


async def search(client: RawClient, number: int) -> None:
    # A thousand queries are remembered; so many different ones would take half of the run.
    await client.call("search_tools", {"query": f"say text {number % QUERIES} back"})


async def echo(client: RawClient, text: str) -> None:
    await client.call("call_tool", {"name": "bench__echo", "arguments": {"text": text, "numbers": list(range(20))}})


async def call_steadily(running: Gateway, rate: float, seconds: float, number: int) -> int:
    """Call at a rate, in sessions that end and begin again; every hundredth result is large and kept."""
    done, began = 0, perf_counter()
    era = "modern" if number % 2 else "legacy"
    client = RawClient(running.port, era)  # type: ignore[arg-type]
    await client.open()
    while perf_counter() - began < seconds:
        await asyncio.sleep(max(0.0, began + done / rate - perf_counter()))
        await echo(client, LARGE if done % 100 == 0 else f"answer {done}")
        if done % 50 == 0:
            await search(client, done // 50)
        done += 1
        if done % CALLS_PER_SESSION == 0:
            await client.end()
            client = RawClient(running.port, era)  # type: ignore[arg-type]
            await client.open()
    await client.end()
    return done


async def soak(running: Gateway, minutes: float, rate: float) -> tuple[list[Sample], int]:
    """Fill what is bounded, run the load, and sample the process."""
    if minutes >= LEAST_MINUTES:
        await fill(running)
    began, seconds = perf_counter(), minutes * 60
    clients = [asyncio.create_task(call_steadily(running, rate / CLIENTS, seconds, n)) for n in range(CLIENTS)]
    samples = []
    while not all(client.done() for client in clients):
        samples.append(await asyncio.to_thread(sample, running, began))
        await asyncio.wait(clients, timeout=min(SAMPLE_SECONDS, seconds / 6))
    return samples, sum([await client for client in clients])


async def idle_sessions(running: Gateway, count: int) -> tuple[float, float]:
    """Open and end idle legacy sessions twice; return what each takes in kB, and what they leave behind in MB.

    An allocator keeps what was freed for the next ones, so what they leave is what the second thousand adds.
    """
    before = usage(running.pid).memory_bytes
    grown = []
    for _ in range(2):
        clients = [RawClient(running.port, "legacy") for _ in range(count)]
        for client in clients:
            await client.open()
        grown.append(usage(running.pid).memory_bytes - before)
        for client in clients:
            await client.end()
    return grown[0] / count / 1000, (grown[1] - grown[0]) / 1e6


def main() -> None:
    """Run and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=60.0, help="calls a second of all clients together")
    parser.add_argument("--sessions", type=int, default=1_000, help="idle legacy sessions at the end")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/soak-COMMIT.json")
    arguments = parser.parse_args()
    with gateway({"bench": stdio_server()}, module="benchmarks.stress.watched") as running:
        samples, calls = asyncio.run(soak(running, arguments.minutes, arguments.rate))
        pauses = running.pauses
        each, left = asyncio.run(idle_sessions(running, arguments.sessions))
    rows = []
    for name in ("memory_megabytes", "descriptors", "threads", "disk_megabytes"):
        first, last = getattr(samples[0], name), getattr(samples[-1], name)
        found = growth([each.minutes / 60 for each in samples], [getattr(each, name) for each in samples])
        slopes = (str(found.whole), str(found.second_half)) if found else ("too few samples", "too few samples")
        verdict = "" if found is None else "yes" if found.is_beyond_noise else "no"
        rows.append((name, f"{first:,.1f}", f"{last:,.1f}", *slopes, verdict))
    table = Table(
        f"{calls:,} calls and {calls // CALLS_PER_SESSION:,} sessions in {arguments.minutes:g} minutes",
        ("figure", "first", "last", "slope an hour", "slope an hour, second half", "grows"),
        tuple(rows),
    )
    more = Table(
        "Pauses and sessions",
        ("figure", "value"),
        (
            *((f"longest pause: {name}, ms" if "above" not in name else name, f"{n:g}") for name, n in pauses.items()),
            (f"each of {arguments.sessions:,} idle legacy sessions, kB", f"{each:.1f}"),
            ("more for as many again when they have ended, MB", f"{left:.1f}"),
        ),
    )
    print(to_markdown([table, more]))
    if arguments.save:
        publish("soak", [table, more], {"machine": machine(), "samples": samples, "pauses": pauses})


if __name__ == "__main__":
    main()
