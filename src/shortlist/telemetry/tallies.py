"""What an event adds to the sums that every figure is computed from: once, when it is written."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from shortlist.telemetry.attribution import Attribution
from shortlist.telemetry.events import (
    Called,
    CircleBroken,
    Described,
    Event,
    EventsLost,
    Listed,
    Loaded,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    Unloaded,
    count,
)

Name: TypeAlias = Literal[
    "sessions",  # by mode
    "searches",
    "searches_picked",  # at least one of its hits was called
    "searches_rephrased",  # the next search asks for the same, and nothing was called in between
    "searches_empty",  # no hit
    "searches_abstained",  # confidence none
    "circles",
    "calls",  # by outcome
    "found_at",  # first calls of tools that a search returned, by rank
    "unfound",  # first calls, through call_tool, of tools that no search returned
    "tokens",  # shown, by what showed them
    "upfront",  # tokens that listing everything would have cost
    "milliseconds",  # by step and bucket: "lexical 12"
    "loads",
    "unloads",
    "suggestions",
    "tasks",  # by completed or not
    "lost",  # by reason
    "tool_shown",  # the rest by tool
    "tool_called",
    "tool_failed",  # ended in error or without an answer
    "tool_refused",  # arguments that do not fit
    "tool_found",
    "tool_reciprocal",  # sum of 1/rank over tool_found
    "tool_unfound",
    "tool_milliseconds",
    "together",  # by two tools, in order: workspaces that called both
]

Sums: TypeAlias = dict[tuple[str, str], float]
"""Tallies added up, by name and key."""

HOUR = 3_600
STEP = math.log(1.1)
"""Milliseconds are counted in buckets a tenth wide, so that a percentile is right within 5 %."""
SHORTEST = 0.001


class Tally(NamedTuple):
    """So much more of something; in the event's own hour, or in that of the search it belongs to."""

    name: Name
    key: str = ""
    value: float = 1.0
    hour: int | None = None


def bucket(milliseconds: float) -> int:
    """Give the bucket that a time is counted in."""
    return math.floor(math.log(max(milliseconds, SHORTEST)) / STEP)


def middle(bucket: int) -> float:
    """Give the time that stands for all in a bucket."""
    return math.exp((bucket + 0.5) * STEP)


def tallies_of(event: Event, known: Attribution) -> Iterator[Tally]:
    """Say what an event adds, given what is known of it from what went before."""
    rule = _RULES.get(type(event))
    return iter(rule(event, known)) if rule else iter(())


class Pair(NamedTuple):
    """Two tools that so many workspaces have called both."""

    one: str
    other: str
    workspaces: int


def pair(one: str, other: str) -> str:
    """Name two tools, whichever was called first."""
    return "\n".join(sorted((one, other)))


def unpair(key: str) -> tuple[str, str]:
    one, _, other = key.partition("\n")
    return one, other


def _searched(event: Searched, known: Attribution) -> Iterator[Tally]:
    yield Tally("searches")
    if not event.hits:
        yield Tally("searches_empty")
    if event.confidence == "none":
        yield Tally("searches_abstained")
    if known.search is not None:
        yield Tally("searches_rephrased", hour=known.search.hour)
    yield Tally("tokens", "search", count(event.tokens))
    yield _time("search", event.milliseconds)
    for step, milliseconds in event.steps.items():
        yield _time(f"search/{step}", milliseconds)
    for hit in event.hits:
        yield Tally("tool_shown", hit.tool)


def _called(event: Called, known: Attribution) -> Iterator[Tally]:
    yield Tally("calls", event.outcome)
    yield Tally("tokens", "refusal", count(event.tokens))
    if event.outcome == "unknown":
        return
    yield Tally("tool_called", event.tool)
    yield from _found(event, known)
    if event.outcome in ("error", "failed"):
        yield Tally("tool_failed", event.tool)
    if event.outcome == "invalid_arguments":
        yield Tally("tool_refused", event.tool)
    else:
        yield _time("call", event.milliseconds)
        yield Tally("tool_milliseconds", event.tool, event.milliseconds)
    for other in known.together:
        yield Tally("together", pair(event.tool, other))


def _found(event: Called, known: Attribution) -> Iterator[Tally]:
    if not known.fresh:
        return
    if known.search is not None and known.rank is not None:
        if len(known.search.picked) == 1:
            yield Tally("searches_picked", hour=known.search.hour)
        yield Tally("found_at", str(known.rank))
        yield Tally("tool_found", event.tool)
        yield Tally("tool_reciprocal", event.tool, 1 / known.rank)
    elif not event.native:
        yield Tally("unfound")
        yield Tally("tool_unfound", event.tool)


def _loaded(event: Loaded, _: Attribution) -> Iterator[Tally]:
    yield Tally("loads")
    yield Tally("tokens", "load", count(event.tokens))
    yield _time("load", event.milliseconds)


def _opened(event: SessionOpened, _: Attribution) -> Iterator[Tally]:
    yield Tally("sessions", event.mode)
    yield Tally("tokens", "instructions", count(event.tokens))


def _circle(event: CircleBroken, _: Attribution) -> Iterator[Tally]:
    yield Tally("circles")
    yield Tally("tokens", "search", count(event.tokens))


def _time(step: str, milliseconds: float) -> Tally:
    return Tally("milliseconds", f"{step} {bucket(milliseconds)}")


_RULES: Mapping[type, Callable[[Any, Attribution], Iterable[Tally]]] = {
    SessionOpened: _opened,
    Listed: lambda e, _: (Tally("tokens", "list", count(e.tokens)), Tally("upfront", "", count(e.upfront))),
    Searched: _searched,
    CircleBroken: _circle,
    Described: lambda e, _: (Tally("tokens", "describe", count(e.tokens)),),
    ToolsetsListed: lambda e, _: (Tally("tokens", "toolsets", count(e.tokens)),),
    SuggestionGiven: lambda _, __: (Tally("suggestions"),),
    Called: _called,
    Loaded: _loaded,
    Unloaded: lambda _, __: (Tally("unloads"),),
    TaskReported: lambda e, _: (Tally("tasks", "completed" if e.completed else "abandoned"),),
    EventsLost: lambda e, _: (Tally("lost", e.reason, e.count),),
}
