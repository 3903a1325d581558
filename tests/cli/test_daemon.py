"""The gateway that stdio clients share: found, started, used at once, and gone when nobody needs it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shortlist.cli.rendezvous import NoSharing, Rendezvous, is_same_user, rendezvous
from shortlist.version import own_version
from tests.cli.light import HEAVY, imported
from tests.conftest import short_folder

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 600
"""When a client that hangs is killed; a thousand clients take minutes on a busy machine."""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
SERVERS = Path(__file__).parents[1] / "servers"
CLIENTS = 1_000
OPENED_LATER = 8
"""Descriptors that a gateway opens for itself meanwhile; if clients left any, there would be a thousand."""
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")


class Home:
    """A user of their own, whose shared gateway ends with the test."""

    def __init__(self, folder: Path, runtime: str, servers: dict[str, Any]) -> None:
        self.config = folder / "servers.json"
        self.config.write_text(json.dumps({"mcpServers": servers}))
        folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
        self.environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **folders}
        self.environment["XDG_RUNTIME_DIR"] = runtime

    def run(self, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        command = [*PROGRAM, *arguments, "--config", str(self.config)]
        more = {"env": self.environment, **more}
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, **more)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("daemon", "status", "--json").stdout)
        return found

    def place(self, monkeypatch: pytest.MonkeyPatch) -> Rendezvous:
        for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME"):
            monkeypatch.setenv(name, self.environment[name])
        return rendezvous(self.config)

    @contextmanager
    def client(self, *arguments: str) -> Iterator["StdioClient"]:
        command = [*PROGRAM, "serve", "--config", str(self.config), *arguments]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process: Any
        with subprocess.Popen(command, env=self.environment, text=True, **pipes) as process:
            killer = threading.Timer(SECONDS, process.kill)
            killer.start()
            try:
                yield StdioClient(process)
            finally:
                killer.cancel()
                process.stdin.close()


class StdioClient:
    """What starts `shortlist serve` and speaks MCP with it."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.first = self.ask("initialize", INITIALIZE["params"])
        self.said = process.stderr.readline()

    @property
    def gateway(self) -> int:
        found = re.search(r"shared by your clients \(pid (\d+)\)", self.said)
        assert found is not None, self.said
        return int(found[1])

    def ask(self, method: str, params: Any) -> Any:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == 7:
                return message["result"]
        raise AssertionError(self.process.stderr.read())

    def tools(self) -> set[str]:
        self.process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return {tool["name"] for tool in self.ask("tools/list", {})["tools"]}


@contextmanager
def living(folder: Path, servers: dict[str, Any]) -> Iterator[Home]:
    with short_folder() as runtime:
        home = Home(folder, runtime, servers)
        try:
            yield home
        finally:
            home.run("daemon", "stop")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with living(tmp_path, {}) as made:
        yield made


@pytest.fixture(scope="module")
def sky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home whose gateway has one server."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    server = {"command": sys.executable, "args": ["-m", "shortlist.demo.server", "weather"], "env": environment}
    with living(tmp_path_factory.mktemp("sky"), {"sky": server}) as made:
        yield made


def test_clients_share_one_gateway_and_each_has_its_own_options(sky: Home) -> None:
    with sky.client() as one, sky.client("--mode", "dynamic") as other, sky.client("--exclude", "sky") as third:
        assert one.gateway == other.gateway == third.gateway
        assert sorted(each["pid"] for each in sky.status()["clients"]) == sorted(
            client.process.pid for client in (one, other, third)
        )
        assert "load_tools" not in one.tools()
        assert "load_tools" in other.tools()
        call = {"name": "call_tool", "arguments": {"name": "sky__get_forecast", "arguments": {"location": "Bern"}}}
        sky.run("tools")  # it answers when the server's tools are known
        assert not one.ask("tools/call", call).get("isError")
        third.tools()
        refused = third.ask("tools/call", call)
        assert refused["isError"]
        assert "No tool 'sky__get_forecast'" in refused["content"][0]["text"]


