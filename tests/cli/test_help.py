"""Every command says what it is for, and so does everything that it takes."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

from shortlist.cli import COMMANDS, main, searching
from shortlist.cli.serving import LOG_LEVELS, MODES
from shortlist.config.settings import LogLevel, Mode
from shortlist.models import SearchMode
from tests.cli.commands import typed_words
from tests.cli.light import HEAVY

TALKING = {"dashboard", "doctor", "harness", "logins", "people", "secrets"}
"""Modules of commands that start servers, talk to them or hold what signs in to them."""


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", typed_words(), ids=" ".join)
def test_a_command_and_all_that_it_takes_are_described(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = re.sub(r"\n {10,}", "  ", help_of(words, capsys))  # what is long has its description below
    usage, described, *sections = text.split("\n\n")
    assert usage.startswith(f"usage: shortlist {' '.join(words)}")
    assert re.match(r"[A-Z].*\.$", described)
    taken = [line.strip() for section in sections for line in section.splitlines()[1:]]
    assert [line for line in taken if line != "ACTION" and not re.search(r"\S {2,}\S", line)] == []


def test_serve_takes_what_the_settings_name() -> None:
    assert (get_args(Mode), get_args(LogLevel)) == (MODES, LOG_LEVELS)
    assert get_args(SearchMode) == searching.MODES


def test_a_command_that_talks_to_no_server_does_not_import_mcp() -> None:
    modules = [f"shortlist.cli.{module}" for module in {module for module, _ in COMMANDS.values()} - TALKING]
    ask = f"import sys, {', '.join(modules)}; print([name for name in ('mcp', 'uvicorn') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "[]"


def test_without_a_command_they_are_all_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert [command for command in COMMANDS if f"\n    {command} " not in listed.replace("\n              ", " ")] == []


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["eval", "--sizes", "100,many"], "'many' is not a whole number of 1 or more"),
        (["eval", "--limit", "0"], "'0' is not a whole number of 1 or more"),
        (["sweep", "--values", "half"], "'half' is not a list of numbers separated by commas"),
        (["eval", "--out", "."], "'.' is a folder; name a file in it"),
        (["mine", "nowhere/cases.jsonl"], "there is no folder 'nowhere'; create it first"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_in_words(
    typed: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(typed)
    assert stop.value.code == 2
    assert answer in capsys.readouterr().err


def test_a_file_without_queries_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tools.json").write_text('[{"name": "rain", "description": "Say whether it rains."}]')
    (tmp_path / "none.jsonl").touch()
    catalog, empty, out = (str(tmp_path / name) for name in ("tools.json", "none.jsonl", "ranked.jsonl"))
    own = ["--catalog", catalog, "--embedder", "none"]
    assert main(["rank", *own, "--queries", empty, "--out", out]) == 2
    assert "There are no queries in" in capsys.readouterr().err
    assert main(["eval", *own, "--cases", empty]) == 2
    assert "There are no labelled queries in 'none'" in capsys.readouterr().err


def test_a_pipeline_that_is_not_there_is_named_before_anything_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "default", "nope", "--embedder", "none"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("shortlist: No pipeline 'nope'")


def test_help_and_version_import_no_third_party() -> None:
    asked = "import sys; from shortlist.cli import main; main([{!r}]); print(*sys.modules, file=sys.stderr)"
    for option in ("--help", "--version"):
        ran = subprocess.run([sys.executable, "-c", asked.format(option)], capture_output=True, text=True, check=True)
        loaded = {name.partition(".")[0] for name in ran.stderr.split()}
        assert "argparse" in loaded
        assert loaded & {*HEAVY, "socket"} == set()
        assert "importlib.metadata" not in ran.stderr.split()


def test_the_version_is_that_of_the_installed_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shortlist {version('shortlist-mcp')}\n"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["call", "a__b", "{id: 1}"], "not valid JSON"),
        (["call", "a__b", "[1]"], "a tool takes a JSON object"),
        (["call", "a__b", "@nowhere.json"], "'nowhere.json' cannot be read"),
        (["tools", "show"], "`shortlist tools show` needs the name of a tool"),
        (["tools", "list", "a__b"], "`shortlist tools show a__b`."),
        (["tools", "--server", "wether"], "No server 'wether'"),
        (["logs", "weather", "--lines", "-3"], "'-3' is not a whole number of 1 or more"),
        (["serve", "--http", "nonsense"], "--http takes HOST:PORT"),
    ],
)
def test_bad_arguments_are_refused_before_a_server_is_started(
    typed: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started = tmp_path / "started"
    server = {"command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}
    (tmp_path / "config.json").write_text(json.dumps({"mcpServers": {"weather": server}}))
    config = [] if typed[0] == "logs" else ["--config", "config.json"]
    try:
        status = main([*typed, *config])
    except SystemExit as stop:  # argparse's own
        status = int(stop.code or 0)
    assert status == 2
    assert answer in capsys.readouterr().err
    assert not started.exists()


@pytest.mark.parametrize(
    ("part", "later"),
    [
        ("stack", ("httpcore2", "numpy", "onnxruntime", "shortlist.config.shapes", "tokenizers")),
        ("hosting", ("jwt", "numpy", "onnxruntime", "tokenizers")),
    ],
)
def test_a_gateway_imports_logins_and_the_configuration_s_shapes_only_when_it_needs_them(
    part: str, later: tuple[str, ...]
) -> None:
    ask = f"import sys, shortlist.cli.{part}; print([name for name in {later} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
