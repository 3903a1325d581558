"""How light Shortlist is at hand: python -m benchmarks.first_minute.

Prints the time of `--help` and `--version`, what `call` and `tools` take beside a running gateway beyond the answer
itself, and the processes and memory of one gateway with fifty servers and three clients that have called nothing yet.
Servers are small Python programs. Memory is PSS: pages that processes share are divided among them.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import publish

from shortlist.evals.tables import Table

SHORTLIST = str(Path(sys.executable).with_name("shortlist"))
SERVERS, CLIENTS, ROUNDS = 50, 3, 7
LIGHT_SECONDS, ASKED_SECONDS, MEGABYTES = 0.15, 0.3, 250.0
WAIT_SECONDS = 600.0
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "small", "version": "1"}},
        "tools/list": {"tools": [{"name": f"echo_{n}", "description": f"Say text number {n} back.",
                       "inputSchema": {"type": "object"}} for n in range(20)]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        "ping": {},
    }
    known = {"result": answers.get(asked["method"])}
    if asked["method"] not in answers: known = {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **known}), flush=True)
"""
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class Place:
    """A home of its own with a configuration, and the commands in it."""

    def __init__(self, folder: Path, servers: int) -> None:
        program = folder / "server.py"
        program.write_text(SERVER)
        entry = {"command": sys.executable, "args": [str(program)]}
        self.config = folder / "servers.json"
        self.config.write_text(json.dumps({"mcpServers": {f"server-{n}": entry for n in range(servers)}}))
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
        self.environment = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(runtime), **folders}

    def run(self, *arguments: str) -> str:
        command = [SHORTLIST, *arguments, "--config", str(self.config)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("daemon", "status", "--json"))
        return found

    @contextmanager
    def client(self) -> Iterator["StdioClient"]:
        command = [SHORTLIST, "serve", "--config", str(self.config)]
        process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with process:
            yield StdioClient(process)


class StdioClient:
    """A client that has connected and listed the tools."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.ask("initialize", INITIALIZE)
        self.ask("tools/list", {})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if method == "tools/list":
            self.process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        while (message := json.loads(self.process.stdout.readline())).get("id") != 1:
            pass
        return message


def seconds(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [pid, *(found for child in children for found in descendants(child))]


def megabytes(pids: Sequence[int]) -> float:
    """Return the PSS of some processes together."""
    texts = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(int(found) for text in texts for found in re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)) / 1024


def light(rounds: int) -> list[tuple[str, float, float]]:
    def run(option: str) -> Callable[[], object]:
        return lambda: subprocess.run([SHORTLIST, option], check=True, stdout=subprocess.DEVNULL)

    return [(f"`shortlist {o}`, s", seconds(run(o), rounds), LIGHT_SECONDS) for o in ("--help", "--version")]


def asked(place: Place, rounds: int) -> list[tuple[str, float, float]]:
    """Measure commands beside a gateway, without what the same request takes over an open connection."""
    call = {"name": "call_tool", "arguments": {"name": "server-0__echo_1", "arguments": {"text": "x"}}}
    with place.client() as client:
        place.run("tools")  # answered when every server has listed its tools
        client.ask("tools/call", call)  # starts the server
        answer = seconds(lambda: client.ask("tools/call", call), rounds)
        called = seconds(lambda: place.run("call", "server-0__echo_1", '{"text": "x"}'), rounds)
        listed = seconds(lambda: place.run("tools"), rounds)
    return [
        ("`call` beside a gateway, over the call itself, s", called - answer, ASKED_SECONDS),
        ("`tools` beside a gateway, s", listed, ASKED_SECONDS),
    ]


def rested(place: Place, servers: int) -> None:
    """Wait until every server was listed, saved and stopped."""
    deadline = time.monotonic() + WAIT_SECONDS
    with place.client():
        while place.status()["servers"] != {"idle": servers}:
            if time.monotonic() > deadline:
                raise SystemExit(f"the servers do not rest: {place.status()['servers']}")
            time.sleep(1.0)


def at_rest(place: Place, clients: int) -> dict[str, Any]:
    """Return the processes and memory of the gateway and its clients before anything is called."""
    with ExitStack() as open_clients:
        relays = [open_clients.enter_context(place.client()).process.pid for _ in range(clients)]
        gateway = place.status()["pid"]
        tree = descendants(gateway)
        return {
            "gateway_processes": 1,
            "other_processes": len(tree) - 1,
            "gateway_megabytes": round(megabytes(tree), 1),
            "relay_megabytes": round(megabytes(relays), 1),
            "megabytes": round(megabytes([*tree, *relays]), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=SERVERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), arguments.servers)
        try:
            rows = [*light(arguments.rounds), *asked(place, arguments.rounds)]
            place.run("daemon", "stop")
            rested(place, arguments.servers)
            first = at_rest(place, CLIENTS)
            place.run("daemon", "stop")
            later = at_rest(place, CLIENTS)
        finally:
            place.run("daemon", "stop")
    for when, found in (("after listing them", first), ("after a restart", later)):
        what = f"{arguments.servers} servers, {CLIENTS} clients, nothing called, {when}"
        rows.append((f"{what}: processes beside the gateway", found["other_processes"], 0))
        rows.append((f"{what}: PSS with relays, MB", found["megabytes"], MEGABYTES))
    table = Table(
        title="The first minute",
        columns=("what", "measured", "target", "holds"),
        rows=tuple(
            (name, f"{value:.2f}", f"≤ {target:g}", "yes" if value <= target else "no") for name, value, target in rows
        ),
    )
    publish("first-minute", [table], {"servers": arguments.servers, "first": first, "later": later, "rows": rows})


if __name__ == "__main__":
    main()
