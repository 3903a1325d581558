"""Importing from the files of other clients: found on every system, shown without secrets, written on a yes."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.cli import main
from shortlist.config.clients.importing import Candidate, Plan, apply, plan_import
from shortlist.config.clients.known import Place, well_known_files
from shortlist.config.load import load_settings
from shortlist.config.masking import MASK, masked

ENVIRONMENT = {"PATH": "/bin", "INPUT_KEY": "k"}


def put(path: Path, tree: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))
    return path


def place(tmp_path: Path, platform: str = "linux") -> Place:
    return Place(home=tmp_path / "home", project=tmp_path / "code", platform=platform, environment=ENVIRONMENT)


def plan(tmp_path: Path, here: Place | None = None) -> Plan:
    here = here or place(tmp_path)
    return plan_import(well_known_files(here), tmp_path / "own" / "config.json", here)


def verdicts(found: Plan) -> dict[str, str]:
    return {candidate.name: candidate.verdict for candidate in found.candidates}


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("linux", ".config"), ("darwin", "Library/Application Support"), ("win32", "AppData/Roaming")],
)
def test_desktop_clients_are_found_on_every_system(tmp_path: Path, platform: str, folder: str) -> None:
    here = place(tmp_path, platform)
    put(here.home / folder / "Claude" / "claude_desktop_config.json", {"mcpServers": {"a": {"command": "x"}}})
    put(here.home / folder / "Code" / "User" / "mcp.json", {"servers": {"b": {"type": "stdio", "command": "y"}}})
    assert verdicts(plan(tmp_path, here)) == {"a": "add", "b": "add"}


def test_every_other_client_is_found_in_its_own_shape(tmp_path: Path) -> None:
    here = place(tmp_path)
    in_project = {str(here.project): {"mcpServers": {"code-project": {"command": "c"}}}}
    put(
        here.home / ".claude.json", {"numStartups": 3, "mcpServers": {"code": {"command": "a"}}, "projects": in_project}
    )
    put(here.project / ".mcp.json", {"mcpServers": {"shared": {"type": "http", "url": "https://h/mcp"}}})
    put(here.home / ".cursor" / "mcp.json", {"mcpServers": {"cursor": {"url": "https://c/mcp"}}})
    put(here.home / ".gemini" / "settings.json", {"theme": "x", "mcpServers": {"gemini": {"httpUrl": "https://g"}}})
    put(here.home / ".codeium/windsurf/mcp_config.json", {"mcpServers": {"surf": {"serverUrl": "https://s"}}})
    put(here.home / ".copilot/mcp-config.json", {"mcpServers": {"pilot": {"type": "local", "command": "p"}}})
    put(here.applications / "Code/User/settings.json", {"mcp": {"servers": {"code-settings": {"command": "v"}}}})
    found = plan(tmp_path, here)
    assert set(verdicts(found).values()) == {"add"}
    assert {candidate.client for candidate in found.candidates} == {
        *("claude-code", "cursor", "vscode", "gemini", "windsurf", "copilot"),
    }
    assert len(found.candidates) == 8


def test_a_server_that_is_there_already_is_not_added_twice(tmp_path: Path) -> None:
    here = place(tmp_path)
    put(here.home / ".cursor/mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    put(here.home / ".gemini/settings.json", {"mcpServers": {"again": {"command": "x"}}})
    assert verdicts(plan(tmp_path, here)) == {"a": "add", "again": "present"}


def test_another_server_of_the_same_name_gets_the_clients_name_too(tmp_path: Path) -> None:
    here = place(tmp_path)
    put(tmp_path / "own/config.json", {"mcpServers": {"a": {"command": "mine"}}})
    put(here.home / ".cursor/mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    (candidate,) = plan(tmp_path, here).candidates
    assert (candidate.name, candidate.verdict, candidate.reason) == (
        "a-cursor",
        "add",
        "'a' is taken by another server",
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "shortlist", "args": ["serve"]},
        {"command": "/opt/bin/shortlist.exe", "args": ["serve", "--config", "x"]},
        {"command": "uvx", "args": ["shortlist-mcp", "serve"]},
    ],
)
def test_the_gateway_never_imports_itself(tmp_path: Path, entry: dict[str, Any]) -> None:
    here = place(tmp_path)
    put(here.home / ".cursor/mcp.json", {"mcpServers": {"shortlist": entry}})
    (candidate,) = plan(tmp_path, here).candidates
    assert (candidate.verdict, candidate.reason) == ("left_out", "it is this gateway itself")


def test_a_server_that_could_not_start_is_left_out_with_the_reason(tmp_path: Path) -> None:
    here = place(tmp_path)
    put(here.home / ".cursor/mcp.json", {"mcpServers": {"a": {"command": "x", "env": {"K": "${NOPE}"}}, "b": {}}})
    a, b = plan(tmp_path, here).candidates
    assert (a.verdict, b.verdict) == ("left_out", "left_out")
    assert a.reason == "mcpServers.a.env.K: environment variable 'NOPE' is not set; set it, or write ${NOPE:-default}"


def test_a_file_that_is_not_json_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    here = place(tmp_path)
    (here.home / ".cursor").mkdir(parents=True)
    (here.home / ".cursor/mcp.json").write_text("{nope")
    put(here.home / ".gemini/settings.json", {"mcpServers": {"a": {"command": "x"}}})
    found = plan(tmp_path, here)
    assert verdicts(found) == {"a": "add"}
    assert "not JSON" in found.problems[0]


def test_what_is_written_can_be_served_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    here = place(tmp_path)
    target = put(
        tmp_path / "own/config.json", {"mcpServers": {"mine": {"command": "m"}}, "shortlist": {"mode": "auto"}}
    )
    put(
        here.applications / "Code/User/mcp.json",
        {
            "inputs": [{"id": "key", "type": "promptString"}, {"id": "unused", "type": "promptString"}],
            "servers": {"a": {"command": "x", "env": {"K": "${input:key}"}, "gallery": True, "strange": 1}},
        },
    )
    apply(plan(tmp_path, here))
    written = json.loads(target.read_text())
    assert list(written["mcpServers"]) == ["mine", "a"]
    assert [item["id"] for item in written["inputs"]] == ["key"]
    assert "strange" not in written["mcpServers"]["a"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert "mine" in (tmp_path / "own/config.bak").read_text()
    settings = load_settings(target, ENVIRONMENT)
    assert (list(settings.servers), settings.mode) == (["mine", "a"], "auto")


def test_secrets_are_masked_and_references_are_not() -> None:
    shown = masked(
        {
            "command": "npx",
            "args": [
                "-y",
                "pkg@1.2.3",
                "--api-key",
                "abc",
                "--token=def",
                "--dir",
                "/home/me",
                "ghp_0123456789abcdefghij",
            ],
            "env": {"A": "secret", "B": "${B}", "N": 3},
            "headers": {"Authorization": "Bearer abc", "X": "Bearer ${T}"},
            "url": "https://me:pw@h/mcp?key=abc&v=${V}",
        }
    )
    assert shown["args"] == ["-y", "pkg@1.2.3", "--api-key", MASK, f"--token={MASK}", "--dir", "/home/me", MASK]
    assert shown["env"] == {"A": MASK, "B": "${B}", "N": MASK}
    assert shown["headers"] == {"Authorization": MASK, "X": "Bearer ${T}"}
    assert shown["url"] == f"https://{MASK}@h/mcp?key={MASK}&v=${{V}}"


def test_the_secret_of_a_client_is_hidden_and_a_reference_to_it_shown() -> None:
    def shown(secret: str) -> Any:
        return masked({"url": "https://h", "shortlist": {"oauth": {"client_id": "c", "client_secret": secret}}})

    assert shown("s3cret")["shortlist"]["oauth"] == {"client_id": "c", "client_secret": MASK}
    assert shown("${WIKI_SECRET}")["shortlist"]["oauth"]["client_secret"] == "${WIKI_SECRET}"


@given(st.dictionaries(st.text(), st.text(min_size=8)))
def test_no_value_of_an_environment_is_shown(environment: dict[str, str]) -> None:
    shown = masked({"command": "x", "env": environment})["env"]
    assert set(shown) == set(environment)
    assert all(value == MASK or value.startswith("${") or " ${" in value for value in shown.values())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one Cursor server, and nothing else."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    put(tmp_path / ".cursor/mcp.json", {"mcpServers": {"git": {"command": "uvx", "env": {"TOKEN": "hunter2"}}}})
    return tmp_path


def test_import_shows_its_plan_and_writes_nothing_unasked(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import"]) == 0
    out = capsys.readouterr().out
    assert f"+ git: uvx TOKEN={MASK}" in out
    assert "shortlist import --yes" in out
    assert "hunter2" not in out
    assert not (desk / "xdg").exists()


def test_import_writes_with_yes_and_finds_nothing_new_after(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--yes"]) == 0
    written = json.loads((desk / "xdg/shortlist/config.json").read_text())
    assert written["mcpServers"]["git"]["env"] == {"TOKEN": "hunter2"}
    assert main(["import", "--yes", "--json"]) == 0
    out = capsys.readouterr().out
    report = json.loads(out[out.index("{") :])
    assert report["written"] is False
    assert [server["verdict"] for server in report["servers"]] == ["present"]
    assert "hunter2" not in out


def test_import_reads_a_file_by_name(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = put(desk / "other.json", {"mcpServers": {"x": {"url": "https://h/mcp"}}})
    assert main(["import", str(other), "--to", str(desk / "to.json"), "--yes"]) == 0
    assert list(json.loads((desk / "to.json").read_text())["mcpServers"]) == ["x"]
    assert capsys.readouterr().out.endswith(f"with: shortlist serve --config {desk / 'to.json'}\n")


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (".", "is not one. Pass one with --to"),
        ("mine.toml", "is not one. Pass one with --to"),
        ("taken/x.json", "cannot be used: Not a directory"),
    ],
)
def test_import_touches_nothing_that_it_cannot_add_to(
    desk: Path, target: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, taken = desk / "found.json", desk / "taken"
    found.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    taken.write_text("a file where the folder should be")
    assert main(["import", str(found), "--to", str(desk / target), "--yes"]) == 2
    assert answer in capsys.readouterr().err
    assert desk.is_dir()
    assert taken.is_file()


def test_import_of_a_named_file_that_cannot_be_read_fails(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = desk / "broken.json"
    broken.write_text('{"mcpServers": {')
    assert main(["import", str(broken)]) == 1
    assert "not JSON" in capsys.readouterr().out


def test_a_candidate_hides_its_entry_from_logs() -> None:
    entry = {"env": {"T": "hunter2"}}
    assert "hunter2" not in repr(Candidate(name="x", client="file", path=Path("f"), keys=("x",), entry=entry))


def test_nothing_is_added_that_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {
        "command": "node",
        "env": {"LD_PRELOAD": "/tmp/evil.so", "NODE_OPTIONS": "--require /tmp/evil.js", "API_KEY": "swordfish"},
        "cwd": "/srv/elsewhere",
        "inherit_env": ["AWS_*"],
        "shortlist": {"trust": "auto", "isolation": "sandbox", "sandbox": {"read": ["/"]}},
    }
    file = put(tmp_path / "foreign.json", {"mcpServers": {"wiki": entry}})
    main(["import", str(file), "--to", str(tmp_path / "own.json")])
    shown = capsys.readouterr().out
    for part in ("/tmp/evil.so", "/tmp/evil.js", "/srv/elsewhere", "AWS_*", '"trust": "auto"', '"read": ["/"]'):
        assert part in shown
    assert "swordfish" not in shown
