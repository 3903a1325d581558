"""Clients that others wrote, over servers that others wrote."""

import json
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests_all.support import SHORTLIST, START_SECONDS, Foreign, Gateway, environment

Era = Literal["legacy", "modern"]
TASKS = [
    ("read the complete contents of a text file", "filesystem__read_text_file", "filesystem"),
    ("create new entities in the knowledge graph", "memory__create_entities", "memory"),
    ("the current time in a time zone", "time__get_current_time", "time"),
    ("show the commit log of the repository", "git__git_log", "git"),
    ("echo a message back", "everything__echo", "everything"),
]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])


def arguments_of(server: str, folder: Path) -> dict[str, Any]:
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    given: dict[str, dict[str, Any]] = {
        "filesystem": {"path": str(folder / "files" / "greeting.txt")},
        "memory": {"entities": [entity]},
        "time": {"timezone": "Asia/Tokyo"},
        "git": {"repo_path": str(folder / "repository")},
        "everything": {"message": "hello"},
    }
    return given[server]


ANSWERS = {
    "filesystem": "Hello from a file.",
    "memory": "Ada",
    "time": "Asia/Tokyo",
    "git": "A start",
    "everything": "hello",
}


PROGRAM = """
import asyncio
async def ready(call):
    while True:
        try:
            return await call()
        except (RuntimeError, AttributeError):  # its server is still starting
            await asyncio.sleep(0.1)
await ready(lambda: tools.everything.echo(message='x'))
await ready(lambda: tools.time.get_current_time(timezone='UTC'))
zones = ['Asia/Tokyo', 'Europe/Berlin']
times = await asyncio.gather(*[tools.time.get_current_time(timezone=zone) for zone in zones])
await tools.everything.echo(message=', '.join(time['timezone'] for time in times))
"""
"""What a model writes over two of the servers."""


