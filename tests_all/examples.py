"""A home in which every example of the documentation runs, with all that it needs around it, real and on this machine.

An example runs in a shell as it is written, except for the addresses that stand for the reader's own.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
from tests.harness.endpoint import Messages, saying, scripted
from tests.providers.wires import KEY
from tests.servers.protected import protected_server
from tests.servers.registry import serve_registry
from tests.storage.postgres import server as database_server

from shortlist.demo import CATALOG
from tests_all.support import SHORTLIST, Lines

SECONDS = 180.0
BROWSER = """import sys, urllib.request
print("browser:", urllib.request.urlopen(sys.argv[1]).status, flush=True)
"""
"""Follows a link and where it leads, as a browser does."""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "docs", "version": "1"}},
}
SCENARIO = {"name": "rain", "calls": [{"tool": "search_tools", "args": {"query": "will it rain?"}}]}
TASK = {"name": "rain", "prompt": "Will it rain?", "expect": {"calls": [], "answer": ["no"]}}
FILES: Mapping[str, str] = {
    "packing_list.py": 'await tools.weather.get_forecast(location="Oslo")\n',
    "tools.json": (CATALOG / "weather.json").read_text("utf-8"),
    "queries.jsonl": json.dumps({"id": "1", "query": "will it rain in Oslo?"}) + "\n",
    "scenarios.json": json.dumps({"name": "rain", "scenarios": [SCENARIO]}),
    "tasks.json": json.dumps({"tasks": [TASK]}),
    "browser.py": BROWSER,
}
"""What the examples name and the reader has."""

Running: TypeAlias = "subprocess.Popen[str]"


@dataclass(frozen=True, slots=True)
class Home:
    """A folder, its environment, and what the addresses of the examples stand for."""

    folder: Path
    environment: Mapping[str, str]
    addresses: Mapping[str, str]

    def run(self, line: str) -> None:
        """Run an example to its end, or until it has been seen to work where it would go on."""
        ways = [way for start, way in WAYS.items() if line.startswith(start)]
        with self.start(line) as running:
            try:
                (ways or [ends])[-1](self, line, running)
            finally:
                running.terminate()

    def start(self, line: str) -> Running:
        for address, ours in self.addresses.items():
            line = line.replace(address, ours)
        return subprocess.Popen(
            ["sh", "-ec", f"exec {line}" if line.startswith("shortlist ") else line],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def ends(_: Home, line: str, running: Running) -> None:
    """Check that the command ends and succeeds; nobody answers its questions."""
    out, errors = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, f"{line}\n{out}{errors}"


def answers_on_stdio(home: Home, line: str, running: Running) -> None:
    """Check that a client gets an answer, and that the command ends with its input."""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(f"{json.dumps(INITIALIZE)}\n")
    running.stdin.flush()
    answer = json.loads(running.stdout.readline() or "{}")
    assert "serverInfo" in answer.get("result", {}), f"{line}\n{answer}"
    ends(home, line, running)


def answers_over_http(_: Home, line: str, running: Running) -> None:
    base = Lines(running.stderr).after("serving ").removesuffix("/mcp")
    assert httpx2.get(f"{base}/healthz", timeout=SECONDS).status_code == 200, line


def answers_on_its_socket(home: Home, line: str, running: Running) -> None:
    """Check that it is the gateway that `daemon status` finds."""
    deadline = time.monotonic() + SECONDS
    while True:
        with home.start("shortlist daemon status --json") as asked:
            found = json.loads(asked.communicate(timeout=SECONDS)[0])
        if found["running"]:
            break
        assert time.monotonic() < deadline, line
    assert found["pid"] == running.pid, line


def opens_a_browser(_: Home, line: str, running: Running) -> None:
    assert Lines(running.stdout).after("browser: ") == "200", line


def ends_after_the_browser(home: Home, line: str, running: Running) -> None:
    """Follow the link that it prints, as the reader would."""
    assert running.stdout is not None
    if link := running.stdout.readline().strip():  # else it has failed, and says why
        assert httpx2.get(link, follow_redirects=True, timeout=SECONDS).status_code == 200, line
    ends(home, line, running)


WAYS: Mapping[str, Callable[[Home, str, Running], None]] = {
    "shortlist serve": answers_on_stdio,
    "shortlist serve --http": answers_over_http,
    "shortlist daemon run": answers_on_its_socket,
    "shortlist dashboard": opens_a_browser,
    "shortlist login wiki --no-browser": ends_after_the_browser,
}
"""How commands are seen to work that do not simply end; the last that fits is used."""


@contextmanager
def prepared(folder: Path) -> Iterator[Home]:
    """Yield a home with one configured server; a wiki, a registry, a model and a database can be reached from it."""
    for name, content in FILES.items():
        (folder / name).write_text(content)
    configuration = folder / "config" / "shortlist" / "config.json"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(json.dumps({"mcpServers": {"weather": _weather()}}))
    with ExitStack() as around:
        wiki = around.enter_context(protected_server())
        registry = around.enter_context(serve_registry())
        model = around.enter_context(scripted(_says_no))
        database = around.enter_context(database_server())
        environment = {
            **os.environ,
            **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")},
            "HOME": str(folder),
            "PATH": f"{Path(SHORTLIST[0]).parent}{os.pathsep}{os.environ['PATH']}",
            "BROWSER": f"{sys.executable} {folder / 'browser.py'} %s",
            "EDITOR": "true",
            "WIKI_KEY": "a secret of the reader",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": KEY,
        }
        addresses = {
            "127.0.0.1:8765": "127.0.0.1:0",
            "https://wiki.example.com": wiki.url,
            "https://registry.example.com": registry.url,
            "postgresql://gateway@db/shortlist": f"'{database.replace('/?', '/postgres?')}'",
        }
        home = Home(folder, environment, addresses)
        try:
            yield home
        finally:
            home.run("shortlist daemon stop")


def _weather() -> dict[str, Any]:
    """Return the bundled server as one that is started, and writes a line to its log."""
    command = f"echo 'weather is here' >&2; exec {sys.executable} -m shortlist.demo.server weather"
    return {"command": "sh", "args": ["-c", command], "shortlist": {"trust": "auto"}}


def _says_no(_: Messages, __: set[str]) -> dict[str, Any]:
    return saying("No.")
