"""Code mode beside search and all-upfront, on multi-step tasks over the demo servers: python -m benchmarks.code.

Each task is done three times through a real MCP client: as single calls of tools that are all listed, as single calls
after a search, and as one program after a search. Single calls replay the program's own steps one by one, and calls
that it makes in parallel count as one round trip. The results must be equal. Tokens in are what a model reads: in every
round trip it reads the whole conversation so far, without a prompt cache. Tokens out are the calls or the program that
it writes. Time is that of the calls, without the model. `--real` adds reference servers from npm and PyPI, which it
installs. `python -m benchmarks.code_speed` measures the overhead of a program, and hostile ones.
"""

import argparse
import ast
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from benchmarks.code_scenarios import REAL_SCENARIOS, SCENARIOS, CodeScenario
from benchmarks.measuring import publish, rows
from benchmarks.restart import configurable
from benchmarks.restarting import settings_of
from benchmarks.tokens import RANKS, exact
from mcp import Client

from shortlist.access.principal import OWNER
from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.stack import Stack, Starting, open_stack
from shortlist.config.load import load_settings
from shortlist.config.settings import (
    CodeSettings,
    SearchSettings,
    Settings,
)
from shortlist.demo.server import demo_settings
from shortlist.disclosure.budget import estimate_tokens
from shortlist.evals.datasets import data_root
from shortlist.evals.tables import Table
from shortlist.gateway.python_tools import functions_of
from shortlist.gateway.view import ServeOptions
from shortlist.storage.opening import open_storage

CODE = CodeSettings(allow="write")
BIFROST = 92.8
"""Percent fewer input tokens at 508 tools, as Bifrost publishes it."""
READY_SECONDS = 300.0


@dataclass(slots=True)
class Flow:
    """One way of doing a task: what a model reads and writes, in how many round trips, and how long calls take."""

    tokens_in: int = 0
    tokens_out: int = 0
    rounds: int = 0
    milliseconds: float = 0.0
    value: Any = None
    context: int = field(default=0, repr=False)
    found: int = 0
    """Tokens of the answer to the search at its beginning, which every later round trip reads again."""

    def turn(self, written: int, read: int) -> None:
        """Count one round trip: the model reads everything so far, writes, and an answer joins the conversation."""
        self.rounds += 1
        self.tokens_in += self.context
        self.tokens_out += written
        self.context += written + read

    def finish(self) -> None:
        """Count the last reading, after which the model answers its user."""
        self.tokens_in += self.context