class Inspector:
    """The MCP inspector's command line; every call is a process and a connection of its own."""

    def __init__(self, foreign: Foreign, url: str, era: Era, folder: Path, stdio: Sequence[str] = ()) -> None:
        self._command = foreign.package("inspector", "clients/launcher/build/index.js")
        self._url = url
        self._stdio = list(stdio)
        self._era = era
        self._home = folder / "home"
        self._home.mkdir(exist_ok=True)

    def at(self, path: str) -> None:
        """Connect to another path of the same server from now on."""
        self._url = f"{self._url.removesuffix('/mcp')}{path}"

    def run(self, *options: str) -> dict[str, Any]:
        reached = self._stdio or ["--server-url", self._url, "--transport", "http"]
        where = ["--cli", *reached, "--protocol-era", self._era]
        ran = subprocess.run(
            [*self._command, *where, "--format", "json", "--quiet", *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
            env=environment(self._home) | {"HOME": str(self._home)},
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        answer = json.loads(ran.stdout)
        result: dict[str, Any] = answer.get("result", answer)
        return result

    def call(self, tool: str, **arguments: Any) -> str:
        result = self.run("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.run("--method", "tools/list")["tools"]]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_searches_describes_and_calls(
    foreign: Foreign, gateway: Gateway, tmp_path: Path, era: Era
) -> None:
    inspector = Inspector(foreign, gateway.url, era, tmp_path)
    assert inspector.tools() == ["search_tools", "describe_tools", "call_tool", "read_result"]
    for query, tool, server in TASKS:
        assert tool in inspector.call("search_tools", query=query)
        assert f"{tool}" in inspector.call("describe_tools", names=[tool])
        answer = inspector.call("call_tool", name=tool, arguments=arguments_of(server, tmp_path))
        assert ANSWERS[server] in answer


@pytest.mark.parametrize("transport", ["http", "stdio"])
@eras
def test_the_inspector_runs_a_program(
    foreign: Foreign, config: Path, tmp_path: Path, era: Era, transport: Literal["http", "stdio"]
) -> None:
    document = json.loads(config.read_text())
    document["mcpServers"] = {name: document["mcpServers"][name] for name in ("everything", "time")}
    document["shortlist"] = {"code": {"enabled": True, "calls": 1_000, "read_only": ["time/*", "everything/echo"]}}
    config.write_text(json.dumps(document))
    with ExitStack() as stack:
        if transport == "http":
            gateway = stack.enter_context(Gateway.serving(config))
            inspector = Inspector(foreign, gateway.url, era, tmp_path)
            assert inspector.tools() == ["search_tools", "describe_tools", "run_code", "read_result"]
        else:
            script = tmp_path / "serve"  # the inspector takes options such as --config for its own
            served = shlex.join([*SHORTLIST, "serve", "--own", "--config", str(config)])
            script.write_text(f"#!/bin/sh\nexec {served}\n")
            script.chmod(0o700)
            inspector = Inspector(foreign, "", era, tmp_path, stdio=[str(script)])
        answer = inspector.call("run_code", code=PROGRAM)
    assert "Asia/Tokyo, Europe/Berlin" in answer


def test_the_inspector_loads_calls_directly_and_unloads(
    foreign: Foreign, dynamic_gateway: Gateway, tmp_path: Path
) -> None:
    inspector = Inspector(foreign, dynamic_gateway.url, "modern", tmp_path)
    before = inspector.tools()
    loaded = inspector.call("load_toolset", toolset="time")
    assert inspector.tools() == before  # a modern list does not change by what else the client did
    handle = re.search(r"/mcp/w/[\w-]+", loaded)
    assert handle is not None, loaded
    inspector.at(handle[0])
    assert inspector.tools() == [*before, "time__convert_time", "time__get_current_time"]
    assert "Asia/Tokyo" in inspector.call("time__get_current_time", timezone="Asia/Tokyo")
    assert "unloaded" in inspector.call("unload_toolset", toolset="time")
    assert inspector.tools() == before


@asynccontextmanager
async def sdk_client(config: Path, era: Era, *options: str, **more: Any) -> AsyncIterator[Client]:
    """Start the gateway over stdio as a desktop client does."""
    parameters = StdioServerParameters(
        command=SHORTLIST[0], args=["serve", "--config", str(config), *options], env=environment(config.parent)
    )
    mode: Any = {"legacy": "legacy", "modern": "2026-07-28"}[era]
    with anyio.fail_after(START_SECONDS * 2):
        async with Client(stdio_client(parameters), mode=mode, **more) as client:
            yield client
    await anyio.run_process([*SHORTLIST, "daemon", "stop", "--config", str(config)], env=environment(config.parent))


def words(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def found(client: Client, query: str, tool: str) -> str:
    """Search until the servers that are still starting have come, and their tools have vectors."""
    while True:
        answer = words(await client.call_tool("search_tools", {"query": query}))
        if tool in answer or not ("Still connecting" in answer or "no vectors yet" in answer):
            return answer
        await anyio.sleep(0.2)


@pytest.mark.anyio
@eras
async def test_the_sdk_client_searches_describes_and_calls(config: Path, era: Era) -> None:
    async with sdk_client(config, era) as client:
        for query, tool, server in TASKS:
            assert tool in await found(client, query, tool)
            described = words(await client.call_tool("describe_tools", {"names": [tool]}))
            assert tool in described
            arguments = {"name": tool, "arguments": arguments_of(server, config.parent)}
            result = await client.call_tool("call_tool", arguments)
            assert not result.is_error
            assert ANSWERS[server] in words(result)


@pytest.mark.anyio
async def test_the_legacy_sdk_client_loads_calls_directly_and_unloads(config: Path) -> None:
    changes: list[str] = []

    async def heard(message: Any) -> None:
        changes.append(type(message).__name__)

    async with sdk_client(config, "legacy", "--mode", "dynamic", message_handler=heard) as client:
        before = await listed(client)
        await found(client, "current time", "time__get_current_time")
        await client.call_tool("load_toolset", {"toolset": "time"})
        assert await listed(client) == [*before, "time__convert_time", "time__get_current_time"]
        result = await client.call_tool("time__get_current_time", {"timezone": "Asia/Tokyo"})
        assert "Asia/Tokyo" in words(result)
        await client.call_tool("unload_toolset", {"toolset": "time"})
        assert await listed(client) == before
    assert changes.count("ToolListChangedNotification") >= 2


@pytest.mark.anyio
async def test_the_modern_sdk_client_loads_into_a_workspace_and_calls_through_it(config: Path) -> None:
    async with sdk_client(config, "modern", "--mode", "dynamic") as client:
        before = await listed(client)
        await found(client, "current time", "time__get_current_time")
        loaded = words(await client.call_tool("load_tools", {"names": ["time__get_current_time"]}))
        handle = re.search(r"workspace[^\w-]+([\w-]{20,})", loaded)
        assert handle is not None, loaded
        again = words(
            await client.call_tool("load_tools", {"names": ["time__get_current_time"], "workspace": handle[1]})
        )
        assert "already_loaded" in again
        assert await listed(client) == before
        result = await client.call_tool("time__get_current_time", {"timezone": "Asia/Tokyo"})
        assert "Asia/Tokyo" in words(result)
        gone = await client.call_tool("unload_toolset", {"toolset": "time", "workspace": handle[1]})
        assert "unloaded" in words(gone)


async def listed(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]
