"""Signals that end a gateway, and kill -9, against a real gateway process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.stress.client import Era, RawClient

SERVERS = Path(__file__).parent.parent / "servers"
SECONDS = 180
PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]


@contextmanager
def serving(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run `shortlist serve` in front of a server whose `late` answers when a file appears; yield process and port."""
    server = {
        "command": sys.executable,
        "args": [str(SERVERS / "misbehaving.py"), "late", str(folder / "now")],
        "env": {"PATH": os.environ["PATH"]},
    }
    config, log = folder / "servers.json", folder / "log"
    config.write_text(json.dumps({"mcpServers": {"slow": server}}))
    folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **folders}
    command = [*PROGRAM, "serve", "--http", "127.0.0.1:0", "--config", str(config), "--no-dashboard", "--open"]
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stderr=out) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while "is ready" not in log.read_text() or "serving http" not in log.read_text():
                assert time.monotonic() < deadline
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield process, int(log.read_text().partition("serving http://127.0.0.1:")[2].partition("/")[0])
        finally:
            process.kill()


async def admitted(port: int) -> None:
    """Wait until the gateway serves the server's tools: a server is ready before they are admitted."""
    client = RawClient(port, "modern")
    await client.open()
    described: dict[str, Any] = {}
    while "result" not in described or described["result"].get("isError"):
        await asyncio.sleep(0.05)
        described = await client.call("describe_tools", {"names": ["slow__late"]})


@pytest.mark.parametrize(
    ("era", "number"), [("legacy", signal.SIGTERM), ("modern", signal.SIGTERM), ("modern", signal.SIGHUP)]
)
def test_calls_that_are_running_at_a_signal_are_answered(era: Era, number: signal.Signals, tmp_path: Path) -> None:
    async def call(port: int) -> dict[str, object]:
        client = RawClient(port, era)
        await client.open()
        inner = {"name": "slow__late", "arguments": {}}
        return await client.call("call_tool", inner)

    async def calls(process: "subprocess.Popen[bytes]", port: int) -> list[dict[str, object]]:
        await admitted(port)
        running = [asyncio.create_task(call(port)) for _ in range(8)]
        while not (tmp_path / "now.8").exists():
            await asyncio.sleep(0.02)
        process.send_signal(number)
        (tmp_path / "now").touch()
        return await asyncio.gather(*running)

    with serving(tmp_path) as (process, port):
        answers = asyncio.run(asyncio.wait_for(calls(process, port), SECONDS))
        assert process.wait(SECONDS) == 0
    assert [answer.get("result", {}).get("content", [{}])[0].get("text") for answer in answers] == ["at last"] * 8  # type: ignore[attr-defined]


def test_a_call_that_never_ends_does_not_keep_a_gateway_at_sigterm(tmp_path: Path) -> None:
    async def hang(process: "subprocess.Popen[bytes]", port: int) -> None:
        await admitted(port)
        client = RawClient(port, "modern")
        await client.open()
        task = asyncio.create_task(client.call("call_tool", {"name": "slow__late", "arguments": {}}))
        while not (tmp_path / "now.1").exists():
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait([task])

    with serving(tmp_path) as (process, port):
        asyncio.run(asyncio.wait_for(hang(process, port), SECONDS))
        assert process.wait(SECONDS) == 0
