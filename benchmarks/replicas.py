"""Replicas behind a load balancer, killed at random while clients of both eras call through it.

    python -m benchmarks.replicas [--seconds 600] [--clients 64] [--replicas 3] [--seed 1] [--save]
    python -m benchmarks.replicas --workers 1 2 3 [--seconds 30] [--clients 16]     calls through workers on one port
    python -m benchmarks.replicas --sessions 5000 10000     open at once, then opened and ended, over two replicas
    python -m benchmarks.replicas --outage 60 [--clients 16]     PostgreSQL stops for so many seconds

Starts a PostgreSQL, a server over HTTP, the replicas, and nginx with the configuration in `deploy/compose/nginx.conf`.
One of the replicas runs a server over stdio; when it is killed, another one does. Every call has a unique id, and the
servers write down the ids that they receive. A replica is killed with SIGKILL every few seconds and started again. The
run fails where a call does not end within its deadline, an answer is wrong, a server gets an id twice, a client loses
its session, its loaded tools or its large result, or the dashboard's totals differ from what the clients counted. A
call that was cut off by a kill ends in an error; whether it was recorded depends on the moment of the kill, so the
totals may exceed the answered ones by at most those.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from benchmarks.measuring import machine, publish
from benchmarks.stress import outage, sessions, workers
from benchmarks.stress.client import Era, RawClient, Refused
from benchmarks.stress.processes import READY_SECONDS, http_upstream, stdio_server
from tests.storage.postgres import VARIABLE, new_database, server

from shortlist.evals.tables import Table, to_markdown
from shortlist.storage.postgres.opening import open_postgres
from shortlist.telemetry.figures import stats

CONFIGURATION = Path(__file__).parents[1] / "deploy" / "compose" / "nginx.conf"
CALL_SECONDS = 30.0
"""The deadline of a request at the client."""
KILL_SECONDS = (3.0, 9.0)
"""How long after one kill the next one follows."""
PAUSE_SECONDS = 0.02
LOOK_EVERY = 50
"""After so many calls a client looks whether its loaded tools and its large result are still there."""
STDIO_EVERY = 5
"""Every so many calls go to the server over stdio, which one of the replicas runs; the others go to one over HTTP."""
SETTLE_SECONDS = 30.0
LARGE = "a large result "
LIMITS = {"results": 1_000, "results_per_caller": 1_000, "result_seconds": 7_200}
"""All clients are one caller here, and each keeps a result to the end."""


def nginx() -> str:
    """Return the program; install it where there is none."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        print("installing nginx", flush=True)
        quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
        subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "nginx-light"], check=True, env=quiet)
        found = "/usr/sbin/nginx"
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class KilledReplica:
    """A gateway on a port of its own that is started again whenever it ends."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None
    kills: int = 0

    def start(self) -> None:
        folders = {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
        serve = ["serve", "--http", f"127.0.0.1:{self.port}", "--open", "--dynamic", "--no-dashboard"]
        command = [sys.executable, "-m", "shortlist.cli", *serve, "--config", str(self.folder / "config.json")]
        with (self.folder / "log").open("ab") as log:
            environment = {**os.environ, "HOME": str(self.folder), **folders}
            self.process = subprocess.Popen(command, env=environment, stderr=log, stdout=subprocess.DEVNULL)

    def is_serving(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.kills += 1
        self.start()

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()


@contextmanager
def balancer(folder: Path, ports: list[int]) -> Iterator[int]:
    """Run nginx with the shipped configuration in front of the replicas; yield its port."""
    port, text = free_port(), CONFIGURATION.read_text()
    servers = "\n".join(f"    server 127.0.0.1:{each} max_fails=1 fail_timeout=2s;" for each in ports)
    text = re.sub(r"(    server gateway\d:.*\n)+", servers + "\n", text)
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{folder}/")
    text = text.replace("worker_processes auto;", "worker_processes 1;\ndaemon off;\nuser root;")
    (folder / "nginx.conf").write_text(text)
    command = [nginx(), "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(lambda: KilledReplica(folder, port).is_serving())
            yield port
        finally:
            process.terminate()


def _wait(condition: Any) -> None:
    deadline = monotonic() + READY_SECONDS
    while not condition():
        if monotonic() > deadline:
            raise RuntimeError("a process did not start")
        sleep(0.05)


@dataclass(slots=True)
class Outcome:
    """What became of the requests."""

    calls: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    """Sessions, loaded tools and results that were gone."""
    late: int = 0
    examples: list[str] = field(default_factory=list)


class BalancedClient:
    """A client that loads a tool, makes a large result, calls and searches, and looks whether both are still there."""

    def __init__(self, port: int, number: int, outcome: Outcome) -> None:
        self._number = number
        self._era: Era = "modern" if number % 2 else "legacy"
        self._client = RawClient(port, self._era)
        self._outcome = outcome
        self._result = ""
        self._made = 0

    async def prepare(self) -> None:
        await self._client.open()
        loaded = await self._text("load_tools", {"names": ["bench__echo"]})
        if self._era == "modern":
            self._client.path = f"/mcp/w/{loaded.partition('workspace: ')[2].split()[0]}"
        large = {"text": f"{LARGE}{self._number} " * 5_000, "id": f"large-{self._number}"}
        kept = await self._text("call_tool", {"name": "bench__echo", "arguments": large})
        self._outcome.calls["answered"] += 1
        found = re.search(r"read_result\(handle='([^']+)'", kept)
        if found is None:
            raise RuntimeError(f"no handle in {kept[-300:]!r}")
        self._result = found.group(1)

    async def run(self, until: float) -> None:
        while perf_counter() < until:
            await self._call()
            if self._made % LOOK_EVERY == 0:
                await self._search()
                await self.look()
            await asyncio.sleep(PAUSE_SECONDS)

    async def look(self) -> None:
        """Count what is gone; a request that a kill cuts off is repeated, since it changes nothing."""
        listed = await self._repeated("tools/list", {})
        if "bench__echo" not in {tool["name"] for tool in listed.get("tools", ())}:
            self._lose("loaded tools", listed)
        page = await self._repeated("tools/call", {"name": "read_result", "arguments": {"handle": self._result}})
        if f"{LARGE}{self._number}" not in json.dumps(page):
            self._lose("large result", page)

    async def _call(self) -> None:
        self._made += 1
        name = f"{self._era}-{self._number}-{self._made}"
        server = "local" if self._made % STDIO_EVERY == 0 else "bench"
        arguments = {"name": f"{server}__echo", "arguments": {"text": name, "id": name}}
        kind, answer = await self._tried("tools/call", {"name": "call_tool", "arguments": arguments})
        if kind == "answered":
            texts = [block.get("text") for block in answer.get("content", ())]
            kind = "answered" if texts == [name] else "failed with a reason" if answer.get("isError") else "wrong"
        if kind in ("wrong", "failed with a reason"):
            self._outcome.examples.append(f"{name}: {json.dumps(answer)[:200]}")
        self._outcome.calls[kind] += 1

    async def _search(self) -> None:
        arguments = {"query": f"say a text back {self._number}"}
        kind, _ = await self._tried("tools/call", {"name": "search_tools", "arguments": arguments})
        self._outcome.searches[kind] += 1

    async def _repeated(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        for _ in range(100):
            kind, answer = await self._tried(method, params)
            if kind == "answered":
                return answer
            await asyncio.sleep(0.2)
        return {}

    async def _tried(self, method: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Send a request; return what became of it, and its result."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await self._client.request(method, params)
        except TimeoutError:
            self._outcome.late += 1
            return "late", {}
        except Refused as error:
            if "404" in str(error):
                self._lose("session", {"error": str(error)})
            return "cut off", {}
        except (OSError, asyncio.IncompleteReadError, ValueError):
            return "cut off", {}
        if "error" in answer:
            self._outcome.examples.append(json.dumps(answer)[:200])
            return "JSON-RPC error", {}
        return "answered", answer["result"]

    async def _text(self, name: str, arguments: dict[str, Any]) -> str:
        answer = await self._client.call(name, arguments)
        return "\n".join(block["text"] for block in answer["result"]["content"])

    def _lose(self, what: str, answer: Any) -> None:
        self._outcome.lost[what] += 1
        self._outcome.examples.append(f"{self._era} client {self._number} lost its {what}: {json.dumps(answer)[:200]}")


async def kill_at_random(replicas: list[KilledReplica], dice: random.Random) -> None:
    """Kill one replica after the other; the others of them run meanwhile."""
    while True:
        await asyncio.sleep(dice.uniform(*KILL_SECONDS))
        while not all(replica.is_serving() for replica in replicas):
            await asyncio.sleep(0.1)
        await asyncio.to_thread(dice.choice(replicas).kill)


async def load(port: int, replicas: list[KilledReplica], arguments: argparse.Namespace) -> Outcome:
    outcome = Outcome()
    clients = [BalancedClient(port, number, outcome) for number in range(arguments.clients)]
    for client in clients:
        await client.prepare()
    killing = asyncio.create_task(kill_at_random(replicas, random.Random(arguments.seed)))
    until = perf_counter() + arguments.seconds
    await asyncio.gather(*(client.run(until) for client in clients))
    killing.cancel()
    await asyncio.gather(killing, return_exceptions=True)
    while not all(replica.is_serving() for replica in replicas):
        await asyncio.sleep(0.1)
    await asyncio.gather(*(client.look() for client in clients))
    return outcome


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The totals that the dashboard shows, and the successful calls among them."""

    calls: int
    unknown: int
    """Calls of names that the replica did not know, which count apart."""
    ok: int
    searches: int
    of_tools: int
    """The calls of all tools in its table."""