def watch_imports(home: Home, *arguments: str, **more: Any) -> tuple[str, set[str]]:
    """Run a command and return its output and the packages that it imported."""
    command = [sys.executable, "-X", "importtime", *PROGRAM[1:], *arguments, "--config", str(home.config)]
    more = {"env": home.environment, "capture_output": True, "text": True, "timeout": SECONDS, **more}
    done = subprocess.run(command, check=True, **more)
    return done.stdout, imported(done.stderr)


@pytest.mark.parametrize(
    "asked",
    [
        ("call", "sky__get_forecast", '{"location": "Bern"}'),
        ("tools",),
        ("tools", "show", "sky__get_forecast"),
        ("toolsets",),
        ("search", "will it rain"),
        ("daemon", "status"),
    ],
    ids=" ".join,
)
def test_beside_a_running_gateway_a_command_imports_next_to_nothing(sky: Home, asked: tuple[str, ...]) -> None:
    with sky.client() as client:
        sky.run("tools")
        output, packages = watch_imports(sky, *asked)
        assert output.strip()
        assert "argparse" in packages
        assert packages & HEAVY == set()
        assert sky.status()["pid"] == client.gateway


def test_the_running_gateway_refuses_what_is_wrong(sky: Home) -> None:
    with sky.client():
        assert "sky__get_forecast" in {tool["name"] for tool in json.loads(sky.run("tools", "--json").stdout)}
        wrong = sky.run("call", "sky__get_forcast")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "sky__get_forecast" in wrong.stderr
        assert sky.run("tools", "show").returncode == 2


def test_the_running_gateway_searches_unless_other_tools_are_asked_for(sky: Home, tmp_path: Path) -> None:
    other = tmp_path / "tools.json"
    other.write_text(json.dumps([{"name": "sing", "description": "Sing a song."}]))
    with sky.client():
        sky.run("tools")
        found = json.loads(sky.run("search", "weather forecast", "--json", "--server", "sky").stdout)
        assert found["hits"][0]["name"] == "sky__get_forecast"
        unknown = sky.run("search", "rain", "--server", "sea")
        assert (unknown.returncode, "No server 'sea'. There are sky." in unknown.stderr) == (2, True)
        command = [*PROGRAM, "search", "a song", "--catalog", str(other), "--embedder", "none"]
        pipes: Any = {"capture_output": True, "text": True, "timeout": SECONDS}
        asked = subprocess.run(command, env=sky.environment, check=True, **pipes)
        assert "1. sing" in asked.stdout


def test_a_relay_imports_next_to_nothing(home: Home) -> None:
    output, packages = watch_imports(home, "serve", input=json.dumps(INITIALIZE) + "\n")
    assert json.loads(output)["id"] == 1
    assert "socket" in packages
    assert packages & HEAVY == set()


