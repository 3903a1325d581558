"""Every state file × every damage: a gateway starts, serves, reports it, and never overwrites what it cannot read."""

import json
import logging
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from shortlist.catalog.readers import tool_from_mcp
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.engine import Known, make_searcher, open_model
from shortlist.cli.recording import open_telemetry
from shortlist.cli.teaching import Teacher
from shortlist.config.settings import SearchSettings, ServerSettings, Settings, StdioTransport, TelemetrySettings
from shortlist.errors import InvalidInput, StoreError
from shortlist.index.cache import StoredVectors
from shortlist.index.index import Index
from shortlist.models import Server
from shortlist.storage.local import open_local
from shortlist.storage.port import StoredVector
from shortlist.storage.sqlite_vectors import SqliteVectors
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Experiment, Variant, start_experiment
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, found
from tests.telemetry.happenings import batch_of, call, search

SKY = ServerSettings(name="sky", transport=StdioTransport(command="sky"))
TOOL = tool_from_mcp({"name": "forecast", "inputSchema": {"type": "object"}}, "sky")
PLAN = Experiment(name="modes", variants=(AS_CONFIGURED, Variant(mode="dynamic")), metric="errors")
Damage = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Home:
    """A data folder and a cache folder of one user."""

    data: Path
    cache: Path

    def file(self, kind: str) -> Path:
        return {
            "events": self.data / "events.sqlite",
            "key": self.data / "hash.key",
            "catalog": next(
                (path for path in (self.data / "catalog").glob("*.json") if not path.stem.endswith("-offers")),
                self.data / "catalog" / "none.json",
            ),
            "vectors": self.cache / "vectors.sqlite",
        }[kind]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home in which a gateway has served before."""
    for kind in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    use()
    return Home(tmp_path / "data" / "shortlist", tmp_path / "cache" / "shortlist")


def use() -> None:
    """Do with the state what a gateway does: start, serve, learn, follow experiments, report, save, embed, stop."""
    storage = open_local()
    saved = SavedCatalog(storage.catalogs, {"sky": SKY})
    loaded = saved.load()
    with open_telemetry(TelemetrySettings(), storage) as telemetry:
        telemetry.follow()
        assert telemetry.experiment is not None
        telemetry.record(search("the weather", "sky/forecast"))
        telemetry.record(call("sky/forecast"))
        Teacher(storage.exemplars).refresh(Settings())
        for report in telemetry.reports.values():
            with suppress(StoreError, InvalidInput):  # said to the caller who asked
                report({}, None)
    assert tuple(loaded.tools.values()) in ((), (TOOL,))
    saved.save(Server(name="sky"), (TOOL,))
    Index.build(catalog(WORKPLACE)).embedded(HashingEmbedder(), cache=StoredVectors(storage.vectors))
    storage.close()


def missing(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def empty(path: Path) -> None:
    missing(path)
    path.touch()


def truncated(path: Path) -> None:
    content = path.read_bytes()
    missing(path)
    path.write_bytes(content[: len(content) // 2])


def garbage(path: Path) -> None:
    missing(path)
    path.write_bytes(bytes(range(256)) * 32)


def unreadable(path: Path) -> None:
    """Make a file that not even root can read: a symbolic link to itself."""
    missing(path)
    path.symlink_to(path.name)


def directory(path: Path) -> None:
    missing(path)
    path.mkdir()
    (path / "something").write_text("of the user's")


def sql(statements: str) -> Damage:
    def damage(path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.executescript(statements)
        connection.close()

    return damage


def replaced_by(statements: str) -> Damage:
    def damage(path: Path) -> None:
        missing(path)
        sql(statements)(path)

    return damage


def document(**changes: object) -> Damage:
    def damage(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


def tool(**changes: object) -> Damage:
    def damage(path: Path) -> None:
        saved = json.loads(path.read_text())
        saved["tools"][0] = {**saved["tools"][0], **changes}
        path.write_text(json.dumps(saved))

    return damage


def content(text: str) -> Damage:
    return lambda path: (path.write_text(text), None)[1]


def plan(**changes: object) -> Damage:
    def damage(path: Path) -> None:
        start_experiment(open_local(path.parent).experiments, PLAN)
        text = json.dumps({**PLAN.data(), **changes}).replace("'", "''")
        sql(f"UPDATE experiments SET plan = '{text}'")(path)

    return damage


ANY: Mapping[str, Damage] = {
    "missing": missing,
    "empty": empty,
    "truncated": truncated,
    "garbage": garbage,
    "unreadable": unreadable,
    "directory": directory,
}
OWN: Mapping[str, Mapping[str, Damage]] = {
    "events": {
        "wrong tables": replaced_by("CREATE TABLE other (thing); PRAGMA user_version = 3"),
        "newer version": sql("PRAGMA user_version = 999"),
        "damaged event": sql("UPDATE events SET data = 'no JSON'"),
        "damaged times": sql("UPDATE times SET buckets = '[1'"),
        "damaged note": sql("INSERT OR REPLACE INTO notes VALUES ('purged before', 'yesterday')"),
        "plan with an unknown field": plan(colour="red"),
        "plan of a wrong type": plan(variants="two"),
        "plan with an unknown setting": plan(variants=[{}, {"colour": "red"}]),
        "plan with an unknown mode": plan(variants=[{}, {"mode": "psychic"}]),
        "plan with an unknown metric": plan(metric="joy"),
        "plan with one variant": plan(variants=[{}]),
        "plan with a wrong start": plan(started="noon"),
    },
    "key": {"too short": lambda path: (path.write_bytes(b"short"), None)[1]},
    "catalog": {
        "list": content("[]"),
        "number": content("7"),
        "deep": content("[" * 100_000),
        "no tools": content('{"format": 1}'),
        "newer version": document(format=9),
        "unknown field": tool(colour="red"),
        "wrong type": tool(description=7),
        "wrong tags": tool(tags=[1, 2]),
        "wrong annotations": tool(annotations=[]),
        "other server": document(server={"name": "sea", "categories": [], "tags": []}),
    },
    "vectors": {
        "wrong tables": replaced_by("CREATE TABLE vectors (other); PRAGMA user_version = 1"),
        "newer version": sql("PRAGMA user_version = 999"),
        "wrong size": sql("UPDATE vectors SET codes = x'01'"),
        "wrong type": sql("UPDATE vectors SET scale = 'big', codes = 7"),
        "not a number": sql("UPDATE vectors SET scale = 1e999"),
    },
}
CASES = [
    pytest.param(kind, damage, id=f"{kind}: {name}")
    for kind, own in OWN.items()
    for name, damage in {**ANY, **own}.items()
]
UNNOTICED = {"missing", "empty", "damaged event", "damaged note", "wrong size", "wrong type", "not a number"}
"""What needs no report: nothing is there to be lost, or it is computed again."""


def snapshot(path: Path) -> bytes | str:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else "folder" if path.is_dir() else ""


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_a_damaged_file_ends_nothing_is_reported_and_is_not_overwritten(
    kind: str, damage: Damage, home: Home, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    path = home.file(kind)
    damage(path)
    before = snapshot(path)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        use()
        use()
    name = request.node.callspec.id.partition(": ")[2]
    if name not in UNNOTICED or (kind, name) in {("key", "empty"), ("catalog", "empty"), ("catalog", "wrong type")}:
        assert caplog.records, "nobody was told"
    if name in ("garbage", "unreadable", "directory", "newer version", "truncated", "too short"):
        aside = path.with_suffix(".damaged")
        assert before in (snapshot(path), snapshot(aside)) or _is_same_database(path, before)


def _is_same_database(path: Path, before: bytes | str) -> bool:
    """Return whether only SQLite's own header changed, which it does when a file is opened."""
    now = snapshot(path)
    return isinstance(now, bytes) and isinstance(before, bytes) and now[100:] == before[100:] != b""


