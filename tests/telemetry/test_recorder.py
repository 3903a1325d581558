"""The recorder never blocks or fails a call; what it cannot keep is counted, and the file is never made worse."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shortlist.errors import StoreError
from shortlist.storage.port import ALL, Batch, EventQuery, StoredEvent
from shortlist.telemetry.events import Event, Later
from shortlist.telemetry.figures import stats
from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.recorder import Clocks, Recorder, Retention, is_set
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import NOON, call, events_in, kept, search

SECONDS = 60


def recorder_to(path: Path, **more: Any) -> Recorder:
    return Recorder(events_in(path), Ledger(Privacy()), **more)


def sizes(path: Path) -> list[int]:
    """Return the numbers of all calls that were kept, in their order."""
    return [event.data["size"] for event in events_in(path).events(EventQuery(kinds=("called",)))]


def figures(path: Path) -> dict[str, float | None]:
    return dict(stats(events_in(path)).figures)


def test_what_is_recorded_is_kept_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.sqlite"
    recorder = recorder_to(path)
    for number in range(5_000):
        recorder(call("s/t", size=number))
    recorder.close(SECONDS)
    assert sizes(path) == list(range(5_000))
    assert not any(recorder.lost.values())
    assert path.stat().st_mode & 0o077 == 0


class Gate:
    """A store that waits until it is let go."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.batches: list[Batch] = []

    def append(self, batch: Batch) -> None:
        self.opened.wait(SECONDS)
        self.batches.append(batch)

    def events(self, query: EventQuery = ALL) -> Iterator[StoredEvent]:
        raise NotImplementedError

    def purge(self, before: float, megabytes: float) -> None: ...

    def erase(self, caller: str) -> int:
        raise NotImplementedError(caller)


def test_a_store_that_hangs_holds_nobody_up_and_the_overflow_is_counted(tmp_path: Path) -> None:
    gate = Gate()
    recorder = Recorder(gate, Ledger(Privacy()), capacity=100)
    for _ in range(10_000):  # returns although nothing is written meanwhile
        recorder(call("s/t"))
    gate.opened.set()
    recorder.close(SECONDS)
    entries = [entry.columns for batch in gate.batches for entry in batch.entries]
    written = sum(columns["kind"] == "called" for columns in entries)
    assert recorder.lost["queue full"] > 0
    assert written + recorder.lost["queue full"] == 10_000


def test_ten_thousand_events_at_once_are_kept_or_counted_and_the_count_is_in_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    recorder = recorder_to(path, capacity=3_000)
    for number in range(10_000):
        recorder(search("create an issue", "s/a", "s/b") if number % 2 else call("s/a"))
    while recorder.untold:  # the next event after the loss tells of it
        recorder(call("s/a"))
        threading.Event().wait(0.05)
    recorder.close(SECONDS)
    found = figures(path)
    searches, calls, lost = found["searches"], found["calls"], found["events_lost"]
    assert searches is not None
    assert calls is not None
    assert lost == recorder.lost["queue full"] > 0
    assert searches + calls + lost >= 10_000


