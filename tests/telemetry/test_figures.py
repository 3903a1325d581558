"""Every figure, computed by hand from a small list of events."""

from pathlib import Path

import pytest

import shortlist
from shortlist.telemetry.events import (
    CircleBroken,
    Described,
    Event,
    EventsLost,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    ToolsListed,
    ToolsLoaded,
)
from shortlist.telemetry.figures import FIGURES, stats
from tests.telemetry.happenings import NOON, act, call, kept, search, stats_after

ONE: tuple[Event, ...] = (
    SessionOpened(**act("one"), mode="search", tools=4, tokens=100),
    ToolsListed(**act("one"), tools=4, tokens=300, upfront=5_000),
    search("create an issue", "a/x", "a/y", "b/z", workspace="one", tokens=200),
    call("a/y", workspace="one"),  # found second
    call("a/y", "error", workspace="one"),  # again: says nothing about the search
    ToolsListed(**act("one"), tools=5, tokens=350, upfront=5_000),  # takes the place of the first list
    search("send mail", "c/m", workspace="one", tokens=100),
    call("c/m", workspace="one"),  # found first
    call("d/q", workspace="one"),  # no search returned it
    call("d/q", workspace="one"),
    call("e/n", workspace="one", native=True),  # was listed: no search was needed
    call("nope", "unknown", workspace="one", tokens=20),
)
TWO: tuple[Event, ...] = (
    SessionOpened(**act("two"), mode="dynamic", tools=8, tokens=110),
    ToolsListed(**act("two"), tools=8, tokens=400, upfront=5_000),
    search("weather in paris", workspace="two", confidence="none", tokens=30),
    search("forecast for paris", "w/1", "w/2", "w/3", "w/4", "w/5", "w/6", "w/f", workspace="two", tokens=40),
    call("w/f", "invalid_arguments", workspace="two", tokens=50),  # found seventh, and refused
    CircleBroken(**act("two"), query="forecast", tokens=10),
    Described(**act("two"), tools=("w/f",), tokens=60),
    ToolsetsListed(**act("two"), tokens=15),
    SuggestionGiven(**act("two"), toolset="w"),
    ToolsLoaded(**act("two"), toolset="w", tools=("w/f",), milliseconds=2.0, tokens=25),
    TaskReported(**act("two"), completed=True),
    TaskReported(**act("two"), completed=True),
    TaskReported(**act("two"), completed=False),
    EventsLost(count=3, reason="queue full"),
)
DISCOVERY = 100 + 200 + 100 + 20 + 110 + 30 + 40 + 50 + 10 + 60 + 15 + 25

