"""Connecting clients, on files in their real formats: the servers move over, and undoing leaves no trace."""

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from shortlist.config.clients import texts
from shortlist.config.clients.connecting import (
    ConnectPlan,
    connect,
    disconnect,
    plan_connection,
    plan_disconnection,
)
from shortlist.config.clients.importing import is_gateway
from shortlist.config.clients.known import CLIENTS, OURS, KnownClient, Launch, Place, is_installed
from shortlist.config.clients.texts import NotEditable, format_of, tree_of
from shortlist.config.load import load_settings
from shortlist.errors import InvalidConfig

FIXTURES = Path(__file__).parent / "clients"
LAUNCH = Launch("/opt/bin/shortlist", ("serve",))
ENVIRONMENT = {"PATH": "/bin", "FIGMA_OAUTH_TOKEN": "figd"}
MOVED = {
    "claude-desktop": {"filesystem", "github"},
    "claude-code": {"sentry", "memory"},
    "cursor": {"playwright", "linear"},
    "vscode": {"github", "time"},
    "windsurf": {"figma", "sequential-thinking"},
    "gemini": {"docs"},
    "codex": {"context7", "figma"},
    "zed": {"fetch"},
    "copilot": {"playwright"},
    "cline": {"sqlite"},
    "goose": {"fetch", "linear"},
    "lm-studio": {"huggingface"},
}
clients = pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(home=tmp_path / "home", project=tmp_path / "code", platform="linux", environment=ENVIRONMENT)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own" / "config.json"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


