"""A configuration and a data folder of release 0.1.0, made by its own code, open unchanged."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from shortlist.catalog.saved import SavedCatalog
from shortlist.config.load import load_settings
from shortlist.config.settings import hash_token
from shortlist.index.cache import StoredVectors
from shortlist.storage.local import open_local
from shortlist.storage.port import EventQuery, Storage, WorkspaceOutcome
from shortlist.storage.sqlite_vectors import SqliteVectors
from shortlist.telemetry.experiments.plan import Variant, running_experiment, stop_experiment
from shortlist.telemetry.experiments.report import build_report
from shortlist.telemetry.figures import stats
from shortlist.telemetry.redaction import Privacy, hash_key

RELEASE = Path(__file__).parent / "data" / "release_0_1_0"


def restore(script: str, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((RELEASE / script).read_text("utf-8"))
    connection.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(RELEASE, tmp_path, dirs_exist_ok=True)
    restore("events.sql", tmp_path / "events.sqlite")
    restore("vectors.sql", tmp_path / "vectors.sqlite")
    return tmp_path


@pytest.fixture
def storage(data: Path) -> Storage:
    return open_local(data)


def test_its_events_and_figures_are_read(storage: Storage) -> None:
    assert len(list(storage.events.events())) == 20
    figures = stats(storage.tallies).figures
    assert (figures["searches"], figures["calls"], figures["error_rate"], figures["top_1"]) == (4, 4, 0.25, 1.0)


def test_its_running_experiment_goes_on(storage: Storage) -> None:
    running = running_experiment(storage.experiments)
    assert running is not None
    assert running.variants == (Variant(), Variant(mode="dynamic", limit=10))
    outcomes = storage.experiments.outcomes("modes")
    assert outcomes[0] == WorkspaceOutcome("as configured", tools=4, searches=1, calls=1, errors=1, tokens=680)
    assert build_report(running, outcomes).workspaces == {"as configured": 2, "mode=dynamic,limit=10": 2}
    stop_experiment(storage.experiments, "modes")
    assert running_experiment(storage.experiments) is None


def test_what_it_learned_is_known_and_not_learned_twice(storage: Storage) -> None:
    storage.exemplars.learn()
    learned = {(pair.caller, pair.query): (pair.successes, pair.errors) for pair in storage.exemplars.pairs()}
    assert learned == {("anna", "tell me the weather"): (2, 0), ("ben", "tell me the weather"): (1, 1)}


def test_its_workspaces_keep_their_names(storage: Storage, data: Path) -> None:
    name = Privacy(key=hash_key(data / "hash.key")).workspace("session:1")
    assert len(list(storage.events.events(EventQuery(workspace=name)))) == 5


def test_its_tokens_and_saved_tools_are_used(storage: Storage, data: Path) -> None:
    settings = load_settings(data / "servers.json")
    assert settings.tokens["anna"].hash == hash_token("anna-secret")
    assert (settings.tokens["ben"].servers, settings.tokens["ben"].group) == (("sky",), "sales")
    catalog = SavedCatalog(storage.catalogs, settings.servers).load()
    assert catalog.tools["sky/forecast"].description == "The weather of a city."


def test_its_vectors_are_used(data: Path) -> None:
    assert StoredVectors(SqliteVectors(data / "vectors.sqlite")).get("m@1", ["text"]).keys() == {"text"}
