"""What a newcomer types wrong is answered with what to type instead."""

from pathlib import Path

import pytest

from shortlist.cli import main


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["serach", "rain"], "no command 'serach'; did you mean 'search'?"),
        (["xyzzy", "stats"], "no command 'xyzzy'; there are setup, connect, disconnect"),
        (["events", "--kind", "call"], "choose from"),
        (["search", "rain", "--server", "wether", "--embedder", "none"], "No server 'wether'. There are analytics"),
        (["search", "(", "--mode", "regex", "--embedder", "none"], "no look-around): missing ): ("),
        (["import", "nowhere.json"], "There is no file 'nowhere.json'"),
        (["serve", "--workers", "2"], "--workers needs --http HOST:PORT"),
        (["serve", "--workers", "2", "--http", "127.0.0.1:0"], "--workers 2 needs a PostgreSQL database"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    typed: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(typed)
    except SystemExit as end:  # argparse's own
        status = int(end.code or 0)
    assert status == 2
    assert answer in capsys.readouterr().err


def test_an_import_that_waits_for_a_yes_says_the_whole_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, target = tmp_path / "found.json", tmp_path / "mine.json"
    found.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    assert main(["import", str(found), "--to", str(target)]) == 0
    assert capsys.readouterr().out.endswith(f"shortlist import {found} --to {target} --yes\n")