def test_an_event_that_cannot_be_written_down_takes_no_other_with_it(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "events.sqlite"
    recorder = recorder_to(path)
    recorder(call("s/t", size=1))
    recorder(search("q", tokens=Later(lambda: 1 // 0)))
    recorder(call("s/t", size=2))
    recorder.close(SECONDS)
    assert sizes(path) == [1, 2]
    assert recorder.lost["unwritable"] == 1


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    kept(tmp_path).database.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    recorder = recorder_to(path)
    for number in range(100):
        recorder(call("s/t", size=number))
    threading.Event().wait(0.5)
    other.execute("COMMIT")
    other.close()
    recorder.close(SECONDS)
    assert sizes(path) == list(range(100))


def damaged(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(8_192))


def half_gone(path: Path) -> None:
    kept(path.parent, *(call(f"s/{number}") for number in range(2_000))).database.close()
    content = bytearray(path.read_bytes())
    content[4_096:] = random.Random(1).randbytes(len(content) - 4_096)
    path.write_bytes(content)


def newer(path: Path) -> None:
    kept(path.parent, call("s/t")).database.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()


@pytest.mark.parametrize("spoil", [damaged, half_gone, newer])
def test_a_file_that_cannot_be_used_is_left_as_it_is_and_the_loss_is_counted(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.sqlite"
    spoil(path)
    before = path.read_bytes()
    recorder = recorder_to(path)
    for _ in range(10):
        recorder(call("s/t"))
    recorder.close(SECONDS)
    assert path.read_bytes() == before
    assert recorder.lost["store failed"] == 10
    assert "calls still work" in caplog.text
    assert "move" in caplog.text
    assert "10 events could not be recorded and are lost" in caplog.text


def test_a_newer_schema_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    newer(path)
    with pytest.raises(StoreError, match=r"newer version of shortlist \(schema 999.*Upgrade"):
        list(events_in(path).events())


def test_recording_resumes_when_the_damaged_file_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    damaged(path)
    recorder = recorder_to(path)
    recorder(call("s/t", size=1))
    threading.Event().wait(0.3)
    path.rename(tmp_path / "damaged.sqlite")
    while not path.is_file() or not sizes(path):
        threading.Event().wait(0.05)
    recorder.close(SECONDS)
    assert sizes(path) == [1]


def test_what_waits_for_a_store_that_failed_is_written_at_the_end_if_the_store_can(tmp_path: Path) -> None:
    path, failed = tmp_path / "events.sqlite", threading.Event()
    store, append = events_in(path), events_in(path).append

    def append_once_mended(batch: Batch) -> None:
        if not failed.is_set():
            failed.set()
            raise StoreError("The disk is full.")
        append(batch)

    vars(store)["append"] = append_once_mended
    recorder = Recorder(store, Ledger(Privacy()))
    recorder(call("s/t", size=1))
    assert failed.wait(SECONDS)
    recorder.close(SECONDS)  # long before the next attempt is due
    assert sizes(path) == [1]
    assert recorder.lost["store failed"] == 0


def run_writer(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.telemetry.writer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)


def test_a_full_disk_costs_events_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    kept(tmp_path, *(call("s/t", size=0) for _ in range(100))).database.close()
    room = path.stat().st_size + 200_000
    lost = json.loads(run_writer(path, -5_000, room).stdout)
    found = sizes(path)
    assert lost["store failed"] > 0
    assert len(found) + lost["store failed"] == 5_100
    assert found[100:] == list(range(len(found) - 100))
    assert events_in(path).database.query("PRAGMA integrity_check") == [("ok",)]
    run_writer(path, -10)  # there is room again
    assert sizes(path)[-10:] == list(range(10))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_kill_9_in_the_middle_of_writing_loses_what_was_not_flushed_and_corrupts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    command = [sys.executable, "-m", "tests.telemetry.writer", str(path), "3000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "recorded\n"
        begun = len(sizes(path))
        while len(sizes(path)) == begun:  # it is writing right now
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
    assert events_in(path).database.query("PRAGMA integrity_check") == [("ok",)]
    found = sizes(path)
    assert len(found) > 3_000
    assert found == list(range(len(found)))  # all there is up to a point, in order, and none twice
    assert figures(path)["calls"] == len(found)
    kept(tmp_path, call("s/t", size=-1)).database.close()
    assert sizes(path)[-1] == -1


def test_two_gateways_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    command = [sys.executable, "-m", "tests.telemetry.writer", str(path), "-3000"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=SECONDS)[0] for process in processes]
    assert not any(count for each in said for count in json.loads(each).values())
    assert sorted(sizes(path)) == sorted([*range(3_000), *range(3_000)])
    assert figures(path)["calls"] == 6_000


class Jumping:
    """A wall clock that can be set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def record_at(path: Path, at: float, *events: Event, **more: Any) -> None:
    recorder = recorder_to(path, clocks=Clocks(wall=Jumping(at)), **more)
    for event in events:
        recorder(event)
    recorder.close(SECONDS)


def test_a_clock_that_jumps_back_loses_no_order_and_no_attribution(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    wall = Jumping(NOON)
    recorder = recorder_to(path, clocks=Clocks(wall=wall))
    recorder(search("q", "s/a"))
    wall.now -= 86_400 * 365
    recorder(call("s/a"))
    recorder.close(SECONDS)
    store = events_in(path)
    first, second = store.events()
    assert (first.kind, second.kind, second.search, second.rank) == ("searched", "called", first.id, 1)


def test_a_clock_that_jumps_ahead_for_a_moment_costs_a_day_at_most(tmp_path: Path) -> None:
    path, day = tmp_path / "events.sqlite", 86_400
    for ago in (9, 5, 0):
        record_at(path, NOON - ago * day, call("s/t", size=ago), retention=Retention(days=10))
    record_at(path, NOON + 3_650 * day, call("s/t", size=100), retention=Retention(days=10))
    assert sizes(path) == [9, 5, 0, 100]
    record_at(path, NOON, call("s/t", size=1), retention=Retention(days=10))
    assert sizes(path) == [9, 5, 0, 100, 1]


def test_an_unexpected_failure_does_not_end_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, failures = tmp_path / "events.sqlite", iter([OSError("a sleep that cannot be")])

    def sleep(_: float) -> None:
        for failure in failures:
            raise failure

    monkeypatch.setattr("shortlist.telemetry.recorder.time.sleep", sleep)
    recorder = recorder_to(path)
    recorder(call("s/t", size=1))
    while next(failures, None) is not None:
        pass
    recorder(call("s/t", size=2))
    recorder.close(SECONDS)
    assert sizes(path)[-1] == 2


@pytest.mark.parametrize("wall", [0.0, 86_400.0, 4_102_444_800.0])
def test_nothing_is_deleted_by_a_clock_that_cannot_be_right(wall: float, tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    for _ in range(3):
        record_at(path, NOON, call("s/t", size=1), retention=Retention(days=10))
        record_at(path, wall, call("s/t", size=2), retention=Retention(days=10))
    record_at(path, NOON, call("s/t", size=3), retention=Retention(days=10_000))
    assert sizes(path).count(1) == 3
    assert not is_set(wall)
    assert is_set(NOON)


def test_what_is_too_old_goes_with_its_figures(tmp_path: Path) -> None:
    path, day = tmp_path / "events.sqlite", 86_400
    retention = Retention(days=1.5)
    old = (search("old", "s/a", workspace="old"), call("s/a", workspace="old"))
    record_at(path, NOON - 3 * day, *old, retention=retention)
    for ago in (2, 1, 0):
        record_at(path, NOON - ago * day, search(f"new {ago}", "s/b"), retention=retention)
    store = events_in(path)
    assert [event.subject for event in store.events()] == ["new 1", "new 0"]
    assert stats(store).figures["searches"] == 2
    assert [tool.name for tool in stats(store).tools] == ["s/b"]
    assert len(store.database.query("SELECT * FROM sessions")) == 1


def test_what_is_too_much_goes_oldest_first(tmp_path: Path) -> None:
    store = kept(tmp_path, *(call("s/a") for _ in range(6_000)))
    store.purge(0.0, store.database.megabytes() / 2)
    left = [event.id for event in store.events()]
    assert left == list(range(5_001, 6_001))  # they go by the thousands
