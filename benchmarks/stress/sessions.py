"""Legacy sessions over two replicas: what each takes, and what is left when they have ended."""

import asyncio
from contextlib import ExitStack
from time import monotonic

import psycopg
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import Gateway, gateway, http_upstream, usage
from tests.storage.postgres import new_database

from shortlist.evals.tables import Table

KILOBYTES_LIMIT = 60.0
LEFT_LIMIT = 10.0
"""Megabytes that the same number of sessions may take more when they are opened again."""
WARM = 100
"""Sessions that fill pools and caches before anything is weighed."""
AT_ONCE = 32
SETTLE_SECONDS = 30.0


async def open_all(ports: list[int], count: int) -> list[str]:
    """Open sessions with one replica after the other, and use each with the other one; return their ids."""
    opened: list[str] = []

    async def work(numbers: range) -> None:
        for number in numbers:
            here, there = ports[number % 2], ports[1 - number % 2]
            client = RawClient(here, "legacy")
            await client.open()
            client.close()
            elsewhere = RawClient(there, "legacy", session=client.session)
            await elsewhere.request("ping", {})
            elsewhere.close()
            opened.append(client.session)

    await asyncio.gather(*(work(range(first, count, AT_ONCE)) for first in range(AT_ONCE)))
    return opened


async def end_all(ports: list[int], sessions: list[str]) -> None:
    async def work(some: list[str]) -> None:
        for number, session in enumerate(some):
            client = RawClient(ports[number % 2], "legacy", session=session)
            await client.request("ping", {})
            await client.end()

    await asyncio.gather(*(work(sessions[first::AT_ONCE]) for first in range(AT_ONCE)))


def memory(replicas: list[Gateway]) -> int:
    return sum(usage(each.pid).memory_bytes for each in replicas)


def measure(open_at_once: int, in_all: int) -> tuple[list[Table], bool]:
    """Open, weigh and end sessions; return the table, and whether the limits hold."""
    address = new_database()
    with ExitStack() as stack:
        _, url = stack.enter_context(http_upstream())
        options = {"storage": address, "limits": {"sessions": 2 * open_at_once, "connections": 4_000}}
        servers = {"bench": {"type": "http", "url": url}}
        replicas = [stack.enter_context(gateway(servers, options)) for _ in range(2)]
        ports = [each.port for each in replicas]
        asyncio.run(_cycle(ports, WARM))
        base = memory(replicas)
        sessions = asyncio.run(open_all(ports, open_at_once))
        first, stored = memory(replicas), _stored(address)
        each = (first - base) / len(sessions) / 1000
        asyncio.run(end_all(ports, sessions))
        # An allocator keeps what was freed for the next ones, so what stays is what the same number takes more later.
        for _ in range(in_all // open_at_once - 1):
            asyncio.run(_cycle(ports, open_at_once))
        sessions = asyncio.run(open_all(ports, open_at_once))
        left = (memory(replicas) - first) / 1e6
        asyncio.run(end_all(ports, sessions))
        left_rows = _settled(address)
        descriptors = sum(usage(replica.pid).descriptors for replica in replicas)
    rows = [
        (
            "sessions open at once, each served by both replicas",
            f"{stored:,}",
            f"{open_at_once:,}",
            stored == open_at_once,
        ),
        ("memory of a session in both replicas, kB", f"{each:.1f}", f"≤ {KILOBYTES_LIMIT:g}", each <= KILOBYTES_LIMIT),
        ("sessions opened and ended after that", f"{in_all:,}", "", True),
        ("sessions left in the database", f"{left_rows:,}", "0", left_rows == 0),
        ("memory of both replicas that grew by then, MB", f"{left:.1f}", f"≤ {LEFT_LIMIT:g}", left <= LEFT_LIMIT),
        ("open descriptors of both replicas", f"{descriptors:,}", "", True),
    ]
    shown = tuple((*row[:3], "" if not row[2] else "yes" if row[3] else "NO") for row in rows)
    table = Table("Legacy sessions over two replicas", ("", "figure", "limit", "holds"), shown)
    return [table], all(row[3] for row in rows)


async def _cycle(ports: list[int], count: int) -> None:
    await end_all(ports, await open_all(ports, count))


def _stored(address: str) -> int:
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT count(*) FROM shortlist.client_sessions").fetchone()
    return int(row[0]) if row else 0


def _settled(address: str) -> int:
    deadline = monotonic() + SETTLE_SECONDS
    while (count := _stored(address)) and monotonic() < deadline:
        pass
    return count
