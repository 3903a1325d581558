"""Memory, descriptors, threads, disk and pauses of a gateway over time.

    python -m benchmarks.soak [--minutes 30] [--rate 60] [--sessions 1000]

Clients of both eras call at a steady rate, sessions come and go, and large results are kept. Every ten seconds the
use of the process is read from /proc; the slope is fitted over the second half of the run, after caches have filled.
The longest answer of /healthz shows the longest pause of the event loop. At the end idle legacy sessions are
opened, weighed and ended again.
"""

import argparse
import asyncio
import sys
import urllib.request
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from benchmarks.measuring import machine, publish
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import Gateway, gateway, stdio_server, usage

from shortlist.evals.tables import Table, to_markdown

SAMPLE_SECONDS = 10.0
CALLS_PER_SESSION = 200


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


async def call_steadily(running: Gateway, rate: float, seconds: float, number: int) -> int:
    """Call at a rate, in sessions that end and begin again; every hundredth result is large and kept."""
    done, began = 0, perf_counter()
    era = "modern" if number % 2 else "legacy"
    client = RawClient(running.port, era)  # type: ignore[arg-type]
    await client.open()
    while perf_counter() - began < seconds:
        await asyncio.sleep(max(0.0, began + done / rate - perf_counter()))
        text = "a long answer " * 4_000 if done % 100 == 0 else f"answer {done}"
        await client.call("call_tool", {"name": "bench__echo", "arguments": {"text": text, "numbers": list(range(20))}})
        if done % 50 == 0:
            await client.call("search_tools", {"query": f"say text number {done} back"})
        done += 1
        if done % CALLS_PER_SESSION == 0:
            await client.end()
            client = RawClient(running.port, era)  # type: ignore[arg-type]
            await client.open()
    await client.end()
    return done


async def watch_pauses(running: Gateway, stop: asyncio.Event) -> list[float]:
    """Ask /healthz every 20 ms and return how long each answer took, in milliseconds."""
    found: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    while not stop.is_set():
        started = perf_counter()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        found.append(1000 * (perf_counter() - started))
        await asyncio.sleep(0.02)
    writer.close()
    return found


async def soak(running: Gateway, minutes: float, rate: float) -> tuple[list[Sample], list[float], int]:
    """Run the load and sample the process."""
    began, stop, seconds = perf_counter(), asyncio.Event(), minutes * 60
    watching = asyncio.create_task(watch_pauses(running, stop))
    clients = [asyncio.create_task(call_steadily(running, rate / 4, seconds, n)) for n in range(4)]
    samples = []
    while not all(client.done() for client in clients):
        samples.append(await asyncio.to_thread(sample, running, began))
        await asyncio.wait(clients, timeout=min(SAMPLE_SECONDS, seconds / 6))
    stop.set()
    return samples, await watching, sum([await client for client in clients])


async def idle_sessions(running: Gateway, count: int) -> tuple[float, float]:
    """Open idle legacy sessions; return what each takes in kB, and what all of them leave in MB."""
    before = usage(running.pid).memory_bytes
    opened = []
    for _ in range(count):
        client = RawClient(running.port, "legacy")
        await client.open()
        client.close()
        opened.append(client)
    during = usage(running.pid).memory_bytes
    for client in opened:
        await client._connect()
        await client.end()
    await asyncio.sleep(2)
    return (during - before) / count / 1000, (usage(running.pid).memory_bytes - before) / 1e6


def slope(samples: list[Sample], name: str) -> float:
    """Fit the growth of one figure per hour over the second half of the run."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    return float(np.polyfit([s.minutes / 60 for s in half], [getattr(s, name) for s in half], 1)[0])


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=60.0, help="calls a second of all clients together")
    parser.add_argument("--sessions", type=int, default=1_000, help="idle legacy sessions at the end")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/soak-COMMIT.json")
    arguments = parser.parse_args()
    with gateway({"bench": stdio_server()}) as running:
        samples, pauses, calls = asyncio.run(soak(running, arguments.minutes, arguments.rate))
        each, left = asyncio.run(idle_sessions(running, arguments.sessions))
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{running.port}/metrics", timeout=30).read()
    names = ("memory_megabytes", "descriptors", "threads", "disk_megabytes")
    rows = [
        (
            name,
            f"{getattr(samples[0], name):,.1f}",
            f"{getattr(samples[-1], name):,.1f}",
            f"{slope(samples, name):+.1f}",
        )
        for name in names
    ]
    table = Table(
        f"{calls:,} calls in {arguments.minutes:g} minutes", ("figure", "first", "last", "slope an hour"), tuple(rows)
    )
    ordered = sorted(pauses)
    more = Table(
        "Pauses and sessions",
        ("figure", "value"),
        (
            ("longest pause, ms", f"{ordered[-1]:.1f}"),
            ("p99 of /healthz, ms", f"{ordered[int(len(ordered) * 0.99)]:.1f}"),
            (f"each of {arguments.sessions:,} idle legacy sessions, kB", f"{each:.1f}"),
            ("left when they ended, MB", f"{left:.1f}"),
            ("bytes of /metrics", f"{len(metrics):,}"),
        ),
    )
    print(to_markdown([table, more]))
    if arguments.save:
        publish("soak", [table, more], {"machine": machine(), "samples": samples, "pauses_p999": ordered[-20:]})


if __name__ == "__main__":
    sys.exit(main())
