"""Every command says what it is for, and so does everything that it takes."""

import re
from pathlib import Path

import pytest

from shortlist.cli import COMMANDS, main

ACTIONS = {"ab": ("start", "status", "report", "stop"), "learned": ("list", "export", "clear")}
typed = [[command] for command in COMMANDS] + [[command, act] for command, acts in ACTIONS.items() for act in acts]


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", typed, ids=" ".join)
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


def test_without_a_command_they_are_all_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 0
    listed = capsys.readouterr().out
    assert [command for command in COMMANDS if f"\n    {command} " not in listed.replace("\n              ", " ")] == []


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["eval", "--sizes", "100,many"], "'many' is no whole number from 1 up"),
        (["eval", "--limit", "0"], "'0' is no whole number from 1 up"),
        (["sweep", "--values", "half"], "'half' are no numbers with commas between them"),
        (["eval", "--out", "."], "'.' is a folder; name a file in it"),
        (["mine", "nowhere/cases.jsonl"], "there is no folder 'nowhere'; make it first"),
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