BY_HAND: dict[str, float | None] = {
    "sessions": 2,
    "searches": 4,
    "calls": 7,  # a/y twice, c/m, d/q twice, e/n, w/f
    "recall_proxy": 3 / 4,  # a/y, c/m and w/f were found; d/q was not
    "unfound_calls": 1,
    "unknown_calls": 1,
    "rephrased": 1 / 4,  # "weather in paris"
    "uncalled": 1 / 4,  # the same
    "mrr": (1 / 2 + 1 / 1 + 1 / 7 + 0) / 4,
    "top_1": 1 / 4,
    "top_5": 2 / 4,
    "limit_for_recall": None,  # a quarter was not found at all
    "zero_results": 1 / 4,
    "abstentions": 1 / 4,
    "searches_per_call": 4 / 7,
    "loop_breaks": 1,
    "error_rate": 1 / 7,
    "invalid_arguments": 1 / 7,
    "tokens_upfront": 5_000 + 5_000,
    "tokens_listed": 350 + 400,
    "tokens_discovery": DISCOVERY,
    "tokens_saved": 10_000 - 750 - DISCOVERY,
    "saved_share": (10_000 - 750 - DISCOVERY) / 10_000,
    "loads": 1,
    "suggestions": 1,
    "task_completion": 2 / 3,
    "events_lost": 3,
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_what_it_is_by_hand(name: str, tmp_path: Path) -> None:
    found = stats_after(tmp_path, *ONE, *TWO).figures[name]
    assert found == (None if BY_HAND[name] is None else pytest.approx(BY_HAND[name]))


def test_without_events_shares_are_unknown_and_counts_are_nothing(tmp_path: Path) -> None:
    figures = stats_after(tmp_path).figures
    assert {name for name, value in figures.items() if value is None} == {
        *("recall_proxy", "rephrased", "uncalled", "mrr", "top_1", "top_5", "limit_for_recall", "zero_results"),
        *("abstentions", "searches_per_call", "error_rate", "invalid_arguments", "saved_share", "task_completion"),
    }
    assert not any(value for value in figures.values())


def test_the_limit_for_recall_is_the_rank_within_which_enough_tools_stood(tmp_path: Path) -> None:
    hits = [f"s/{rank}" for rank in range(1, 11)]
    events: list[Event] = []
    for number in range(20):  # nineteen of twenty, 95 %, stand third or better
        events += [search(f"task {number}", *hits), call("s/9" if number == 0 else "s/3")]
    assert stats_after(tmp_path, *events).figures["limit_for_recall"] == 3


def test_percentiles_are_right_within_five_percent(tmp_path: Path) -> None:
    times = [1.0] * 50 + [20.0] * 45 + [300.0] * 5
    latency = stats_after(tmp_path, *(call("s/t", milliseconds=time) for time in times)).latency["call"]
    assert latency == {
        "p50": pytest.approx(1.0, rel=0.05),
        "p95": pytest.approx(20, rel=0.05),
        "p99": pytest.approx(300, rel=0.05),
    }


def test_every_step_of_a_search_has_its_percentiles(tmp_path: Path) -> None:
    latency = stats_after(tmp_path, search("q", steps={"lexical": 2.0, "dense": 6.0})).latency
    assert latency["search/lexical"]["p50"] == pytest.approx(2.0, rel=0.05)
    assert latency["search/dense"]["p50"] == pytest.approx(6.0, rel=0.05)
    assert latency["search"]["p50"] == pytest.approx(8.0, rel=0.05)


def test_tools_and_servers_have_figures_of_their_own(tmp_path: Path) -> None:
    found = stats_after(
        tmp_path,
        search("q", "s/one", "s/two"),
        call("s/two", milliseconds=10),
        call("s/two", "error", milliseconds=30),
        call("s/two", "invalid_arguments"),
        search("r", "s/one"),
        call("t/three", "failed", milliseconds=5),
    )
    tools = {tool.name: tool for tool in found.tools}
    assert list(tools) == ["s/two", "t/three", "s/one"]
    two = tools["s/two"]
    assert (two.calls, two.shown, two.found, two.unfound, two.mrr) == (3, 1, 1, 0, 1 / 2)
    assert (two.error_rate, two.invalid_arguments, two.milliseconds) == (1 / 3, 1 / 3, 20)
    assert (tools["s/one"].shown, tools["s/one"].calls, tools["s/one"].error_rate) == (2, 0, None)
    servers = {server.name: server for server in found.servers}
    assert (servers["s"].calls, servers["s"].shown, servers["s"].error_rate) == (3, 3, 1 / 3)
    assert (servers["t"].error_rate, servers["t"].unfound, servers["t"].mrr) == (1.0, 1, 0.0)


def test_since_begins_with_its_hour(tmp_path: Path) -> None:
    store = kept(tmp_path, search("early", "s/t"), at=NOON - 10)
    store = kept(tmp_path, search("late", "s/t"), search("later", "s/t"), at=NOON + 10)
    assert stats(store, NOON + 3_599).figures["searches"] == 2
    assert stats(store).figures["searches"] == 3


def test_who_may_not_see_a_tool_sees_no_figures_of_it(tmp_path: Path) -> None:
    seen = stats_after(tmp_path, call("s/one"), call("t/two")).among(frozenset({"s/one"}))
    assert [tool.name for tool in seen.tools] == ["s/one"]
    assert [server.name for server in seen.servers] == ["s"]


def test_docs_and_code_define_every_figure_in_the_same_words() -> None:
    page = (Path(shortlist.__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")
    for name, figure in FIGURES.items():
        assert f"| `{name}` | {figure.meaning} |" in page
