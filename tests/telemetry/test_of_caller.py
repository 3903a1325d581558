"""Figures of one caller: what they would be if nobody else had done anything."""

from dataclasses import replace
from pathlib import Path

from shortlist.storage.port import EventQuery
from shortlist.telemetry.events import EVENTS, CallerEvent, Event, Exposed, ProgramEnded, ToolsUnloaded
from shortlist.telemetry.figures import stats_of
from shortlist.telemetry.of_caller import RESTORED, CallerTallies
from tests.telemetry.happenings import NOON, act, call, kept, search
from tests.telemetry.test_figures import ONE, TWO

MORE: tuple[Event, ...] = (
    ProgramEnded(**act(), program="p", source="1", outcome="ok", milliseconds=5.0, tokens=7),
    ToolsUnloaded(**act(), toolset="w", tools=("w/f",)),
    search("create an issue", "a/x", steps={"lexical": 2.0, "dense": 6.0}),
    call("a/x", milliseconds=20.0),
)
OWN = tuple(event for event in (*ONE, *TWO, *MORE) if isinstance(event, CallerEvent))


def test_they_are_those_of_a_store_that_has_nothing_else(tmp_path: Path) -> None:
    others = [replace(event, caller="bob", workspace=f"bob {event.workspace}") for event in OWN]
    mixed = [event for pair in zip(OWN, others, strict=True) for event in pair]
    for folder in ("alone", "mixed"):
        (tmp_path / folder).mkdir()
    alone, together = kept(tmp_path / "alone", *OWN), kept(tmp_path / "mixed", *mixed)
    found = CallerTallies(together, "local", NOON)
    assert stats_of(found.sums(NOON)) == stats_of(alone.sums(NOON))
    assert found.series(("calls", "tokens"), NOON, 6) == alone.series(("calls", "tokens"), NOON, 6)
    assert stats_of(together.sums(NOON)) != stats_of(alone.sums(NOON))


def test_what_came_before_the_time_range_adds_nothing(tmp_path: Path) -> None:
    store = kept(tmp_path, search("create an issue", "a/x"), call("a/x"))
    (found, called) = store.events(EventQuery())
    later = CallerTallies(store, "local", called.at / 1000)
    assert found.id == called.search
    sums = later.sums(NOON)
    assert (sums["calls", "ok"], sums.get(("searches", "")), sums.get(("searches_picked", ""))) == (1, None, None)


def test_every_event_of_a_caller_that_adds_to_figures_is_known() -> None:
    kinds = {kind.kind for kind in EVENTS if issubclass(kind, CallerEvent) and kind is not Exposed}
    assert kinds == RESTORED.keys()
