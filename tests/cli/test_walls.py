"""Walls seen from outside: a gateway as a process, one server behind it, and callers who want too much."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shortlist.config.settings import hash_token

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 180
SERVER = """
import json, sys

def tool(name, **more):
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}, **more}

ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "box", "version": "1"},
    },
    "tools/list": {"tools": [tool("echo"), tool("vault"), tool("wipe", annotations={"readOnlyHint": True})]},
    "prompts/list": {"prompts": [{"name": "creed"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "the bullion"}}]},
    "resources/list": {"resources": [{"uri": "note://gold", "name": "gold"}]},
    "resources/read": {"contents": [{"uri": "note://gold", "text": "the bullion"}]},
    "tools/call": {"content": [{"type": "text", "text": "the bullion"}]},
}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": ANSWERS.get(request["method"], {})}
        print(json.dumps(answer), flush=True)
"""


@dataclass(slots=True)
class Running:
    """A gateway over HTTP whose configuration can be rewritten."""

    folder: Path
    url: str = ""

    def write(self, **shortlist: Any) -> None:
        command = {"command": sys.executable, "args": [str(self.folder / "server.py")]}
        document = {"mcpServers": {"box": command}, "shortlist": shortlist}
        (self.folder / "config.json").write_text(json.dumps(document))

    def wait_for(self, words: str, seen: int = 0) -> str:
        """Return the line of the log, after so many characters, in which these words are."""
        for _ in range(SECONDS * 20):
            lines = (self.folder / "log").read_text()[seen:].splitlines(keepends=True)
            if found := next((line for line in lines if words in line and line.endswith("\n")), None):
                return found.strip()
            time.sleep(0.05)
        raise AssertionError(f"{words!r} was never said")

    def ask(self, method: str, params: dict[str, Any]) -> str:
        """Return the text of an answer to a client that opened a session of the older era."""
        with httpx2.Client(timeout=SECONDS, headers={"Authorization": "Bearer limited"}) as http:
            session: dict[str, str] = {}
            for message in (INITIALIZE, INITIALIZED, {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}):
                accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
                answer = http.post(self.url, json=message, headers={**accept, **session})
                if "mcp-session-id" in answer.headers:
                    session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        return answer.text

    def call(self, name: str, /, **arguments: Any) -> str:
        return self.ask("tools/call", {"name": name, "arguments": arguments})


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ECHO: dict[str, Any] = {
    "toolsets": {"echoes": ["box/echo"]},
    "tokens": {"ada": {"hash": hash_token("limited"), "toolsets": ["echoes"]}},
}
UNLIMITED = {"ada": {"hash": hash_token("limited")}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


@contextmanager
def running(home: Path, *options: str, ready: str = "echo", **shortlist: Any) -> Iterator[Running]:
    gateway = Running(home)
    gateway.write(**shortlist)
    command = [*PROGRAM, "serve", "--config", str(home / "config.json"), "--http", "127.0.0.1:0", *options]
    with (home / "log").open("w") as log, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process:
        try:
            gateway.url = gateway.wait_for("serving ").partition("serving ")[2]
            for _ in range(SECONDS * 20):
                if ready in gateway.ask("tools/list", {}) + gateway.call("list_toolsets"):
                    break
                time.sleep(0.05)
            yield gateway
        finally:
            process.terminate()


@pytest.mark.parametrize("mode", ["passthrough", "auto"])
def test_a_caller_limited_to_one_tool_calls_no_other_of_a_server_that_is_passed_through(home: Path, mode: str) -> None:
    with running(home, "--mode", mode, **ECHO) as gateway:
        assert "the bullion" in gateway.call("echo")
        assert "the bullion" not in gateway.call("vault")


def test_what_is_excluded_is_neither_called_nor_read_where_a_server_is_passed_through(home: Path) -> None:
    with running(home, "--mode", "passthrough", "--exclude", "box", tokens=UNLIMITED, ready="") as gateway:
        gateway.wait_for("is ready")
        assert "the bullion" not in gateway.call("vault")
        assert "the bullion" not in gateway.ask("prompts/get", {"name": "creed"})
        assert "the bullion" not in gateway.ask("resources/read", {"uri": "note://gold"})


def test_a_reload_that_renames_an_excluded_toolset_shows_none_of_its_tools(home: Path) -> None:
    with running(
        home, "--exclude", "private", ready="box", toolsets={"private": ["box/vault"]}, tokens=UNLIMITED
    ) as gateway:
        seen = len((home / "log").read_text())
        gateway.write(toolsets={"hidden": ["box/vault"]}, tokens=UNLIMITED)
        gateway.wait_for("config", seen)
        assert "the bullion" not in gateway.call("call_tool", name="box__vault", arguments={})
        assert "box__vault" not in gateway.call("search_tools", query="the tool vault")


def test_no_error_or_toolset_names_a_tool_outside_the_scope(home: Path) -> None:
    with running(home, ready="echoes", **ECHO) as gateway:
        for said in (
            gateway.call("call_tool", name="box__vaul", arguments={}),
            gateway.call("describe_tools", names=["box__vaults"]),
            gateway.call("load_toolset", toolset="box"),
        ):
            assert "box__vault " not in said.replace('"', " ").replace("'", " ").replace(",", " ")


def test_what_a_server_says_of_itself_opens_no_scope(home: Path) -> None:
    limited = {"ada": {"hash": hash_token("limited"), "toolsets": ["safe"]}}
    (home / "config.json").write_text("{}")
    gateway = Running(home)
    gateway.write(toolsets={"safe": {"effects": ["read_only"]}}, tokens=limited)
    done = subprocess.run(
        [*PROGRAM, "serve", "--config", str(home / "config.json"), "--http", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "'safe'" in done.stderr
