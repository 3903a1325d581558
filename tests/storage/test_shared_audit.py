"""The audit log in PostgreSQL: nobody changes it, and a database that is away or a killed gateway loses no record."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from shortlist.errors import StoreError
from shortlist.storage.audit import AuditLog, AuditRecord
from shortlist.storage.port import Storage
from shortlist.storage.postgres import audit
from shortlist.storage.postgres.database import Postgres
from shortlist.storage.postgres.opening import open_postgres
from shortlist.storage.shared import Spool
from shortlist.storage.spool import SpoolFile
from tests.storage.postgres import is_running, new_database
from tests.telemetry.happenings import NOON

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")
SECONDS = 60


@pytest.fixture
def address() -> str:
    return new_database()


@pytest.fixture
def storage(address: str) -> Iterator[Storage]:
    with closing(open_postgres(address)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def time_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a busy machine: a log that is closed sends what waits for a few seconds only."""
    monkeypatch.setattr(audit, "CLOSE_SECONDS", float(SECONDS))


def spool(folder: Path) -> Callable[[], Spool]:
    return lambda: SpoolFile(folder, bytes(32))


def record(tool: str) -> AuditRecord:
    return AuditRecord(at=NOON, principal="token:ada", action="tools/call", decision="allowed", tool=tool)


def tools(storage: Storage) -> list[str]:
    return [row["tool"] for row in storage.audit.records()]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition never held")


@pytest.fixture
def written(storage: Storage, tmp_path: Path) -> Storage:
    log = storage.audit.log(spool(tmp_path))
    for tool in ("a", "b", "c"):
        log.record(record(tool))
    log.close()
    assert tools(storage) == ["a", "b", "c"]
    assert list(tmp_path.iterdir()) == []
    return storage


@pytest.mark.parametrize("change", ["UPDATE audit SET line = '{}'", "DELETE FROM audit", "TRUNCATE audit"])
def test_rows_of_the_audit_log_are_neither_changed_nor_removed(written: Storage, address: str, change: str) -> None:
    with (
        psycopg.connect(address, options="-c search_path=shortlist") as connection,
        pytest.raises(psycopg.errors.RaiseException, match="removed only when their retention ends"),
    ):
        connection.execute(change.encode())
    assert tools(written) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change", ["UPDATE audit SET line = replace(line, '\"b\"', '\"x\"')", "DELETE FROM audit WHERE seq = 1"]
)
def test_a_row_that_was_changed_in_spite_of_that_breaks_the_chain(written: Storage, address: str, change: str) -> None:
    with psycopg.connect(address, options="-c search_path=shortlist") as connection:
        connection.execute("ALTER TABLE audit DISABLE TRIGGER ALL")
        connection.execute(change.encode())
    assert [check.problem for check in written.audit.checks()] == ["line 2 does not fit the chain"]


def test_records_wait_while_the_database_refuses_them_and_are_bounded(
    storage: Storage, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "MOST_WAITING", 3)
    monkeypatch.setattr(audit, "RETRY_SECONDS", (0.01, 0.01))
    log = storage.audit.log(spool(tmp_path))
    log.record(record("first"))
    wait_until(lambda: tools(storage) == ["first"])
    with psycopg.connect(address, options="-c search_path=shortlist", autocommit=True) as connection:
        connection.execute("ALTER TABLE audit RENAME TO away")
        for tool in ("a", "b", "c"):
            log.record(record(tool))
        with pytest.raises(StoreError, match="3 audit records wait for the database"):
            log.record(record("d"))
        wait_until(lambda: "audit records wait for the database" in caplog.text)
        connection.execute("ALTER TABLE away RENAME TO audit")
    log.close()
    assert tools(storage) == ["first", "a", "b", "c"]
    assert [(check.problem, check.closed) for check in storage.audit.checks()] == [("", True)]


def test_a_caller_whose_name_no_index_holds_keeps_no_record_from_being_stored(storage: Storage, tmp_path: Path) -> None:
    long = f"oauth:corp:{secrets.token_urlsafe(4_000)}"
    log = storage.audit.log(spool(tmp_path))
    log.record(replace(record("a"), principal=long))
    log.record(record("b"))
    log.close()
    assert tools(storage) == ["a", "b"]
    assert storage.audit.erase(long)
    assert [str(row["principal"]) for row in storage.audit.records()][1:] == ["token:ada"]


def test_what_a_killed_gateway_left_is_stored_by_the_next_one_once(storage: Storage, tmp_path: Path) -> None:
    killed = spool(tmp_path)()
    for tool in ("a", "b"):
        killed.append(audit.spooled(record(tool)))
    killed.close(discard=False)
    for _ in range(2):
        log = storage.audit.log(spool(tmp_path))
        log.record(record("c"))
        log.close()
    assert sorted(tools(storage)) == ["a", "b", "c", "c"]  # of two trails, whose names are random
    assert {(check.problem, check.closed) for check in storage.audit.checks()} == {("", True)}
    assert list(tmp_path.iterdir()) == []


class LostAnswer(audit.PostgresAudit):
    """A database that commits the first records, and whose answer does not arrive."""

    meanwhile: Callable[[], None] | None = None

    def append(self, process: str, records: Sequence[AuditRecord | None], spool: tuple[str, int]) -> None:
        super().append(process, records, spool)
        if (happens := self.meanwhile) is not None:
            self.meanwhile = None
            happens()
            raise StoreError("the connection was lost")


def test_records_whose_commit_was_not_answered_are_stored_once(
    storage: Storage, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "RETRY_SECONDS", (0.01, 0.01))
    with closing(Postgres(address)) as database:
        store = LostAnswer(database)
        log = store.log(spool(tmp_path))
        store.meanwhile = lambda: log.record(record("b"))
        log.record(record("a"))
        wait_until(lambda: len(tools(storage)) > 1)
        log.close()
    assert tools(storage) == ["a", "b"]
    assert [(check.problem, check.closed) for check in storage.audit.checks()] == [("", True)]


def test_an_unreadable_record_is_set_aside_and_the_others_are_stored(
    storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = spool(tmp_path)()
    for left in (audit.spooled(record("a")), b'{"from": "a newer version"}', audit.spooled(record("b"))):
        killed.append(left)
    killed.close(discard=False)
    log = storage.audit.log(spool(tmp_path))
    wait_until(lambda: tools(storage) == ["a", "b"])  # without a record of this process
    log.record(record("c"))
    log.close()
    assert tools(storage) == ["a", "b", "c"]
    (kept,) = tmp_path.iterdir()
    assert f"cannot be read: 1 of 3, kept in {kept}" in caplog.text


def test_a_spool_that_cannot_be_opened_is_opened_later(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "RETRY_SECONDS", (0.01, 0.01))
    folder = tmp_path / "spool"
    folder.write_text("a file is in the way")
    log = storage.audit.log(spool(folder))
    with pytest.raises(StoreError, match="not open yet"):
        log.record(record("a"))
    assert "audit records cannot be kept yet" in caplog.text
    assert "cannot be written" in caplog.text
    folder.unlink()
    wait_until(folder.is_dir)
    wait_until(lambda: is_kept(log))
    log.close()
    assert tools(storage) == ["b"]


def is_kept(log: AuditLog) -> bool:
    try:
        log.record(record("b"))
    except StoreError:
        return False
    return True
