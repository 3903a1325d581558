"""Legacy sessions over two replicas: what each takes, and what is left when they have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from time import monotonic, perf_counter, sleep

import psycopg
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import Gateway, gateway, http_upstream, usage
from tests.storage.postgres import new_database

from shortlist.cli.pauses import RETURN_SECONDS
from shortlist.evals.tables import Table
from shortlist.front.connections import RESERVED_DESCRIPTORS, descriptor_limit

KILOBYTES_LIMIT = 60.0
LEFT_LIMIT = 5.0
"""Megabytes by which both replicas together may have grown when all sessions have ended."""
WARM = 400
"""Sessions that fill pools and caches before anything is weighed."""
AT_ONCE = 32
SETTLE_SECONDS = 30.0
PROBES = 200
"""Sessions whose first request with a replica is timed."""


def measure(open_at_once: int, in_all: int) -> tuple[list[Table], bool]:
    """Open, weigh and end sessions; return the table, and whether the limits hold."""
    address, streams = new_database(), min(open_at_once, descriptor_limit() - RESERVED_DESCRIPTORS)
    with ExitStack() as stack:
        _, url = stack.enter_context(http_upstream())
        options = {"storage": address, "limits": {"sessions": 2 * open_at_once, "connections": 4_000}}
        servers = {"bench": {"type": "http", "url": url}}
        replicas = [stack.enter_context(gateway(servers, options)) for _ in range(2)]
        ports = [each.port for each in replicas]
        _say(f"{WARM} sessions to warm up")
        asyncio.run(_cycle(ports, WARM))
        base = _settled_memory(replicas)
        _say(f"{open_at_once:,} sessions opened with one replica each")
        sessions = asyncio.run(open_all(ports, open_at_once))
        alone = _kilobytes(memory(replicas) - base, sessions)
        _say(f"{open_at_once:,} sessions used with both replicas")
        asyncio.run(use_all(ports, sessions))
        both, stored = _kilobytes(memory(replicas) - base, sessions), _stored(address)
        first, again = asyncio.run(_timed(ports, sessions[:PROBES]))
        asyncio.run(end_all(ports, sessions))
        ended = _settled_memory(replicas)
        _say(f"{streams:,} sessions with an open event stream, used with both replicas")
        streamed = asyncio.run(_streamed(ports, streams, lambda: memory(replicas) - base))
        # An allocator keeps some of what was freed, so what stays is what the same again takes more.
        asyncio.run(_cycle(ports, open_at_once))
        after_one = _settled_memory(replicas)
        rounds = max(1, in_all // open_at_once)
        for number in range(rounds):
            _say(f"round {number + 1} of {rounds}: {open_at_once:,} sessions opened, used with both replicas and ended")
            asyncio.run(_cycle(ports, open_at_once))
        left, left_rows = (_settled_memory(replicas) - after_one) / 1e6, _settled_rows(address)
        descriptors = sum(usage(replica.pid).descriptors for replica in replicas)
    rows: list[tuple[str, str, str, bool]] = [
        ("sessions open at once", f"{stored:,}", f"{open_at_once:,}", stored == open_at_once),
        ("memory of a session that one replica served, kB", f"{alone:.1f}", *_within(alone)),
        ("memory of a session that both replicas served, sum, kB", f"{both:.1f}", *_within(both)),
        (f"the same with an open event stream ({streams:,} sessions), kB", f"{streamed:.1f}", *_within(streamed)),
        ("p50 of the first request with a replica that does not hold the session, ms", f"{first:.1f}", "", True),
        ("p50 of the next one, ms", f"{again:.1f}", "", True),
        ("sessions opened and ended after that", f"{rounds * open_at_once:,}", "", True),
        ("sessions left in the database", f"{left_rows:,}", "0", left_rows == 0),
        ("memory of both replicas that grew by then, MB", f"{left:.1f}", f"≤ {LEFT_LIMIT:g}", left <= LEFT_LIMIT),
        ("kept by the allocator after the first of them, MB", f"{(ended - base) / 1e6:.1f}", "", True),
        ("open descriptors of both replicas", f"{descriptors:,}", "", True),
    ]
    shown = tuple((*row[:3], "" if not row[2] else "yes" if row[3] else "NO") for row in rows)
    table = Table("Legacy sessions over two replicas", ("", "figure", "limit", "holds"), shown)
    return [table], all(row[3] for row in rows)


async def open_all(ports: list[int], count: int) -> list[str]:
    """Open sessions with one replica after the other; return their ids."""
    opened: list[str] = []

    async def work(number: int) -> None:
        client = RawClient(ports[number % 2], "legacy")
        await client.open()
        client.close()
        opened.append(client.session)

    await _at_once(range(count), work)
    return opened


async def use_all(ports: list[int], sessions: list[str]) -> None:
    """Use every session with both replicas."""

    async def work(number: int) -> None:
        for port in (ports[number % 2], ports[1 - number % 2]):
            await _ping(port, sessions[number])

    await _at_once(range(len(sessions)), work)


async def end_all(ports: list[int], sessions: list[str]) -> None:
    """End every session with one of the replicas."""

    async def work(number: int) -> None:
        client = RawClient(ports[number % 2], "legacy", session=sessions[number])
        await client.request("ping", {})
        await client.end()

    await _at_once(range(len(sessions)), work)


async def _cycle(ports: list[int], count: int) -> None:
    sessions = await open_all(ports, count)
    await use_all(ports, sessions)
    await end_all(ports, sessions)


async def _streamed(ports: list[int], count: int, weigh: Callable[[], int]) -> float:
    """Return the kilobytes of a session whose client listens to one replica and has used both."""
    sessions = await open_all(ports, count)
    listeners: list[RawClient] = []

    async def work(number: int) -> None:
        client = RawClient(ports[number % 2], "legacy", session=sessions[number])
        await client.listen()
        listeners.append(client)

    await _at_once(range(count), work)
    await use_all(ports, sessions)
    kilobytes = _kilobytes(weigh(), sessions)
    for client in listeners:
        client.close()
    await end_all(ports, sessions)
    return kilobytes


async def _timed(ports: list[int], sessions: list[str]) -> tuple[float, float]:
    """Return the median milliseconds of the first and the second request of sessions that were idle for longest."""
    first, again = [], []
    for session in sessions:
        first.append(await _ping(ports[0], session))
        again.append(await _ping(ports[0], session))
    return sorted(first)[len(first) // 2], sorted(again)[len(again) // 2]


async def _ping(port: int, session: str) -> float:
    client, started = RawClient(port, "legacy", session=session), perf_counter()
    await client.request("ping", {})
    milliseconds = (perf_counter() - started) * 1000
    client.close()
    return milliseconds


async def _at_once(numbers: range, work: Callable[[int], Awaitable[None]]) -> None:
    async def some(own: Sequence[int]) -> None:
        for number in own:
            await work(number)

    await asyncio.gather(*(some(numbers[first::AT_ONCE]) for first in range(AT_ONCE)))


def memory(replicas: list[Gateway]) -> int:
    return sum(usage(each.pid).memory_bytes for each in replicas)


def _settled_memory(replicas: list[Gateway]) -> int:
    """Return the memory when the replicas have returned what they freed."""
    sleep(RETURN_SECONDS + 5)
    return memory(replicas)


def _kilobytes(grown: int, sessions: list[str]) -> float:
    return grown / len(sessions) / 1000


def _within(kilobytes: float) -> tuple[str, bool]:
    return f"≤ {KILOBYTES_LIMIT:g}", kilobytes <= KILOBYTES_LIMIT


def _say(what: str) -> None:
    print(f"  {what}", flush=True)


def _stored(address: str) -> int:
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT count(*) FROM shortlist.client_sessions").fetchone()
    return int(row[0]) if row else 0


def _settled_rows(address: str) -> int:
    deadline = monotonic() + SETTLE_SECONDS
    while (count := _stored(address)) and monotonic() < deadline:
        sleep(0.1)
    return count