def lay_out(client: KnownClient, place: Place, edit: Any = lambda raw: raw) -> Path:
    """Put the client's fixture where the client would have it."""
    (fixture,) = FIXTURES.glob(f"{client.name}.*")
    path = client.file(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(edit(fixture.read_bytes()))
    return path


def entries(client: KnownClient, path: Path) -> dict[str, Any]:
    tree: Any = tree_of(path.read_text("utf-8"), format_of(path))
    for key in client.keys:
        tree = tree[key]
    found: dict[str, Any] = tree
    return found


def comments(text: str) -> set[str]:
    """Collect the comments of a text that stand on lines of their own or after a value."""
    marks = ("// ", "/* ", "# ")
    return {line[line.index(mark) :].strip() for line in text.splitlines() for mark in marks if mark in line}


@clients
def test_servers_move_over_and_ours_is_the_entry_that_starts_us(
    client: KnownClient, place: Place, own: Path, records: Path
) -> None:
    path = lay_out(client, place)
    before = tree_of(path.read_text("utf-8"), format_of(path))
    connection = plan_connection(client, place, own, LAUNCH)
    connect(connection, records)
    assert {each.keys[-1] for each in connection.moved} == MOVED[client.name]
    ours = entries(client, path)
    assert set(ours) == set(_inner(before, client)) - MOVED[client.name] | {OURS}
    assert ours[OURS] == client.write(LAUNCH)
    after = tree_of(path.read_text("utf-8"), format_of(path))
    assert {k: v for k, v in after.items() if k != client.keys[0]} == {
        k: v for k, v in before.items() if k != client.keys[0]
    }
    settings = load_settings(own, ENVIRONMENT)
    switched_off = (
        {"sequential-thinking"} if client.name == "windsurf" else {"linear"} if client.name == "goose" else set()
    )
    assert set(settings.servers) == MOVED[client.name] - switched_off


def _inner(tree: Any, client: KnownClient) -> dict[str, Any]:
    for key in client.keys:
        tree = tree[key]
    found: dict[str, Any] = tree
    return found


@clients
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_disconnecting_restores_the_file_byte_for_byte(
    client: KnownClient, newline: bytes, place: Place, own: Path, records: Path
) -> None:
    path = lay_out(client, place, lambda raw: raw.replace(b"\n", newline))
    os.chmod(path, 0o640)
    original = path.read_bytes()
    connect(plan_connection(client, place, own, LAUNCH), records)
    connected = path.read_bytes()
    assert connected != original
    assert (b"\r\n" in connected) == (newline == b"\r\n")
    assert b"\n" not in connected.replace(newline, b"")
    undo = plan_disconnection(client, place, records)
    assert undo.exact
    disconnect(undo, records)
    assert path.read_bytes() == original
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(records.iterdir()) == []


@clients
def test_connecting_keeps_every_comment_that_is_not_inside_a_moved_server(
    client: KnownClient, place: Place, own: Path, records: Path
) -> None:
    path = lay_out(client, place)
    before = comments(path.read_text("utf-8"))
    connect(plan_connection(client, place, own, LAUNCH), records)
    inside = {"// local time"}
    assert before - comments(path.read_text("utf-8")) - inside == set()


@clients
def test_a_file_that_was_edited_since_loses_our_entry_and_gets_its_servers_back(
    client: KnownClient, place: Place, own: Path, records: Path
) -> None:
    path = lay_out(client, place)
    before = tree_of(path.read_text("utf-8"), format_of(path))
    connect(plan_connection(client, place, own, LAUNCH), records)
    added = client.write(Launch("other", ()))
    path.write_text(texts.put(path.read_text("utf-8"), format_of(path), (*client.keys, "added"), added), "utf-8")
    undo = plan_disconnection(client, place, records)
    assert not undo.exact
    disconnect(undo, records)
    assert entries(client, path) == {**_inner(before, client), "added": added}
    assert tree_of(path.read_text("utf-8"), format_of(path)).keys() == before.keys()


@clients
def test_a_client_without_a_file_gets_one_and_loses_it_again(
    client: KnownClient, place: Place, own: Path, records: Path
) -> None:
    connect(plan_connection(client, place, own, LAUNCH), records)
    path = client.file(place)
    assert is_gateway(client.read(entries(client, path)[OURS]) or {})
    assert is_installed(client, place)
    disconnect(plan_disconnection(client, place, records), records)
    assert not path.exists()
    assert not own.exists()


@clients
def test_connecting_twice_changes_nothing_and_still_undoes_to_the_first_file(
    client: KnownClient, place: Place, own: Path, records: Path
) -> None:
    path = lay_out(client, place)
    original = path.read_bytes()
    connect(plan_connection(client, place, own, LAUNCH), records)
    again = plan_connection(client, place, own, LAUNCH)
    assert not again.changes
    connect(again, records)
    elsewhere = plan_connection(client, place, own, Launch("/usr/bin/shortlist", ("serve",)))
    connect(elsewhere, records)
    disconnect(plan_disconnection(client, place, records), records)
    assert path.read_bytes() == original


@clients
def test_no_secret_is_shown_in_a_diff(client: KnownClient, place: Place, own: Path) -> None:
    lay_out(client, place)
    shown = plan_connection(client, place, own, LAUNCH).diff()
    assert not re.search("secret_?value", shown)
    assert "/opt/bin/shortlist" in shown


@clients
def test_servers_can_stay_in_the_client(client: KnownClient, place: Place, own: Path, records: Path) -> None:
    path = lay_out(client, place)
    before = _inner(tree_of(path.read_text("utf-8"), format_of(path)), client)
    connect(plan_connection(client, place, own, LAUNCH, keep=True), records)
    assert entries(client, path) == {**before, OURS: client.write(LAUNCH)}
    assert not own.exists()


def cursor() -> KnownClient:
    return next(client for client in CLIENTS if client.name == "cursor")


def test_a_server_that_cannot_be_used_stays_in_the_client(place: Place, own: Path, records: Path) -> None:
    path = lay_out(cursor(), place)
    path.write_text('{"mcpServers": {"a": {"command": "x", "env": {"K": "${NOPE}"}}, "b": {"command": "y"}}}')
    connection = plan_connection(cursor(), place, own, LAUNCH)
    connect(connection, records)
    assert [each.keys[-1] for each in connection.stays] == ["a"]
    assert set(entries(cursor(), path)) == {"a", OURS}


@clients
def test_a_broken_file_is_named_and_left_alone(client: KnownClient, place: Place, own: Path) -> None:
    path = lay_out(client, place, lambda raw: raw[: len(raw) // 2] + b"\x00{[")
    broken = path.read_bytes()
    with pytest.raises((NotEditable, InvalidConfig)) as caught:
        plan_connection(client, place, own, LAUNCH)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == broken
    assert not own.exists()


def planned(place: Place, own: Path) -> tuple[Path, bytes, ConnectPlan]:
    path = lay_out(cursor(), place)
    return path, path.read_bytes(), plan_connection(cursor(), place, own, LAUNCH)


def test_a_file_that_is_edited_meanwhile_is_left_alone(place: Place, own: Path, records: Path) -> None:
    path, _, connection = planned(place, own)
    path.write_text('{"mcpServers": {}}')
    with pytest.raises(NotEditable, match="changed by another program meanwhile"):
        connect(connection, records)
    assert path.read_text() == '{"mcpServers": {}}'


def test_a_read_only_file_is_left_alone(
    place: Place, own: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original, connection = planned(place, own)
    os.chmod(path, 0o400)
    allowed = os.access  # root may write anything, so ask the mode
    monkeypatch.setattr(
        os, "access", lambda file, mode: allowed(file, mode) and bool(Path(file).stat().st_mode & stat.S_IWUSR)
    )
    with pytest.raises(NotEditable, match="it is read-only"):
        connect(connection, records)
    assert path.read_bytes() == original


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_in_the_middle_of_a_write_leaves_the_old_file(
    place: Place, own: Path, records: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path, original, connection = planned(place, own)
    records.mkdir()

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(NotEditable, match=os.strerror(number)):
        connect(connection, records)
    assert path.read_bytes() == original
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert list(records.iterdir()) == []


def test_a_linked_file_stays_a_link(place: Place, own: Path, records: Path, tmp_path: Path) -> None:
    path = lay_out(cursor(), place)
    real = tmp_path / "dotfiles.json"
    path.rename(real)
    path.symlink_to(real)
    original = real.read_bytes()
    connect(plan_connection(cursor(), place, own, LAUNCH), records)
    assert path.is_symlink()
    assert OURS in json.loads(real.read_text())["mcpServers"]
    disconnect(plan_disconnection(cursor(), place, records), records)
    assert path.is_symlink()
    assert real.read_bytes() == original


@pytest.mark.parametrize(
    ("platform", "name", "expected"),
    [
        ("darwin", "claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "vscode", "AppData/Roaming/Code/User/mcp.json"),
        ("darwin", "zed", ".config/zed/settings.json"),
        ("win32", "goose", "AppData/Roaming/Block/goose/config/config.yaml"),
        ("linux", "codex", ".codex/config.toml"),
    ],
)
def test_a_client_has_its_file_where_its_system_puts_it(
    tmp_path: Path, platform: str, name: str, expected: str
) -> None:
    here = Place(home=tmp_path, project=tmp_path / "code", platform=platform, environment={})
    client = next(client for client in CLIENTS if client.name == name)
    assert client.file(here) == tmp_path / expected
