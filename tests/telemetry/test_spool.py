"""Events of a gateway that shares its store survive a kill: each is recorded once, whoever records it."""

import pickle
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shortlist.errors import NotStorable, StoreError
from shortlist.gateway.callers import Caller
from shortlist.gateway.recording import FinishedSearch, Recording
from shortlist.index.index import Index
from shortlist.models import Query
from shortlist.search.searcher import Searcher
from shortlist.storage.port import ALL, Batch, EventQuery, StoredEvent
from shortlist.storage.spool import SpoolFile
from shortlist.telemetry import recorder as recorder_module
from shortlist.telemetry.events import Event, Later, Searched
from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.recorder import Recorder, Spooling
from shortlist.telemetry.redaction import Privacy
from shortlist.telemetry.spooling import decode_spooled, encode_spooled
from tests.fakes import WORKPLACE, catalog
from tests.telemetry.happenings import NOON, call, search

KEY = bytes(range(32))
SECONDS = 60


class SharedEvents:
    """A store that knows how many records of each spool it has."""

    def __init__(self) -> None:
        self.tools: list[str] = []
        self.calls = 0.0
        """By the tallies."""
        self.stored: dict[str, int] = {}
        self.is_away = False
        self.refused = ""
        """A tool whose events the store refuses however often they are tried."""
        self.batches = 0
        self.meanwhile: Callable[[], None] | None = None
        """What happens while a batch is written."""

    def append(self, batch: Batch) -> None:
        if self.is_away:
            raise StoreError("the database is away")
        if self.refused in [entry.columns["subject"] for entry in batch.entries]:
            raise NotStorable("the name does not fit")
        self.batches += 1
        if self.meanwhile is not None:
            self.meanwhile()
        self.tools += [entry.columns["subject"] for entry in batch.entries]
        self.calls += sum(value for (name, _, _), value in batch.tallies.items() if name == "calls")
        if batch.spool is not None:
            self.stored[batch.spool[0]] = batch.spool[1]

    def events(self, query: EventQuery = ALL) -> Iterator[StoredEvent]:
        raise NotImplementedError

    def purge(self, before: float, megabytes: float) -> None:
        """Keep everything."""

    def erase(self, caller: str) -> int:
        raise NotImplementedError


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 100):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition never held")


def recorder(store: SharedEvents, folder: Path) -> Recorder:
    spooling = Spooling(SpoolFile(folder, KEY), lambda name: store.stored.get(name, 0))
    return Recorder(store, Ledger(Privacy()), spooling=spooling)


def spooled(folder: Path, *names: str) -> str:
    """Leave a spool as a process that was killed does, and return its name."""
    spool = SpoolFile(folder, KEY)
    for name in names:
        spool.append(encode_spooled(NOON, call(name)))
    spool.close(discard=False)
    return spool.name


def test_what_a_killed_process_left_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    store = SharedEvents()
    spooled(tmp_path, "s/a", "s/b")
    after = recorder(store, tmp_path)
    after.recover()
    after(call("s/c"))
    after.close(SECONDS)
    assert store.tools == ["s/a", "s/b", "s/c"]
    assert list(tmp_path.iterdir()) == []


def test_what_the_store_has_already_is_not_recorded_again(tmp_path: Path) -> None:
    store = SharedEvents()
    store.stored[spooled(tmp_path, "s/a", "s/b", "s/c")] = 2
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/c"]


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    store = SharedEvents()
    path = tmp_path / f"{spooled(tmp_path, 's/a', 's/b')}.spool"
    path.write_bytes(path.read_bytes()[:-5])
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/a"]


def test_a_spool_that_the_store_refuses_keeps_no_other_from_being_recorded(tmp_path: Path) -> None:
    store = SharedEvents()
    store.refused = "s/refused"
    spooled(tmp_path, "s/a")
    spooled(tmp_path, "s/refused")
    spooled(tmp_path, "s/b")
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert sorted(store.tools) == ["s/a", "s/b"]
    assert list(tmp_path.iterdir()) == []
    assert after.lost["unwritable"] == 1


def test_an_event_that_the_store_refuses_takes_no_other_of_its_batch_with_it(tmp_path: Path) -> None:
    store, names = SharedEvents(), [f"s/{number}" for number in range(50)]
    store.refused = "s/refused"
    first = recorder(store, tmp_path)
    for name in (*names[:20], "s/refused", *names[20:]):
        first(call(name))
    first.close(SECONDS)
    assert store.tools == names
    assert store.calls == 50
    assert first.lost["unwritable"] == 1
    assert list(tmp_path.iterdir()) == []


