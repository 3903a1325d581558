"""The gateway as people run it: over a configuration that changes, twice at once, and without any."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests_all.support import SHORTLIST, START_SECONDS, Gateway, environment, process

SERVER = Path(__file__).parent.parent / "tests" / "servers" / "modern.py"
pytestmark = pytest.mark.anyio


def configure(path: Path, *names: str) -> None:
    path.write_text(json.dumps({"mcpServers": {n: {"command": sys.executable, "args": [str(SERVER)]} for n in names}}))


def words(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def until(client: Client, tool: str, *, there: bool) -> None:
    """Wait until a tool can be called, or no longer can."""
    with anyio.fail_after(START_SECONDS):
        while True:
            result = await client.call_tool("call_tool", {"name": tool, "arguments": {"text": "hello"}})
            if (words(result) == "echo: hello") is there:
                return
            await anyio.sleep(0.3)


async def reach(client: Client, tool: str) -> None:
    await until(client, tool, there=True)


async def test_a_changed_configuration_is_taken_up_and_a_broken_one_is_not(tmp_path: Path) -> None:
    config = tmp_path / "shortlist.json"
    configure(config, "one")
    command = [*SHORTLIST, "serve", "--config", str(config), "--http", "127.0.0.1:0", "--open"]
    with process(command, environment(tmp_path)) as lines:
        async with Client(lines.after("serving ")) as client:
            await until(client, "one__echo", there=True)
            configure(config, "one", "two")
            await until(client, "two__echo", there=True)
            config.write_text("{")
            await anyio.to_thread.run_sync(lines.after, "the running configuration is kept")
            await until(client, "two__echo", there=True)
            configure(config, "two")
            await until(client, "one__echo", there=False)
            await until(client, "two__echo", there=True)


async def test_two_gateways_share_one_data_folder(tmp_path: Path) -> None:
    config = tmp_path / "shortlist.json"
    configure(config, "one", "two")
    for _ in range(2):  # the second time over a saved catalog
        with Gateway.serving(config) as first, Gateway.serving(config) as second:
            async with Client(first.url) as ada, Client(second.url) as bob, anyio.create_task_group() as tasks:
                for client in (ada, bob):
                    tasks.start_soon(reach, client, "one__echo")
                    tasks.start_soon(reach, client, "two__echo")
    written = [path for path in (tmp_path / "data").rglob("*.json*") if path.parent.name == "catalog"]
    assert {path.suffix for path in written} == {".json"}  # no half-written file is left


async def test_without_a_configuration_the_demo_servers_are_served_with_the_json_to_paste(tmp_path: Path) -> None:
    with process([*SHORTLIST, "serve", "--http", "127.0.0.1:0"], environment(tmp_path)) as lines:
        assert "demo servers" in await anyio.to_thread.run_sync(lines.after, "no configuration")
        url = lines.after("serving ")
        pasted = json.loads(lines.after("paste into a client: "))
        entry = pasted["mcpServers"]["shortlist"]
        assert entry["url"] == url
        first = json.loads(lines.after("search_tools "))
        async with (
            httpx2.AsyncClient(headers=entry["headers"], timeout=START_SECONDS) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            with anyio.fail_after(START_SECONDS):  # the demo's servers are still starting
                while "weather__get_forecast" not in words(await client.call_tool("search_tools", first)):
                    await anyio.sleep(0.5)


def test_import_shows_what_it_would_add_and_adds_it_when_told(tmp_path: Path) -> None:
    config = tmp_path / "theirs.json"
    configure(config, "one")
    run = {"capture_output": True, "text": True, "env": environment(tmp_path) | {"HOME": str(tmp_path)}}
    shown = subprocess.run([*SHORTLIST, "import", str(config)], check=True, **run)  # type: ignore[call-overload]
    assert "+ one" in shown.stdout
    assert "Nothing was written" in shown.stdout
    subprocess.run([*SHORTLIST, "import", str(config), "--yes"], check=True, **run)  # type: ignore[call-overload]
    status = subprocess.run([*SHORTLIST, "status", "--json"], check=True, **run)  # type: ignore[call-overload]
    assert json.loads(status.stdout)["one"]["state"] == "ready"
    assert os.listdir(tmp_path / "config" / "shortlist")
