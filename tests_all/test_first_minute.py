"""A new user's first minute, from the built wheels: install, connect a client, add servers, call a tool."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from release.distributions import GATEWAY, build, distributions

from tests_all.support import START_SECONDS

TARGET_SECONDS = 120.0
CURSOR = '{\n  // my servers\n  "mcpServers": {\n    "clock": {"command": "uvx", "args": ["mcp-server-time"]}\n  }\n}\n'
EVERYTHING = {
    "server": {
        "name": "io.github.modelcontextprotocol/server-everything",
        "description": "Exercises every feature of the protocol",
        "version": "2026.1.26",
        "packages": [
            {
                "registryType": "npm",
                "identifier": "@modelcontextprotocol/server-everything",
                "transport": {"type": "stdio"},
            }
        ],
    }
}


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(EVERYTHING).encode())

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_installed_connected_added_and_called(
    tmp_path: Path, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dist = tmp_path / "dist"
    for distribution in distributions():
        build(distribution, tmp_path / "work", dist)
    own = tmp_path / "venv" / "bin"
    places = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "CACHE")}
    uv_folder = Path(sys.executable).parent  # uvx comes with uv
    environment = os.environ | {"HOME": str(tmp_path), **places, "PATH": f"{uv_folder}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str) -> str:
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(CURSOR)
    began = time.monotonic()
    uv = [sys.executable, "-m", "uv"]
    run(*uv, "venv", "--quiet", "--python", sys.executable, str(own.parent))
    run(*uv, "pip", "install", "--quiet", "--python", str(own / "python"), "--find-links", str(dist), GATEWAY)
    shortlist = str(own / "shortlist")
    run(shortlist, "connect", "cursor", "--yes")
    run(shortlist, "add", f"@{EVERYTHING['server']['name']}", "--registry", registry, "--yes")
    entry = json.loads(re.sub("//.*", "", cursor.read_text()))["mcpServers"]["shortlist"]
    answer = anyio.run(_echoed, StdioServerParameters(command=entry["command"], args=entry["args"], env=environment))
    seconds = time.monotonic() - began
    assert "hello from the first minute" in answer
    with capsys.disabled():
        print(f"\nfrom nothing to a called tool: {seconds:.0f} s of {TARGET_SECONDS:.0f}")
    run(shortlist, "daemon", "stop")
    run(shortlist, "disconnect", "--yes")
    assert cursor.read_text() == CURSOR


async def _echoed(gateway: StdioServerParameters) -> str:
    """Search as a client does, and call what was found."""
    async with Client(stdio_client(gateway)) as client:
        with anyio.fail_after(START_SECONDS * 2):
            while "everything__echo" not in str(await client.call_tool("search_tools", {"query": "echo a message"})):
                await anyio.sleep(0.5)
        arguments = {"name": "server-everything__echo", "arguments": {"message": "hello from the first minute"}}
        return str(await client.call_tool("call_tool", arguments))