def test_an_event_of_a_spool_that_the_store_refuses_takes_no_other_with_it(tmp_path: Path) -> None:
    store = SharedEvents()
    store.refused = "s/refused"
    spooled(tmp_path, "s/a", "s/refused", "s/b", "s/c")
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/a", "s/b", "s/c"]
    assert after.lost["unwritable"] == 1


def test_a_kill_between_the_parts_of_a_refused_batch_records_nothing_twice(tmp_path: Path) -> None:
    store, folder, copy = SharedEvents(), tmp_path / "spool", tmp_path / "copy"
    store.refused = "s/refused"
    first = recorder(store, folder)

    def killed() -> None:
        if not copy.exists():
            shutil.copytree(folder, copy)  # what a process that is killed after the first part leaves
            store.is_away = True

    store.meanwhile = killed
    for name in ("s/a", "s/b", "s/refused", "s/c"):
        first(call(name))
    wait_until(copy.exists)
    first.close(SECONDS)
    store.is_away = False
    after = recorder(store, copy)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/a", "s/b", "s/c"]


def test_a_spool_that_cannot_be_removed_keeps_no_event_from_being_recorded(tmp_path: Path) -> None:
    store, folder = SharedEvents(), tmp_path / "left"
    spooled(folder, "s/a")
    after = recorder(store, folder)

    def put_a_file_in_the_way() -> None:
        shutil.rmtree(folder)
        folder.write_text("in the way")

    store.meanwhile = put_a_file_in_the_way
    after.recover()
    wait_until(lambda: store.tools == ["s/a"])
    store.meanwhile = None
    after(call("s/b"))
    after.close(SECONDS)
    assert store.tools == ["s/a", "s/b"]


def test_events_that_could_not_be_stored_at_the_end_wait_for_the_next_process(tmp_path: Path) -> None:
    store = SharedEvents()
    before = recorder(store, tmp_path)
    store.is_away = True
    before(call("s/a"))
    before.close(SECONDS)
    assert not any(before.lost.values())
    store.is_away = False
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/a"]


def test_the_spool_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    running = SpoolFile(tmp_path, KEY)
    running.append(encode_spooled(NOON, call("s/a")))
    other = SpoolFile(tmp_path, KEY)
    assert list(other.left()) == []
    running.close(discard=False)
    assert [len(left.records) for left in other.left()] == [1]


def test_a_spool_reveals_nothing_and_is_useless_with_another_key(tmp_path: Path) -> None:
    spool = SpoolFile(tmp_path, KEY)
    spool.append(encode_spooled(NOON, search("where is the gold", "s/a")))
    spool.close(discard=False)
    (path,) = tmp_path.iterdir()
    assert b"gold" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert list(SpoolFile(tmp_path, bytes(32)).left()) == []
    assert path.exists()


@contextmanager
def no_more_than(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_record_that_fits_on_a_full_disk_in_part_does_not_spoil_those_after_it(tmp_path: Path) -> None:
    spool = SpoolFile(tmp_path, KEY)
    spool.append(b"one")
    with no_more_than(spool.size + 10), pytest.raises(StoreError, match="Check disk space"):
        spool.append(b"two")
    spool.append(b"three")
    spool.close(discard=False)
    assert [left.records for left in SpoolFile(tmp_path, KEY).left()] == [(b"one", b"three")]


def test_a_spool_keeps_what_is_not_stored_under_its_numbers(tmp_path: Path) -> None:
    spool = SpoolFile(tmp_path, KEY)
    for record in (b"one", b"two", b"three"):
        spool.append(record)
    assert spool.renew(2, [b"three"])
    spool.append(b"four")
    assert spool.count == 4
    spool.close(discard=False)
    (left,) = SpoolFile(tmp_path, KEY).left()
    assert left.since(0) == left.since(2) == (2, (b"three", b"four"))
    assert left.since(3) == (3, (b"four",))
    assert left.since(4) == (4, ())


def test_a_spool_that_cannot_be_made_smaller_goes_on_as_it_is(tmp_path: Path) -> None:
    folder, moved = tmp_path / "spool", tmp_path / "moved"
    spool = SpoolFile(folder, KEY)
    spool.append(b"one")
    folder.rename(moved)
    assert not spool.renew(1, [])
    spool.append(b"two")
    spool.close(discard=False)
    assert [left.since(0) for left in SpoolFile(moved, KEY).left()] == [(0, (b"one", b"two"))]


def test_a_spool_does_not_grow_under_a_steady_load_and_its_events_are_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "SPOOL_BYTES", 0)
    monkeypatch.setattr(recorder_module, "GATHER_SECONDS", 0.0)
    store = SharedEvents()
    first = recorder(store, tmp_path)
    (path,) = tmp_path.iterdir()
    sizes = []

    def another() -> None:
        """Let an event come while others are written."""
        sizes.append(path.stat().st_size)
        if len(sizes) < 20:
            first(call(f"s/{len(sizes)}"))
        elif len(sizes) == 20:
            shutil.copy(path, tmp_path.parent / path.name)  # what a process that is killed now leaves

    store.meanwhile = another
    first(call("s/0"))
    wait_until(lambda: len(store.tools) == 20)
    first.close(SECONDS)
    assert max(sizes[1:]) < 3 * sizes[0]
    (tmp_path.parent / path.name).rename(path)
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == [f"s/{number}" for number in range(20)]


