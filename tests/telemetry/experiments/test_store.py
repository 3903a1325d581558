"""Experiments in a real file, with events written as a gateway writes them."""

import sqlite3
from pathlib import Path

import pytest

from shortlist.errors import InvalidInput
from shortlist.storage.port import Batch, WorkspaceOutcome
from shortlist.storage.sqlite_learning import SqliteExperiments
from shortlist.telemetry.events import Called, Event, Exposed, SessionOpened, ToolsLoaded
from shortlist.telemetry.experiments.plan import (
    AS_CONFIGURED,
    Experiment,
    Variant,
    find_experiment,
    running_experiment,
    start_experiment,
    stop_experiment,
)
from shortlist.telemetry.ledger import Ledger, Stamped
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import events_in

MODES = Experiment(name="modes", variants=(AS_CONFIGURED, Variant(mode="dynamic")), metric="errors")
DYNAMIC = "mode=dynamic"


class Kept:
    """A file of events, and the experiments in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = events_in(path)
        self.events.append(Batch())  # as a gateway that has started
        self.experiments = SqliteExperiments(self.events.database)
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


def loaded(workspace: str) -> ToolsLoaded:
    return ToolsLoaded(caller="local", workspace=workspace, toolset="a", tools=("a/b", "a/c"), milliseconds=5.0)


def test_what_a_workspace_did_before_it_was_exposed_does_not_count(kept: Kept) -> None:
    kept.happen(opened("w1"), called("w1", "error"), called("w1"))
    experiment = start_experiment(kept.experiments, MODES)
    kept.happen(exposed("w1"))
    kept.happen(called("w1"), called("w1", "error"), called("w1"), loaded("w1"))
    assert kept.experiments.outcomes(experiment.name) == [
        WorkspaceOutcome(variant=DYNAMIC, tools=10, calls=3, errors=1, loads=1, load_milliseconds=5.0)
    ]


def test_a_workspace_keeps_its_first_variant_and_place(kept: Kept) -> None:
    experiment = start_experiment(kept.experiments, MODES)
    kept.happen(opened("w1"), exposed("w1"), opened("w2"), exposed("w2", "as configured"), called("w1"))
    kept.happen(exposed("w1"), called("w1"))
    found = kept.experiments.outcomes(experiment.name)
    assert [(each.variant, each.calls) for each in found] == [(DYNAMIC, 2), ("as configured", 0)]


def test_what_happens_after_the_stop_does_not_count(kept: Kept) -> None:
    start_experiment(kept.experiments, MODES)
    kept.happen(opened("w1"), exposed("w1"), called("w1"))
    stopped = stop_experiment(kept.experiments, "modes")
    kept.happen(called("w1", "error"), opened("w2"), exposed("w2"))
    assert [(each.calls, each.errors) for each in kept.experiments.outcomes(stopped.name)] == [(1, 0)]
    assert running_experiment(kept.experiments) is None


def test_an_outcome_outlives_the_events_it_was_counted_from(kept: Kept) -> None:
    experiment = start_experiment(kept.experiments, MODES)
    kept.happen(opened("w1"), exposed("w1"), called("w1"))
    kept.events.purge(before=1_000_000.0, megabytes=1_000.0)
    assert kept.events.database.query("SELECT count(*) FROM sessions") == [(0,)]
    assert [each.calls for each in kept.experiments.outcomes(experiment.name)] == [1]


def test_one_experiment_runs_at_a_time_and_a_name_is_used_once(kept: Kept) -> None:
    first = start_experiment(kept.experiments, MODES)
    assert running_experiment(kept.experiments) == first
    with pytest.raises(InvalidInput, match="'modes' is running"):
        start_experiment(kept.experiments, Experiment(name="other", variants=MODES.variants, metric="errors"))
    stop_experiment(kept.experiments, "modes")
    with pytest.raises(InvalidInput, match="another name"):
        start_experiment(kept.experiments, MODES)
    with pytest.raises(InvalidInput, match="already been stopped"):
        stop_experiment(kept.experiments, "modes")
    other = start_experiment(kept.experiments, Experiment(name="other", variants=MODES.variants, metric="errors"))
    assert find_experiment(kept.experiments).name == find_experiment(kept.experiments, "other").name == other.name


def test_the_database_itself_refuses_two_that_run(kept: Kept) -> None:
    start_experiment(kept.experiments, MODES)
    with pytest.raises(sqlite3.IntegrityError), sqlite3.connect(kept.path) as connection:
        connection.execute("INSERT INTO experiments (name, plan, started) VALUES ('second', '{}', 1)")


def test_an_experiment_that_is_not_there_is_named_with_those_that_are(kept: Kept) -> None:
    with pytest.raises(InvalidInput, match="No experiment has been started"):
        find_experiment(kept.experiments)
    start_experiment(kept.experiments, MODES)
    with pytest.raises(InvalidInput, match="Known experiments: modes"):
        find_experiment(kept.experiments, "moods")
