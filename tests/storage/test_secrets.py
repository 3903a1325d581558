import base64
import json
import os
import stat
from pathlib import Path

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
