"""What every adapter of the storage port does. A new adapter adds one entry to ADAPTERS and passes the same tests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from shortlist.errors import InvalidInput, NothingRecorded, StoreConflict
from shortlist.storage.audit import AuditLog, AuditRecord
from shortlist.storage.local import open_local
from shortlist.storage.owned import ResultLimits, StoredWorkspace, WorkspaceLimits
from shortlist.storage.port import (
    Batch,
    EventQuery,
    PinnedDefinition,
    Storage,
    StoredExperiment,
    StoredPins,
    StoredVector,
    WorkspaceOutcome,
)
from shortlist.storage.postgres.opening import open_postgres
from shortlist.storage.programs import StoredProgram
from shortlist.storage.spool import SpoolFile
from shortlist.telemetry.events import Exposed
from tests.storage.postgres import is_running, new_database
from tests.telemetry.happenings import NOON, batch_of, call, search

ADAPTERS: Mapping[str, Callable[[Path], Storage]] = {
    "sqlite": open_local,
    **({"postgres": lambda _: open_postgres(new_database())} if is_running() else {}),
}
DAY = 86_400
HOUR = int(NOON // 3_600)


@pytest.fixture(params=ADAPTERS)
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    opened = ADAPTERS[request.param](tmp_path / "data")
    yield opened
    opened.close()


def audit_log(storage: Storage, folder: Path) -> AuditLog:
    return storage.audit.log(lambda: SpoolFile(folder / "spool", bytes(32)))


def audited(at: float = NOON, principal: str = "token:ada", **fields: str) -> AuditRecord:
    return AuditRecord(at=at, principal=principal, action="tools/call", decision="allowed", server="box", **fields)


def test_audit_records_come_back_with_their_principals_and_a_chain_that_holds(storage: Storage, tmp_path: Path) -> None:
    log = audit_log(storage, tmp_path)
    log.record(audited(tool="get"))
    log.record(audited(tool="put \x00 \ud800", principal="oauth:https://issuer:bob"))
    log.close()
    found = list(storage.audit.records())
    assert [(row["principal"], row["tool"]) for row in found] == [
        ("token:ada", "get"),
        ("oauth:https://issuer:bob", "put \x00 \ud800"),
    ]
    assert "outcome" not in found[0]
    assert [(check.records, check.problem, check.closed) for check in storage.audit.checks()] == [(2, "", True)]


def test_a_principal_is_erased_from_the_audit_log_and_its_records_stay(storage: Storage, tmp_path: Path) -> None:
    log = audit_log(storage, tmp_path)
    for principal in ("token:ada", "token:bob", "token:ada"):
        log.record(audited(principal=principal))
    log.close()
    assert storage.audit.erase("token:ada")
    assert not storage.audit.erase("token:ada")
    first, second, third = (row["principal"] for row in storage.audit.records())
    assert (second, first) == ("token:bob", third)
    assert first.startswith("p-")
    assert [check.problem for check in storage.audit.checks()] == [""]


def test_audit_records_are_removed_by_whole_days(storage: Storage, tmp_path: Path) -> None:
    log = audit_log(storage, tmp_path)
    for day in range(3):
        log.record(audited(at=NOON + day * DAY))
    log.close()
    assert storage.audit.prune(NOON + DAY) == 1
    assert [row["at"] for row in storage.audit.records()] == [NOON + DAY, NOON + 2 * DAY]
    assert {check.problem for check in storage.audit.checks()} == {""}


def test_an_audit_log_without_records_is_empty(storage: Storage) -> None:
    assert list(storage.audit.records()) == []
    assert storage.audit.checks() == ()


def used(query: str, tool: str, outcome: str = "ok") -> Batch:
    return batch_of([search(query, tool), call(tool, outcome)])  # type: ignore[arg-type]


def experiment(name: str, started: int = 1) -> StoredExperiment:
    return StoredExperiment(name=name, plan='{"any": "text"}', started=started)


def test_a_new_storage_says_that_nothing_was_recorded(storage: Storage) -> None:
    with pytest.raises(NothingRecorded):
        list(storage.events.events())
    with pytest.raises(NothingRecorded):
        storage.exemplars.learn()


def test_events_come_back_in_the_order_of_writing_with_ascending_ids(storage: Storage) -> None:
    first, second = batch_of([call("s/a"), call("s/b")]), batch_of([call("s/c")])
    storage.events.append(first)
    storage.events.append(second)
    found = list(storage.events.events())
    assert [event.subject for event in found] == ["s/a", "s/b", "s/c"]
    assert [event.id for event in found] == [row.place.id for row in (*first.entries, *second.entries)]
    assert sorted({event.id for event in found}) == [event.id for event in found]


def test_a_call_names_the_search_it_belongs_to_by_its_id(storage: Storage) -> None:
    storage.events.append(used("q", "s/a"))
    asked, made = storage.events.events()
    assert (made.search, made.rank) == (asked.id, 1)


@pytest.mark.parametrize(
    ("query", "subjects"),
    [
        (EventQuery(kinds=("called",)), ["s/a", "s/b"]),
        (EventQuery(subject="s/b"), ["s/b"]),
        (EventQuery(missed=True), ["s/b"]),
        (EventQuery(latest=True, limit=1), ["s/b"]),
        (EventQuery(since=NOON + 2), ["s/b"]),
    ],
)
def test_events_are_found_by_what_they_are(storage: Storage, query: EventQuery, subjects: list[str]) -> None:
    storage.events.append(batch_of([search("q", "s/a"), call("s/a"), call("s/b")]))
    assert [event.subject for event in storage.events.events(query)] == subjects


def test_tallies_add_up_by_name_and_hour(storage: Storage) -> None:
    storage.events.append(batch_of([search("q", "s/a")], at=NOON - 10))
    storage.events.append(batch_of([search("q", "s/a"), search("r", "s/b")], at=NOON + 10))
    assert storage.tallies.sums(names=("searches",)) == {("searches", ""): 3}
    assert storage.tallies.sums(NOON, ("searches",)) == {("searches", ""): 2}
    series = storage.tallies.series(("searches",))
    assert {hour: sums["searches", ""] for hour, sums in series.items()} == {HOUR - 1: 1, HOUR: 2}


def test_tools_called_by_the_same_workspaces_are_pairs(storage: Storage) -> None:
    for who in ("one", "two"):
        storage.events.append(batch_of([call("s/a", workspace=who), call("s/b", workspace=who)]))
    assert storage.tallies.pairs() == [("s/a", "s/b", 2)]
    assert storage.tallies.pairs(least=3) == []


def test_old_events_go_with_their_tallies(storage: Storage) -> None:
    storage.events.append(batch_of([call("s/old")], at=NOON - 40 * DAY))
    storage.events.append(batch_of([call("s/new")], at=NOON))
    storage.events.purge(NOON - 30 * DAY, 1_000)
    assert [event.subject for event in storage.events.events()] == ["s/new"]
    assert storage.tallies.sums(names=("calls",)) == {("calls", "ok"): 1}


def test_the_events_of_one_caller_are_found_and_erased_while_tallies_stay(storage: Storage) -> None:
    events = [replace(call(f"s/{name}"), caller=name) for name in ("ada", "bob", "ada")]
    storage.events.append(batch_of(events))
    assert len(list(storage.events.events(EventQuery(caller="ada")))) == 2
    assert storage.events.erase("ada") == 2
    assert [event.caller for event in storage.events.events()] == ["bob"]
    assert storage.tallies.sums(names=("calls",)) == {("calls", "ok"): 3}
    assert storage.events.erase("ada") == 0


def test_one_experiment_runs_at_a_time_and_a_name_is_used_once(storage: Storage) -> None:
    storage.experiments.start(experiment("first"))
    with pytest.raises(InvalidInput, match="'first' is running"):
        storage.experiments.start(experiment("second"))
    storage.experiments.stop("first", 5)
    with pytest.raises(InvalidInput, match="exists already"):
        storage.experiments.start(experiment("first"))
    storage.experiments.start(experiment("second", started=9))
    assert [(each.name, each.stopped) for each in storage.experiments.experiments()] == [("second", None), ("first", 5)]


def test_an_exposed_workspace_counts_from_its_exposure_until_the_stop(storage: Storage) -> None:
    storage.experiments.start(experiment("e"))
    exposed = Exposed(caller="local", workspace="w", experiment="e", variant="treatment")
    storage.events.append(batch_of([call("s/a", "error")]))
    storage.events.append(batch_of([exposed, exposed]))
    storage.events.append(batch_of([call("s/a", "error"), call("s/a")]))
    storage.experiments.stop("e", 5)
    storage.events.append(batch_of([call("s/a")]))
    (outcome,) = storage.experiments.outcomes("e")
    assert (outcome.variant, outcome.calls, outcome.errors) == ("treatment", 2, 1)
    assert isinstance(outcome, WorkspaceOutcome)


def test_calls_are_learned_once_and_cleared_for_good(storage: Storage) -> None:
    storage.events.append(used("write to anna", "mail/send"))
    storage.events.append(used("write to anna", "mail/send", "error"))
    before = storage.exemplars
    before.learn()
    before.learn()
    (pair,) = before.pairs()
    assert (pair.caller, pair.tool, pair.query, pair.successes, pair.errors) == (
        *("local", "mail/send", "write to anna"),
        *(1, 1),
    )
    state = before.state()
    assert before.clear(tool="mail/send") == 1
    before.learn()
    assert before.pairs() == []
    assert before.state() != state


def test_a_document_is_replaced_whole_and_one_of_a_newer_format_is_kept(storage: Storage) -> None:
    assert storage.catalogs.load("sky") is None
    storage.catalogs.save("sky", b'{"format": 2, "tools": []}')
    storage.catalogs.save("sky", b'{"format": 2, "tools": [1]}')
    assert storage.catalogs.load("sky") == b'{"format": 2, "tools": [1]}'
    storage.catalogs.save("sky", b'{"format": 3}')
    storage.catalogs.save("sky", b'{"format": 2}')
    assert storage.catalogs.load("sky") == b'{"format": 3}'
    assert set(storage.catalogs.names()) == {"sky"}


def test_pins_that_another_gateway_changed_meanwhile_are_not_overwritten(storage: Storage) -> None:
    pins, first, second = storage.pins, StoredPins("1 a", (PinnedDefinition("tool", "x", "{}"),)), StoredPins("2 a")
    pins.write("sky", first, "")
    for since in ("", "0 a"):
        with pytest.raises(StoreConflict):
            pins.write("sky", second, since)
        with pytest.raises(StoreConflict):
            pins.amend("sky", [("tool", "x")], second, since)
    assert pins.read("sky") == first
    pins.amend("sky", [], second, "1 a")
    assert pins.read("sky").listing == "2 a"
    assert pins.overview().keys() == {"sky"}


def test_pins_are_amended_by_kind_and_name(storage: Storage) -> None:
    def pinned(name: str, text: str = "{}", cause: str = "") -> PinnedDefinition:
        return PinnedDefinition("tool", name, text, cause)

    before = StoredPins("one", (pinned("a"), pinned("b")), (pinned("c", cause="new"), pinned("d", cause="new")))
    storage.pins.write("sky", before)
    change = StoredPins("two", (pinned("b", "[]"), pinned("c")), (pinned("a", "[]", "changed"),))
    storage.pins.amend("sky", [("tool", name) for name in "abc"], change)
    after = storage.pins.read("sky")
    assert after.listing == "two"
    assert {(d.name, d.text) for d in after.accepted} == {("a", "{}"), ("b", "[]"), ("c", "{}")}
    assert {(d.name, d.cause) for d in after.held} == {("a", "changed"), ("d", "new")}


def test_vectors_come_back_by_key(storage: Storage) -> None:
    vector = StoredVector(0.5, b"\x01\x02")
    storage.vectors.put({b"key": vector})
    assert storage.vectors.get([b"key", b"other"]) == {b"key": vector}


def test_a_name_is_claimed_once_at_a_time(storage: Storage) -> None:
    with storage.vectors.claim(["a", "b \x00\ud800"]) as held:
        assert held == {"a", "b \x00\ud800"}
        with storage.vectors.claim(["b \x00\ud800", "c"]) as free:
            assert free == {"c"}
    with suppress(ZeroDivisionError), storage.vectors.claim(["a"]):
        raise ZeroDivisionError
    with storage.vectors.claim(["a", "c"]) as last:
        assert last == {"a", "c"}


SOME = WorkspaceLimits(seconds=1_000, most=10, most_of_owner=10)
TWO = WorkspaceLimits(seconds=2, most=2, most_of_owner=10)


def workspace(key: str, used: float = 100.0) -> StoredWorkspace:
    return StoredWorkspace(key=key, loaded={"s/b": "letters", "s/a": ""}, used=used)


def test_a_workspace_comes_back_as_it_was_saved(storage: Storage) -> None:
    assert storage.workspaces.load("handle:ada:1") is None
    storage.workspaces.save(workspace("handle:ada:1"), SOME)
    found = storage.workspaces.load("handle:ada:1")
    assert found == workspace("handle:ada:1")
    assert list(found.loaded) == ["s/b", "s/a"]
    assert storage.workspaces.load("handle:ada:2") is None


def test_workspaces_beyond_the_limits_go_the_longest_unused_first(storage: Storage) -> None:
    for number in range(5):
        storage.workspaces.save(workspace(f"handle:ada:{number}", used=number), TWO)
    kept = [storage.workspaces.load(f"handle:ada:{number}") is not None for number in range(5)]
    assert kept == [False] * 3 + [True] * 2


def test_a_workspace_that_was_used_by_a_clock_that_was_ahead_does_not_displace_those_that_are_used_now(
    storage: Storage,
) -> None:
    year_2100 = 4_102_444_800.0
    for number in range(2):
        storage.workspaces.save(workspace(f"handle:ada:{number}", used=year_2100), TWO)
    for number in range(2, 5):
        storage.workspaces.save(workspace(f"handle:ada:{number}", used=float(number)), TWO)
    kept = [storage.workspaces.load(f"handle:ada:{number}") is not None for number in range(5)]
    assert kept == [False, False, False, True, True]


def test_one_owner_displaces_only_its_own_workspaces_and_results(storage: Storage) -> None:
    limits = WorkspaceLimits(seconds=1_000, most=10, most_of_owner=2)
    others = ("principal:bob", "handle:bob:1", "handle:ada:bob:1", "handle:company:ada:1", "principal:ada:x")
    for key in (*others, "principal:ada", *(f"handle:ada:{number}" for number in range(5))):
        storage.workspaces.save(workspace(key, used=float(key[-1]) if key[-1].isdigit() else 0.0), limits)
    assert [each.key for each in storage.workspaces.of_owner("ada")] == ["handle:ada:4", "handle:ada:3"]
    assert all(storage.workspaces.load(key) for key in others)
    storage.results.limit(ResultLimits(60, 10, 1_000_000, 2, 1_000_000))
    storage.results.keep("bob", "his", ["page"])
    for number in range(5):
        storage.results.keep("ada", f"hers {number}", ["page"])
    assert storage.results.find("bob", "his") is not None
    kept = [storage.results.find("ada", f"hers {number}") is not None for number in range(5)]
    assert kept == [False] * 3 + [True] * 2


def test_what_one_owner_keeps_can_be_erased(storage: Storage) -> None:
    for key in ("principal:ada", "handle:ada:1", "handle:bob:1"):
        storage.workspaces.save(workspace(key), SOME)
    storage.results.keep("token:ada", "hers", ["page"])
    storage.results.keep("token:bob", "his", ["page"])
    assert (storage.workspaces.erase("ada"), storage.results.erase("token:ada")) == (2, 1)
    assert storage.workspaces.of_owner("ada") == []
    assert storage.workspaces.load("handle:bob:1") is not None
    assert storage.results.find("token:ada", "hers") is None
    assert storage.results.find("token:bob", "his") is not None


def test_a_kept_result_is_found_by_its_owner_alone(storage: Storage) -> None:
    storage.results.keep("ada", "handle", ["one", "two"])
    assert list(storage.results.find("ada", "handle") or ()) == ["one", "two"]
    assert storage.results.find("bob", "handle") is None
    assert storage.results.find("ada", "another") is None
    assert storage.results.bytes > 0


def test_kept_results_obey_new_limits_at_once(storage: Storage) -> None:
    for handle in ("first", "second"):
        storage.results.keep("ada", handle, ["page"])
    storage.results.limit(ResultLimits(60, 1, 1_000_000, 1, 1_000_000))
    assert [storage.results.find("ada", handle) is not None for handle in ("first", "second")] == [False, True]
    storage.results.limit(ResultLimits(60, 1, 0, 1, 0))
    assert storage.results.bytes == 0


def test_a_program_comes_back_as_it_was_saved_until_it_is_removed(storage: Storage) -> None:
    program = StoredProgram(
        name="report",
        source="print('ü')\nawait tools.wiki.get(id=page)",
        description="Report.",
        parameters={"page": 7},
        tools=("wiki/get",),
        saved=1.0,
    )
    assert storage.programs.load() == {}
    assert not storage.programs.remove("report")
    storage.programs.put(program)
    storage.programs.put(approved := replace(program, approved_by="ada", allow="write"))
    assert storage.programs.load() == {"report": approved}
    assert storage.programs.remove("report")
    assert storage.programs.load() == {}
