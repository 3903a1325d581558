"""The store: what comes back, and the shapes that people rely on."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from shortlist.errors import StoreError
from shortlist.models import Signal
from shortlist.storage.port import EventQuery, StoredEvent
from shortlist.storage.sqlite import SqliteFile, migrations
from shortlist.storage.sqlite_events import SqliteEvents
from shortlist.telemetry.events import (
    CallerEvent,
    CatalogChanged,
    Described,
    Event,
    Exposed,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsListed,
    ToolsLoaded,
    ToolsUnloaded,
    UpstreamChanged,
)
from shortlist.telemetry.ledger import UsedTogether
from shortlist.telemetry.measures import FoundTool
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import NOON, act, batch_of, call, events_in, kept, search

WHOLE = Searched(
    **act(),
    query="create an issue",
    hits=(
        FoundTool(
            tool="github/create_issue",
            rank=1,
            score=5.25,
            signals={"lexical": Signal(12.5, 1), "dense": Signal(0.75, 3)},
            family=("gitlab/create_issue",),
        ),
    ),
    confidence="medium",
    probability=0.625,
    tokens=210,
    limit=1,
    filters={"servers": ["github"]},
    steps={"lexical": 0.5, "dense": 1.5},
)


def only(store: SqliteEvents, **query: Any) -> StoredEvent:
    (event,) = store.events(EventQuery(**query))
    return event


def test_a_search_is_kept_with_all_that_it_is_judged_by(tmp_path: Path) -> None:
    event = only(kept(tmp_path, WHOLE))
    assert (event.kind, event.subject, event.outcome, event.at) == (
        "searched",
        "create an issue",
        "medium",
        NOON * 1000,
    )
    assert (event.milliseconds, event.tokens) == (2.0, 210)
    assert event.data == {
        "hits": [
            {
                "tool": "github/create_issue",
                "rank": 1,
                "score": 5.25,
                "signals": {"lexical": [12.5, 1], "dense": [0.75, 3]},
                "family": ["gitlab/create_issue"],
            }
        ],
        "probability": 0.625,
        "limit": 1,
        "mode": "hybrid",
        "steps": {"lexical": 0.5, "dense": 1.5},
        "filters": {"servers": ["github"]},
    }


def test_a_call_is_kept_with_the_search_it_belongs_to(tmp_path: Path) -> None:
    store = kept(tmp_path, WHOLE, call("gitlab/create_issue", "error", milliseconds=12.5, size=99))
    found = list(store.events())[1]
    assert (found.subject, found.outcome, found.search, found.rank) == ("gitlab/create_issue", "error", 1, 1)
    assert (found.milliseconds, found.data) == (12.5, {"size": 99})


EVERY: tuple[Event, ...] = (
    SessionOpened(**act(), mode="dynamic", tools=8),
    ToolsListed(**act(), tools=8, tokens=500, upfront=9_000),
    WHOLE,
    Described(**act(), tools=("github/create_issue",), tokens=90),
    SuggestionGiven(**act(), toolset="github"),
    ToolsLoaded(**act(), toolset="github", tools=("github/create_issue", "github/close_issue"), milliseconds=3.0),
    call("github/create_issue", native=True),
    call("jira/create", workspace="w"),
    ToolsLoaded(**act(), toolset="", tools=("slack/post",), milliseconds=1.0),
    ToolsUnloaded(**act(), toolset="github", tools=("github/create_issue", "github/close_issue")),
    Exposed(**act(), experiment="modes", variant="dynamic"),
    TaskReported(**act(), completed=True, task="file a bug"),
    UpstreamChanged(server="github", up=False, state="failed"),
    CatalogChanged(server="github", tools=2, fingerprint="f", upfront=9_000),
)


def test_every_event_is_one_line_of_an_export(tmp_path: Path) -> None:
    store = kept(tmp_path, *EVERY)
    lines = [event.json() for event in store.events()]
    assert [line["kind"] for line in lines] == [event.kind for event in EVERY]
    assert all(line["workspace"] for line, event in zip(lines, EVERY, strict=True) if isinstance(event, CallerEvent))


def rows(store: SqliteEvents, view: str) -> list[dict[str, Any]]:
    """Ask as anybody would who has only the file."""
    connection = sqlite3.connect(store.database.path)
    connection.row_factory = sqlite3.Row
    found = [dict(row) for row in connection.execute(f"SELECT * FROM {view}")]
    connection.close()
    return found


def test_views_have_the_shape_that_people_ask_in(tmp_path: Path) -> None:
    store = kept(tmp_path, *EVERY)
    (session,) = rows(store, "ab_test_sessions")
    who = session["id"]
    assert session == {
        "id": who,
        "mode": "dynamic",
        "initial_tool_count": 8,
        "final_tool_count": 8 + 2 + 1 - 2,
        "toolsets_loaded": '["github"]',
        "total_tool_calls": 2,
        "total_load_events": 2,
    }
    assert rows(store, "ab_tool_events") == [
        {"session_id": who, "event_type": "discovery_suggestion", "toolset_name": "github", "latency_ms": None},
        {"session_id": who, "event_type": "load", "toolset_name": "github", "latency_ms": 3.0},
        {"session_id": who, "event_type": "miss", "toolset_name": "jira", "latency_ms": 1.0},
        {"session_id": who, "event_type": "load", "toolset_name": "", "latency_ms": 1.0},
        {"session_id": who, "event_type": "unload", "toolset_name": "github", "latency_ms": None},
    ]
    assert rows(store, "tool_call_log") == [
        {"session_id": who, "tool": "github/create_issue", "result_status": "ok"},
        {"session_id": who, "tool": "jira/create", "result_status": "ok"},
    ]


def test_a_workspace_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    store = kept(tmp_path, *EVERY)
    store.append(batch_of([SessionOpened(**act(), mode="search", tools=4), call("a/b")]))
    (session,) = rows(store, "ab_test_sessions")
    assert (session["mode"], session["initial_tool_count"], session["final_tool_count"]) == ("search", 4, 4)
    assert (session["total_tool_calls"], session["toolsets_loaded"]) == (3, '["github"]')


@pytest.mark.parametrize(
    ("query", "subjects"),
    [
        (EventQuery(kinds=("called",)), ["s/a", "t/b", "s/a"]),
        (EventQuery(subject="s/a", kinds=("called",)), ["s/a", "s/a"]),
        (EventQuery(missed=True), ["t/b"]),
        (EventQuery(latest=True, limit=2), ["s/a", "t/b"]),
        (EventQuery(after=2), ["t/b", "s/a"]),
        (EventQuery(since=NOON + 2), ["t/b", "s/a"]),
    ],
)
def test_events_are_found_by_what_they_are(query: EventQuery, subjects: list[str], tmp_path: Path) -> None:
    store = kept(tmp_path, search("q", "s/a"), call("s/a"), call("t/b"), call("s/a"))
    assert [event.subject for event in store.events(query)] == subjects


def test_without_a_file_it_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Nothing has been recorded yet.*shortlist serve"):
        list(events_in(tmp_path / "events.sqlite").events())


def test_a_file_of_an_earlier_version_is_brought_up_to_date_by_whoever_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(migrations()[0])
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = events_in(path)
    assert list(store.events()) == []
    assert store.database.query("PRAGMA user_version") == [(len(migrations()),)]


def test_many_may_make_the_file_at_once(tmp_path: Path) -> None:
    path, failures = tmp_path / "events.sqlite", []

    def make() -> None:
        try:
            SqliteFile(path, write=True).close()
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    kept(tmp_path, call("s/a")).database.close()
    reader = SqliteFile(tmp_path / "events.sqlite")
    with pytest.raises(StoreError, match="readonly"), reader.transaction() as connection:
        connection.execute("DELETE FROM events")
    reader.close()


def test_tools_that_two_workspaces_called_together_are_used_together(tmp_path: Path) -> None:
    calls = [call(tool, workspace=who) for who in ("one", "two") for tool in ("s/a", "s/b")]
    store = kept(tmp_path, *calls, call("s/c", workspace="two"))
    together = UsedTogether.of(store.pairs())
    assert (together("s/a"), together("s/b"), together("s/c")) == (frozenset({"s/b"}), frozenset({"s/a"}), frozenset())


def test_hours_and_days_are_given_one_by_one(tmp_path: Path) -> None:
    hour = int(NOON // 3_600)
    store = kept(tmp_path, search("q", "s/a"), at=NOON - 10)
    store.append(batch_of([search("q", "s/a"), search("r", "s/b")], Privacy(), NOON + 10))
    series = store.series(("searches", "tool_shown"))
    assert series[hour - 1]["searches", ""] == 1
    assert series[hour]["searches", ""] == 2
    assert series[hour // 24 * 24]["tool_shown", "s/a"] == 2


def test_hours_are_added_up_to_parts(tmp_path: Path) -> None:
    hour = int(NOON // 3_600)
    store = kept(tmp_path, search("q", "s/a"), at=NOON - 10)
    store.append(batch_of([search("q", "s/a"), search("r", "s/b")], Privacy(), NOON + 10))
    series = store.series(("searches", "milliseconds", "tool_shown"), hours=24)
    whole = store.sums(names=("searches", "milliseconds", "tool_shown"))
    assert series == {hour // 24 * 24: whole}
