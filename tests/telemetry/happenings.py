"""Short ways to write events, and to have them kept in a real store."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shortlist.models import Level
from shortlist.telemetry.events import Called, Event, FoundTool, Outcome, Searched
from shortlist.telemetry.figures import Stats, stats
from shortlist.telemetry.ledger import Batch, Ledger, Stamped
from shortlist.telemetry.redaction import Privacy
from shortlist.telemetry.store import SqliteEventStore

NOON = 1_800_000_000.0
"""The beginning of an hour and of no day."""


def act(workspace: str = "w") -> dict[str, Any]:
    return {"caller": "local", "workspace": workspace}


def search(query: str, *tools: str, workspace: str = "w", confidence: Level = "high", **more: Any) -> Searched:
    hits = tuple(FoundTool(tool=tool, rank=rank, score=9.0 - rank) for rank, tool in enumerate(tools, 1))
    facts = {"hits": hits, "probability": 0.9, "tokens": 0, **more}
    return Searched(**act(workspace), query=query, confidence=confidence, **facts)


def call(tool: str, outcome: Outcome = "ok", *, workspace: str = "w", **more: Any) -> Called:
    facts = {"milliseconds": 1.0, "native": False, **more}
    return Called(**act(workspace), tool=tool, outcome=outcome, **facts)


def stamped(events: Iterable[Event], at: float = NOON) -> list[Stamped]:
    """Let them happen a second after another."""
    return [Stamped(at + number, float(number), event) for number, event in enumerate(events)]


def batch_of(events: Iterable[Event], privacy: Privacy = Privacy(), at: float = NOON) -> Batch:  # noqa: B008
    ledger, batch = Ledger(privacy), Batch()
    for each in stamped(events, at):
        ledger.enter(batch, each)
    return batch


def kept(folder: Path, *events: Event, privacy: Privacy = Privacy(), at: float = NOON) -> SqliteEventStore:  # noqa: B008
    """Keep events as a recorder does, and give the store."""
    store = SqliteEventStore(folder / "events.sqlite", write=True)
    store.append(batch_of(events, privacy, at))
    return store


def stats_after(folder: Path, *events: Event) -> Stats:
    store = kept(folder, *events)
    try:
        return stats(store)
    finally:
        store.close()
