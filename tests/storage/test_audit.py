import json
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.cli.recording import open_audit
from shortlist.config.settings import AuditSettings
from shortlist.errors import StoreError
from shortlist.gateway.recording import hash_arguments
from shortlist.storage.audit import AuditLog, AuditRecord
from shortlist.storage.audit_files import AuditFiles
from shortlist.storage.local import open_local
from shortlist.storage.shared import Spool

DAY = 86_400.0


def record(at: float = 0.0, **fields: str) -> AuditRecord:
    return AuditRecord(at=at, principal="ada", action="call", decision="allowed", server="github", **fields)


def written(folder: Path, count: int = 3) -> Path:
    log = AuditFiles(folder)
    for number in range(count):
        log.record(record(tool=f"tool{number}"))
    log.close()
    return next(folder.glob("*.jsonl"))


def test_records_come_back_and_the_chain_holds(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert [line["tool"] for line in AuditFiles(tmp_path).records()] == ["tool0", "tool1", "tool2"]
    (check,) = AuditFiles(tmp_path).checks()
    assert (check.records, check.problem, check.closed) == (3, "", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_changed_line_breaks_the_chain_where_it_stands(tmp_path: Path, line: int) -> None:
    path = written(tmp_path)
    lines = path.read_text().splitlines()
    lines[line] = lines[line].replace('"github"', '"gitlab"')
    path.write_text("\n".join(lines) + "\n")
    assert AuditFiles(tmp_path).checks()[0].problem == f"line {line + 1} does not fit the chain"


@pytest.mark.parametrize("line", [0, 1])
def test_a_removed_line_breaks_the_chain(tmp_path: Path, line: int) -> None:
    path = written(tmp_path)
    lines = path.read_text().splitlines()
    del lines[line]
    path.write_text("\n".join(lines) + "\n")
    assert AuditFiles(tmp_path).checks()[0].problem == f"line {line + 1} does not fit the chain"


def test_a_line_that_was_forged_with_its_own_hash_breaks_the_chain(tmp_path: Path) -> None:
    path = written(tmp_path)
    other = written(tmp_path / "other")
    lines = path.read_text().splitlines()
    lines[1] = other.read_text().splitlines()[1]
    path.write_text("\n".join(lines) + "\n")
    assert "does not fit" in AuditFiles(tmp_path).checks()[0].problem


def test_a_file_without_its_end_is_not_closed(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:2]))
    (check,) = AuditFiles(tmp_path).checks()
    assert (check.records, check.problem, check.closed) == (2, "", False)


def test_a_new_day_starts_a_new_file_and_old_ones_are_removed_whole(tmp_path: Path) -> None:
    log = AuditFiles(tmp_path)
    for day in range(3):
        log.record(record(at=day * DAY))
    log.close()
    assert len(AuditFiles(tmp_path).checks()) == 3
    assert AuditFiles(tmp_path).prune(2 * DAY - DAY) == 1
    assert [check.problem for check in AuditFiles(tmp_path).checks()] == ["", ""]


def test_a_clock_that_is_set_back_leaves_every_chain_whole(tmp_path: Path) -> None:
    log = AuditFiles(tmp_path)
    for day in (0, 1, 0, 0, 1, 0):
        log.record(record(at=day * DAY))
    log.close()
    checks = AuditFiles(tmp_path).checks()
    assert {(check.problem, check.closed) for check in checks} == {("", True)}
    assert sum(check.records for check in checks) == 6


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        AuditFiles(tmp_path / "file").record(record())


def test_a_record_is_with_the_operating_system_when_record_returns(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        AuditFiles(tmp_path).record(record())
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    (check,) = AuditFiles(tmp_path).checks()
    assert (check.records, check.problem, check.closed) == (1, "", False)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_the_order_of_arguments_does_not_change_their_hash(arguments: dict[str, object]) -> None:
    turned = dict(reversed(arguments.items()))
    assert hash_arguments(arguments) == hash_arguments(turned)
    assert json.dumps(arguments) == json.dumps(turned) or len(arguments) > 1


class NotedThreads(AuditFiles):
    """Notes which threads prune and open the log."""

    threads: tuple[int, ...] = ()

    def prune(self, before: float) -> int:
        self.threads += (threading.get_ident(),)
        return super().prune(before)

    def log(self, spool: Callable[[], Spool]) -> AuditLog:
        self.threads += (threading.get_ident(),)
        return super().log(spool)


@pytest.mark.anyio
async def test_a_gateway_opens_its_audit_log_outside_the_event_loop(tmp_path: Path) -> None:
    store = NotedThreads(tmp_path)
    async with open_audit(AuditSettings(enabled=True), replace(open_local(tmp_path), audit=store)) as log:
        log.record(record())
    assert len(store.threads) == 2
    assert threading.get_ident() not in store.threads
    assert store.checks()[0].closed
