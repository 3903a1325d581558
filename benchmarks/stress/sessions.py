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
    """Open sessions with one replica after the other; return their ids."""
    opened: list[str] = []

    async def work(numbers: range) -> None:
        for number in numbers:
            client = RawClient(ports[number % 2], "legacy")
            await client.open()
            client.close()
            opened.append(client.session)

    await asyncio.gather(*(work(range(first, count, AT_ONCE)) for first in range(AT_ONCE)))
    return opened


async def use_all(ports: list[int], sessions: list[str], *, ends: bool = False) -> None:
    """Use every session with both replicas, and end it with one of them."""

    async def work(some: list[str]) -> None:
        for number, session in enumerate(some):
            for port in (ports[number % 2], ports[1 - number % 2]):
                client = RawClient(port, "legacy", session=session)
                await client.request("ping", {})
                if ends:
                    await client.end()
                    break
                client.close()

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
        alone = (memory(replicas) - base) / len(sessions) / 1000
        asyncio.run(use_all(ports, sessions))
        first, stored = memory(replicas), _stored(address)
        both = (first - base) / len(sessions) / 1000
        asyncio.run(use_all(ports, sessions, ends=True))
        # An allocator keeps what was freed for the next ones, so what stays is what the same number takes more later.
        for _ in range(max(1, in_all // open_at_once)):
            asyncio.run(_cycle(ports, open_at_once))
        left, left_rows = (memory(replicas) - first) / 1e6, _settled(address)
        descriptors = sum(usage(replica.pid).descriptors for replica in replicas)
    rows = [
        (
            "sessions open at once",
            f"{stored:,}",
            f"{open_at_once:,}",
            stored == open_at_once,
        ),
        ("memory of a session, kB", f"{alone:.1f}", f"≤ {KILOBYTES_LIMIT:g}", alone <= KILOBYTES_LIMIT),
        ("the same when both replicas have served it", f"{both:.1f}", "", True),
        ("sessions opened and ended after that", f"{in_all:,}", "", True),
        ("sessions left in the database", f"{left_rows:,}", "0", left_rows == 0),
        ("memory of both replicas that grew by then, MB", f"{left:.1f}", f"≤ {LEFT_LIMIT:g}", left <= LEFT_LIMIT),
        ("open descriptors of both replicas", f"{descriptors:,}", "", True),
    ]
    shown = tuple((*row[:3], "" if not row[2] else "yes" if row[3] else "NO") for row in rows)
    table = Table("Legacy sessions over two replicas", ("", "figure", "limit", "holds"), shown)
    return [table], all(row[3] for row in rows)


async def _cycle(ports: list[int], count: int) -> None:
    sessions = await open_all(ports, count)
    await use_all(ports, sessions)
    await use_all(ports, sessions, ends=True)


def _stored(address: str) -> int:
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT count(*) FROM shortlist.client_sessions").fetchone()
    return int(row[0]) if row else 0


def _settled(address: str) -> int:
    deadline = monotonic() + SETTLE_SECONDS
    while (count := _stored(address)) and monotonic() < deadline:
        pass
    return count
