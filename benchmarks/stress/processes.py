"""A gateway and its servers as processes, and what the kernel counts about them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

UPSTREAM = Path(__file__).with_name("upstream.py")
READY_SECONDS = 900.0
"""How long servers may take: the tools of a large catalog are all examined at its first start."""
COUNT_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has taken so far."""

    cpu_seconds: float
    memory_bytes: int
    descriptors: int
    threads: int


def usage(pid: int) -> Usage:
    """Read a process's use from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory_bytes=int(memory) * os.sysconf("SC_PAGE_SIZE"),
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(fields[17]),
    )


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU time of the processes that a process started, including those that ended."""
    total = _cpu_seconds(pid, (13, 14))
    return total + sum(_cpu_seconds(child, (11, 12, 13, 14)) for child in children(pid))


def _cpu_seconds(pid: int, fields: tuple[int, ...]) -> float:
    try:
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(values[field]) for field in fields) / _TICKS


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that still run, theirs included."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # processes end while they are listed
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children(int(child))]
    return found


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway."""

    pid: int
    port: int
    log: Path
    folder: Path

    @property
    def pauses(self) -> dict[str, float]:
        """What `benchmarks.stress.watched` has written down so far, in milliseconds."""
        found: dict[str, float] = json.loads((self.folder / "pauses.json").read_text())
        return found

    def live_objects(self) -> Counter[str]:
        """Return how many objects of each type are alive in a gateway that runs `benchmarks.stress.counted`."""
        path, deadline = self.folder / "counts.json", monotonic() + COUNT_SECONDS
        path.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        while not path.exists():
            if monotonic() > deadline:
                raise RuntimeError("the gateway did not count its objects")
            sleep(0.05)
        return Counter(json.loads(path.read_text()))

    def get(self, path: str) -> str:
        """Return what a path answers; raise RuntimeError with the end of the log where the gateway is gone."""
        try:
            return self._get(path)
        except OSError as error:
            raise RuntimeError(f"{error}; it last said: {self.log.read_text('utf-8', 'replace')[-3000:]}") from error

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            text: str = response.read().decode()
            return text


def stdio_server(*arguments: str, **environment: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(UPSTREAM), "stdio", *arguments], "env": environment}


@contextmanager
def http_upstream(*arguments: str, **environment: str) -> Iterator[tuple[int, str]]:
    """Run the server over HTTP; yield its process id and address."""
    command = [sys.executable, str(UPSTREAM), "http", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        if process.stdout is None:
            raise RuntimeError("the server was started without a pipe")
        try:
            yield process.pid, f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@contextmanager
def gateway(
    servers: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = ("--no-dashboard",),
    module: str = "shortlist.cli",
    cache: Path | None = None,
    pins: Path | None = None,
) -> Iterator[Gateway]:
    """Serve these servers over HTTP in a process with a home of its own.

    Its cache may be one that others share, and its pins those of an earlier run; then they are saved for the next one.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, log = folder / "servers.json", folder / "gateway.log"
        config.write_text(json.dumps({"mcpServers": servers, "shortlist": dict(options or {})}))
        folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
        if cache is not None:
            folders["XDG_CACHE_HOME"] = str(cache)
        pinned = folder / "data" / "shortlist" / "trust.sqlite"
        if pins is not None and pins.is_file():
            pinned.parent.mkdir(parents=True)
            shutil.copy(pins, pinned)
        environment = {**os.environ, "HOME": name, **_written_to(folder), **folders}
        serve = ["serve", "--http", "127.0.0.1:0", "--open", "--config", str(config)]
        command = [sys.executable, "-m", module, *serve]
        with log.open("wb") as out, subprocess.Popen([*command, *arguments], env=environment, stderr=out) as process:
            try:
                port = _port(log, process)
                running = Gateway(process.pid, port, log, folder)
                _until_ready(running, len(servers), process)
                if pins is not None:
                    pins.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(pinned, pins)
                yield running
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()


def _written_to(folder: Path) -> dict[str, str]:
    return {"PAUSES_FILE": str(folder / "pauses.json"), "COUNTS_FILE": str(folder / "counts.json")}


def _port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    deadline = monotonic() + READY_SECONDS
    while monotonic() < deadline and process.poll() is None:
        said = log.read_text("utf-8", "replace")
        if "serving http://" in said:
            return int(said.partition("serving http://127.0.0.1:")[2].partition("/")[0])
        sleep(0.05)
    raise RuntimeError(f"the gateway did not start: {log.read_text('utf-8', 'replace')[-2000:]}")


def _until_ready(running: Gateway, servers: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = monotonic() + READY_SECONDS
    while monotonic() < deadline and process.poll() is None:
        # A server that is started only to list its tools may have ended again, so the log is not asked.
        if running.get("/metrics").count("shortlist_tools{") >= servers:
            return
        sleep(0.05)
    raise RuntimeError(f"the servers did not start: {running.log.read_text('utf-8', 'replace')[-2000:]}")
