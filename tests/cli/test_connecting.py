"""`connect`, `disconnect` and `setup` as a user types them."""

import json
import re
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.cli.connecting import launch

FIXTURES = Path(__file__).parent.parent / "config" / "clients"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with Cursor and Codex, and no other client."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(
            f"XDG_{kind}_HOME", str(tmp_path / ".config" if kind == "CONFIG" else tmp_path / kind.lower())
        )
    monkeypatch.setenv("FIGMA_OAUTH_TOKEN", "figd")
    monkeypatch.chdir(tmp_path)
    for fixture, name in (("cursor.json", ".cursor/mcp.json"), ("codex.toml", ".codex/config.toml")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes((FIXTURES / fixture).read_bytes())
    return tmp_path


def test_connect_shows_the_change_and_writes_nothing_unasked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (home / ".cursor/mcp.json").read_bytes()
    assert main(["connect"]) == 0
    out = capsys.readouterr().out
    assert '+    "shortlist": {' in out
    assert "+[mcp_servers.shortlist]" in out
    assert "lin_secret_value_1" not in out
    assert out.endswith("Nothing was written. To connect: shortlist connect --yes\n")
    assert (home / ".cursor/mcp.json").read_bytes() == before
    assert not (home / ".config").exists()


def test_two_clients_are_connected_and_disconnected(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [home / ".cursor/mcp.json", home / ".codex/config.toml"]
    before = [path.read_bytes() for path in files]
    assert main(["connect", "--yes"]) == 0
    own = json.loads((home / ".config/shortlist/config.json").read_text())
    assert set(own["mcpServers"]) == {"playwright", "linear", "context7", "figma"}
    assert list(json.loads(files[0].read_text())["mcpServers"]) == ["shortlist"]
    assert main(["connect"]) == 0
    assert capsys.readouterr().out.count("(already connected)") == 2
    assert main(["disconnect", "--yes"]) == 0
    assert [path.read_bytes() for path in files] == before
    assert main(["disconnect"]) == 0
    assert capsys.readouterr().out.endswith("No client is connected.\n")


def test_a_report_for_programs_says_the_same(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "cursor", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["client"], row["changes"], row["written"]) == ("cursor", True, False)
    assert row["moved"] == ["playwright", "linear"]
    assert main(["disconnect", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_unknown_client_is_refused_with_those_that_there_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "cursr"]) == 2
    assert "No client 'cursr' is known. There are claude-desktop" in capsys.readouterr().err


def test_without_a_client_the_known_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert main(["connect"]) == 0
    assert "No client was found" in capsys.readouterr().out
    assert main(["connect", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_setup_and_doctor_on_a_machine_without_clients_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["setup", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "No client was found. Add a server with: shortlist add NAME -- COMMAND" in out
    assert "shortlist connect CLIENT, where CLIENT is claude-desktop" in out
    assert main(["doctor"]) == 2
    assert "or add one: shortlist add NAME -- COMMAND" in capsys.readouterr().err


def test_setup_imports_and_connects_with_one_yes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--no-check"]) == 0
    out = capsys.readouterr().out
    assert "playwright, linear, context7, figma" in out
    assert "Nothing was written. To do it: shortlist setup --yes" in out
    assert re.search(r'^\+ .*"shortlist": \{', out, re.MULTILINE)  # the exact change, as a diff
    assert main(["setup", "--yes", "--no-check"]) == 0
    assert "Cursor is connected." in capsys.readouterr().out
    assert set(json.loads((home / ".config/shortlist/config.json").read_text())["mcpServers"]) >= {"playwright"}


def test_a_client_starts_this_installation_by_its_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert launch().args == ("serve",)
    assert launch(tmp_path / "mine.json").args == ("serve", "--config", str(tmp_path / "mine.json"))
    monkeypatch.setattr("sys.executable", "/home/me/.cache/uv/archive-v0/abc/bin/python")
    assert (launch().command, launch().args) == ("uvx", ("shortlist-mcp", "serve"))
