"""What the gateway costs: calls, searches and start against FastMCP, and tokens against other shapes of menu.

    python -m benchmarks.gateway --peers PYTHON            # PYTHON: of an environment with FastMCP in it
    python -m benchmarks.gateway --only tokens             # or calls, search, start

Everything that is compared is timed in turns in one run, since only ratios hold on a busy machine. FastMCP's pin is in
benchmarks/baselines/requirements.txt; exact tokens need `python benchmarks/tokens.py ranks` once.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import numpy as np
from benchmarks.measuring import publish, spread
from benchmarks.tokens import exact
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import Settings
from shortlist.disclosure.render import describe_text
from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.evals.tables import Table
from shortlist.gateway.exchange import Round
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.metatools import menu_definitions
from shortlist.gateway.workspaces import Caller
from shortlist.models import Query, Tool
from shortlist.search.searcher import Searcher

PROGRAMS = Path(__file__).with_name("gateway_programs.py")
SHORTLIST = Path(sys.executable).with_name("shortlist")
DATA = "mcp_union"
QUERIES = 40
TEXT = {"text": "a short answer"}
SIZES = (60, 6_000)
SEARCH_SIZE = 600
TOKEN_SIZES = (50, 500, 5_000)
SERVERS = 10
PARTS = ("calls", "search", "start", "tokens")
UP_TO_THEN_SECONDS = 600.0
Found: TypeAlias = tuple[list[Table], dict[str, Any]]
Ask: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Bench:
    """What every part works with."""

    folder: Path
    wanted: Sequence[Tool]
    """What the queries are about; a part of every selection."""
    tools: Sequence[Tool]
    queries: Sequence[str]
    peers: str | None
    rounds: int
    environment: Mapping[str, str] = field(default_factory=dict)

    def some(self, count: int) -> list[Tool]:
        """Give so many real tools, those that the queries are about among them."""
        chosen = {tool.id: tool for tool in (*self.wanted[:count], *spread(self.tools, count))}
        return list(chosen.values())[:count]

    def definitions(self, count: int) -> str:
        """Write the definitions of so many real tools, and give the file."""
        path = self.folder / f"tools-{count}.json"
        if not path.exists():
            path.write_text(json.dumps([definition(tool) for tool in self.some(count)]), "utf-8")
        return str(path)

    def config(self, servers: Mapping[str, Sequence[str]]) -> str:
        entries = {name: {"command": line[0], "args": list(line[1:])} for name, line in servers.items()}
        path = self.folder / f"config-{len(list(self.folder.iterdir()))}.json"
        path.write_text(json.dumps({"mcpServers": entries}), "utf-8")
        return str(path)

    def server(self, count: int) -> list[str]:
        return [sys.executable, str(PROGRAMS), "server", self.definitions(count)]

    def gateway(self, count: int) -> list[str]:
        return [str(SHORTLIST), "serve", "--config", self.config({"bench": self.server(count)})]

    def fastmcp(self, count: int, kind: str = "fastmcp") -> list[str]:
        return [str(self.peers), str(PROGRAMS), kind, sys.executable, self.definitions(count)]

    @asynccontextmanager
    async def client(self, command: Sequence[str]) -> AsyncIterator[Client]:
        """Connect over stdio as a desktop client does, and list the tools once, as it does too."""
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(self.environment))
        async with Client(stdio_client(parameters), mode="legacy") as client:
            await client.list_tools()
            yield client


def definition(tool: Tool) -> dict[str, Any]:
    schema = {**tool.input_schema, "type": "object"}  # some of the collected ones have no type, which servers must give
    return {"name": tool.id.replace("/", "_")[-100:], "description": tool.description, "inputSchema": schema}


def is_listable(tool: Tool) -> bool:
    """Leave out the collected tools that no server could list: the protocol wants these types of a schema."""
    required, properties = tool.input_schema.get("required", []), tool.input_schema.get("properties", {})
    names = isinstance(required, list) and all(isinstance(name, str) for name in required)
    return names and isinstance(properties, dict) and all(isinstance(each, dict) for each in properties.values())


async def in_turns(asks: Mapping[str, Ask], rounds: int) -> dict[str, "np.ndarray[Any, Any]"]:
    """Time them by turns, after some that are not timed."""
    times: dict[str, list[float]] = {name: [] for name in asks}
    for turn in range(rounds + rounds // 10 + 3):
        for name, ask in asks.items():
            started = time.perf_counter()
            await ask()
            if turn >= rounds // 10 + 3:
                times[name].append((time.perf_counter() - started) * 1000)
    return {name: np.array(found) for name, found in times.items()}


# Calls


async def calls(bench: Bench) -> Found:
    """Time the same echo direct, through the gateway with few and many tools, and through FastMCP's mounted proxy."""
    commands = {"direct": bench.server(SIZES[0])}
    commands |= {f"shortlist, {size:,} tools": bench.gateway(size) for size in SIZES}
    if bench.peers:
        # With few tools only: it lists them all again for a call, which takes minutes at the other size.
        commands[f"FastMCP proxy, {SIZES[0]:,} tools"] = bench.fastmcp(SIZES[0])
    async with AsyncExitStack() as stack:
        asks: dict[str, Ask] = {}
        for name, command in commands.items():
            client = await stack.enter_async_context(bench.client(command))
            asks[name] = call_of(name, client)
            await until_it_answers(asks[name])
            if name.startswith("shortlist"):
                await until_it_answers(lambda client=client: settled(client))  # type: ignore[misc]
        times = await in_turns(asks, bench.rounds)
    base = {q: float(np.percentile(times["direct"], q)) for q in (10, 50)}
    rows = [
        {"way": name, **{f"added_p{q}_ms": float(np.percentile(found, q)) - base[q] for q in base}}
        for name, found in times.items()
    ]
    table = Table(
        "One call over stdio: milliseconds added to the same call direct",
        ("way", "p10", "p50"),
        tuple((str(r["way"]), f"{r['added_p10_ms']:.2f}", f"{r['added_p50_ms']:.2f}") for r in rows),
        (f"Direct: p10 {base[10]:.2f}, p50 {base[50]:.2f} ms; {bench.rounds} rounds in turns.",),
    )
    return [table], {"calls": {"direct_p10_ms": base[10], "direct_p50_ms": base[50], "rows": rows}}


