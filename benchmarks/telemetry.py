"""What telemetry costs: calls with it against without, and a store of a million events.

python -m benchmarks.telemetry                       # both parts
python -m benchmarks.telemetry --only calls          # or store
python -m benchmarks.telemetry --events 50000        # a smaller store, for a look
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from benchmarks.gateway_setup import PROGRAMS, SHORTLIST, TEXT, Ask, Found, called, settled, until_it_answers
from benchmarks.measuring import publish
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from shortlist.evals.tables import Table
from shortlist.models import Signal
from shortlist.storage.port import Batch, EventQuery
from shortlist.storage.sqlite import Database
from shortlist.storage.sqlite_events import SqliteEvents
from shortlist.telemetry.events import Called, Described, Event, Searched, SessionOpened, ToolsListed
from shortlist.telemetry.figures import FIGURES, Figure, Tallied, latency, stats
from shortlist.telemetry.ledger import Ledger, Stamped, UsedTogether
from shortlist.telemetry.measures import FoundTool
from shortlist.telemetry.redaction import Privacy

RATIO = 1.05
SECONDS = 1.0
SHOWN = ("stats", "latest", "figure", "tallies")
"""What the pages and `stats` ask for; the rest is asked once at a start, or by hand in SQL."""
DAYS = 30
TOOLS = 1_000
BATCH = 2_000
RESAMPLES = 2_000
WARM = 100
WORDS = (
    "create",
    "issue",
    "list",
    "files",
    "send",
    "message",
    "query",
    "table",
    "deploy",
    "branch",
    "read",
    "calendar",
)
STEPS = ("embed", "read", "lexical", "dense", "fuse", "names", "families")

# Calls


async def calls(folder: Path, rounds: int) -> Found:
    """Time the same call through two gateways in turns, one that records and one that does not."""
    async with AsyncExitStack() as stack:
        asks = {}
        for way, telemetry in {"off": {"enabled": False}, "on": {"enabled": True}}.items():
            client = await stack.enter_async_context(gateway(folder / way, telemetry))
            asks[way] = lambda client=client: called(client, "call_tool", {"name": "bench__echo", "arguments": TEXT})
            await until_it_answers(asks[way])
            await until_it_answers(lambda client=client: settled(client))  # type: ignore[misc]
        times = await in_changing_turns(asks, rounds)
    low, high = interval(times["on"], times["off"])
    medians = {way: float(np.median(found)) for way, found in times.items()}
    ratio = medians["on"] / medians["off"]
    table = Table(
        "call_tool over stdio: telemetry on against off",
        ("", "median ms", "p95 ms"),
        tuple((way, f"{medians[way]:.3f}", f"{np.percentile(found, 95):.3f}") for way, found in times.items()),
        (
            f"Ratio of medians {ratio:.3f}, 95 % interval {low:.3f} to {high:.3f} ({rounds} rounds in turns). "
            f"Upper bound at most {RATIO}: {held(high <= RATIO)}.",
        ),
    )
    return [table], {"calls": {"medians_ms": medians, "ratio": ratio, "interval": [low, high], "rounds": rounds}}


async def in_changing_turns(asks: Mapping[str, Ask], rounds: int) -> dict[str, "np.ndarray[Any, Any]"]:
    """Time them by turns, whoever was first being second in the next round: the first finds the machine as it was."""
    times: dict[str, list[float]] = {way: [] for way in asks}
    for turn in range(rounds + WARM):
        for way in list(asks)[:: 1 if turn % 2 else -1]:
            started = time.perf_counter()
            await asks[way]()
            times[way].append((time.perf_counter() - started) * 1000)
    return {way: np.array(found[WARM:]) for way, found in times.items()}


@asynccontextmanager
async def gateway(folder: Path, telemetry: Mapping[str, Any]) -> AsyncIterator[Client]:
    folder.mkdir()
    tools = folder / "tools.json"
    tools.write_text("[]", "utf-8")
    config = folder / "config.json"
    server = {"command": sys.executable, "args": [str(PROGRAMS), "server", str(tools)]}
    config.write_text(json.dumps({"mcpServers": {"bench": server}, "shortlist": {"telemetry": telemetry}}), "utf-8")
    command = StdioServerParameters(
        command=str(SHORTLIST),
        args=["serve", "--own", "--config", str(config)],
        env={"XDG_DATA_HOME": str(folder / "data")},
    )
    async with Client(stdio_client(command), mode="legacy") as client:
        await client.list_tools()
        yield client


def interval(on: "np.ndarray[Any, Any]", off: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """Bound the ratio of medians by resampling rounds: both calls of a round saw the same machine."""
    drawn = np.random.default_rng(1).integers(0, len(on), (RESAMPLES, len(on)))
    ratios = np.median(on[drawn], axis=1) / np.median(off[drawn], axis=1)
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


# The store


def _computed(figure: Figure, events: SqliteEvents) -> object:
    return figure.compute(tallied(events))


def store(folder: Path, events: int) -> Found:
    """Fill a store as the recorder does, and time every question that is asked of it."""
    path = folder / "events.sqlite"
    filled = SqliteEvents(Database(path))
    seconds = fill(filled, events)
    filled.database.close()
    size = path.stat().st_size
    opened = SqliteEvents(Database(path))
    now = time.time()
    asked: dict[str, Callable[[], object]] = {
        "stats": lambda: stats(opened),
        "stats --since 7d": lambda: stats(opened, now - 7 * 86_400),
        "latest 100 events": lambda: list(opened.events(EventQuery(latest=True, limit=100))),
        "latest 100 misses": lambda: list(opened.events(EventQuery(missed=True, latest=True, limit=100))),
        "latest 100 calls of a tool": lambda: list(
            opened.events(EventQuery(subject=tool(3), kinds=("called",), latest=True, limit=100))
        ),
        "tools used together": lambda: UsedTogether.of(opened.pairs()),
        "tallies by the hour": lambda: opened.series(("searches", "calls", "tokens", "upfront")),
        **{f"figure {name}": partial(_computed, figure, opened) for name, figure in FIGURES.items()},
        "figure latency": lambda: latency(tallied(opened)),
        "ab_test_sessions": lambda: opened.database.query("SELECT * FROM ab_test_sessions"),
        "ab_tool_events, counted": lambda: opened.database.query(
            "SELECT event_type, count(*) FROM ab_tool_events GROUP BY 1"
        ),
        "tool_call_log, counted": lambda: opened.database.query(
            "SELECT result_status, count(*) FROM tool_call_log GROUP BY 1"
        ),
    }
    times = {name: best_of_three(ask) for name, ask in asked.items()}
    slowest = max((name for name in times if name.startswith(SHOWN)), key=lambda name: times[name])
    shown = {name: took for name, took in times.items() if not name.startswith("figure ")}
    shown["slowest of the figures"] = max(took for name, took in times.items() if name.startswith("figure "))
    table = Table(
        f"A store of {events:,} events",
        ("", "seconds"),
        tuple((name, f"{took:.3f}") for name, took in shown.items()),
        (
            f"{size / 1e6:,.0f} MB, {size / events:.0f} bytes an event; {events / seconds:,.0f} a second were written.",
            f"Slowest of what people wait for: {slowest}. Under {SECONDS:.0f} s: {held(times[slowest] < SECONDS)}.",
        ),
    )
    facts = {
        "events": events,
        "bytes_per_event": size / events,
        "events_per_second": events / seconds,
        "seconds": times,
    }
    return [table], {"store": facts}


def tallied(opened: SqliteEvents) -> Tallied:
    return Tallied(opened.sums())


def held(holds: bool) -> str:
    return "holds" if holds else "DOES NOT HOLD"


def best_of_three(ask: Callable[[], object]) -> float:
    took = []
    for _ in range(3):
        started = time.perf_counter()
        ask()
        took.append(time.perf_counter() - started)
    return min(took)


def fill(into: SqliteEvents, events: int) -> float:
    """Write so many events over thirty days, in the batches of a busy recorder; gives the seconds it took."""
    ledger, source = Ledger(Privacy(key=b"benchmark")), happenings(events)
    started, written = time.perf_counter(), 0
    while written < events:
        batch = Batch()
        for stamped in islice(source, min(BATCH, events - written)):
            ledger.enter(batch, stamped)
        into.append(batch)
        written += len(batch.entries)
    return time.perf_counter() - started


def happenings(events: int) -> Iterator[Stamped]:
    """Make sessions of searches and calls over tools of which few are used often."""
    chance = random.Random(1)
    weights = [1 / (rank + 1) for rank in range(TOOLS)]
    begin, step, number = time.time() - DAYS * 86_400, DAYS * 86_400 / events, 0
    while True:
        for event in session(chance, weights, f"session:local:{number}"):
            at = begin + number * step
            yield Stamped(at, at, event)
            number += 1


def session(chance: random.Random, weights: Sequence[float], workspace: str) -> Iterator[Event]:
    act = {"caller": "local", "workspace": workspace}
    yield SessionOpened(**act, mode="search", tools=4, tokens=120)
    yield ToolsListed(**act, tools=4, tokens=360, upfront=60_000)
    for _ in range(chance.randint(1, 20)):
        hits = tuple(dict.fromkeys(chance.choices(range(TOOLS), weights, k=5)))
        yield Searched(
            **act,  # type: ignore[arg-type]
            query=" ".join(chance.choices(WORDS, k=chance.randint(2, 9))),
            hits=tuple(found(chance, place, rank) for rank, place in enumerate(hits, 1)),
            confidence="high" if chance.random() < 0.9 else "none",
            probability=chance.random(),
            tokens=chance.randint(150, 600),
            steps={name: chance.lognormvariate(0, 1) for name in STEPS},
        )
        if chance.random() < 0.3:
            yield Described(**act, tools=(tool(hits[0]),), tokens=chance.randint(100, 900))
        for _ in range(chance.randint(0, 2)):
            picked = chance.choice(hits) if chance.random() < 0.9 else chance.randrange(TOOLS)
            outcome = chance.choices(("ok", "error", "invalid_arguments", "failed"), (88, 6, 4, 2))[0]
            took = chance.lognormvariate(4, 1)
            yield Called(**act, tool=tool(picked), outcome=outcome, milliseconds=took, native=False, size=900)  # type: ignore[arg-type]


def found(chance: random.Random, place: int, rank: int) -> FoundTool:
    signals = {"lexical": Signal(chance.random() * 20, rank), "dense": Signal(chance.random(), rank)}
    return FoundTool(tool=tool(place), rank=rank, score=8 - rank + chance.random(), signals=signals)


def tool(place: int) -> str:
    return f"server{place % 40}/do_something_{place}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=("calls", "store"))
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    tables: list[Table] = []
    data: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="shortlist-bench-") as name:
        if options.only != "store":
            more, facts = anyio.run(calls, Path(name), options.rounds)
            tables, data = [*tables, *more], {**data, **facts}
        if options.only != "calls":
            more, facts = store(Path(name), options.events)
            tables, data = [*tables, *more], {**data, **facts}
    publish("telemetry", tables, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
