"""Tallies of a single caller, computed again from its events: the stored tallies add up all callers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast, get_args

from shortlist.models import Level, ToolId
from shortlist.storage.port import (
    HOUR,
    Cell,
    EventPlace,
    EventQuery,
    EventStore,
    StoredEvent,
    Sums,
    TallyName,
    ToolPair,
)
from shortlist.telemetry.events import (
    Called,
    CallerEvent,
    CallOutcome,
    CircleBroken,
    Described,
    ProgramEnded,
    ProgramOutcome,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    ToolsListed,
    ToolsLoaded,
    ToolsUnloaded,
)
from shortlist.telemetry.ledger import Trail
from shortlist.telemetry.measures import Attribution, FoundTool

MOST_EVENTS = 50_000
"""The latest events of a caller; reading and adding up so many takes about a second."""


class CallerTallies:
    """A TallyStore of one caller from a second on; kept by the hour, also those of tools."""

    def __init__(self, events: EventStore, caller: str, since: float) -> None:
        self._events = events
        self._query = EventQuery(caller=caller, since=since, latest=True, limit=MOST_EVENTS)

    def sums(self, since: float | None = None, names: Sequence[TallyName] = ()) -> Sums:
        """Add up tallies since the beginning of an hour, all or some by name."""
        return _added((0, name, key, value) for _, name, key, value in self._chosen(since, names)).get(0, {})

    def series(self, names: Sequence[TallyName], since: float | None = None, hours: int = 1) -> dict[int, Sums]:
        """Add up tallies per interval of `hours`, each under its first hour since 1970."""
        chosen = self._chosen(since, names)
        parts = _added((hour // hours * hours, name, key, value) for hour, name, key, value in chosen)
        return dict(sorted(parts.items()))

    def pairs(self, least: int = 2, most: int = 10_000) -> list[ToolPair]:  # noqa: ARG002
        """Return nothing: a pattern of use is one of several callers."""
        return []

    def _chosen(self, since: float | None, names: Sequence[TallyName]) -> Iterator[Cell]:
        first, wanted = int((since or 0) // HOUR), frozenset(names or get_args(TallyName))
        return (cell for cell in self._cells if cell[0] >= first and cell[1] in wanted)

    @cached_property
    def _cells(self) -> Sequence[Cell]:
        return tuple(_tallied(reversed(list(self._events.events(self._query)))))


def _added(cells: Iterable[Cell]) -> dict[int, Sums]:
    found: defaultdict[int, Sums] = defaultdict(dict)
    for hour, name, key, value in cells:
        found[hour][name, key] = found[hour].get((name, key), 0.0) + value
    return found


def _tallied(events: Iterable[StoredEvent]) -> Iterator[Cell]:
    """Yield what each event adds, in the order in which they happened."""
    hours: dict[int, int] = {}
    picked: defaultdict[int, set[ToolId]] = defaultdict(set)
    trails: defaultdict[str, Trail] = defaultdict(Trail)
    for stored in events:
        if stored.kind not in RESTORED:
            continue
        event = RESTORED[stored.kind](stored, {"caller": stored.caller or "", "workspace": stored.workspace or ""})
        hour = hours[stored.id] = int(stored.at / 1000 // HOUR)
        if isinstance(event, ToolsListed):
            event = trails[event.workspace].grown(event)
        for name, key, value, earlier in event.tallies(_attribution(stored, hours, picked)):
            if value:
                yield hour if earlier is None else earlier, name, key, value


def _attribution(stored: StoredEvent, hours: Mapping[int, int], picked: defaultdict[int, set[ToolId]]) -> Attribution:
    """Return what is known of an event from those before it; what it adds to an older search goes to hour 0."""
    if stored.search is None:
        return Attribution(fresh=stored.miss == "unfound")
    tools, tool = picked[stored.search], stored.subject or ""
    fresh, first = tool not in tools, not tools
    if stored.kind == Called.kind:
        tools.add(tool)
    place, hour = EventPlace(stored.search), hours.get(stored.search, 0)
    return Attribution(place, hour, stored.rank, fresh=fresh, first_pick=first)


def _searched(stored: StoredEvent, who: Mapping[str, Any]) -> Searched:
    hits = stored.data.get("hits", ())
    return Searched(
        **who,
        query="",
        hits=tuple(FoundTool(tool=hit["tool"], rank=hit["rank"], score=hit["score"]) for hit in hits),
        confidence=cast("Level", stored.outcome),
        probability=0.0,
        tokens=stored.tokens or 0,
        steps=stored.data.get("steps", {}),
    )


def _called(stored: StoredEvent, who: Mapping[str, Any]) -> Called:
    return Called(
        **who,
        tool=stored.subject or "",
        outcome=cast("CallOutcome", stored.outcome),
        milliseconds=stored.milliseconds or 0.0,
        native=bool(stored.data.get("native")),
        tokens=stored.tokens or 0,
    )


RESTORED: Mapping[str, Callable[[StoredEvent, Mapping[str, Any]], CallerEvent]] = {
    SessionOpened.kind: lambda e, who: SessionOpened(
        **who, mode=e.outcome or "", tools=e.data.get("tools", 0), tokens=e.tokens or 0
    ),
    ToolsListed.kind: lambda e, who: ToolsListed(
        **who, tools=e.data.get("tools", 0), tokens=e.tokens or 0, upfront=e.data.get("upfront", 0)
    ),
    Searched.kind: _searched,
    CircleBroken.kind: lambda e, who: CircleBroken(**who, query="", tokens=e.tokens or 0),
    Described.kind: lambda e, who: Described(**who, tools=(), tokens=e.tokens or 0),
    ToolsetsListed.kind: lambda e, who: ToolsetsListed(**who, tokens=e.tokens or 0),
    SuggestionGiven.kind: lambda e, who: SuggestionGiven(**who, toolset=e.subject or ""),
    Called.kind: _called,
    ProgramEnded.kind: lambda e, who: ProgramEnded(
        **who,
        program="",
        source="",
        outcome=cast("ProgramOutcome", e.outcome),
        milliseconds=e.milliseconds or 0.0,
        tokens=e.tokens or 0,
    ),
    ToolsLoaded.kind: lambda e, who: ToolsLoaded(
        **who, toolset=e.subject or "", tools=(), milliseconds=e.milliseconds or 0.0, tokens=e.tokens or 0
    ),
    ToolsUnloaded.kind: lambda e, who: ToolsUnloaded(**who, toolset=e.subject or "", tools=()),
    TaskReported.kind: lambda e, who: TaskReported(**who, completed=e.outcome == "completed"),
}
"""Makes the event of a stored one again, with all that its tallies need."""
