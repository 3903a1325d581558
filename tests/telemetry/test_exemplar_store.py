from itertools import count
from pathlib import Path

import pytest

from shortlist.config.settings import Keeping
from shortlist.storage.port import Batch
from shortlist.storage.sqlite import Database
from shortlist.storage.sqlite_learning import BOUNDS, ExemplarBounds, SqliteExemplars
from shortlist.telemetry.events import Called, CallOutcome, Event, Searched
from shortlist.telemetry.ledger import Ledger, Stamped
from shortlist.telemetry.measures import FoundTool
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import events_in

NOON = 1_800_000_000.0


def search(query: str, *tools: str, caller: str = "local") -> Event:
    hits = tuple(FoundTool(tool=tool, rank=rank, score=1.0) for rank, tool in enumerate(tools, 1))
    return Searched(
        caller=caller, workspace=caller, query=query, hits=hits, confidence="high", probability=0.9, tokens=10
    )


def call(tool: str, outcome: CallOutcome = "ok", caller: str = "local") -> Event:
    return Called(caller=caller, workspace=caller, tool=tool, outcome=outcome, milliseconds=1.0, native=False)


def used(query: str, tool: str, *outcomes: CallOutcome, caller: str = "local") -> list[Event]:
    """Return a search that finds a tool, and calls of it."""
    return [search(query, tool, caller=caller), *(call(tool, outcome, caller) for outcome in outcomes or ("ok",))]


class Log:
    """A real store with a clock that goes on by a second an event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = events_in(path)
        self.events.append(Batch())  # as a gateway that has started
        self.exemplars = SqliteExemplars(self.events.database)
        self._clock = count(NOON)

    def write(self, *events: Event, queries: Keeping = "keep") -> None:
        ledger, batch = Ledger(Privacy(queries=queries)), Batch()
        for event in events:
            at = next(self._clock)
            ledger.enter(batch, Stamped(at, at, event))
        self.events.append(batch)

    def learned(self, bounds: ExemplarBounds = BOUNDS) -> dict[tuple[str, str, str], tuple[int, int]]:
        SqliteExemplars(self.events.database, bounds).learn()
        return {(p.caller, p.query, p.tool): (p.successes, p.errors) for p in self.exemplars.pairs()}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "events.sqlite")


def test_a_call_of_what_a_search_found_is_learned_with_its_query(log: Log) -> None:
    log.write(*used("write to anna", "mail/send"), call("never/found"))
    assert log.learned() == {("local", "write to anna", "mail/send"): (1, 0)}


def test_calls_are_added_up_once_however_often_it_learns(log: Log) -> None:
    log.write(*used("write to anna", "mail/send", "ok", "error"))
    log.learned()
    log.write(*used("write to anna", "mail/send", "ok"))
    assert log.learned() == log.learned() == {("local", "write to anna", "mail/send"): (2, 1)}


def test_only_success_and_the_tool_s_own_errors_count(log: Log) -> None:
    log.write(*used("write to anna", "mail/send", "invalid_arguments", "failed", "input_required"))
    assert log.learned() == {}
    log.write(*used("write to anna", "mail/send", "invalid_arguments", "ok", "failed"))
    assert log.learned() == {("local", "write to anna", "mail/send"): (1, 0)}


def test_callers_are_kept_apart(log: Log) -> None:
    log.write(*used("write to anna", "mail/send", caller="ben"), *used("write to anna", "mail/send", caller="eve"))
    assert {caller for caller, _, _ in log.learned()} == {"ben", "eve"}


@pytest.mark.parametrize("queries", ["hash", "omit"])
def test_nothing_is_learned_from_queries_that_are_not_kept(log: Log, queries: Keeping) -> None:
    log.write(*used("write to anna", "mail/send"), queries=queries)
    assert log.learned() == {}


def test_a_secret_in_a_query_is_not_learned(log: Log) -> None:
    log.write(*used("write to anna, my password is hunter2hunter2", "mail/send"))
    ((_, query, _),) = log.learned()
    assert "write to anna" in query
    assert "hunter2" not in query


def test_another_gateway_on_the_same_file_sees_the_same_and_adds_nothing_twice(log: Log) -> None:
    log.write(*used("write to anna", "mail/send"))
    other = SqliteExemplars(Database(log.path))
    other.learn()
    assert log.learned() == {("local", "write to anna", "mail/send"): (1, 0)}
    assert other.state() == log.exemplars.state()


def test_the_state_changes_with_what_is_learned(log: Log) -> None:
    states = [log.exemplars.state()]
    for events in (used("a b", "x/y"), used("a b", "x/y"), used("a b", "x/y", "error"), used("c d", "x/y")):
        log.write(*events)
        log.exemplars.learn()
        states.append(log.exemplars.state())
    assert len(set(states)) == len(states)


def test_what_was_cleared_is_not_learned_again(log: Log) -> None:
    log.write(*used("write to anna", "mail/send"), *used("post it", "slack/post", caller="ben"))
    assert log.exemplars.clear(caller="ben") == 1
    assert log.learned() == {("local", "write to anna", "mail/send"): (1, 0)}
    assert log.exemplars.clear(tool="mail/send") == 1
    assert log.learned() == {}
    log.write(*used("write to anna", "mail/send"))
    assert len(log.learned()) == 1


def test_a_caller_that_floods_drives_out_what_is_its_own(log: Log) -> None:
    log.write(*used("write to anna", "mail/send", caller="ben"))
    log.write(*(event for n in range(30) for event in used(f"query {n}", f"x/tool{n % 3}", caller="eve")))
    learned = log.learned(ExemplarBounds(of_tool=4, of_caller=6))
    assert ("ben", "write to anna", "mail/send") in learned
    assert {query for caller, query, _ in learned if caller == "eve"} == {f"query {n}" for n in range(24, 30)}


def test_the_latest_pairs_of_a_tool_stay(log: Log) -> None:
    log.write(*(event for n in range(5) for event in used(f"query {n}", "x/y")), *used("other", "x/z"))
    assert {query for _, query, _ in log.learned(ExemplarBounds(of_tool=2))} == {"query 3", "query 4", "other"}


def test_what_is_too_old_for_the_events_is_forgotten_with_them(log: Log) -> None:
    log.write(*used("long ago", "x/y"))
    log.learned()
    log.events.purge(NOON + 1_000, 1_000)
    assert log.learned() == {}


def test_a_long_log_is_learned_in_parts(log: Log) -> None:
    log.write(*(event for n in range(20) for event in used(f"query {n}", "x/y")))
    assert len(log.learned(ExemplarBounds(at_once=7))) == 20
