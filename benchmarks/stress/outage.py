"""PostgreSQL stops under two replicas for a while: what becomes of the calls, and of what was to be recorded."""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, sleep

from benchmarks.stress.client import Era, RawClient, Refused
from benchmarks.stress.processes import Gateway, gateway, http_upstream, stdio_server
from tests.storage.postgres import Cluster, cluster

from shortlist.errors import StoreError
from shortlist.evals.tables import Table
from shortlist.storage.port import EventQuery
from shortlist.storage.postgres.opening import open_postgres

BEFORE_SECONDS, AFTER_SECONDS = 10.0, 15.0
PAUSE_SECONDS = 0.05
CALL_SECONDS = 30.0
SETTLE_SECONDS = 90.0
STDIO_EVERY = 5
PHASES = ("before", "away", "back")


class Caller:
    """A client that calls both replicas in turn, and notes what became of each call in each phase."""

    def __init__(self, ports: Sequence[int], number: int, run: "Run") -> None:
        self._era: Era = "modern" if number % 2 else "legacy"
        self._ports, self._number, self._run = ports, number, run
        self._clients: list[RawClient] = []
        self._made = 0

    async def open(self) -> None:
        """Use the session with both replicas, as a balancer would let it."""
        first = RawClient(self._ports[0], self._era)
        await first.open()
        self._clients = [first, RawClient(self._ports[1], self._era, session=first.session)]
        for client in self._clients:
            await client.request("tools/list", {})

    async def work(self) -> None:
        while self._run.phase is not None:
            await self._call(self._run.phase)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _call(self, phase: str) -> None:
        self._made += 1
        name = f"{self._era}-{self._number}-{self._made}"
        server = "local" if self._made % STDIO_EVERY == 0 else "bench"
        arguments: dict[str, object] = {"name": f"{server}__echo", "arguments": {"text": name, "id": name}}
        started = perf_counter()
        outcome = await self._outcome(self._clients[self._made % 2], arguments, name)
        self._run.times[phase].append(perf_counter() - started)
        self._run.outcomes[phase][outcome] += 1

    async def _outcome(self, client: RawClient, arguments: dict[str, object], name: str) -> str:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await client.call("call_tool", arguments)
        except TimeoutError:
            return "late"
        except (Refused, OSError, asyncio.IncompleteReadError, ValueError) as error:
            self._run.examples.append(f"{name}: {error}"[:300])
            return "failed"
        texts = [block.get("text") for block in answer.get("result", {}).get("content", ())]
        if texts == [name]:
            return "answered"
        self._run.examples.append(f"{name}: {json.dumps(answer)[:300]}")
        return "failed"


class Run:
    """The phase that runs now, and what was seen in each."""

    def __init__(self) -> None:
        self.phase: str | None = PHASES[0]
        self.outcomes: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
        self.times: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.examples: list[str] = []
        self.opened_while_away = ""

    @property
    def answered(self) -> int:
        return sum(counts["answered"] for counts in self.outcomes.values())

    @property
    def made(self) -> int:
        return sum(counts.total() for counts in self.outcomes.values())


async def run_clients(database: Cluster, ports: Sequence[int], seconds: float, clients: int) -> Run:
    run = Run()
    callers = [Caller(ports, number, run) for number in range(clients)]
    for caller in callers:
        await caller.open()
    working = [asyncio.create_task(caller.work()) for caller in callers]
    await asyncio.sleep(BEFORE_SECONDS)
    print(f"  PostgreSQL stops for {seconds:g} s", flush=True)
    await asyncio.to_thread(database.stop)
    run.phase = "away"
    await asyncio.sleep(seconds / 2)
    late = RawClient(ports[0], "legacy")
    await late.open()
    await asyncio.sleep(seconds / 2)
    print("  PostgreSQL starts", flush=True)
    await asyncio.to_thread(database.start)
    run.phase = "back"
    await asyncio.sleep(AFTER_SECONDS)
    run.phase = None
    await asyncio.gather(*working)
    run.opened_while_away = await _used_elsewhere(ports[1], late.session)
    return run


async def _used_elsewhere(port: int, session: str) -> str:
    try:
        await RawClient(port, "legacy", session=session).request("tools/list", {})
    except (Refused, OSError) as error:
        return str(error)
    return "works"


