"""A gateway process at its limits: descriptors, garbage collection, SIGTERM while a thread computes, kill -9."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import children, stdio_server, usage

from shortlist.telemetry.recorder import GATHER_SECONDS

SECONDS = 180
MAIN = "import sys; from shortlist.cli import main; sys.exit(main())"
DESCRIPTORS = 48
LIMITED = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})); {MAIN}"
COMPUTING = """
import sys, threading, time
import anyio
from starlette.applications import Starlette
from shortlist.cli.listening import listen

def compute():
    while True:
        time.sleep(0.01)

threading.Thread(target=compute).start()
anyio.run(listen, Starlette(), "127.0.0.1", 0, lambda base: print("serving", base, file=sys.stderr, flush=True))
"""
FREEZING = """
import atexit, gc, sys
from shortlist.cli import main, pauses
pauses.FREEZE_SECONDS = (0.0,)
atexit.register(lambda: print("frozen:", gc.get_freeze_count(), file=sys.stderr))
sys.exit(main())
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and processes are read from /proc")


@contextmanager
def running(folder: Path, program: str, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run a program with a home of its own; yield it and the file of its stderr."""
    folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **folders}
    log, command = folder / "log", [sys.executable, "-c", program, *arguments]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, env=environment, stderr=out, stdin=subprocess.PIPE) as process,
    ):
        try:
            yield process, log
        finally:
            process.kill()


def until_said(process: "subprocess.Popen[bytes]", log: Path, words: str) -> str:
    deadline = time.monotonic() + SECONDS
    while words not in (said := log.read_text()):
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.02)
    return said


def serve_arguments(folder: Path, servers: Sequence[str] = ()) -> list[str]:
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {name: stdio_server() for name in servers}}))
    return ["serve", "--http", "127.0.0.1:0", "--open", "--no-dashboard", "--config", str(config)]


def port_of(said: str) -> int:
    return int(said.partition("serving http://127.0.0.1:")[2].partition("/")[0])


def healthy(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_gateway_without_free_descriptors_neither_spins_nor_floods_its_log(tmp_path: Path) -> None:
    with running(tmp_path, LIMITED, *serve_arguments(tmp_path)) as (process, log):
        port = port_of(until_said(process, log, "/mcp\n"))
        assert healthy(port)
        opened = [socket.create_connection(("127.0.0.1", port), timeout=SECONDS) for _ in range(2 * DESCRIPTORS)]
        before, began = usage(process.pid).cpu_seconds, time.monotonic()
        time.sleep(1.0)  # the time in which a gateway that spins would use a core
        used = (usage(process.pid).cpu_seconds - before) / (time.monotonic() - began)
        for connection in opened:
            connection.close()
        deadline = time.monotonic() + SECONDS
        while not _is_healthy(port):
            assert time.monotonic() < deadline
        assert process.poll() is None
        assert used < 0.8
        assert log.read_text().count("\n") < 100


def _is_healthy(port: int) -> bool:
    try:
        return healthy(port)
    except OSError:
        return False


def test_sigterm_ends_a_process_whose_thread_still_computes(tmp_path: Path) -> None:
    with running(tmp_path, COMPUTING) as (process, log):
        until_said(process, log, "serving")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_what_a_gateway_loads_at_its_start_is_left_out_of_garbage_collection(tmp_path: Path) -> None:
    with running(tmp_path, FREEZING, *serve_arguments(tmp_path)) as (process, log):
        assert healthy(port_of(until_said(process, log, "/mcp\n")))
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        frozen = int(log.read_text().rpartition("frozen: ")[2].split()[0])
    assert frozen > 10_000


def test_kill_9_leaves_no_process_and_no_damaged_file_whenever_it_comes(tmp_path: Path) -> None:
    arguments = serve_arguments(tmp_path, ["bench"])
    with running(tmp_path, MAIN, *arguments) as (process, _):
        deadline = time.monotonic() + SECONDS
        while not children(process.pid):  # its guardian is there, nothing else yet
            assert time.monotonic() < deadline
            time.sleep(0.005)
        kill(process)
    for calls in (0, 1, 60):
        with running(tmp_path, MAIN, *arguments) as (process, log):
            port = port_of(until_said(process, log, "/mcp\n"))
            asyncio.run(asyncio.wait_for(call(port, calls), SECONDS))
            kill(process)
        check_files(tmp_path)
    with running(tmp_path, MAIN, *arguments) as (process, log):
        port = port_of(until_said(process, log, "/mcp\n"))
        asyncio.run(asyncio.wait_for(call(port, 1), SECONDS))
        assert "damaged" not in log.read_text()


def test_kill_9_loses_only_events_of_the_last_moment(tmp_path: Path) -> None:
    """What is lost is what waited to be written; docs/limits.md says how long that is at most."""
    with running(tmp_path, MAIN, *serve_arguments(tmp_path, ["bench"])) as (process, log):
        port, deadline = port_of(until_said(process, log, "/mcp\n")), time.monotonic() + SECONDS
        asyncio.run(asyncio.wait_for(call(port, 20), SECONDS))
        while recorded_calls(tmp_path) < 20:  # written by a gateway that runs, not by one that ends
            assert time.monotonic() < deadline
            time.sleep(0.02)
        asyncio.run(asyncio.wait_for(call(port, 5), SECONDS))
        kill(process)
    assert 20 <= recorded_calls(tmp_path) <= 25
    assert GATHER_SECONDS < 0.5


def recorded_calls(folder: Path) -> int:
    """Count the calls in the event store that were answered."""
    found = list(folder.rglob("events.sqlite"))
    if not found:
        return 0
    with closing(sqlite3.connect(found[0])) as connection:  # may write: a kill can leave a journal to roll back
        try:
            query = "SELECT count(*) FROM events WHERE kind = 'called' AND outcome = 'ok'"
            return int(connection.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # its tables are not there yet
            return 0


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a gateway and wait until every process that it started has ended."""
    family = children(process.pid)
    process.kill()
    process.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while any(is_running(pid) for pid in family):
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def call(port: int, times: int) -> None:
    """Call until so many calls were answered; the first ones may come before the server's tools are known."""
    client = RawClient(port, "modern")
    while times:
        answer = await client.call("call_tool", {"name": "bench__echo", "arguments": {"text": "x" * 30_000}})
        if answer.get("result", {"isError": True}).get("isError"):
            await asyncio.sleep(0.05)
        else:
            times -= 1
    client.close()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_files(folder: Path) -> None:
    databases = [path for path in folder.rglob("*") if path.suffix in (".db", ".sqlite", ".sqlite3")]
    for path in databases:
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), path
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())
