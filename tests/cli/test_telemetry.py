"""What is recorded by a real gateway process, read back by real commands."""

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.cli.test_serving import PROGRAM, SECONDS, run

pytestmark = pytest.mark.anyio
WEATHER = "sky__get_current_weather"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    return {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **folders}


@pytest.fixture
def events(environment: Mapping[str, str]) -> Path:
    return Path(environment["XDG_DATA_HOME"]) / "shortlist" / "events.sqlite"


def config_in(folder: Path, **telemetry: Any) -> Path:
    demo = {"command": sys.executable, "args": ["-m", "shortlist.demo.server", "weather"]}
    demo["env"] = {"PYTHONPATH": os.pathsep.join(sys.path)}  # type: ignore[assignment]
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"sky": demo}, "shortlist": {"telemetry": telemetry}}))
    return path


@asynccontextmanager
async def serving(environment: Mapping[str, str], config: Path) -> AsyncIterator[Client]:
    """Start a gateway over stdio and wait until its server's tools are known."""
    command = StdioServerParameters(
        command=PROGRAM[0], args=[*PROGRAM[1:], "serve", "--own", "--config", str(config)], env=dict(environment)
    )
    async with Client(command) as client:
        with anyio.fail_after(SECONDS):
            while "sky__" not in await said(client, "describe_tools", names=[WEATHER]):
                await anyio.sleep(0.05)
            yield client


async def said(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    return "\n".join(block.text for block in result.content if block.type == "text")


async def one_task(client: Client) -> None:
    """Search, call what was found, and call what is not there."""
    await client.list_tools()
    await said(client, "search_tools", query="current weather in a city password=hunter22")
    await said(client, "call_tool", name=WEATHER, arguments={"location": "Oslo"})
    await said(client, "call_tool", name="sky__nothing_like_it", arguments={})


def read(environment: Mapping[str, str], *arguments: str) -> str:
    done = run(environment, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_stats_and_events_tell_of_what_a_gateway_served(environment: dict[str, str], tmp_path: Path) -> None:
    async with serving(environment, config_in(tmp_path)) as client:
        await one_task(client)
    stats = json.loads(read(environment, "stats", "--json", "--since", "1h"))
    assert stats["figures"]["searches"] == stats["figures"]["calls"] == stats["figures"]["recall_proxy"] == 1
    assert stats["figures"]["unknown_calls"] == stats["figures"]["sessions"] == 1
    assert stats["figures"]["events_lost"] == 0
    assert stats["figures"]["tokens_upfront"] > stats["figures"]["tokens_listed"] > 100
    assert [tool["name"] for tool in stats["tools"] if tool["calls"]] == ["sky/get_current_weather"]
    text = read(environment, "stats")
    assert "recall_proxy" in text
    assert "100.0%" in text

    export = tmp_path / "events.jsonl"
    read(environment, "stats", "--export", str(export))
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    kinds = {line["kind"] for line in lines}
    assert {"opened", "listed", "searched", "described", "called", "upstream", "catalog"} <= kinds
    searched = next(line for line in lines if line["kind"] == "searched")
    called = next(line for line in lines if line["kind"] == "called")
    assert called["search"] == searched["id"]
    assert called["rank"] == 1
    assert {"lexical"} <= searched["data"]["hits"][0]["signals"].keys()
    assert searched["data"]["steps"]
    assert "hunter22" not in export.read_text()

    shown = read(environment, "events", "--kind", "called", "--json").splitlines()
    assert [json.loads(line)["outcome"] for line in shown][-1] == "unknown"
    assert "sky__nothing_like_it" in read(environment, "events", "--misses", "--since", "1h")


async def test_events_are_followed_as_they_happen(environment: dict[str, str], events: Path, tmp_path: Path) -> None:
    async with serving(environment, config_in(tmp_path)) as client:
        await one_task(client)
        while not events.exists():
            await anyio.sleep(0.05)
        command = [*PROGRAM, "events", "--follow", "--json", "--kind", "searched"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            try:
                first = await anyio.to_thread.run_sync(following.stdout.readline)
                await said(client, "search_tools", query="wind speed tomorrow")
                second = await anyio.to_thread.run_sync(following.stdout.readline)
            finally:
                following.terminate()
    assert json.loads(first)["subject"].startswith("current weather")
    assert json.loads(second)["subject"] == "wind speed tomorrow"


async def test_a_damaged_store_costs_no_call_and_is_left_as_it_is(
    environment: dict[str, str], events: Path, tmp_path: Path
) -> None:
    events.parent.mkdir(parents=True)
    garbage = random.Random(1).randbytes(20_000)
    events.write_bytes(garbage)
    async with serving(environment, config_in(tmp_path, tools=True)) as client:
        await one_task(client)
        called = await said(client, "call_tool", name=WEATHER, arguments={"location": "Oslo"})
        answer = await said(client, "get_stats")
    assert "temperature" in called
    assert "move it away" in answer
    assert events.read_bytes() == garbage
    done = run(environment, "stats")
    assert done.returncode == 1
    assert "damaged" in done.stderr
    assert "move it away" in done.stderr


async def test_switched_off_nothing_is_recorded(environment: dict[str, str], events: Path, tmp_path: Path) -> None:
    async with serving(environment, config_in(tmp_path, enabled=False)) as client:
        await one_task(client)
    assert not events.exists()
    done = run(environment, "stats")
    assert done.returncode == 1
    assert "Nothing has been recorded yet" in done.stderr


async def test_the_tools_about_telemetry_are_there_when_asked_for(
    environment: dict[str, str], events: Path, tmp_path: Path
) -> None:
    async with serving(environment, config_in(tmp_path, tools=True)) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        await one_task(client)
        await said(client, "report_task", completed=True, task="tell the weather")
        while not re.search(r"task_completion +100\.0%", stats := await said(client, "get_stats", since="1h")):
            await anyio.sleep(0.05)  # until it is written
        wrong = await said(client, "get_stats", since="yesterday-ish")
    assert listed[-3:] == ["get_stats", "get_ab_test_report", "report_task"]
    assert "sky__get_current_weather" in stats
    assert "sky/get_current_weather" not in stats
    assert "is not a time" in wrong
    assert json.loads(read(environment, "stats", "--json"))["figures"]["task_completion"] == 1.0


async def test_without_asking_they_are_neither_listed_nor_called(environment: dict[str, str], tmp_path: Path) -> None:
    async with serving(environment, config_in(tmp_path)) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        answer = await said(client, "get_stats")
    assert "get_stats" not in listed
    assert "No tool 'get_stats'" in answer


async def test_two_gateways_share_a_data_folder(environment: dict[str, str], events: Path, tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with serving(environment, config) as one, serving(environment, config) as two:
        for _ in range(3):
            await one_task(one)
            await one_task(two)
    figures = json.loads(read(environment, "stats", "--json"))["figures"]
    assert (figures["calls"], figures["sessions"], figures["events_lost"]) == (6, 2, 0)
    connection = sqlite3.connect(events)
    assert connection.execute("SELECT count(DISTINCT workspace) FROM events").fetchone() == (2,)
    connection.close()


@pytest.mark.parametrize("since", ["never", "7 parsecs", "2026-13-45"])
def test_a_time_that_is_none_is_refused_with_those_that_are(since: str, environment: dict[str, str]) -> None:
    done = run(environment, "stats", "--since", since)
    assert done.returncode == 2
    assert "Use a duration such as 24h or 7d, or a date" in done.stderr
