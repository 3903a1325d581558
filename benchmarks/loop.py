"""How long the event loop of a gateway stands still: python -m benchmarks.loop.

A gateway serves in this process while a timer measures how late the event loop runs it. Four loads: a server with
20,000 tools arrives, one tool of 25,759 changes, 32 callers search at once, and a provider of embeddings hangs. Beside
them stands the lag of the same gateway with nothing to do, which is the machine's own. Tools are scanned, pinned and
saved, as in a gateway that serves. Vectors are random unit vectors, since making real ones takes minutes and runs
outside of Python's lock. The same run prints the CPU time of one changed tool in the engine, the gateway and
`ToolFilter`, and beside it what embedding costs: the tool for searches, and its suspicious passages for the scanner.

    python -m benchmarks.loop --tools 2000 --arriving 1500   # smaller, to try it
"""

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from benchmarks.asking import Asking
from benchmarks.measuring import RandomEmbedder, bench_file, publish, rows, spread
from benchmarks.restarting import settings_of

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog, tool_from_mcp
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli import YOUNG_OBJECTS
from shortlist.cli.hosting import SWITCH_SECONDS
from shortlist.config.settings import Settings
from shortlist.errors import ModelError
from shortlist.evals.tables import Table
from shortlist.front.answerer import Answerer
from shortlist.gateway.callers import Round
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.state import Seams
from shortlist.index.embedders import Progress, Vectors, shipped
from shortlist.index.passages import PassageClassifier
from shortlist.index.vectors import QueryVectors
from shortlist.library.filter import ToolFilter
from shortlist.models import Query, Server, Tool
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher
from shortlist.storage.local import open_local
from shortlist.trust.keeping import Keeper
from shortlist.trust.scanner import Scanner
from shortlist.upstream.events import ToolsChanged
from shortlist.upstream.pool import UpstreamPool

DATA = ("eval", "mcp_union")
TICK_SECONDS = 0.002
TARGET_MILLISECONDS = 25.0
CHANGE_MILLISECONDS = 30.0
CLIENTS = 32
SEARCHES = 8
HANGS_SECONDS = 3.0
CHANGES = 5
BIG = "bench"
IDLE, IDLE_SECONDS = "nothing to do", 3.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the loop ran a timer, in milliseconds."""

    p50: float
    p99: float
    most: float
    samples: int

    @classmethod
    def of(cls, late: Sequence[float]) -> "Lag":
        p50, p99 = np.percentile(late, (50, 99))
        return cls(round(float(p50), 2), round(float(p99), 2), round(max(late), 2), len(late))


@asynccontextmanager
async def measured(late: list[float]) -> AsyncIterator[None]:
    """Measure while the body runs: how many milliseconds later than asked for the loop wakes."""

    async def tick() -> None:
        while True:
            started = time.perf_counter()
            await anyio.sleep(TICK_SECONDS)
            late.append((time.perf_counter() - started - TICK_SECONDS) * 1000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        yield
        tasks.cancel_scope.cancel()


class Hanging:
    """A provider that answers nothing for a while, then fails."""

    model_id, dimensions = "hanging@1", 384

    def __init__(self) -> None:
        self.hangs = False
        self._made = RandomEmbedder()

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        return self._made.embed_documents(texts, progress)

    def embed_query(self, text: str) -> Vectors:
        if self.hangs:
            time.sleep(HANGS_SECONDS)
            raise ModelError("The provider does not answer.")
        return self._made.embed_query(text)


class CountedClassifier:
    """The scanner's classifier, with the CPU time that it took so far."""

    def __init__(self) -> None:
        self.milliseconds = 0.0
        self._model = PassageClassifier()

    def glance(self, texts: Sequence[str]) -> Sequence[Sequence[tuple[float, Any]]]:
        started = time.process_time()
        windows = self._model.glance(texts)
        self.milliseconds += (time.process_time() - started) * 1000
        return windows

    def read(self, window: Any) -> float:
        started = time.process_time()
        score = self._model.read(window)
        self.milliseconds += (time.process_time() - started) * 1000
        return score


class LocalVectors(QueryVectors):
    """Random vectors, taken as those of a model in this process."""

    @property
    def is_local(self) -> bool:
        return True


@asynccontextmanager
async def gateway_over(
    catalog: Catalog, embedder: Any, encoder: CountedClassifier | None = None
) -> AsyncIterator[tuple[Gateway, Engine]]:
    vectors = QueryVectors(embedder) if isinstance(embedder, Hanging) else LocalVectors(embedder)
    engine = Engine(lambda known: Searcher(known, vectors), catalog)
    engine.begin()
    pool = UpstreamPool({}, on_event=lambda _: None, client=Answerer())
    storage = open_local()
    saved = SavedCatalog(storage.catalogs, settings_of([BIG]).servers)
    keeper = Keeper(storage.pins, lambda: Scanner(encoder or CountedClassifier()), lambda _: "scan")
    seams = Seams(gate=keeper, reviews=keeper, save=saved.save)  # scanned, pinned and saved as served
    async with pool, Gateway(Settings(), engine, pool, seams=seams) as gateway:
        yield gateway, engine


