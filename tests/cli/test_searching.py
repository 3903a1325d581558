"""`shortlist search` and `shortlist explain` as real processes: whose tools they search, and how soon."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from shortlist.cli import main
from shortlist.storage.sqlite_vectors import SqliteVectors

PROGRAM = [sys.executable, "-m", "shortlist.cli"]
SECONDS = 180

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Set up a home of its own, so that nobody's configuration is read."""
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    return {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **folders}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    def run(*arguments: str, path: str = "") -> "subprocess.CompletedProcess[str]":
        found = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (path, environment["PYTHONPATH"])))}
        return subprocess.run(
            [*PROGRAM, *arguments], env=found, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    return run


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """Configure one server, and return the file in which it notes each of its starts."""
    notes, config = tmp_path / "starts", tmp_path / "config" / "shortlist" / "config.json"
    server = f"echo started >> {notes}; exec {sys.executable} -m shortlist.demo.server weather"
    raw = {"command": "sh", "args": ["-c", server], "env": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"mcpServers": {"sky": raw}}))
    return notes


def test_a_first_search_has_the_model_and_embeds_no_tool(run: Run, tmp_path: Path) -> None:
    done = run("search", "do I need an umbrella tomorrow", "--json")
    found = json.loads(done.stdout)
    assert (found["hits"][0]["id"], found["notes"]) == ("weather/get_forecast", [])
    assert "searching the bundled demo (`shortlist setup` adds your servers)" in done.stderr
    assert len(SqliteVectors(tmp_path / "cache" / "shortlist" / "vectors.sqlite")) == 0


def test_a_search_goes_on_where_vectors_cannot_be_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    done = run("search", "do I need an umbrella tomorrow", "--json")
    assert json.loads(done.stdout)["hits"][0]["id"] == "weather/get_forecast"
    assert "vectors are computed again" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_users_own_servers_are_asked_once_and_searched_from_then_on(run: Run, starts: Path) -> None:
    first, second = (run("search", "will it rain", "--embedder", "none") for _ in range(2))
    explained = run("explain", "will it rain", "--embedder", "none")
    for done in (first, second):
        assert "1. sky__get_forecast" in done.stdout
        assert "searching 7 tools of 1 server in " in done.stderr
    assert explained.stdout.startswith("sky/")
    assert run("explain", "rain", "sky__get_forecast", "--embedder", "none").stdout.startswith("sky/get_forecast")
    assert starts.read_text().splitlines() == ["started"]


def test_a_server_that_nothing_is_known_of_is_named(run: Run, starts: Path, tmp_path: Path) -> None:
    run("search", "rain", "--embedder", "none")
    config = tmp_path / "config" / "shortlist" / "config.json"
    servers = json.loads(config.read_text())["mcpServers"]
    config.write_text(json.dumps({"mcpServers": {**servers, "sea": {"command": "no-such-command"}}}))
    done = run("search", "rain", "--embedder", "none")
    assert "nothing is known yet of sea: `shortlist tools` asks every server" in done.stderr
    assert starts.read_text().splitlines() == ["started"]


def test_a_catalog_that_is_named_comes_before_the_users_servers(run: Run, starts: Path, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "sing", "description": "Sing a song."}]))
    done = run("search", "a song", "--catalog", str(path), "--embedder", "none")
    assert "1. sing" in done.stdout
    assert not starts.exists()


def test_servers_that_list_nothing_are_an_error_that_says_what_to_do(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-command"}}}))
    done = run("search", "rain", "--config", str(path), "--embedder", "none")
    assert done.returncode == 2
    assert f"No tools in {path}: " in done.stderr


def test_a_tool_that_is_not_there_is_looked_for_with_the_command_line(run: Run) -> None:
    done = run("explain", "rain", "zzqqzz", "--embedder", "none")
    assert done.returncode == 2
    assert "No tool 'zzqqzz'. Use `shortlist search` to find one." in done.stderr


def test_an_interrupt_while_modules_are_imported_leaves_no_traceback(run: Run, tmp_path: Path) -> None:
    heeded = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a job in the background is born deaf to it
    (tmp_path / "numpy.py").write_text(f"import signal\n{heeded}\nsignal.raise_signal(signal.SIGINT)\n")
    done = run("search", "rain", path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_words_of_ones_own_are_understood_wherever_they_are_said(run: Run, starts: Path, tmp_path: Path) -> None:
    config, mine = tmp_path / "config" / "shortlist" / "config.json", tmp_path / "mine.txt"
    mine.write_text("smog => air quality\n", "utf-8")
    said = run("search", "smog", "--embedder", "none", "--expansions", str(mine))
    config.write_text(json.dumps({**json.loads(config.read_text()), "shortlist": {"expansions": [str(mine)]}}))
    configured = run("search", "smog", "--embedder", "none")
    assert "1. sky__get_air_quality" in said.stdout
    assert said.stdout.splitlines()[1:] == configured.stdout.splitlines()[1:]
    mine.unlink()
    gone = run("serve", "--config", str(config))
    assert (gone.returncode, "mine.txt cannot be read" in gone.stderr, "Traceback" in gone.stderr) == (2, True, False)


def test_a_request_that_is_too_long_for_an_argument_is_read_from_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = tmp_path / "tools.json"
    catalog.write_text(json.dumps([{"name": name, "description": name} for name in ("open_ticket", "read_log")]))
    monkeypatch.setattr(sys, "stdin", io.StringIO("line 7 of the log\n" * 60_000 + "open a ticket"))
    assert main(["search", "-", "--catalog", str(catalog), "--embedder", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["name"] == "open_ticket"