def test_events_that_come_while_a_batch_is_written_are_gathered_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SharedEvents()
    recording = recorder(store, tmp_path)

    def another() -> None:
        if store.batches == 1:
            monkeypatch.setattr(recorder_module, "GATHER_SECONDS", float(SECONDS))
            recording(call("s/b"))

    store.meanwhile = another
    recording(call("s/a"))
    wait_until(lambda: store.tools == ["s/a"])
    recording(call("s/c"))
    recording.close(SECONDS)
    assert store.tools == ["s/a", "s/b", "s/c"]
    assert store.batches == 2


def with_the_second_on_a_full_disk(store: SharedEvents, folder: Path) -> Recorder:
    """Return a recorder with an event that its spool has, and one that it has not."""
    store.is_away = True
    made = recorder(store, folder)
    made(call("s/a"))
    (path,) = folder.iterdir()
    with no_more_than(path.stat().st_size):
        made(call("s/b"))
    return made


def test_events_that_a_full_disk_keeps_from_the_spool_are_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_SECONDS", (0.01, 0.01))
    store = SharedEvents()
    first = with_the_second_on_a_full_disk(store, tmp_path)
    store.is_away = False
    wait_until(lambda: len(store.tools) == 2)
    first(call("s/c"))  # the disk has space again
    first.close(SECONDS)
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/a", "s/b", "s/c"]
    assert list(tmp_path.iterdir()) == []


def test_events_that_neither_disk_nor_database_takes_are_counted_as_lost(tmp_path: Path) -> None:
    store = SharedEvents()
    first = with_the_second_on_a_full_disk(store, tmp_path)
    first.close(SECONDS)
    assert first.lost["store failed"] == 1
    store.is_away = False
    after = recorder(store, tmp_path)
    after.recover()
    after.close(SECONDS)
    assert store.tools == ["s/a"]


def test_an_event_comes_back_as_it_was_without_tokens_that_were_not_counted() -> None:
    asked = search("find gold", "s/a", tokens=Later(lambda: 12))
    found = decode_spooled(encode_spooled(NOON, asked))
    assert (found.at, found.event) == (NOON, search("find gold", "s/a", tokens=0))


def test_what_a_search_found_comes_back_with_what_each_retriever_made_of_it() -> None:
    events: list[Event] = []
    answer = FinishedSearch(answer={}, limit=5, offset=0, mode="hybrid", filters={})
    result = Searcher(Index.build(catalog(WORKPLACE))).search(Query(text="create a calendar event"))
    Recording(events.append).searched(Caller(), answer, [result])
    found = decode_spooled(encode_spooled(NOON, events[0])).event
    assert isinstance(found, Searched)
    assert [dict(hit.signals) for hit in found.hits] == [dict(hit.signals) for hit in result.hits]
    assert found.hits[0].signals["lexical"].rank == 1


def test_only_events_are_read_from_a_spool() -> None:
    event = call("s/a")
    for record in (
        *(pickle.dumps((1.0, print, [])), pickle.dumps((1.0, "text", [])), pickle.dumps((1.0, type(event), ["one"]))),
        *(pickle.dumps((1, type(event), [])), pickle.dumps((1.0, event)), b"", b"\x80\x05."),
    ):
        with pytest.raises(ValueError, match="not an event"):
            decode_spooled(record)
