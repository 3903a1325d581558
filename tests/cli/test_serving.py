"""`shortlist serve` and its neighbours as real processes."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 180
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Set up a home of its own, so that nobody's configuration is read."""
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    return {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **folders}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    demo = {"command": sys.executable, "args": ["-m", "shortlist.demo.server", "weather"]}
    demo["env"] = {"PYTHONPATH": os.pathsep.join(sys.path)}  # type: ignore[assignment]
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"sky": demo}}))
    return path


def run(environment: Mapping[str, str], *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False, **more
    )


def test_status_says_how_every_server_is(environment: dict[str, str], config: Path) -> None:
    done = run(environment, "status", "--config", str(config), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sky"]["state"] == "ready"


def test_status_names_tools_that_were_left_out_and_why(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    program = Path(__file__).parents[1] / "servers" / "misbehaving.py"
    path.write_text(
        json.dumps({"mcpServers": {"deep": {"command": sys.executable, "args": [str(program), "deep", "300"]}}})
    )
    done = run(environment, "status", "--config", str(path))
    assert done.returncode == 0, done.stderr
    assert "  ! tool 'icons' is left out: it is nested too deeply; a message has 200 levels at most" in done.stdout
    data = json.loads(run(environment, "status", "--config", str(path), "--json").stdout)
    assert len(data["deep"]["problems"]) == 4


def test_a_command_that_is_not_there_is_named_and_the_exit_status_is_1(
    environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-command-anywhere"}}}))
    done = run(environment, "status", "--config", str(path))
    assert done.returncode == 1
    assert "no-such-command-anywhere" in done.stdout


def test_tools_are_listed_and_shown(environment: dict[str, str], config: Path) -> None:
    listed = json.loads(run(environment, "tools", "--config", str(config), "--json").stdout)
    name = listed[0]["name"]
    shown = run(environment, "tools", "show", name, "--config", str(config))
    assert name.startswith("sky__")
    assert "input schema: " in shown.stdout


def test_a_name_given_to_the_list_of_tools_is_not_passed_over(environment: dict[str, str], config: Path) -> None:
    done = run(environment, "tools", "list", "get_forecast", "--config", str(config))
    assert done.returncode == 2
    assert "`shortlist tools show get_forecast`." in done.stderr


def test_a_call_answers_on_stdout_and_its_failure_in_the_exit_status(environment: dict[str, str], config: Path) -> None:
    listed = json.loads(run(environment, "tools", "--config", str(config), "--json").stdout)
    needy = next(tool for tool in listed if tool["inputSchema"].get("required"))
    wrong = run(environment, "call", needy["name"], "{}", "--config", str(config))
    unknown = run(environment, "call", "sky__nothing_like_it", "{}", "--config", str(config))
    no_json = run(environment, "call", needy["name"], "{", "--config", str(config))
    assert wrong.returncode == 1
    assert "was NOT invoked" in wrong.stdout
    assert unknown.returncode == 2
    assert no_json.returncode == 2
    assert "not valid JSON" in no_json.stderr


def test_toolsets_have_a_size_and_a_cost(environment: dict[str, str], config: Path) -> None:
    (row,) = json.loads(run(environment, "toolsets", "--config", str(config), "--json").stdout)
    assert row["name"] == "sky"
    assert row["tokens"] > row["tools"] > 0


def test_a_broken_configuration_is_one_line_and_exit_2(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"mcpServers": {')
    done = run(environment, "serve", "--config", str(path), stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "bad.json" in done.stderr


def test_an_address_in_use_is_named_with_what_to_do(environment: dict[str, str], config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(environment, "serve", "--config", str(config), "--http", address)
    assert done.returncode == 2
    assert f"{address} cannot be used: Address already in use. Try another with --http" in done.stderr


def test_an_answer_comes_without_news_of_servers_that_are_ready(environment: dict[str, str], config: Path) -> None:
    done = run(environment, "tools", "--config", str(config))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"shortlist: using {config} (1 server)"]


@pytest.mark.parametrize("address", ["8765", "localhost", "localhost:http", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(environment: dict[str, str], address: str) -> None:
    done = run(environment, "serve", "--http", address)
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_serve_speaks_stdio_and_nothing_but_protocol(
    environment: dict[str, str], config: Path, mode: Any
) -> None:
    server = StdioServerParameters(
        command=PROGRAM[0], args=[*PROGRAM[1:], "serve", "--own", "--config", str(config)], env=environment
    )
    with anyio.fail_after(SECONDS):
        async with Client(server, mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            sets = await client.call_tool("list_toolsets", {})
            found = await client.call_tool("search_tools", {"query": "weather forecast for a city"})
    assert tools == ["search_tools", "describe_tools", "call_tool", "read_result"]
    assert not sets.is_error
    assert not found.is_error


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")
def test_who_starts_it_in_a_terminal_is_told_what_it_waits_for(environment: dict[str, str], config: Path) -> None:
    ours, theirs = os.openpty()
    command = [*PROGRAM, "serve", "--own", "--config", str(config)]
    with subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        ending = threading.Timer(SECONDS, process.kill)
        ending.start()
        assert any("waiting for MCP messages on stdin" in line for line in process.stderr)
        ending.cancel()
        process.kill()
    os.close(ours)
    os.close(theirs)


def test_a_signal_ends_a_gateway_whose_client_keeps_stdin_open(environment: dict[str, str], config: Path) -> None:
    command = [*PROGRAM, "serve", "--own", "--config", str(config)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.terminate()
        assert process.wait(SECONDS) == 0


def test_closing_stdin_ends_the_gateway(environment: dict[str, str], config: Path) -> None:
    done = run(environment, "serve", "--own", "--config", str(config), input=json.dumps(INITIALIZE) + "\n")
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]


def test_logs_show_the_last_of_what_a_server_said(environment: dict[str, str], tmp_path: Path) -> None:
    noisy = "import sys\nfor i in range(60): print(f'line {i} \\x1b[31mred', file=sys.stderr)\nsys.exit(3)"
    path = tmp_path / "noisy.json"
    path.write_text(json.dumps({"mcpServers": {"noisy": {"command": sys.executable, "args": ["-c", noisy]}}}))
    assert run(environment, "status", "--config", str(path)).returncode == 1
    shown = run(environment, "logs", "noisy", "--lines", "1000")
    last = run(environment, "logs", "noisy", "--lines", "2")
    data = json.loads(run(environment, "logs", "noisy", "--json").stdout)
    assert "line 0 " in shown.stdout
    assert "line 59 " in shown.stdout
    assert "\x1b" not in shown.stdout
    assert shown.stdout.splitlines()[-2:] == last.stdout.splitlines()
    assert run(environment, "logs", "noisy", "--lines", "0").stdout.strip() == ""
    assert data["server"] == "noisy"
    assert data["lines"] == shown.stdout.splitlines()[-50:]


def test_logs_of_a_server_that_nobody_knows_say_so(environment: dict[str, str]) -> None:
    done = run(environment, "logs", "nobody")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "No log of server 'nobody'" in done.stderr


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_command_starts_no_server_but_the_one_that_it_needs(
    environment: dict[str, str], config: Path, tmp_path: Path, is_saved: bool
) -> None:
    if is_saved:
        run(environment, "tools", "--config", str(config))  # saves what every server lists
    started = tmp_path / "started"
    tree = json.loads(config.read_text())
    tree["mcpServers"]["other"] = {"command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}
    config.write_text(json.dumps(tree))
    done = run(environment, "call", "sky__get_forecast", '{"location": "Oslo"}', "--config", str(config))
    assert done.returncode == 0
    listed = run(environment, "tools", "--server", "sky", "--config", str(config))
    assert "sky__get_forecast" in listed.stdout
    assert not started.exists()
    run(environment, "tools", "--config", str(config))
    assert started.exists()
