"""`shortlist programs`: saved from a run or a file, reviewed, offered and removed."""

import json
from pathlib import Path
from typing import Any

import pytest

from shortlist.catalog.readers import tool_from_mcp
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli import main
from shortlist.code.parameters import named_functions, parametrised
from shortlist.config.load import load_settings
from shortlist.errors import InvalidInput
from shortlist.models import Server
from shortlist.storage.local import open_local
from shortlist.telemetry.events import Called, ProgramEnded
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import batch_of

SOURCE = 'page = await tools.wiki.get_page(id=7)\nawait tools.wiki.add_note(text=page["title"], place="SHOP")'


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "servers.json"
    wiki = {"command": "wiki", "shortlist": {"tools": {"get_page": {"effect": "read_only"}}}}
    path.write_text(json.dumps({"mcpServers": {"wiki": wiki}}))
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("get_page", "add_note", "drop_page")]
    saved = SavedCatalog(open_local().catalogs, load_settings(path).servers)
    saved.save(Server(name="wiki"), [tool_from_mcp(raw, "wiki") for raw in listed])
    return path


def recorded(privacy: Privacy = Privacy(), **more: Any) -> None:  # noqa: B008
    """Record a program that called two tools, as a gateway does."""
    who: dict[str, Any] = {"caller": "ada", "workspace": "w"}
    ended: dict[str, Any] = {"program": "p1", "source": SOURCE, "outcome": "ok", "milliseconds": 2.0, **more}
    calls = [
        Called(**who, tool=tool, outcome="ok", milliseconds=1.0, native=False, program=ended["program"])
        for tool in ("wiki/get_page", "wiki/add_note")
    ]
    storage = open_local()
    storage.events.append(batch_of([*calls, ProgramEnded(**who, **ended)], privacy))
    storage.close()


def programs(config: Path, action: str, *words: str) -> int:
    return main(["programs", action, *words, "--config", str(config)])


def test_a_program_that_worked_is_saved_shown_approved_and_removed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded()
    recorded(outcome="failed", source="1 +", program="p2")
    words = ("--description", "Note a page.", "--parameter", "page_id=7", "--parameter", "project=SHOP")
    assert programs(config, "save", "note_page", *words) == 0
    assert "uses wiki/get_page, wiki/add_note" in capsys.readouterr().out
    assert programs(config, "show", "note_page") == 0
    shown = capsys.readouterr().out
    assert "not approved" in shown
    assert "uses wiki/get_page (read_only)\nuses wiki/add_note (no effect configured)" in shown
    assert "get_page(id=page_id)" in shown
    assert 'parameter project = "SHOP"' in shown
    assert programs(config, "approve", "note_page", "--allow-write") == 0
    assert "programs__note_page" in capsys.readouterr().out
    stored = open_local().programs.load()["note_page"]
    assert stored.parameters == {"page_id": 7, "project": "SHOP"}
    assert (stored.allow, bool(stored.approved_by)) == ("write", True)
    assert programs(config, "list") == 0
    assert "note_page(page_id, project)  approved by" in capsys.readouterr().out
    assert programs(config, "remove", "note_page") == 0
    assert open_local().programs.load() == {}


def test_a_program_in_a_file_is_saved_with_the_tools_that_it_names(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code.py").write_text("await tools.wiki.drop_page()")
    assert programs(config, "save", "drop", "--file", str(tmp_path / "code.py"), "--description", "Drop.") == 0
    assert "uses wiki/drop_page" in capsys.readouterr().out


def test_a_program_that_is_saved_again_has_to_be_approved_again(config: Path) -> None:
    recorded()
    assert programs(config, "save", "note", "--description", "x") == 0
    assert programs(config, "approve", "note") == 0
    assert programs(config, "save", "note", "--description", "y") == 2
    assert programs(config, "save", "note", "--description", "y", "--replace") == 0
    assert open_local().programs.load()["note"].approved_by == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("save", "Bad Name", "--description", "x"), "'Bad Name' cannot be a name"),
        (("save", "note", "--description", "x", "--run", "nope"), "No run 'nope' that succeeded. Recent ones: p1"),
        (("save", "note", "--description", "x", "--parameter", "a"), "'a' is not NAME=VALUE"),
        (("save", "note", "--description", "x", "--parameter", "a=9"), "no literal 9 that 'a' could stand for"),
        (("save", "note", "--description", "x", "--parameter", "page=7"), "uses the name 'page' already"),
        (("save", "note", "--description", "x", "--parameter", "tools=7"), "'tools' cannot be the name of a parameter"),
        (("save", "note", "--description", "x", "--file", "/nowhere/x.py"), "'/nowhere/x.py' cannot be read"),
        (("show", "note"), "No program 'note'. Saved: none."),
        (("approve", "note"), "No program 'note'. Saved: none."),
        (("remove", "note"), "No program 'note'. Saved: none."),
    ],
)
def test_a_mistake_says_what_is_wrong(
    words: tuple[str, ...], said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded()
    assert programs(config, *words) == 2
    assert said in capsys.readouterr().err


def test_a_source_that_was_not_recorded_has_to_be_passed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(Privacy(queries="hash"))
    assert programs(config, "save", "note", "--description", "x") == 2
    assert "The source of run p1 was not recorded" in capsys.readouterr().err


def test_a_function_that_nobody_offers_is_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code.py").write_text("await tools.wiki.nothing()")
    assert programs(config, "save", "drop", "--file", str(tmp_path / "code.py"), "--description", "Drop.") == 2
    assert "No tool is called tools.wiki.nothing" in capsys.readouterr().err


def test_literals_become_parameters_wherever_they_stand() -> None:
    source = "a = ['ü', 'x', 1, True]\nb = f'{1} x' + 'x'  # 'x'"
    assert parametrised(source, {"name": "x", "count": 1}) == "a = ['ü', name, count, True]\nb = f'{1} x' + name  # 'x'"
    assert named_functions("f = tools.a.b\nawait tools.c.d(x=tools.a.b())") == ("a.b", "c.d")
    with pytest.raises(InvalidInput, match="not valid Python, line 2"):
        named_functions("a = 1\n1 +")