@pytest.mark.parametrize("folder", ["DATA", "CACHE"])
@pytest.mark.parametrize("damage", [unreadable, empty], ids=["unreadable", "a file in its place"])
def test_a_folder_that_cannot_be_used_ends_nothing(
    folder: str, damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    damage(tmp_path / folder.lower())
    use()
    assert caplog.records


def test_tools_are_found_while_the_vectors_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    settings = SearchSettings(embedder="static", saved_index=False)
    known = Known(vectors=SqliteVectors(tmp_path / "cache" / "vectors.sqlite"))
    searcher = make_searcher(catalog(WORKPLACE), settings, open_model(settings), known)
    assert found(searcher, "create a calendar event")


def test_vectors_are_read_from_a_file_that_cannot_be_written(home: Home) -> None:
    kept = SqliteVectors(home.file("vectors"))
    kept.put({b"key": StoredVector(1.0, b"codes")})
    before = snapshot(home.file("vectors"))
    assert SqliteVectors(home.file("vectors")).get([b"key"]) == {b"key": StoredVector(1.0, b"codes")}
    assert snapshot(home.file("vectors")) == before, "opening it writes nothing"


def test_a_gateway_that_started_with_an_unset_clock_keeps_its_retention(home: Home) -> None:
    """An earlier release noted a purge in 1970, after which nothing was ever deleted."""
    storage, noon = open_local(), 1_800_000_000.0
    sql("INSERT OR REPLACE INTO notes VALUES ('purged before', '-2592000.0')")(home.file("events"))
    storage.events.append(batch_of([call("s/old")], at=noon - 40 * 86_400))
    storage.events.append(batch_of([call("s/new")], at=noon))
    storage.events.purge(noon - 30 * 86_400, 1_000)
    assert "s/old" not in {event.subject for event in storage.events.events()}