def test_clients_that_come_at_once_start_one_gateway(home: Home) -> None:
    with home.client() as one, home.client() as two, home.client() as three:
        assert len({one.gateway, two.gateway, three.gateway}) == 1
    first = home.status()["pid"]
    assert json.loads(home.run("daemon", "stop", "--json").stdout) == {"stopped": True, "pid": first}
    assert home.run("daemon", "status").returncode == 1
    command = [*PROGRAM, "serve", "--config", str(home.config)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    racing = [subprocess.Popen(command, env=home.environment, **pipes) for _ in range(4)]
    said = [process.communicate(json.dumps(INITIALIZE) + "\n", SECONDS) for process in racing]
    assert [process.returncode for process in racing] == [0] * 4, said
    assert [json.loads(out)["id"] for out, _ in said] == [1] * 4
    pids = {re.search(r"pid (\d+)", err)[1] for _, err in said}  # type: ignore[index]
    assert pids == {str(home.status()["pid"])}


def test_a_gateway_that_dies_ends_its_clients_with_a_message_and_the_next_one_starts_another(home: Home) -> None:
    with home.client() as client:
        os.kill(client.gateway, signal.SIGKILL)
        assert client.process.wait(SECONDS) == 1
        said = client.process.stderr.read()
    assert f"the shared gateway (pid {client.gateway}) ended. Start this client again" in said
    with home.client() as after:  # over the socket that the dead one left
        assert after.gateway != client.gateway


def test_a_signal_ends_a_client_and_not_the_gateway(home: Home) -> None:
    with home.client() as client:
        client.process.terminate()
        assert client.process.wait(SECONDS) == 0
    assert home.status()["pid"] == client.gateway


def test_a_gateway_without_clients_ends(home: Home) -> None:
    done = home.run("daemon", "run", "--idle-seconds", "0.1")
    assert done.returncode == 0
    assert home.status() == {"running": False}
    assert home.run("daemon", "run", "--idle-seconds", "never").returncode == 2


def test_a_gateway_of_another_version_is_left_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home.place(monkeypatch)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.socket))
        listening.listen()

        def answer() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                connection.recv(65_536)
                connection.sendall(b'{"version": "0.0.1", "pid": 1}\n')
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        served = home.run("serve", input=json.dumps(INITIALIZE) + "\n")
        listed = home.run("tools", "--json")
    assert json.loads(served.stdout)["id"] == 1
    message = f"the shared gateway is version 0.0.1 and this is {own_version()}, so this one works alone"
    assert message in served.stderr
    assert message in listed.stderr
    assert json.loads(listed.stdout) == []


def test_a_configuration_that_cannot_be_served_is_explained_as_without_sharing(home: Home) -> None:
    home.config.write_text('{"mcpServers": {"sky": {"comand": "x"}}}')
    shared, own = home.run("serve", input=""), home.run("serve", "--own", input="")
    assert (shared.returncode, own.returncode) == (2, 2)
    assert "comand" in shared.stderr
    assert shared.stderr.splitlines()[-1] == own.stderr.splitlines()[-1]
    home.config.write_text('{"mcpServers": {}}')
    refused = home.run("serve", "--exclude", "nothing", input="")
    assert refused.returncode == 2
    assert "No toolset 'nothing', which --exclude names" in refused.stderr


def test_a_client_whose_variables_differ_gets_a_gateway_of_its_own(home: Home) -> None:
    home.config.write_text('{"mcpServers": {}, "shortlist": {"smart_select": {"api_key": "${LETTER}"}}}')
    home.environment["LETTER"] = "a"
    with home.client() as client:
        alike = home.run("serve", input="")
        other = home.run("serve", input=json.dumps(INITIALIZE) + "\n", env={**home.environment, "LETTER": "b"})
    assert f"(pid {client.gateway})" in alike.stderr
    assert "this client gets a gateway of its own: the shared one has another $LETTER" in other.stderr
    assert json.loads(other.stdout)["id"] == 1


def test_nobody_else_can_read_what_a_gateway_writes(tmp_path: Path) -> None:
    noisy = {"command": sys.executable, "args": [str(SERVERS / "misbehaving.py"), "garbage"]}
    before = os.umask(0)  # of the gateway, its servers and their files; a strict one would hide a mistake
    try:
        with living(tmp_path, {"noisy": noisy}) as home:
            home.config.write_text(
                json.dumps({"mcpServers": {"noisy": noisy}, "shortlist": {"audit": {"enabled": True}}})
            )
            with home.client() as client:
                home.run("tools")
                call = {"name": "call_tool", "arguments": {"name": "noisy__echo", "arguments": {}}}
                assert not client.ask("tools/call", call).get("isError")
                client.ask("tools/call", {"name": "search_tools", "arguments": {"query": "echo"}})
    finally:
        os.umask(before)
    written = [path for kind in ("config", "data", "cache", "state") for path in (tmp_path / kind).rglob("*")]
    kinds = {path.name.partition(".")[2] for path in written if path.is_file()}
    assert {"json", "jsonl", "log", "sqlite"} <= kinds
    assert {str(path): oct(path.stat().st_mode) for path in written if path.stat().st_mode & 0o077} == {}


