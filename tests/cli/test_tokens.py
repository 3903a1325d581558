"""`shortlist token`, and how a gateway over HTTP lets clients in."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from shortlist.cli import main
from shortlist.cli.tokens import own_token
from shortlist.config.settings import hash_token
from shortlist.errors import StoreError
from shortlist.storage.port import StoredToken

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 180
DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def data(home: Path, name: str) -> Path:
    return next((home / "data").rglob(name))


def status(*arguments: str) -> Any:
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


def created(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["token", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_token_is_shown_once_and_stored_as_a_hash(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = created(capsys, "create", "ci", "--servers", "slack", "--can", "read", "--expires", "30d")["token"]
    assert token.startswith("slt_")
    assert hash_token(token) in data(home, "tokens.json").read_text()
    assert all(token not in path.read_text() for path in home.rglob("*.json"))
    assert main(["token", "list"]) == 0
    shown = capsys.readouterr().out
    assert token not in shown
    assert "servers slack; may read; expires " in shown
    assert "never used" in shown


def test_a_rotated_token_keeps_its_scope(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = created(capsys, "create", "ci", "--tools", "slack/*", "--group", "bots")
    second = created(capsys, "rotate", "ci")
    assert second["token"] != first["token"]
    assert (second["tools"], second["group"]) == (["slack/*"], "bots")
    assert hash_token(first["token"]) not in data(home, "tokens.json").read_text()


def test_a_revoked_token_is_gone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    created(capsys, "create", "ci")
    assert main(["token", "revoke", "ci"]) == 0
    assert main(["token", "revoke", "ci"]) == 2
    assert "No token 'ci'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", "a b"], "'a b' is not a name"),
        (["create", "ci", "--servers", "slak"], "no server 'slak'. Did you mean 'slack'?"),
        (["create", "ci", "--toolsets", "slak"], "no toolset 'slak'. Did you mean 'slack'?"),
        (["create", "ci", "--servers", ","], "it is empty"),
        (["create", "ci", "--can", "fly"], "unknown action 'fly'; choose from see, read"),
        (["create", "ci", "--expires", "soon"], "'soon' is not a duration; write 90m, 12h, 30d or 8w"),
        (["create", "ci", "--expires", "0d"], "'0d' is not a duration"),
        (["rotate", "nobody"], "No token 'nobody'"),
    ],
)
def test_what_makes_no_token_is_refused_by_name(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert status("token", *arguments) == 2
    assert complaint in capsys.readouterr().err
    assert not list((home / "data").rglob("tokens.json"))


def test_a_gateway_gets_a_token_though_it_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("shortlist.cli.tokens.say", said.append)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    own = own_token(NoTokens())
    assert own is not None
    assert own.unsaved is not None
    assert own.unsaved.hash == hash_token(own.secret)
    assert "valid until this gateway ends" in said[0]


class NoTokens:
    """A store without tokens that takes none."""

    def load(self) -> dict[str, StoredToken]:
        return {}

    def put(self, token: StoredToken) -> None:
        raise StoreError(f"{token.name} cannot be saved")

    def remove(self, name: str) -> bool:
        raise StoreError(f"{name} cannot be removed")

    def note_use(self, used: object) -> None:
        raise StoreError(f"{used} cannot be noted")


def test_a_name_is_taken_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    created(capsys, "create", "ci")
    assert main(["token", "create", "ci"]) == 2
    assert "`shortlist token rotate ci` replaces it" in capsys.readouterr().err


@contextmanager
def serving(*options: str) -> Iterator[Callable[[str], str]]:
    """Serve the demo servers over HTTP; yields what waits for a line on stderr and returns the rest of it."""
    command = [*PROGRAM, "serve", "--http", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        stream = process.stderr
        try:
            yield lambda mark: next(line.partition(mark)[2].strip() for line in stream if mark in line)
        finally:
            process.terminate()
            process.stderr.read()


def knock(url: str, headers: Mapping[str, str] | None = None) -> int:
    more = {"Accept": "application/json, text/event-stream", **(headers or {})}
    return httpx2.post(url, json=DISCOVER, headers=more, timeout=SECONDS).status_code


@pytest.mark.anyio
async def test_a_gateway_lets_in_only_those_who_have_a_token(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as line:
        url = line("serving ")
        own = json.loads(line("paste into a client: "))["mcpServers"]["shortlist"]["headers"]
        link = line("dashboard: ").partition(" ")[0]
        assert knock(url) == 401
        assert knock(url, {"Authorization": "Bearer slt_guessed"}) == 401
        assert knock(url, own) == 200
        assert httpx2.get(url.replace("/mcp", "/metrics")).status_code == 401
        assert httpx2.get(link).status_code == 200
        assert httpx2.get(link).status_code == 401
        secret = own["Authorization"].removeprefix("Bearer ")
        assert data(home, "token").read_text() == secret
        assert data(home, "token").stat().st_mode & 0o777 == 0o600
        created(capsys, "create", "local2")
        guest = {"Authorization": f"Bearer {created(capsys, 'create', 'guest')['token']}"}
        await until(url, guest, 200)
        main(["token", "revoke", "guest"])
        await until(url, guest, 401)
        main(["token", "revoke", "local"])
        main(["token", "revoke", "local2"])
        await until(url, own, 401)
        assert knock(url) == 401  # no tokens are left, and still nobody is let in without one


async def until(url: str, headers: Mapping[str, str], status: int) -> None:
    with anyio.fail_after(SECONDS):
        while knock(url, headers) != status:
            await anyio.sleep(0.1)


def test_a_later_start_names_the_file_of_the_token_and_open_needs_none(home: Path) -> None:
    with serving("--open") as line:
        url = line("serving ")
        assert "every user of this machine" in line("warning: ")
        assert "headers" not in line("paste into a client: ")
        assert knock(url) == 200
    with serving("--no-dashboard") as line:
        assert re.search(r"Bearer slt_[\w-]{43}", line("paste into a client: "))
    with serving("--no-dashboard") as line:
        url = line("serving ")
        assert str(data(home, "token")) in line("paste into a client: ")
        assert knock(url, {"Authorization": f"Bearer {data(home, 'token').read_text()}"}) == 200


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--open"], "--open works only with --http"),
        (["--open", "--http", "0.0.0.0:0"], "lets other machines call every tool"),
    ],
)
def test_open_is_for_this_machine_over_http(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["serve", *arguments]) == 2
    assert complaint in capsys.readouterr().err