def dashboard(address: str, least: Outcome) -> Dashboard:
    """Return the totals, computed as for the dashboard, once they no longer grow and contain what was answered."""
    deadline, before = monotonic() + SETTLE_SECONDS, Dashboard(-1, -1, -1, -1, -1)
    with closing(open_postgres(address)) as storage:
        while True:
            shown = stats(storage.tallies)
            ok = int(storage.tallies.sums(names=("calls",)).get(("calls", "ok"), 0))
            calls, unknown, searches = (
                int(shown.figures[each] or 0) for each in ("calls", "unknown_calls", "searches")
            )
            now = Dashboard(calls, unknown, ok, searches, int(sum(tool.calls for tool in shown.tools)))
            is_all = now.ok >= least.calls["answered"] and now.searches >= least.searches["answered"]
            if (now == before and is_all) or monotonic() > deadline:
                return now
            before = now
            sleep(2)


def run(arguments: argparse.Namespace, address: str) -> tuple[list[tuple[str, str, str, bool]], Outcome]:
    """Run everything; return the rows of the table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "balancer").mkdir()
        seen = folder / "seen"
        seen.touch()
        _, url = stack.enter_context(http_upstream(SEEN_FILE=str(seen), SERVER_NAME="bench"))
        replicas = []
        for number in range(arguments.replicas):
            home = folder / f"replica{number}"
            home.mkdir()
            shortlist = {"storage": address, "limits": LIMITS}
            local = stdio_server(SEEN_FILE=str(seen), SERVER_NAME="local")
            servers = {"bench": {"type": "http", "url": url}, "local": local}
            document = {"mcpServers": servers, "shortlist": shortlist}
            (home / "config.json").write_text(json.dumps(document))
            replicas.append(KilledReplica(home, free_port()))
            replicas[-1].start()
            stack.callback(replicas[-1].end)
            _wait(replicas[-1].is_serving)
        port = stack.enter_context(balancer(folder / "balancer", [replica.port for replica in replicas]))
        outcome = asyncio.run(load(port, replicas, arguments))
        kills = sum(replica.kills for replica in replicas)
        shown = dashboard(address, outcome)
        received = Counter(line.split()[1] for line in seen.read_text().splitlines())
    return _rows(outcome, kills, shown, received), outcome


def _rows(outcome: Outcome, kills: int, shown: Dashboard, received: Counter[str]) -> list[tuple[str, str, str, bool]]:
    """Compare what clients saw with what the server and the dashboard counted.

    Whether a request that a kill cut off was counted depends on the moment of the kill; any other is counted once.
    """
    calls, searches = outcome.calls, outcome.searches
    cut, twice = calls["cut off"] + calls["late"] + calls["JSON-RPC error"], sum(n > 1 for n in received.values())
    cut_searches = searches.total() - searches["answered"]
    told = calls["answered"] + calls["failed with a reason"]
    counted = shown.calls + shown.unknown
    extra_ok, extra = shown.ok - calls["answered"], counted - told
    extra_searches = shown.searches - searches["answered"]
    return [
        ("replicas killed", f"{kills}", "", True),
        ("calls answered", f"{calls['answered']:,}", "", True),
        ("calls that a kill cut off: an error at the client", f"{cut:,}", "", True),
        ("calls that failed with a reason", f"{calls['failed with a reason']:,}", "", True),
        ("searches", f"{outcome.searches.total():,}", "", True),
        ("requests over their deadline", f"{outcome.late}", "0", outcome.late == 0),
        ("wrong answers", f"{calls['wrong']}", "0", calls["wrong"] == 0),
        ("ids that the server received twice", f"{twice}", "0", twice == 0),
        ("sessions lost", f"{outcome.lost['session']}", "0", outcome.lost["session"] == 0),
        ("loaded tools lost", f"{outcome.lost['loaded tools']}", "0", outcome.lost["loaded tools"] == 0),
        ("large results lost", f"{outcome.lost['large result']}", "0", outcome.lost["large result"] == 0),
        ("calls on the dashboard", f"{counted:,}", f"{told:,} to {told + cut:,}", 0 <= extra <= cut),
        ("successful ones beyond those answered", f"{extra_ok}", f"0 to {cut}", 0 <= extra_ok <= cut),
        (
            "calls of all tools on the dashboard",
            f"{shown.of_tools:,}",
            f"{shown.calls:,}",
            shown.of_tools == shown.calls,
        ),
        (
            "searches on the dashboard",
            f"{shown.searches:,}",
            f"{searches['answered']:,} to {searches.total():,}",
            0 <= extra_searches <= cut_searches,
        ),
    ]


def report(name: str, measured: tuple[list[Table], bool], arguments: argparse.Namespace) -> int:
    """Print tables; return the exit status."""
    tables, holds = measured
    print(to_markdown(tables))
    if arguments.save:
        publish(name, tables, {"machine": machine(), "tables": tables})
    return 0 if holds else 1


def main() -> int:
    """Run, print the counts, and fail where one is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="how long to run; 600, or 30 for each number of workers")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/replicas-COMMIT.json")
    parser.add_argument("--workers", type=int, nargs="+", help="measure gateways of so many workers instead")
    parser.add_argument("--sessions", type=int, nargs=2, metavar=("OPEN", "ALL"), help="weigh legacy sessions instead")
    parser.add_argument("--outage", type=float, metavar="SECONDS", help="stop PostgreSQL under two replicas instead")
    arguments = parser.parse_args()
    arguments.seconds = arguments.seconds or (30.0 if arguments.workers else 600.0)
    if arguments.outage:
        return report("outage", outage.measure(arguments.outage, arguments.clients), arguments)
    with ExitStack() as stack:
        if VARIABLE not in os.environ:
            os.environ[VARIABLE] = stack.enter_context(server())
            stack.callback(os.environ.pop, VARIABLE)
        if arguments.workers:
            return report(
                "workers", workers.measure(arguments.workers, arguments.seconds, arguments.clients), arguments
            )
        if arguments.sessions:
            return report("sessions", sessions.measure(*arguments.sessions), arguments)
        rows, outcome = run(arguments, new_database())
    shown = [
        (what, figure, limit, "" if not limit else "yes" if holds else "NO") for what, figure, limit, holds in rows
    ]
    title = f"{arguments.replicas} replicas, {arguments.clients} clients, {arguments.seconds:g} s"
    table = Table(title, ("", "count", "limit", "holds"), tuple(shown))
    print(to_markdown([table]))
    for example in outcome.examples[:10]:
        print(f"  {example}")
    if arguments.save:
        publish("replicas", [table], {"machine": machine(), "tables": [table]})
    return 0 if all(holds for *_, holds in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