class SingleCalls:
    """`tools` for a replay in this process: calls made at the same time are one round trip of the client."""

    def __init__(self, client: Client, names: Mapping[str, str], flow: Flow, count: Callable[[str], int]) -> None:
        self._client, self._names, self._flow, self._count = client, names, flow, count
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[Any]]] = []
        self.direct = True

    def __getattr__(self, server: str) -> "_Server":
        return _Server(self, server)

    async def call(self, path: str, arguments: dict[str, Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(({"name": self._names[path], "arguments": arguments}, future))
        if len(self._waiting) == 1:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await self._flush()
        return await future

    async def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        started = perf_counter()
        results = await asyncio.gather(*[self._one(request) for request, _ in batch])
        self._flow.milliseconds += (perf_counter() - started) * 1000
        read = sum(self._count(text_of(result)) for result in results)
        self._flow.turn(sum(self._count(json.dumps(request)) for request, _ in batch), read)
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(_value(result))

    async def _one(self, request: dict[str, Any]) -> Any:
        if self.direct:
            return await self._client.call_tool(request["name"], request["arguments"])
        return await self._client.call_tool("call_tool", request)


class _Server:
    def __init__(self, calls: SingleCalls, server: str) -> None:
        self._calls, self._server = calls, server

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda **arguments: self._calls.call(f"{self._server}.{name}", arguments)


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _value(result: Any) -> Any:
    if result.is_error:
        raise RuntimeError(text_of(result))
    if result.structured_content is not None:
        return result.structured_content
    text = text_of(result)
    return json.loads(text) if text[:1] in "{[" else text


async def replay(program: str, tools: SingleCalls) -> Any:
    """Run a program in this process, call by call, and return the value of its last expression."""
    tree = ast.parse(f"async def main(tools):\n{''.join(f'    {line}{chr(10)}' for line in program.splitlines())}")
    body = tree.body[0].body  # type: ignore[attr-defined]
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.Return(body[-1].value)
    scope: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<scenario>", "exec"), scope)
    return await scope["main"](tools)


@dataclass(frozen=True, slots=True)
class Bench:
    """Three gateways over the same servers, and how tokens are counted."""

    upfront: Client
    search: Client
    code: Client
    names: Mapping[str, str]
    count: Callable[[str], int]
    menus: Mapping[str, int]


async def compare(bench: Bench, scenario: CodeScenario) -> dict[str, Flow]:
    """Do one task in all three ways."""
    asked = bench.count(scenario.task)
    flows = {name: Flow(context=bench.menus[name] + asked) for name in ("all upfront", "search", "code")}
    for name, client in (("all upfront", bench.upfront), ("search", bench.search)):
        flow = flows[name]
        calls = SingleCalls(client, bench.names, flow, bench.count)
        if name == "search":
            calls.direct = False
            await _searched(client, scenario, flow, bench.count)
        flow.value = await replay(scenario.program, calls)
        flow.finish()
    flow = flows["code"]
    await _searched(bench.code, scenario, flow, bench.count)
    started = perf_counter()
    result = await bench.code.call_tool("run_code", {"code": scenario.program})
    flow.milliseconds += (perf_counter() - started) * 1000
    answer = text_of(result)
    if result.is_error:
        raise RuntimeError(f"{scenario.task}\n{answer}")
    flow.turn(bench.count(json.dumps({"code": scenario.program})), bench.count(answer))
    flow.finish()
    flow.value = json.loads(answer.rpartition("\nCalls:")[0].splitlines()[-1])
    return flows


async def _searched(client: Client, scenario: CodeScenario, flow: Flow, count: Callable[[str], int]) -> None:
    arguments = {"queries": list(scenario.searches), "limit": 3}
    started = perf_counter()
    answer = text_of(await client.call_tool("search_tools", arguments))
    flow.milliseconds += (perf_counter() - started) * 1000
    flow.found = count(answer)
    flow.turn(count(json.dumps(arguments)), flow.found)


@asynccontextmanager
async def benches(settings: Settings, count: Callable[[str], int]) -> AsyncIterator[Bench]:
    """Open the three gateways, and wait until every server is there."""
    async with (
        served(settings, ServeOptions(mode="passthrough")) as (upfront, _),
        served(settings, ServeOptions(mode="search")) as (search, stack),
        served(replace(settings, code=CODE), ServeOptions(menu="code")) as (code, _),
    ):
        reach = stack.gateway.state.reach(OWNER)
        functions = functions_of(reach)
        names = {functions.path(reach[tool_id]): reach.name(tool_id) for tool_id in reach}
        clients = {"all upfront": upfront, "search": search, "code": code}
        menus = {name: await _menu(client, count) for name, client in clients.items()}
        yield Bench(upfront, search, code, names, count, menus)


@asynccontextmanager
async def served(
    settings: Settings, options: ServeOptions, start: Starting = "all"
) -> AsyncIterator[tuple[Client, Stack]]:
    async with open_stack(settings, options, start=start) as stack, Client(stack.front.server) as client:
        with anyio.fail_after(READY_SECONDS):
            await stack.pool.settled(READY_SECONDS)
            await stack.gateway.settled()
        yield client, stack


async def _menu(client: Client, count: Callable[[str], int]) -> int:
    listed = (await client.list_tools(cache_mode="bypass")).tools
    definitions = (tool.model_dump_json(by_alias=True, exclude_none=True) for tool in listed)
    return sum(map(count, definitions)) + count(client.instructions or "")


def union_catalog() -> Catalog | None:
    """Read the 25,759 tools of the union under the names of their servers; None without the benchmark data."""
    path = data_root() / "eval" / "mcp_union" / "tools.jsonl.gz"
    return configurable(read_catalog(rows(path)).catalog) if path.exists() else None


async def found_at_scale(
    catalog: Catalog, scenarios: Sequence[CodeScenario], count: Callable[[str], int]
) -> dict[str, list[int]]:
    """Return the tokens of the answers to each task's searches among the tools of the union, by way.

    The gateways start with these tools saved, so that nothing is scanned, and their servers are not started.
    """
    servers = {name: replace(each, trust="auto") for name, each in settings_of(catalog.servers).servers.items()}
    settings = Settings(servers=servers, search=SearchSettings(embedder="static"), code=CodeSettings())
    with closing(open_storage(settings.storage)) as storage:
        saved = SavedCatalog(storage.catalogs, servers)
        for name, server in catalog.servers.items():
            saved.save(server, catalog.of_server(name))
    found: dict[str, list[int]] = {}
    for way, options in (("search", ServeOptions(mode="search")), ("code", ServeOptions(menu="code"))):
        _say(f"searching {len(catalog):,} tools, {way} …")
        async with served(settings, options, start="none") as (client, _):
            flows = [Flow() for _ in scenarios]
            for scenario, flow in zip(scenarios, flows, strict=True):
                await _searched(client, scenario, flow, count)
            found[way] = [flow.found for flow in flows]
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# Tables


@dataclass(frozen=True, slots=True)
class Size:
    """A catalog, what listing it costs, and the tokens of the searches of each task in it where it was not served."""

    name: str
    listed: int
    found: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def tokens_in(self, way: str, flows: Sequence[Flow]) -> list[int]:
        """Return the tokens in of each task, with the answers to its searches in this catalog."""
        if way not in self.found:
            return [flow.tokens_in for flow in flows]
        answers = zip(flows, self.found[way], strict=True)
        return [flow.tokens_in + (found - flow.found) * flow.rounds for flow, found in answers]


def _summary(rows: Sequence[tuple[str, dict[str, Flow]]], sizes: Sequence[Size], menu: int) -> list[Table]:
    ways = ("all upfront", "search", "code")
    per_task = [
        (
            task[:60],
            *(f"{flows[way].tokens_in:,}" for way in ways),
            *(str(flows[way].rounds) for way in ways),
            "yes" if len({json.dumps(flows[way].value, sort_keys=True) for way in ways}) == 1 else "NO",
        )
        for task, flows in rows
    ]
    totals = {way: [flows[way] for _, flows in rows] for way in ways}
    per_way = [
        (
            way,
            f"{statistics.mean(f.tokens_in for f in flows):,.0f}",
            f"{statistics.mean(f.tokens_out for f in flows):,.0f}",
            f"{statistics.mean(f.rounds for f in flows):.1f}",
            f"{statistics.median(f.milliseconds for f in flows):.1f}",
        )
        for way, flows in totals.items()
    ]
    savings = []
    for size in sizes:
        whole = sum(f.tokens_in + (size.listed - menu) * (f.rounds + 1) for f in totals["all upfront"])
        read = {way: sum(size.tokens_in(way, totals[way])) for way in ("search", "code")}
        saved = (f"{100 * (1 - tokens / whole):.1f} %" for tokens in read.values())
        means = (f"{tokens / len(rows):,.0f}" for tokens in (whole, *read.values()))
        savings.append((size.name, f"{size.listed:,}", *means, *saved))
    return [
        Table(
            "Tokens in and round trips by task",
            ("task", *(f"tokens, {way}" for way in ways), *(f"rounds, {way}" for way in ways), "equal"),
            tuple(per_task),
        ),
        Table(
            f"Means over {len(rows)} tasks (time: median)",
            ("way", "tokens in", "tokens out", "round trips", "time of calls, ms"),
            tuple(per_way),
        ),
        Table(
            f"Input tokens saved against all upfront (Bifrost publishes {BIFROST} % at 508 tools)",
            (
                *("tools", "tokens of all definitions", "tokens in, all upfront", "tokens in, search"),
                *("tokens in, code", "saved by search", "saved by code"),
            ),
            tuple(savings),
        ),
    ]


async def measure(arguments: argparse.Namespace) -> None:
    count: Callable[[str], int] = exact() if RANKS.exists() else estimate_tokens
    scenarios = SCENARIOS[: arguments.tasks]
    _say(f"{len(scenarios)} tasks over the demo servers …")
    async with benches(Settings(servers=demo_settings()), count) as bench:
        done = [(scenario.task, await compare(bench, scenario)) for scenario in scenarios]
        menu = bench.menus["all upfront"]
    sizes = [Size("416", menu)]
    union = None if arguments.no_union else union_catalog()
    if union is not None:
        listed = sum(count(tool.definition) for tool in union.tools.values())
        sizes.append(Size(f"{len(union):,}", listed, await found_at_scale(union, scenarios, count)))
    tables = _summary(done, sizes, menu)
    if arguments.real:
        from tests_all.support import install, reference_servers

        _say(f"{len(REAL_SCENARIOS)} tasks over reference servers, which are installed first …")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_DATA_HOME"] = str(Path(folder) / "data")  # demo servers of the same names are pinned
            settings = load_settings(reference_servers(install(), Path(folder)))
            async with benches(settings, count) as bench:
                real = [(s.task, await compare(bench, s)) for s in REAL_SCENARIOS]
                menu = bench.menus["all upfront"]
                tables += _summary(real, [Size("reference servers", menu)], menu)
    publish(
        "code",
        tables,
        {
            "tokens": "o200k, exact" if RANKS.exists() else "o200k, estimated",
            "tasks": {task: {way: [f.tokens_in, f.tokens_out, f.rounds, f.milliseconds] for way, f in flows.items()}
                      for task, flows in done},
        },
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.code", description=__doc__)
    parser.add_argument("--tasks", type=int, default=len(SCENARIOS), help="only so many tasks")
    parser.add_argument("--real", action="store_true", help="also use reference servers, which are installed first")
    parser.add_argument("--no-union", action="store_true", help="leave out the 25,759 tools")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder  # nothing of the user's is read or written
        anyio.run(measure, arguments)


if __name__ == "__main__":
    main()
