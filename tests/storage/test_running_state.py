"""Every file of a running gateway × every damage: calls and searches go on, and the next start serves as well."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from benchmarks.stress.client import RawClient
from benchmarks.stress.processes import stdio_server

from shortlist.index.saved import SAVED_FROM

SECONDS = 180
EXPECTED = {"events.sqlite", "vectors.sqlite", "trust.sqlite", "hash.key", "index.json", "dense-codes.npy"}
"""Some of the files that a gateway has written by then; all others are damaged as well."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="an open file can be cut off and deleted")


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def filled_with_garbage(path: Path) -> None:
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(bytes(range(256)) * (path.stat().st_size // 256 + 32))


DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "cut to half": halved,
    "emptied": lambda path: os.truncate(path, 0),
    "unreadable": lambda path: path.chmod(0),
    "garbage": filled_with_garbage,
    "deleted": Path.unlink,
}


def test_no_damage_to_any_of_its_files_ends_a_running_gateway_or_the_next_start(tmp_path: Path) -> None:
    with serving(tmp_path) as port:
        asyncio.run(used(port))
        until(lambda: {path.name for path in state_of(tmp_path)} >= EXPECTED)
    with serving(tmp_path) as port:  # which reads all of it
        asyncio.run(used(port))
        until(lambda: "'bench' is ready" in said(tmp_path))
        damage(tmp_path, "cut to half")
        cut = change_of(tmp_path)
        asyncio.run(used(port))
        until(lambda: "events cannot be recorded" in said(tmp_path) or change_of(tmp_path) != cut)
        for name in ("emptied", "unreadable", "garbage"):
            damage(tmp_path, name)
            asyncio.run(used(port))
    for path in tmp_path.rglob("trust.sqlite"):
        path.unlink()  # as the log says: nothing is served while approvals cannot be read
    with serving(tmp_path) as port:
        asyncio.run(used(port))
        damage(tmp_path, "deleted")
        asyncio.run(used(port))


def damage(folder: Path, name: str) -> None:
    for path in state_of(folder):
        with suppress(FileNotFoundError):  # a journal comes and goes
            DAMAGES[name](path)


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Run a gateway whose catalog is large enough for a saved index; yield its port. SIGTERM must end it orderly."""
    config = folder / "servers.json"
    servers = {"bench": stdio_server(MORE_TOOLS=str(SAVED_FROM))}
    config.write_text(json.dumps({"mcpServers": servers, "shortlist": {"search": {"embedder": "static"}}}))
    folders = {f"XDG_{kind}_HOME": str(folder / "home" / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    environment = {**os.environ, "HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join(sys.path), **folders}
    serve = ["serve", "--http", "127.0.0.1:0", "--open", "--no-dashboard", "--config", str(config)]
    command = [sys.executable, "-m", "shortlist.cli", *serve]
    with (folder / "log").open("wb") as out, subprocess.Popen(command, env=environment, stderr=out) as process:
        try:
            until(lambda: "serving http://" in said(folder) or process.poll() is not None)
            yield int(said(folder).partition("serving http://127.0.0.1:")[2].partition("/")[0])
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0, said(folder)
        finally:
            process.kill()


async def used(port: int) -> None:
    """Call a tool and search for one until both are answered: the server may still be starting."""
    async with asyncio.timeout(SECONDS):
        client = RawClient(port, "modern")
        for name, arguments, expected in (
            ("call_tool", {"name": "bench__echo", "arguments": {"text": "hello"}}, "hello"),
            ("search_tools", {"query": f"say a text back {time.monotonic()}"}, "bench__echo"),
        ):
            while expected not in str((await client.call(name, arguments)).get("result", {}).get("content")):
                await asyncio.sleep(0.05)
        client.close()


def state_of(folder: Path) -> list[Path]:
    """Return every file that the gateway keeps; in a hidden folder one is being written."""
    walked = os.walk(folder / "home")  # which passes over a folder that is gone meanwhile
    return [Path(place, name) for place, _, names in walked if not Path(place).name.startswith(".") for name in names]


def change_of(folder: Path) -> list[tuple[int, int, int]]:
    """Return what changes whenever the events are written."""
    found = [path.stat() for path in state_of(folder) if path.name == "events.sqlite"]
    return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found]


def said(folder: Path) -> str:
    return (folder / "log").read_text("utf-8", "replace")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
