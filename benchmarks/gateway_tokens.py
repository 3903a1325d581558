"""What a model reads for one task, by shape of the menu, for `benchmarks.gateway`."""

import json
import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.gateway_setup import Bench, Found, definition
from benchmarks.tokens import exact

from shortlist.access.principal import OWNER
from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import Settings
from shortlist.disclosure.render import describe_text
from shortlist.evals.tables import Table
from shortlist.gateway.callers import Caller, Round
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.menus import menu_definitions
from shortlist.models import Query, Tool
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher

TOKEN_SIZES = (50, 500, 5_000)
MCPPROXY_HITS = 15
"""Its default; each with its whole input schema."""
TWO_TOOL_HITS = 8
"""The two-tool shape: a search that answers with whole definitions, and a call."""


class NoServers:
    """Stands in for the servers where nothing is called."""

    def status(self) -> dict[str, Any]:
        return {}

    @property
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
    answers_in_place = True

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
    gateway = Gateway(Settings(), Engine.over(searcher), NoServers())
    menu = count(json.dumps(menu_definitions("search"))) + count(await gateway.instructions(Nobody.caller))
    found: dict[str, list[float]] = {"search": [], "full": [], "describe": [], "mcpproxy": [], "two": [], "call": []}
    for query in bench.queries:
        answer = await gateway.call(Nobody(), "search_tools", {"query": query}, Round())
        full = await gateway.call(Nobody(), "search_tools", {"query": query, "detail": "full"}, Round())
        found["search"].append(count(words(answer)))
        found["full"].append(count(words(full)))
        hits = [hit.tool for hit in searcher.search(Query(text=query, limit=MCPPROXY_HITS)).hits]
        if not hits:
            continue
        found["describe"].append(count(describe_text(hits[0], gateway.state.reach(OWNER).name(hits[0].id))))
        found["call"].append(count(json.dumps({"name": gateway.state.reach(OWNER).name(hits[0].id), "arguments": {}})))
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
    """Return a hit as MCPProxy's retrieve_tools does."""
    return {**definition(tool), "server": tool.server, "score": 0.5}


def words(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
