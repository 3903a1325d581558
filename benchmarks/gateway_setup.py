"""What the parts of `benchmarks.gateway` have in common: catalogs, gateways and peers to start, clients that ask."""

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import numpy as np
from benchmarks.measuring import spread
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from shortlist.evals.tables import Table
from shortlist.models import Tool

PROGRAMS = Path(__file__).with_name("gateway_programs.py")
SHORTLIST = Path(sys.executable).with_name("shortlist")
TEXT = {"text": "a short answer"}
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
        """Return this many real tools, including those that the queries are about."""
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
        return [str(SHORTLIST), "serve", "--own", "--config", self.config({"bench": self.server(count)})]

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
    if "not ready yet" in found or "have no vectors yet" in found:
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