def call_of(name: str, client: Client) -> Ask:
    if name.startswith("shortlist"):
        return lambda: called(client, "call_tool", {"name": "bench__echo", "arguments": TEXT})
    return lambda: called(client, "echo" if name == "direct" else "bench_echo", TEXT)


async def called(client: Client, name: str, arguments: dict[str, Any]) -> str:
    result = await client.call_tool(name, arguments)
    text = "\n".join(block.text for block in result.content if block.type == "text")
    if result.is_error:
        raise RuntimeError(text)
    return text


async def settled(client: Client) -> None:
    """Raise while the gateway still makes vectors, which takes the processor from the calls."""
    await call_of("shortlist", client)()  # searches without a call between them would be answered as a circle
    found = await called(client, "search_tools", {"query": f"anything {time.monotonic()}"})
    if "not ready yet" in found or "wait for their vectors" in found:
        raise RuntimeError(found)


async def until_it_answers(ask: Ask) -> None:
    """Wait for a server that is still starting behind the front."""
    with anyio.fail_after(UP_TO_THEN_SECONDS):
        while True:
            try:
                await ask()
                return
            except RuntimeError:
                await anyio.sleep(0.2)


# Search


async def search(bench: Bench) -> Found:
    """search_tools from the client's side, over one server with so many tools."""
    commands = {"shortlist": bench.gateway(SEARCH_SIZE)}
    if bench.peers:
        commands["FastMCP search"] = bench.fastmcp(SEARCH_SIZE, "fastmcp-search")
    turns = {name: cycle(bench.queries) for name in commands}
    async with AsyncExitStack() as stack:
        asks: dict[str, Ask] = {}
        for name, command in commands.items():
            client = await stack.enter_async_context(bench.client(command))
            asks[name] = searching(client, turns[name], name == "shortlist")
            await until_it_answers(asks[name])
        times = await in_turns(asks, max(bench.rounds // 2, 20))
    rows = [
        {"way": name, **{f"p{q}_ms": float(np.percentile(t, q)) for q in (10, 50, 95)}} for name, t in times.items()
    ]
    table = Table(
        f"search_tools end to end over stdio, {SEARCH_SIZE} tools: milliseconds",
        ("way", "p10", "p50", "p95"),
        tuple((str(r["way"]), *(f"{r[f'p{q}_ms']:.2f}" for q in (10, 50, 95))) for r in rows),
    )
    return [table], {"search": {"tools": SEARCH_SIZE, "rows": rows}}


def searching(client: Client, queries: Any, ours: bool) -> Ask:
    async def ask() -> None:
        found = await called(client, "search_tools", {"query": next(queries)})
        if ours and "Still connecting" in found:
            raise RuntimeError(found)

    return ask


# Start


async def start(bench: Bench) -> Found:
    """From the start of the process to its first answered search, and the CPU that a start takes."""
    servers = {f"server{n}": bench.server(20 + n) for n in range(SERVERS - 1)}
    servers["hangs"] = [sys.executable, "-c", "import time; time.sleep(3600)"]
    command = [str(SHORTLIST), "serve", "--config", bench.config(servers)]
    await first_run(bench, command)
    seconds, yardstick = [], []
    for _ in range(5):
        yardstick.append(wall([sys.executable, "-c", "import mcp"]))
        seconds.append(await first_search(bench, command))
    empty = [str(SHORTLIST), "serve", "--config", bench.config({})]
    cpu = {"import mcp": [sys.executable, "-c", "import mcp"], "shortlist serve": empty}
    used = {name: min(times) for name, times in cpu_of(bench, cpu).items()}
    above = used["shortlist serve"] - used["import mcp"]
    table = Table(
        "Start",
        ("what", "seconds"),
        (
            (
                f"start to first answered search: {SERVERS} servers, one hanging, saved catalog (median)",
                f"{statistics.median(seconds):.2f}",
            ),
            ("the same, fastest of five", f"{min(seconds):.2f}"),
            ("a process that only imports mcp, in turns with it: median", f"{statistics.median(yardstick):.2f}"),
            ("the same, fastest of five", f"{min(yardstick):.2f}"),
            ("CPU of `import mcp`", f"{used['import mcp']:.2f}"),
            ("CPU of `shortlist serve` until it has answered `initialize` and ended", f"{used['shortlist serve']:.2f}"),
            ("CPU above `import mcp`", f"{above:.2f}"),
        ),
        ("CPU seconds are the least of seven starts in turns. Whatever else runs on the machine only ever adds.",),
    )
    return [table], {
        "start": {"first_search_s": seconds, "import_mcp_s": yardstick, "cpu_s": used, "cpu_above_import_mcp_s": above}
    }


def wall(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


async def first_run(bench: Bench, command: Sequence[str]) -> None:
    """Let every server connect once, until the catalogs of those that answer are saved."""
    async with bench.client(command):
        with anyio.fail_after(UP_TO_THEN_SECONDS):
            while len(list(bench.folder.glob("data/**/catalog/*.json"))) < SERVERS - 1:
                await anyio.sleep(0.2)


async def first_search(bench: Bench, command: Sequence[str]) -> float:
    started = time.perf_counter()
    async with bench.client(command) as client:
        answer = await called(client, "search_tools", {"query": "say a text back"})
        seconds = time.perf_counter() - started
    if "echo" not in answer:
        raise RuntimeError(f"The first search found nothing: {answer}")
    return seconds


def cpu_of(bench: Bench, commands: Mapping[str, Sequence[str]], turns: int = 7) -> dict[str, list[float]]:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                command, input=line, text=True, check=True, capture_output=True, env=os.environ | bench.environment
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return times


# Tokens


class NoServers:
    """Stands in for the servers where nothing is called."""

    def status(self) -> dict[str, Any]:
        return {}

    def states(self) -> dict[str, Any]:
        return {}

    def peer(self, _: str) -> None:
        return None

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def notify(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    async def watch(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError


class Nobody:
    """The client of a request that is only counted; a new one every time, so that nobody searches in circles."""

    caller = Caller(era="modern")

    def can(self, _: str) -> bool:
        return False

    async def ask(self, *_: Any) -> dict[str, Any]:
        raise NotImplementedError

    async def progress(self, *_: Any) -> None:
        raise NotImplementedError

    async def pause(self) -> None:
        raise NotImplementedError

    async def log(self, *_: Any) -> None:
        raise NotImplementedError


MCPPROXY_HITS = 15
"""Its default; each with its whole input schema."""
TWO_TOOL_HITS = 8
"""The two-tool shape: a search that answers with whole definitions, and a call."""


async def tokens(bench: Bench) -> Found:
    """One task from first look to call: what a model reads, by shape of the menu and size of the catalog."""
    rows = [await tokens_at(bench, size) for size in TOKEN_SIZES]
    shapes = ("all upfront", "MCPProxy's shape", "two-tool shape", "shortlist, full", "shortlist")
    table = Table(
        "Tokens (o200k, exact) that a model reads for one task: menu, search, describe, call",
        ("tools", *shapes, "of all upfront", "search answer, median"),
        tuple(
            (
                f"{row['tools']:,}",
                *(f"{row[shape]:,.0f}" for shape in shapes),
                f"{row['shortlist'] / row['all upfront']:.1%}",
                f"{row['search_median']:,.0f}",
            )
            for row in rows
        ),
        (
            f"Medians over {len(bench.queries)} queries, the same ranking for every shape. MCPProxy's shape:"
            f" {MCPPROXY_HITS} hits with whole schemas; two-tool: {TWO_TOOL_HITS} whole definitions; for the menus of"
            " both our smallest one is counted. `full`: our search with detail=full, which needs no describe.",
        ),
    )
    return [table], {"tokens": rows}


async def tokens_at(bench: Bench, size: int) -> dict[str, Any]:
    count = exact()
    catalog = Catalog.of(bench.some(size))
    searcher = Searcher(catalog, None)
    gateway = Gateway(Settings(), searcher, NoServers())
    menu = count(json.dumps(menu_definitions("search"))) + count(gateway.instructions(Nobody.caller))
    found: dict[str, list[float]] = {"search": [], "full": [], "describe": [], "mcpproxy": [], "two": [], "call": []}
    for query in bench.queries:
        answer = await gateway.call(Nobody(), "search_tools", {"query": query}, Round())
        full = await gateway.call(Nobody(), "search_tools", {"query": query, "detail": "full"}, Round())
        found["search"].append(count(words(answer)))
        found["full"].append(count(words(full)))
        hits = [hit.tool for hit in searcher.search(Query(text=query, limit=MCPPROXY_HITS)).hits]
        if not hits:
            continue
        found["describe"].append(count(describe_text(hits[0], gateway.state.snapshot.name(hits[0].id))))
        found["call"].append(count(json.dumps({"name": gateway.state.snapshot.name(hits[0].id), "arguments": {}})))
        found["mcpproxy"].append(count(json.dumps({"query": query, "tools": [proxied(tool) for tool in hits]})))
        found["two"].append(count(json.dumps({"tools": [definition(tool) for tool in hits[:TWO_TOOL_HITS]]})))
    median = {name: statistics.median(values) for name, values in found.items()}
    minimal = count(json.dumps(menu_definitions("minimal")))
    upfront = sum(count(json.dumps(definition(tool))) for tool in catalog.tools.values())
    return {
        "tools": len(catalog),
        "all upfront": upfront,
        "MCPProxy's shape": minimal + median["mcpproxy"] + median["call"],
        "two-tool shape": minimal + median["two"] + median["call"],
        "shortlist, full": menu + median["full"] + median["call"],
        "shortlist": menu + median["search"] + median["describe"] + median["call"],
        "menu": menu,
        "search_median": median["search"],
        "describe_median": median["describe"],
        "call_median": median["call"],
    }


def proxied(tool: Tool) -> dict[str, Any]:
    """Give a hit as MCPProxy's retrieve_tools does."""
    return {**definition(tool), "server": tool.server, "score": 0.5}


def words(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


# All together


async def run(bench: Bench, parts: Sequence[str]) -> Found:
    ways = {"calls": calls, "search": search, "start": start, "tokens": tokens}
    tables: list[Table] = []
    data: dict[str, Any] = {}
    for part in parts:
        print(f"measuring {part} …", file=sys.stderr)
        more, facts = await ways[part](bench)
        tables += more
        data |= facts
    return tables, data


def verdicts(data: Mapping[str, Any]) -> Table:
    """Hold the figures against what was asked of them."""
    rows: list[tuple[str, str, str, bool]] = []
    if "calls" in data:
        added = {row["way"]: row["added_p10_ms"] for row in data["calls"]["rows"]}
        ours = [added[f"shortlist, {size:,} tools"] for size in SIZES]
        rows.append(
            (
                "call, added p10, many tools over few",
                "flat: ≤ 1.25",
                f"{ours[1] / ours[0]:.2f}",
                ours[1] <= ours[0] * 1.25,
            )
        )
        theirs = added.get(f"FastMCP proxy, {SIZES[0]:,} tools")
        if theirs:
            rows.append(("call, added p10 over FastMCP's", "≤ 0.50", f"{ours[0] / theirs:.2f}", ours[0] <= theirs / 2))
    if "search" in data and len(data["search"]["rows"]) > 1:
        mine, its = (row["p50_ms"] for row in data["search"]["rows"])
        rows.append(("search p50 over FastMCP's", "≤ 0.33", f"{mine / its:.2f}", mine <= its / 3))
    if "start" in data:
        first, above = min(data["start"]["first_search_s"]), data["start"]["cpu_above_import_mcp_s"]
        rows.append(("start to first search, fastest of five", "< 2 s", f"{first:.2f} s", first < 2))
        rows.append(("start, CPU above `import mcp`", "≤ 0.60 s", f"{above:.2f} s", above <= 0.6))
    for row in data.get("tokens", ()):
        if row["tools"] == 500:
            share = row["shortlist"] / row["all upfront"]
            rows.append(("tokens of a task over 500 tools", "≤ 3 % of all upfront", f"{share:.1%}", share <= 0.03))
            rows.append(
                ("default search answer, median", "≤ 500", f"{row['search_median']:.0f}", row["search_median"] <= 500)
            )
    return Table(
        "Against the targets",
        ("figure", "target", "measured", "holds"),
        tuple((figure, target, seen, "yes" if holds else "no") for figure, target, seen, holds in rows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="the Python of an environment with FastMCP")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    dataset = load_dataset(DATA)
    cases = spread(dataset.cases, QUERIES)
    collected = read_catalogs(dataset.catalogs).catalog.tools
    known = {tool_id: tool for tool_id, tool in collected.items() if is_listable(tool)}
    wanted = {gold: known[gold] for case in cases for gold in case.gold if gold in known}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}
        queries = [case.query for case in cases]
        bench = Bench(
            folder,
            tuple(wanted.values()),
            tuple(known.values()),
            queries,
            options.peers,
            options.rounds,
            os.environ | homes,
        )
        tables, data = anyio.run(run, bench, options.only)
    publish("gateway", [*tables, verdicts(data)], data)


if __name__ == "__main__":
    main()
