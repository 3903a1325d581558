"""`shortlist audit` over a log on disk."""

import json
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.paths import data_folder
from shortlist.storage.audit import AuditRecord
from shortlist.storage.audit_files import AuditFiles


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_a_log_is_verified_and_exported_and_a_changed_one_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    log = AuditFiles(data_folder() / "audit")
    for tool in ("get", "put"):
        log.record(AuditRecord(at=0.0, principal="token:ada", action="tools/call", decision="allowed", tool=tool))
    log.close()
    assert main(["audit", "verify"]) == 0
    assert "2 records  complete" in capsys.readouterr().out
    assert main(["audit", "export"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["tool"] for row in rows] == ["get", "put"]
    (path,) = (data_folder() / "audit").glob("*.jsonl")
    path.write_text(path.read_text().replace("get", "got", 1))
    assert main(["audit", "verify", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["problem"] == "line 1 does not fit the chain"


def test_without_a_log_verify_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify"]) == 0
    assert "there is no audit log" in capsys.readouterr().err
