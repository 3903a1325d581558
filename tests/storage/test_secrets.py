import base64
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from shortlist.errors import InvalidConfig, StoreError
from shortlist.storage.private import write_private
from shortlist.storage.secrets import KEY_VARIABLE, FileSecrets


def test_a_secret_comes_back_and_is_not_readable_in_the_file(tmp_path: Path) -> None:
    store = FileSecrets(tmp_path / "state")
    store.put("github", "ghp_very_secret")
    assert FileSecrets(tmp_path / "state").get("github") == "ghp_very_secret"
    assert store.names() == ("github",)
    assert b"ghp_very_secret" not in (tmp_path / "state" / "secrets.json").read_bytes()


def test_files_are_private_from_the_first_byte(tmp_path: Path) -> None:
    FileSecrets(tmp_path / "state").put("github", "x")
    for path in (tmp_path / "state").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_a_removed_secret_is_gone(tmp_path: Path) -> None:
    store = FileSecrets(tmp_path)
    store.put("a", "1")
    assert store.remove("a") is True
    assert store.get("a") is None
    assert store.remove("a") is False


def test_a_secret_moved_to_another_name_is_not_decrypted(tmp_path: Path) -> None:
    store = FileSecrets(tmp_path)
    store.put("a", "1")
    path = tmp_path / "secrets.json"
    document = json.loads(path.read_text())
    document["secrets"]["b"] = document["secrets"]["a"]
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="cannot be decrypted"):
        store.get("b")


def test_the_key_of_the_environment_wins_and_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(b"k" * 32).decode())
    store = FileSecrets(tmp_path)
    store.put("a", "1")
    assert not (tmp_path / "secrets.key").exists()
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(b"x" * 32).decode())
    with pytest.raises(StoreError, match="the key is wrong"):
        store.get("a")


def test_a_short_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "c2hvcnQ=")
    with pytest.raises(InvalidConfig, match="32 bytes"):
        FileSecrets(tmp_path).put("a", "1")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"secrets": 3}', b'{"secrets": {"a": 1}}', b"\xff\x00"])
def test_a_damaged_file_is_reported_and_never_overwritten(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secrets.json"
    path.write_bytes(content)
    store = FileSecrets(tmp_path)
    for action in (lambda: store.get("a"), lambda: store.put("a", "1"), lambda: store.remove("a"), store.names):
        with pytest.raises(StoreError, match="cannot be read"):
            action()
    assert path.read_bytes() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "secrets.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        FileSecrets(tmp_path).get("a")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    write_private(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Any]:
    """A keyring of the real package that keeps its entries in a file; locked while the file is missing."""
    package = pytest.importorskip("keyring")
    backend = pytest.importorskip("keyring.backend")
    path = tmp_path / "keyring.json"
    path.write_text("{}")

    def get(_: Any, service: str, username: str) -> str | None:
        found: dict[str, str] = json.loads(path.read_text())
        return found.get(f"{service} {username}")

    def put(_: Any, service: str, username: str, password: str) -> None:
        entries = json.loads(path.read_text())
        path.write_text(json.dumps({**entries, f"{service} {username}": password}))

    members = {"priority": 1, "get_password": get, "set_password": put}
    made = cast("Any", type("FileKeyring", (backend.KeyringBackend,), members))
    before = package.get_keyring()
    package.set_keyring(made())
    yield path
    package.set_keyring(before)


def test_the_key_is_kept_in_the_keyring_where_there_is_one(tmp_path: Path, keyring: Path) -> None:
    store = FileSecrets(tmp_path / "state")
    store.put("a", "1")
    assert "keyring of the operating system" in store.key_place
    assert not (tmp_path / "state" / "secrets.key").exists()
    assert FileSecrets(tmp_path / "state").get("a") == "1"
    FileSecrets(tmp_path / "other").put("a", "2")
    assert len(json.loads(keyring.read_text())) == 2


def test_a_key_file_that_exists_stays_in_use(tmp_path: Path, keyring: Path) -> None:
    write_private(tmp_path / "secrets.key", base64.b64encode(b"k" * 32))
    store = FileSecrets(tmp_path)
    store.put("a", "1")
    assert json.loads(keyring.read_text()) == {}
    assert "secrets.key" in store.key_place
    assert store.get("a") == "1"


def test_a_keyring_that_refuses_to_answer_loses_nothing(tmp_path: Path, keyring: Path) -> None:
    store = FileSecrets(tmp_path / "state")
    store.put("a", "1")
    entries = keyring.read_text()
    keyring.unlink()
    with pytest.raises(StoreError, match="Unlock it, or set SHORTLIST_SECRET_KEY"):
        store.get("a")
    with pytest.raises(StoreError, match="Unlock it, or set SHORTLIST_SECRET_KEY"):
        store.put("b", "2")
    keyring.write_text(entries)
    assert store.get("a") == "1"


def test_a_lost_key_is_never_replaced_while_secrets_need_it(tmp_path: Path) -> None:
    store = FileSecrets(tmp_path)
    store.put("a", "1")
    (tmp_path / "secrets.key").unlink()
    with pytest.raises(StoreError, match="The key of the secrets is missing"):
        store.put("b", "2")
    assert not (tmp_path / "secrets.key").exists()
