"""Signals that end a gateway, and kill -9, against a real gateway process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.stress.client import Era, RawClient

from shortlist.front.requests import CUT_SHORT
from tests.servers.protected import protected_server

SERVERS = Path(__file__).parent.parent / "servers"
SECONDS = 180
PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def slow_server(folder: Path) -> tuple[Path, dict[str, str]]:
    """Configure a server whose `late` answers when a file appears; return the file and the environment to use it."""
    server = {
        "command": sys.executable,
        "args": [str(SERVERS / "misbehaving.py"), "late", str(folder / "now")],
        "env": {"PATH": os.environ["PATH"]},
    }
    return configured(folder, {"slow": server})


def configured(folder: Path, servers: dict[str, Any]) -> tuple[Path, dict[str, str]]:
    """Write a configuration; return its file and the environment of a gateway with a home of its own."""
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    return config, {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **folders}


@contextmanager
def serving(
    folder: Path,
    program: Sequence[str] = PROGRAM,
    servers: dict[str, Any] | None = None,
    said: str = "is ready",
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run `shortlist serve` in front of that server, or of others, until it says something; yield process and port."""
    config, environment = slow_server(folder) if servers is None else configured(folder, servers)
    log = folder / "log"
    command = [*program, "serve", "--http", "127.0.0.1:0", "--config", str(config), "--no-dashboard", "--open"]
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stderr=out) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while said not in log.read_text() or "serving http" not in log.read_text():
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
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("ignored here, as after nohup, and therefore by the gateway too")

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


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_calls_that_outlast_the_grace_period_are_told_that_the_gateway_shuts_down(era: Era, tmp_path: Path) -> None:
    async def calls(process: "subprocess.Popen[bytes]", port: int) -> tuple[list[dict[str, Any]], bytes]:
        await admitted(port)
        clients = [RawClient(port, era) for _ in range(5)]
        for client in clients:
            await client.open()
        inner = {"name": "slow__late", "arguments": {}}
        running = [asyncio.create_task(client.call("call_tool", inner)) for client in clients]
        half, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        while not (tmp_path / "now.5").exists():
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        return await asyncio.gather(*running), await half.read()

    with serving(tmp_path) as (process, port):
        answers, half = asyncio.run(asyncio.wait_for(calls(process, port), SECONDS))
        assert process.wait(SECONDS) == 0
    assert [answer["error"]["message"] for answer in answers] == [CUT_SHORT] * 5
    assert half.startswith(b"HTTP/1.1 503")
    assert half.endswith(b"The gateway is shutting down.")
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_gateway_ends_while_a_server_waits_for_a_login(tmp_path: Path) -> None:
    with protected_server() as wiki:
        servers = {"wiki": {"type": "http", "url": f"{wiki.url}/mcp"}}
        with serving(tmp_path, servers=servers, said="is needs_auth") as (process, _):
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_call_over_stdio_that_outlasts_the_grace_period_is_told_too(tmp_path: Path) -> None:
    config, environment = slow_server(tmp_path)
    command = [*PROGRAM, "serve", "--own", "--config", str(config)]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for message in (
                {"id": 1, "method": "initialize", "params": HANDSHAKE},
                {"method": "notifications/initialized"},
            ):
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()
            number = 1
            while not (tmp_path / "now.1").exists():
                number += 1
                params = {"name": "call_tool", "arguments": {"name": "slow__late", "arguments": {}}}
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                process.stdin.write(json.dumps(call).encode() + b"\n")
                process.stdin.flush()
                time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            said = [json.loads(line) for line in process.stdout]
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    answers = {each["id"]: each for each in said if "id" in each}
    assert set(answers) == set(range(1, number + 1))
    assert CUT_SHORT in [each["error"]["message"] for each in answers.values() if "error" in each]
