"""`shortlist doctor` names the cause in a server's own words, and what to do about it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from shortlist.cli import main
from shortlist.cli.diagnosis import BrokenServer, ServerDiagnosis, diagnose
from shortlist.config.load import load_settings
from shortlist.config.settings import HttpTransport, ServerSettings, StdioTransport, Transport
from shortlist.upstream.events import State, UpstreamStatus

RUN = StdioTransport(command=sys.executable, environment={"PATH": "/bin"})
NODE_STACK = (
    "node:internal/modules/cjs/loader:1228",
    "  throw err;",
    "  ^",
    "Error: Cannot find module '/home/me/gone/index.js'",
    "    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)",
    "  requireStack: []",
    "}",
    "",
    "Node.js v20.20.2",
    "[exited with code 1]",
)


def examined(
    *stderr: str,
    error: str = "the connection ended",
    state: State = "failed",
    transport: Transport = RUN,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> ServerDiagnosis:
    settings = ServerSettings(name="web", transport=transport)
    status = UpstreamStatus(server="web", state=state, since=0.0, error=error, stderr=stderr)
    return diagnose(BrokenServer(settings=settings, status=status, environment=environment))


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        (NODE_STACK, "Cannot find module '/home/me/gone/index.js': there is no such file"),
        (("python3: can't open file '/home/me/none.py': [Errno 2]",), "Cannot find module '/home/me/none.py'"),
        (("Error: Cannot find module 'zod'",), "Cannot find module 'zod'"),
        (("python3: No module named mcp_server_git",), "Python has no module 'mcp_server_git'"),
        (("npm error 404  '@a/b@*' is not in this registry.",), "npm has no package '@a/b'"),
        (("Error: listen EADDRINUSE: address already in use :::3000",), "port 3000 is in use"),
        (("[stdout, not a message] Listening on port 3000",), "it writes text to stdout instead of MCP messages"),
        (("Error: GITHUB_TOKEN is required",), "the server needs GITHUB_TOKEN"),
        (("Please set the BRAVE_API_KEY environment variable",), "the server needs BRAVE_API_KEY"),
        (("Traceback", "  File x", "ValueError: boom failed", "[exited with code 1]"), "ValueError: boom failed"),
    ],
)
def test_a_cause_is_named_in_the_servers_own_words(stderr: tuple[str, ...], cause: str) -> None:
    found = examined(*stderr)
    assert cause in found.cause
    assert found.remedy


def test_a_server_that_says_nothing_is_said_to_say_nothing() -> None:
    found = examined(error="", state="connecting")
    assert found.cause == "it was started, but does not answer"
    assert "`shortlist logs web`" in found.remedy


def test_a_command_that_is_not_there_comes_before_all_else() -> None:
    found = examined(transport=StdioTransport(command="npx-that-is-not-there", environment={"PATH": "/bin"}))
    assert found.cause == "there is no command 'npx-that-is-not-there' on its PATH"


def test_a_refused_login_says_how_to_log_in() -> None:
    remote = HttpTransport(url="https://example.com/mcp")
    found = examined(error="HTTP 401", state="needs_auth", transport=remote)
    assert "HTTP 401" in found.cause
    assert "`shortlist login web`" in found.remedy
    assert "Bearer ${WEB_TOKEN}" in found.remedy
    assert found.fix is None
    having = examined(error="HTTP 401", state="needs_auth", transport=remote, environment={"WEB_TOKEN": "t"})
    assert having.fix is not None
    assert (having.fix.keys, having.fix.value) == (("headers", "Authorization"), "Bearer ${WEB_TOKEN}")


def test_a_key_that_the_user_has_is_passed_on_by_reference() -> None:
    found = examined("Error: GITHUB_TOKEN is required", environment={"GITHUB_TOKEN": "ghp_x"})
    assert found.fix is not None
    assert (found.fix.keys, found.fix.value) == (("env", "GITHUB_TOKEN"), "${GITHUB_TOKEN}")
    assert "ghp_x" not in repr(found)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("HTTPS_PROXY", "TypeError: fetch failed"),
        ("AWS_PROFILE", "Unable to locate credentials"),
        ("KUBECONFIG", "The connection to the server localhost:8080 was refused"),
    ],
)
def test_variables_that_import_left_behind_are_found_where_the_server_misses_them(variable: str, words: str) -> None:
    found = examined(words, environment={variable: "value"})
    assert found.fix is not None
    assert (found.fix.keys, found.fix.value) == (("shortlist", "inherit_env"), [variable])
    assert examined("something else entirely", environment={variable: "value"}).fix is None


def test_a_slow_start_can_be_waited_for() -> None:
    found = examined(error="it did not get ready in 60 s")
    assert found.fix is not None
    assert (found.fix.keys, found.fix.value) == (("shortlist", "start_timeout"), 120)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("WEB_API_KEY", "k3y")
    script = "import os, sys; 'WEB_API_KEY' in os.environ or sys.exit('Error: WEB_API_KEY is required')"
    needy = {"command": sys.executable, "args": ["-c", f"{script}; import time; time.sleep(60)"]}
    path = tmp_path / "config.json"
    path.write_text("{\n  // mine\n" + f'  "mcpServers": {{\n    "needy": {json.dumps(needy)}\n  }}\n' + "}\n")
    return path


def test_a_fix_is_applied_to_the_file_and_its_comments_stay(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--config", str(config), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["servers"]["needy"]["cause"] == "the server needs WEB_API_KEY"
    assert "k3y" not in json.dumps(report)
    assert main(["doctor", "--config", str(config), "--yes"]) == 1
    assert "Fixed needy" in capsys.readouterr().out
    assert "// mine" in config.read_text()
    transport = load_settings(config).servers["needy"].transport
    assert isinstance(transport, StdioTransport)
    assert transport.environment["WEB_API_KEY"] == "k3y"


def test_a_broken_file_is_reported_as_json_too(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text('{"mcpServer": {}}')
    assert main(["doctor", "--config", str(config), "--json"]) == 1
    assert "did you mean 'mcpServers'?" in json.loads(capsys.readouterr().out)["problem"]
    assert main(["doctor", "--config", str(config)]) == 2