def measure(seconds: float, clients: int) -> tuple[list[Table], bool]:
    """Stop PostgreSQL for some seconds; return the tables, and whether nothing was lost."""
    with ExitStack() as stack:
        database = stack.enter_context(cluster())
        database.start()
        stack.callback(database.stop)
        address = f"{database.address}&dbname=postgres"
        seen = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "seen"
        seen.touch()
        _, url = stack.enter_context(http_upstream(SEEN_FILE=str(seen), SERVER_NAME="bench"))
        servers = {
            "bench": {"type": "http", "url": url},
            "local": stdio_server(SEEN_FILE=str(seen), SERVER_NAME="local"),
        }
        options = {"storage": address, "audit": {"enabled": True}}
        replicas = [stack.enter_context(gateway(servers, options)) for _ in range(2)]
        print(f"  {clients} clients call two replicas", flush=True)
        run = asyncio.run(run_clients(database, [each.port for each in replicas], seconds, clients))
        lost = sum(map(_lost, replicas))
        recorded = _recorded(address, run.made - lost, 2 * run.made)
        received = Counter(line.split()[1] for line in seen.read_text().splitlines())
    for example in run.examples[:10]:
        print(f"  {example}")
    return _tables(run, seconds, lost, recorded, sum(count > 1 for count in received.values()))


def _lost(replica: Gateway) -> int:
    """Return how many events a replica counts as lost."""
    lines = replica.get("/metrics").splitlines()
    dropped = [line for line in lines if line.startswith("shortlist_events_dropped_total{")]
    return round(sum(float(line.rpartition(" ")[2]) for line in dropped))


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is in the database in the end."""

    calls: int
    """By the tallies."""
    events: int
    audit_records: int
    broken_trails: int


def _recorded(address: str, calls: int, audit_records: int) -> Recorded:
    """Return what is recorded, once it is all or no longer grows."""
    deadline, before = monotonic() + SETTLE_SECONDS, Recorded(-1, -1, -1, -1)
    with closing(open_postgres(address)) as storage:
        while True:
            try:
                now = Recorded(
                    int(sum(storage.tallies.sums(names=("calls",)).values())),
                    sum(1 for _ in storage.events.events(EventQuery(kinds=("called",)))),
                    sum(1 for _ in storage.audit.records()),
                    sum(1 for check in storage.audit.checks() if check.problem),
                )
            except StoreError:
                now = before
            is_all = now.calls >= calls and now.audit_records >= audit_records
            if (is_all and now == before) or monotonic() > deadline:
                return now
            before = now
            sleep(2)


def _tables(run: Run, seconds: float, lost: int, recorded: Recorded, twice: int) -> tuple[list[Table], bool]:
    phases = []
    for phase in PHASES:
        times, counts = sorted(run.times[phase]), run.outcomes[phase]
        p50, p99 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        other = counts.total() - counts["answered"]
        slow = (f"{p50:.1f}", f"{p99:.1f}", f"{1000 * times[-1]:.0f}")
        phases.append((phase, f"{counts['answered']:,}", f"{other}", *slow))
    failed, late = (sum(counts[kind] for counts in run.outcomes.values()) for kind in ("failed", "late"))
    counted, late_session = recorded.calls + lost, run.opened_while_away
    rows: list[tuple[str, str, str, bool]] = [
        ("calls that failed", f"{failed}", "0", failed == 0),
        ("calls over their deadline", f"{late}", "0", late == 0),
        ("ids that a server received twice", f"{twice}", "0", twice == 0),
        ("events counted as lost", f"{lost}", "", True),
        ("calls recorded or counted as lost", f"{counted:,}", f"{run.made:,}", counted == run.made),
        ("rows of these calls", f"{recorded.events:,}", f"{recorded.calls:,}", recorded.events == recorded.calls),
        ("audit records", f"{recorded.audit_records:,}", f"{2 * run.made:,}", recorded.audit_records == 2 * run.made),
        ("audit trails whose chain is broken", f"{recorded.broken_trails}", "0", recorded.broken_trails == 0),
        ("a session opened meanwhile, with the other replica", late_session, "works", late_session == "works"),
    ]
    shown = tuple((*row[:3], "" if not row[2] else "yes" if row[3] else "NO") for row in rows)
    title = f"PostgreSQL away for {seconds:g} s under two replicas"
    columns = ("", "answered", "not answered", "p50, ms", "p99, ms", "slowest, ms")
    tables = [Table(f"{title}: calls", columns, tuple(phases)), Table(title, ("", "figure", "limit", "holds"), shown)]
    return tables, all(row[3] for row in rows)