def test_only_this_user_can_open_the_socket(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with home.client():
        place = home.place(monkeypatch)
        assert place.socket.stat().st_mode & 0o777 == 0o600
        assert place.folder.stat().st_mode & 0o777 == 0o700
    place.folder.chmod(0o755)
    with pytest.raises(NoSharing, match="is not a folder that only you can open"):
        rendezvous(home.config)
    served = home.run("serve", input=json.dumps(INITIALIZE) + "\n")
    assert "this client gets a gateway of its own" in served.stderr
    assert json.loads(served.stdout)["id"] == 1
    place.folder.chmod(0o700)


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can be somebody else")
def test_the_process_of_another_user_is_recognised(tmp_path: Path) -> None:
    path = Path("/tmp") / f"shortlist-peer-{os.getpid()}.sock"
    program = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen()
        for user, is_us in ((os.getuid(), True), (65_534, False)):
            with subprocess.Popen(["/usr/bin/env", "python3", "-c", program, str(path)], user=user, cwd="/"):
                accepted, _ = listening.accept()
            with accepted:
                assert is_same_user(accepted) is is_us
    path.unlink()


def test_a_gateway_that_starts_again_starts_no_server_until_one_is_needed(sky: Home) -> None:
    with sky.client() as client:
        sky.run("tools")
        saved = Path(sky.environment["XDG_DATA_HOME"]) / "shortlist" / "catalog"
        deadline = time.monotonic() + SECONDS
        while not list(saved.glob("*-offers.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        before = client.gateway
    sky.run("daemon", "stop")
    with sky.client() as client:
        assert client.gateway != before
        assert "sky__get_forecast" in sky.run("tools").stdout
        assert sky.status()["servers"] == {"idle": 1}
        assert sky.run("call", "sky__get_forecast", '{"location": "Bern"}').returncode == 0
        assert sky.status()["servers"] == {"ready": 1}


def used_by(pid: int) -> tuple[int, int]:
    """Return the descriptors and the child processes of a process."""
    children = sum(len(task.read_text().split()) for task in Path(f"/proc/{pid}/task").glob("*/children"))
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), children


def until_used(pid: int, most: tuple[int, int]) -> None:
    """Wait until a process uses no more than this; it closes its end of a connection after the client has left."""
    deadline = time.monotonic() + SECONDS / 10
    while (now := used_by(pid)) > most or now[1] > most[1]:
        assert time.monotonic() < deadline, f"descriptors and children are {now}, and were {most}"
        time.sleep(0.05)


def resident_kilobytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_of_a_thousand_clients_that_come_and_go_nothing_stays(sky: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    place = sky.place(monkeypatch)
    greeting = {"shortlist": 1, "version": own_version(), "serve": {"mode": "dynamic"}, "variables": {}}
    asked = [greeting, INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    asked.append({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in asked)

    def come_and_go(times: int) -> None:
        for _ in range(times):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(SECONDS)
                connection.connect(str(place.socket))
                connection.sendall(lines)
                came = b""
                while b'"id":2' not in came:
                    came += connection.recv(65_536)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

    with sky.client() as client:
        sky.run("tools")
        come_and_go(CLIENTS // 3)
        before, megabytes = used_by(client.gateway), resident_kilobytes(client.gateway) / 1024
        come_and_go(CLIENTS)
        descriptors, children = before
        until_used(client.gateway, (descriptors + OPENED_LATER, children))
        assert len(sky.status()["clients"]) == 1
        # The last 2,000 workspaces are remembered, half a kilobyte each; garbage and free pages vary by a megabyte.
        grown = resident_kilobytes(client.gateway) / 1024 - megabytes
        print(f"{grown:.1f} MB after {CLIENTS} clients")
        assert grown < 4