async def ready(engine: Engine) -> None:
    """Wait until every tool of the newest catalog has its vector."""
    while (await engine.search(Query(text="send a message"))).notes:
        await anyio.sleep(0.05)


async def idle(tools: Sequence[Tool]) -> Lag:
    """Serve nobody: what the machine itself adds to every figure."""
    late: list[float] = []
    async with gateway_over(Catalog.of(tools), RandomEmbedder()) as (_, engine):
        await ready(engine)
        async with measured(late):
            await anyio.sleep(IDLE_SECONDS)
    return Lag.of(late)


async def arriving(tools: Sequence[Tool]) -> Lag:
    """Let a server with many tools arrive at an empty gateway."""
    late: list[float] = []
    async with gateway_over(Catalog.of(()), RandomEmbedder()) as (gateway, engine), measured(late):
        gateway.on_upstream(ToolsChanged(server=BIG, tools=tuple(tools), problems=()))
        await gateway.settled()
        await ready(engine)
    return Lag.of(late)


async def changing(tools: Sequence[Tool]) -> Lag:
    """Change one tool after another in a large catalog of many servers."""
    late: list[float] = []
    async with gateway_over(Catalog.of(tools), RandomEmbedder()) as (gateway, engine):
        await ready(engine)
        async with measured(late):
            for turn in range(CHANGES):
                server, changed = one_changed(engine.catalog, turn)
                gateway.on_upstream(ToolsChanged(server=server, tools=tuple(changed), problems=()))
                await gateway.settled()
                await ready(engine)
                await anyio.sleep(0.1)
    return Lag.of(late)


async def searching(tools: Sequence[Tool], queries: Sequence[str]) -> Lag:
    """Let many clients search at once."""
    return await _searched(tools, queries, RandomEmbedder())


async def hanging(tools: Sequence[Tool], queries: Sequence[str]) -> Lag:
    """Let clients search while the provider of query vectors does not answer."""
    return await _searched(tools, queries, Hanging())


async def _searched(tools: Sequence[Tool], queries: Sequence[str], embedder: RandomEmbedder | Hanging) -> Lag:
    late: list[float] = []
    async with gateway_over(Catalog.of(tools), embedder) as (gateway, engine):
        await ready(engine)
        if isinstance(embedder, Hanging):
            embedder.hangs = True
        async with measured(late), anyio.create_task_group() as tasks:
            for place in range(CLIENTS):
                tasks.start_soon(_ask, gateway, place, [*queries[place:], *queries[:place]][:SEARCHES])
    return Lag.of(late)


async def _ask(gateway: Gateway, place: int, queries: Sequence[str]) -> None:
    for query in queries:
        await gateway.call(Asking(f"bench-{place}"), "search_tools", {"query": query}, Round())


def one_changed(catalog: Catalog, turn: int) -> tuple[str, list[Tool]]:
    """Return a server and its tools with one of them changed."""
    name = max(catalog.members, key=lambda server: len(catalog.members[server]))
    tools = catalog.of_server(name)
    first = tools[turn % len(tools)]
    about = f"{first.description} Changed {turn} times."
    tools[turn % len(tools)] = tool_from_mcp({**first.mcp(), "description": about}, name, tool_id=first.id)
    return name, tools


def one_added(catalog: Catalog, turn: int) -> tuple[str, list[Tool]]:
    """Return a server and its tools with a new one among them."""
    name = max(catalog.members, key=lambda server: len(catalog.members[server]))
    tools = catalog.of_server(name)
    about = f"{tools[0].description} For turn {turn} alone."  # else the new tool were a copy, which is held
    fresh = {**tools[0].mcp(), "name": f"{tools[0].name}_{turn}", "description": about}
    return name, sorted([*tools, tool_from_mcp(fresh, name)], key=lambda tool: tool.id)  # in the place it has from now


def cpu_of_a_change(tools: Sequence[Tool]) -> dict[str, float]:
    """Take the CPU time of this process for one changed tool, without its vector, in milliseconds; the best of some."""
    catalog = Catalog.of(tools)
    searcher = Searcher(catalog, RandomEmbedder())
    searcher.prepare()
    filter_ = ToolFilter(catalog, embedder=RandomEmbedder(), vector_cache=None, saved_index=True)
    filter_.filter("send a message")
    found: dict[str, list[float]] = {"engine": [], "ToolFilter": []}
    for turn in range(CHANGES):
        name, changed = one_changed(catalog, turn)
        newer = catalog.with_server(catalog.servers.get(name) or Server(name=name), changed)
        found["engine"].append(_cpu(lambda newer=newer: searcher.update(newer)))  # type: ignore[misc]
        found["ToolFilter"].append(_cpu(lambda newer=newer: filter_.update(newer)))  # type: ignore[misc]
        catalog = newer
    model = shipped("small")
    if model is not None:
        model.embed_query("a text that loads the model")
        found["embedding the tool (small)"] = [
            _cpu(lambda: model.embed_documents([tools[0].description])) for _ in range(CHANGES)
        ]
    return {name: round(min(times), 2) for name, times in found.items()}


