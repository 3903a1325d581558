"""The gateway and an OTLP receiver as processes of their own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from shortlist.config.settings import hash_token

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 60
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
SECRETS = {"ada": "ada-secret", "bob": "bob-secret"}
"""Ada may see everything, Bob one server."""


def environment_in(tmp_path: Path) -> dict[str, str]:
    """Return an environment with its own home, so that no user configuration is read and only our collector is used."""
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    return {**inherited, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **folders}


def config_in(tmp_path: Path) -> Path:
    """Write a configuration with the fixture server alone."""
    entry = {
        "command": sys.executable,
        "args": ["-m", "tests.telemetry.upstream"],
        "env": {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
    }
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"fixture": entry}}))
    return path


class Receiver:
    """The OTLP receiver's process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def arrived(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = httpx2.get(self.endpoint, timeout=SECONDS).json()
        return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    command = [sys.executable, "-m", "tests.telemetry.receiver"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Receiver(process)
        finally:
            process.terminate()


@asynccontextmanager
async def stdio_client(environment: dict[str, str], config: Path, *arguments: str) -> AsyncIterator[Client]:
    """Connect to `shortlist serve` as a process, once its server is there; it has ended when this has."""
    args = [*PROGRAM[1:], "serve", "--own", "--config", str(config), *arguments]
    with anyio.fail_after(SECONDS):
        async with Client(StdioServerParameters(command=PROGRAM[0], args=args, env=environment)) as client:
            while (await client.call_tool("describe_tools", {"names": ["fixture__refuse"]})).is_error:
                await anyio.sleep(0.02)
            yield client


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[str]:
    """Serve on a free port, and give the base address."""
    config = config_in(folder)
    document = json.loads(config.read_text())
    tokens: dict[str, dict[str, Any]] = {name: {"hash": hash_token(secret)} for name, secret in SECRETS.items()}
    tokens["bob"]["servers"] = ["fixture"]
    config.write_text(json.dumps({**document, "shortlist": {"tokens": tokens}}))
    command = [*PROGRAM, "serve", "--http", "127.0.0.1:0", "--config", str(config), *arguments]
    with subprocess.Popen(
        command, env=environment_in(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r"serving (http\S+)/mcp", line)))
        finally:
            process.terminate()
            process.stderr.read()


def get(url: str, token: str | None = None) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.get(url, headers=headers, timeout=SECONDS)


@asynccontextmanager
async def connected(base: str, token: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    with anyio.fail_after(SECONDS):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
            Client(streamable_http_client(f"{base}/mcp", http_client=http)) as client,
        ):
            yield client


async def use_everything(base: str, token: str) -> None:
    """Search, and call tools that go right and wrong in every way."""
    async with connected(base, token) as client:
        while get(f"{base}/readyz").status_code != 200:
            await anyio.sleep(0.02)
        await client.list_tools()
        await client.call_tool("search_tools", {"query": "say a text back"})
        await client.call_tool("search_tools", {"query": "zxcvb qwrtp"})
        await client.call_tool("call_tool", {"name": "fixture__say_back", "arguments": {"text": "hello"}})
        await client.call_tool("fixture__say_back", {"text": 7})
        await client.call_tool("fixture__go_wrong", {})
        with pytest.raises(Exception, match="Refused on purpose"):
            await client.call_tool("fixture__refuse", {})
        for number in range(20):
            await client.call_tool(f"made_up_{number}", {})
