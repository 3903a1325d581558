"""`shortlist data`: what is kept about one caller, in real files."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shortlist.cli import main
from shortlist.paths import data_folder
from shortlist.storage.audit import AuditRecord
from shortlist.storage.audit_files import AuditFiles
from shortlist.storage.local import open_local
from shortlist.storage.owned import StoredWorkspace, WorkspaceLimits
from shortlist.storage.secrets import FileSecrets
from shortlist.upstream.grants import RegisteredClient, TokenGrant
from tests.telemetry.happenings import batch_of, call, search

LIMITS = WorkspaceLimits(seconds=1_000, most=10, most_of_owner=10)
GRANT = TokenGrant(
    client=RegisteredClient(client_id="us"),
    issuer="https://login.example.com",
    token_endpoint="https://login.example.com/token",
    access_token="access secret",
    refresh_token="refresh secret",
    scope="pages",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


def lived(name: str) -> None:
    """Leave every kind of record about a token."""
    assert main(["token", "create", name]) == 0
    storage = open_local()
    events = [search(f"query of {name}", "s/a"), call("s/a")]
    storage.events.append(batch_of([replace(event, caller=name, workspace=name) for event in events]))
    storage.exemplars.learn()
    storage.workspaces.save(StoredWorkspace(key=f"principal:{name}", loaded={"s/a": ""}, used=1.0), LIMITS)
    storage.close()
    FileSecrets(data_folder()).put(f"grant:token:{name}:wiki:https://example.com/mcp", GRANT.dump())
    log = AuditFiles(data_folder() / "audit")
    log.record(AuditRecord(at=0.0, principal=f"token:{name}", action="tools/call", decision="allowed", tool="a"))
    log.close()


def exported(capsys: pytest.CaptureFixture[str], principal: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["data", "export", principal]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


KINDS = {"event", "learned", "workspace", "grant", "token", "audit"}


def test_everything_about_a_caller_is_exported_without_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    lived("ada")
    lived("ada2")
    rows = exported(capsys, "token:ada")
    assert {row["record"] for row in rows} == KINDS
    text = json.dumps(rows)
    assert "query of ada" in text
    assert not [word for word in ("ada2", "secret", "sha256:") if word in text]


def test_erasing_a_caller_leaves_the_others_and_a_log_that_is_whole_and_names_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lived("ada")
    lived("bob")
    capsys.readouterr()
    assert main(["data", "erase", "token:ada", "--yes", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts == {
        "events": 2,
        "learned pairs": 1,
        "workspaces": 1,
        "results": 0,
        "logins": 1,
        "tokens": 1,
        "pseudonyms": 1,
    }
    assert exported(capsys, "token:ada") == []
    assert {row["record"] for row in exported(capsys, "token:bob")} == KINDS
    assert all(check.problem == "" for check in AuditFiles(data_folder() / "audit").checks())
    one, other = sorted(record["principal"] for record in AuditFiles(data_folder() / "audit").records())
    assert one.startswith("p-")
    assert other == "token:bob"
    # As a word: three letters are also part of some hashes.
    kept = [path for path in data_folder().rglob("*.json*") if re.search(rb"\bada\b", path.read_bytes())]
    assert kept == []


def test_nothing_is_erased_without_a_yes(capsys: pytest.CaptureFixture[str]) -> None:
    lived("ada")
    assert main(["data", "erase", "token:ada"]) == 2
    assert "Nothing was deleted" in capsys.readouterr().err
    assert {row["record"] for row in exported(capsys, "token:ada")} == KINDS


def test_a_caller_of_whom_nothing_is_kept_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert exported(capsys, "oauth:company:ada") == []
    assert main(["data", "erase", "oauth:company:ada", "--yes"]) == 0
    with pytest.raises(SystemExit):
        main(["data", "export", "ada"])