async def cpu_of_a_change_in_a_gateway(
    tools: Sequence[Tool], change: Callable[[Catalog, int], tuple[str, list[Tool]]]
) -> tuple[float, float]:
    """Take the CPU time of this process from a server's report until searches see it; vectors come later.

    Returns it without what the scanner's classifier takes, and that beside it; the best of some.
    """
    times: list[tuple[float, float]] = []
    encoder = CountedClassifier()
    async with gateway_over(Catalog.of(tools), RandomEmbedder(), encoder) as (gateway, engine):
        for turn in range(CHANGES):
            await ready(engine)
            name, changed = change(engine.catalog, turn)
            gc.collect()
            before, started, embedded = engine.catalog, time.process_time(), encoder.milliseconds
            gateway.on_upstream(ToolsChanged(server=name, tools=tuple(changed), problems=()))
            await gateway.settled()
            searcher = await anyio.to_thread.run_sync(lambda: engine.searcher)
            embedding = encoder.milliseconds - embedded
            times.append(((time.process_time() - started) * 1000 - embedding, embedding))
            assert searcher.catalog is not before
            assert searcher.catalog is engine.catalog
    least, embedding = min(times)
    return round(least, 2), round(embedding, 2)


def _cpu(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


async def run(tools: Sequence[Tool], arriving_tools: Sequence[Tool], queries: Sequence[str]) -> dict[str, Any]:
    loads: dict[str, Callable[[], Awaitable[Lag]]] = {
        IDLE: lambda: idle(tools),
        f"{len(arriving_tools):,} tools arrive": lambda: arriving(arriving_tools),
        f"one tool changes at {len(tools):,}": lambda: changing(tools),
        f"{CLIENTS} clients search": lambda: searching(tools, queries),
        "a provider hangs": lambda: hanging(tools, queries),
    }
    lags = {}
    for name, load in loads.items():
        gc.collect()
        lags[name] = await load()
    change = cpu_of_a_change(arriving_tools)
    for name, work in {"gateway": one_changed, "gateway, one tool added": one_added}.items():
        change[name], change[f"embedding in the scan, {name}"] = await cpu_of_a_change_in_a_gateway(
            arriving_tools, work
        )
    return {"lags": {name: _fields(lag) for name, lag in lags.items()}, "change_cpu_ms": change}


def _fields(lag: Lag) -> dict[str, float]:
    return {"p50_ms": lag.p50, "p99_ms": lag.p99, "max_ms": lag.most, "samples": lag.samples}


def tables_of(data: dict[str, Any], count: int) -> list[Table]:
    lags = [
        (name, f"{lag['p50_ms']:.1f}", f"{lag['p99_ms']:.1f}", f"{lag['max_ms']:.1f}", _verdict(lag["p99_ms"], 25.0))
        for name, lag in data["lags"].items()
    ]
    changes = [
        (name, f"{cpu:.1f}", "–" if name.startswith("embedding") else _verdict(cpu, CHANGE_MILLISECONDS))
        for name, cpu in data["change_cpu_ms"].items()
    ]
    return [
        Table("Event-loop lag, ms", ("load", "p50", "p99", "max", f"p99 ≤ {TARGET_MILLISECONDS:.0f}"), tuple(lags)),
        Table(f"CPU of one changed tool at {count:,}, ms", ("where", "CPU", "≤ 30"), tuple(changes)),
    ]


def _verdict(seen: float, most: float) -> str:
    return "holds" if seen <= most else "DOES NOT HOLD"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=25_759)
    parser.add_argument("--arriving", type=int, default=20_000)
    options = parser.parse_args()
    every = list(read_catalog(rows(bench_file(*DATA, "tools.jsonl.gz"))).catalog.tools.values())
    queries = [str(row["query"]) for row in spread(rows(bench_file(*DATA, "queries.jsonl.gz")), 64)]
    chosen = spread(every, options.tools)
    of_one_server = [
        tool_from_mcp({**tool.mcp(), "name": f"{place}_{tool.name}"[:64]}, BIG)
        for place, tool in enumerate(spread(every, options.arriving))
    ]
    sys.setswitchinterval(SWITCH_SECONDS)  # these three as `serve` does
    gc.set_threshold(*YOUNG_OBJECTS)
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update({f"XDG_{kind}_HOME": str(Path(folder) / kind.lower()) for kind in ("DATA", "CACHE")})
        data = anyio.run(run, chosen, of_one_server, queries)
        data["threads_left"] = threading.active_count()
    publish("loop", tables_of(data, len(of_one_server)), data)


if __name__ == "__main__":
    main()
