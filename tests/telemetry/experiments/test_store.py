"""Experiments in a real file, with events written as a gateway writes them."""

import sqlite3
from pathlib import Path

import pytest

from shortlist.errors import InvalidInput
from shortlist.telemetry.events import Called, Event, Exposed, Loaded, SessionOpened
from shortlist.telemetry.experiments.outcomes import Outcome
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Experiment, Variant
from shortlist.telemetry.experiments.store import ExperimentStore
from shortlist.telemetry.ledger import Batch, Ledger, Stamped
from shortlist.telemetry.redaction import Privacy
from shortlist.telemetry.sqlite_store import SqliteFile
from shortlist.telemetry.store import SqliteEventStore

MODES = Experiment(name="modes", variants=(AS_CONFIGURED, Variant(mode="dynamic")), metric="errors")
DYNAMIC = "mode=dynamic"


class Kept:
    """A file of events, and the experiments in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = SqliteEventStore(path, write=True)
        self.experiments = ExperimentStore(SqliteFile(path, write=True))
        self._ledger = Ledger(Privacy(key=b"key"))
        self._seconds = 1_000.0

    def happen(self, *events: Event) -> None:
        batch = Batch()
        for event in events:
            self._seconds += 1
            self._ledger.enter(batch, Stamped(self._seconds, self._seconds, event))
        self.events.append(batch)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "events.sqlite")


def opened(workspace: str, tools: int = 8) -> SessionOpened:
    return SessionOpened(caller="local", workspace=workspace, mode="search", tools=tools)


def exposed(workspace: str, variant: str = DYNAMIC, experiment: str = "modes") -> Exposed:
    return Exposed(caller="local", workspace=workspace, experiment=experiment, variant=variant)


def called(workspace: str, outcome: str = "ok") -> Called:
    return Called(
        caller="local",
        workspace=workspace,
        tool="a/b",
        outcome=outcome,  # type: ignore[arg-type]
        milliseconds=1.0,
        native=True,
    )


def loaded(workspace: str) -> Loaded:
    return Loaded(caller="local", workspace=workspace, toolset="a", tools=("a/b", "a/c"), milliseconds=5.0)


def test_what_a_workspace_did_before_it_was_exposed_does_not_count(kept: Kept) -> None:
    kept.happen(opened("w1"), called("w1", "error"), called("w1"))
    experiment = kept.experiments.start(MODES)
    kept.happen(exposed("w1"))
    kept.happen(called("w1"), called("w1", "error"), called("w1"), loaded("w1"))
    assert kept.experiments.outcomes(experiment) == [
        Outcome(variant=DYNAMIC, tools=10, calls=3, errors=1, loads=1, load_milliseconds=5.0)
    ]


def test_a_workspace_keeps_its_first_variant_and_place(kept: Kept) -> None:
    experiment = kept.experiments.start(MODES)
    kept.happen(opened("w1"), exposed("w1"), opened("w2"), exposed("w2", "as configured"), called("w1"))
    kept.happen(exposed("w1"), called("w1"))
    found = kept.experiments.outcomes(experiment)
    assert [(each.variant, each.calls) for each in found] == [(DYNAMIC, 2), ("as configured", 0)]


def test_what_happens_after_the_stop_does_not_count(kept: Kept) -> None:
    kept.experiments.start(MODES)
    kept.happen(opened("w1"), exposed("w1"), called("w1"))
    stopped = kept.experiments.stop("modes")
    kept.happen(called("w1", "error"), opened("w2"), exposed("w2"))
    assert [(each.calls, each.errors) for each in kept.experiments.outcomes(stopped)] == [(1, 0)]
    assert kept.experiments.running() is None


def test_an_outcome_outlives_the_events_it_was_counted_from(kept: Kept) -> None:
    experiment = kept.experiments.start(MODES)
    kept.happen(opened("w1"), exposed("w1"), called("w1"))
    kept.events.purge(before=1_000_000.0, megabytes=1_000.0)
    assert kept.events.file.query("SELECT count(*) FROM sessions") == [(0,)]
    assert [each.calls for each in kept.experiments.outcomes(experiment)] == [1]


def test_one_experiment_runs_at_a_time_and_a_name_is_used_once(kept: Kept) -> None:
    first = kept.experiments.start(MODES)
    assert kept.experiments.running() == first
    with pytest.raises(InvalidInput, match="'modes' is running"):
        kept.experiments.start(Experiment(name="other", variants=MODES.variants, metric="errors"))
    kept.experiments.stop("modes")
    with pytest.raises(InvalidInput, match="another name"):
        kept.experiments.start(MODES)
    with pytest.raises(InvalidInput, match="stopped already"):
        kept.experiments.stop("modes")
    other = kept.experiments.start(Experiment(name="other", variants=MODES.variants, metric="errors"))
    assert kept.experiments.get().name == kept.experiments.get("other").name == other.name


def test_the_database_itself_refuses_two_that_run(kept: Kept) -> None:
    kept.experiments.start(MODES)
    with pytest.raises(sqlite3.IntegrityError), sqlite3.connect(kept.path) as connection:
        connection.execute("INSERT INTO experiments (name, plan, started) VALUES ('second', '{}', 1)")


def test_an_experiment_that_is_not_there_is_named_with_those_that_are(kept: Kept) -> None:
    with pytest.raises(InvalidInput, match="No experiment has been started"):
        kept.experiments.get()
    kept.experiments.start(MODES)
    with pytest.raises(InvalidInput, match="There are modes"):
        kept.experiments.get("moods")
