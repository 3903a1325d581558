"""Legacy sessions over two replicas: what each takes, and what is left when they have ended."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic, perf_counter, sleep
from typing import TypeAlias

import psycopg
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import Gateway, gateway, http_upstream, usage
from tests.storage.postgres import new_database

from shortlist.cli.pauses import RETURN_SECONDS
from shortlist.evals.tables import Table
from shortlist.front.connections import RESERVED_DESCRIPTORS, descriptor_limit

Row: TypeAlias = tuple[str, str, str, bool]
"""What was measured, the figure, its limit (empty where it has none), and whether it holds."""
KILOBYTES_LIMIT = 60.0
GROWTH_LIMIT = 2.0
"""Megabytes of both replicas together by which as many sessions again may leave them larger: allocators fragment."""
OBJECTS_LIMIT = 100
"""By how many the objects of a type may grow from one round to the next: pools and caches vary a little."""
WARM_UP_SECONDS = 75.0
"""What is loaded at the start is frozen for the last time after 71 seconds."""
WARM = 400
"""Sessions that fill pools and caches before anything is weighed."""
AT_ONCE = 32
SETTLE_SECONDS = 60.0
PROBES = 200
"""Sessions whose first request with a replica is timed."""
OF_SESSIONS = (
    *("shortlist.front.transport.LeanTransport", "mcp.server.connection.Connection"),
    *("mcp.shared.jsonrpc_dispatcher.JSONRPCDispatcher", "shortlist.front.event_log.SessionEvents"),
    *("shortlist.front.legacy.OpenSession", "shortlist.front.audience.Link"),
)
"""The types that each session in memory has one of."""
TABLES = ("client_sessions", "workspaces", "results")
"""Where the state of clients is stored."""


@dataclass(frozen=True, slots=True)
class Left:
    """What both replicas and the database hold when all sessions have ended."""

    memory: int
    objects: Counter[str]
    rows: int


def measure(open_at_once: int, in_all: int) -> tuple[list[Table], bool]:
    """Open, weigh and end sessions; return the tables, and whether the limits hold."""
    address, streams = new_database(), min(open_at_once, descriptor_limit() - RESERVED_DESCRIPTORS)
    with ExitStack() as stack:
        _, url = stack.enter_context(http_upstream())
        options = {"storage": address, "limits": {"sessions": 2 * open_at_once, "connections": 4_000}}
        servers, began = {"bench": {"type": "http", "url": url}}, monotonic()
        replicas = [
            stack.enter_context(gateway(servers, options, module="benchmarks.stress.counted")) for _ in range(2)
        ]
        ports = [each.port for each in replicas]
        _say(f"{WARM} sessions to warm up")
        asyncio.run(_cycle(ports, WARM))
        sleep(max(0.0, WARM_UP_SECONDS - (monotonic() - began)))
        base = _settled(replicas, address)
        _say(f"{open_at_once:,} sessions opened with one replica each")
        sessions = asyncio.run(open_all(ports, open_at_once))
        alone = _kilobytes(memory(replicas) - base.memory, sessions)
        _say(f"{open_at_once:,} sessions used with both replicas")
        asyncio.run(use_all(ports, sessions))
        both, stored = _kilobytes(memory(replicas) - base.memory, sessions), _rows(address, TABLES[:1])
        if unknown := [name for name in OF_SESSIONS if not _live_objects(replicas)[name]]:
            raise RuntimeError(f"no session has a {unknown[0]}: OF_SESSIONS is out of date")
        first, again = asyncio.run(_timed(ports, sessions[:PROBES]))
        asyncio.run(end_all(ports, sessions))
        _say(f"{streams:,} sessions with an open event stream, used with both replicas")
        streamed = asyncio.run(_streamed(ports, streams, lambda: memory(replicas) - base.memory))
        rounds = []
        for number in (1, 2):
            _say(f"round {number} of 2: {in_all:,} sessions opened, used with both replicas and ended")
            for start in range(0, in_all, open_at_once):
                asyncio.run(_cycle(ports, min(open_at_once, in_all - start)))
            rounds.append(_settled(replicas, address))
        descriptors = sum(usage(replica.pid).descriptors for replica in replicas)
    sizes: list[Row] = [
        ("sessions open at once", f"{stored:,}", f"{open_at_once:,}", stored == open_at_once),
        ("memory of a session that one replica served, kB", f"{alone:.1f}", *_within(alone)),
        ("memory of a session that both replicas served, sum, kB", f"{both:.1f}", *_within(both)),
        (f"the same with an open event stream ({streams:,} sessions), kB", f"{streamed:.1f}", *_within(streamed)),
        ("p50 of the first request with a replica that does not hold the session, ms", f"{first:.1f}", "", True),
        ("p50 of the next one, ms", f"{again:.1f}", "", True),
    ]
    left = [
        *_left_rows(base, rounds),
        ("open descriptors of both replicas", f"{descriptors:,}", "", True),
    ]
    tables = [
        _table("Legacy sessions over two replicas", sizes),
        _table(f"What two rounds of {in_all:,} sessions leave when they have ended", left),
    ]
    return tables, all(row[3] for row in (*sizes, *left))


def _left_rows(base: Left, rounds: list[Left]) -> list[Row]:
    """Compare two rounds of the same sessions: what each of them leaves is there twice, what a cache keeps is not."""
    one, two = rounds
    rows: list[Row] = []
    for number, left in enumerate(rounds, 1):
        alive = _of_sessions(left.objects)
        rows += [
            (f"transports, connections and other objects of sessions, round {number}", f"{alive:,}", "0", alive == 0),
            (f"rows of sessions, workspaces and results, round {number}", f"{left.rows:,}", "0", left.rows == 0),
        ]
    grown = {name: two.objects[name] - one.objects[name] for name in two.objects}
    name = max(grown, key=lambda each: grown[each])
    growth, kept = (two.memory - one.memory) / 1e6, (one.memory - base.memory) / 1e6
    return [
        *rows,
        (f"objects that round 2 added, most: {name}", f"{grown[name]:,}", *_at_most(grown[name], OBJECTS_LIMIT)),
        ("memory after round 2 beyond that after round 1, MB", f"{growth:.1f}", *_at_most(growth, GROWTH_LIMIT)),
        ("memory after round 1 beyond that before any, MB", f"{kept:.1f}", "", True),
    ]


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


def _settled(replicas: list[Gateway], address: str) -> Left:
    """Return what is left when all gateways have heard that the sessions ended, and have returned what they freed."""
    deadline = monotonic() + SETTLE_SECONDS
    objects = _live_objects(replicas)
    while (_rows(address, TABLES) or _of_sessions(objects)) and monotonic() < deadline:
        sleep(1.0)
        objects = _live_objects(replicas)
    sleep(RETURN_SECONDS + 5)
    return Left(memory(replicas), _live_objects(replicas), _rows(address, TABLES))


def _live_objects(replicas: list[Gateway]) -> Counter[str]:
    return sum((each.live_objects() for each in replicas), Counter[str]())


def _of_sessions(objects: Counter[str]) -> int:
    return sum(objects[name] for name in OF_SESSIONS)


def _kilobytes(grown: int, sessions: list[str]) -> float:
    return grown / len(sessions) / 1000


def _within(kilobytes: float) -> tuple[str, bool]:
    return _at_most(kilobytes, KILOBYTES_LIMIT)


def _at_most(value: float, limit: float) -> tuple[str, bool]:
    return f"≤ {limit:g}", value <= limit


def _table(title: str, rows: Sequence[Row]) -> Table:
    shown = tuple((*row[:3], "" if not row[2] else "yes" if row[3] else "NO") for row in rows)
    return Table(title, ("", "figure", "limit", "holds"), shown)


def _say(what: str) -> None:
    print(f"  {what}", flush=True)


def _rows(address: str, tables: Sequence[str]) -> int:
    counted = " + ".join(f"(SELECT count(*) FROM shortlist.{table})" for table in tables)
    with psycopg.connect(address) as connection:
        row = connection.execute(f"SELECT {counted}".encode()).fetchone()
    return int(row[0]) if row else 0
