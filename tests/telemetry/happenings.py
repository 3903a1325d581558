"""Short ways to write events, and to have them kept in a real store."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shortlist.models import Level
from shortlist.storage.port import Batch
from shortlist.storage.sqlite import Database
from shortlist.storage.sqlite_events import SqliteEvents
from shortlist.telemetry.events import Called, CallOutcome, Event, Searched
from shortlist.telemetry.figures import UsageStats, stats
from shortlist.telemetry.ledger import Ledger, Stamped
from shortlist.telemetry.measures import FoundTool
from shortlist.telemetry.redaction import Privacy

NOON = 1_800_000_000.0
"""The beginning of an hour and of no day."""


def events_in(path: Path) -> SqliteEvents:
    return SqliteEvents(Database(path))


def act(workspace: str = "w") -> dict[str, Any]:
    return {"caller": "local", "workspace": workspace}


def search(query: str, *tools: str, workspace: str = "w", confidence: Level = "high", **more: Any) -> Searched:
    hits = tuple(FoundTool(tool=tool, rank=rank, score=9.0 - rank) for rank, tool in enumerate(tools, 1))
    facts = {"hits": hits, "probability": 0.9, "tokens": 0, **more}
    return Searched(**act(workspace), query=query, confidence=confidence, **facts)


def call(tool: str, outcome: CallOutcome = "ok", *, workspace: str = "w", **more: Any) -> Called:
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


def kept(folder: Path, *events: Event, privacy: Privacy = Privacy(), at: float = NOON) -> SqliteEvents:  # noqa: B008
    """Store events as a recorder does, and return the store."""
    store = events_in(folder / "events.sqlite")
    store.append(batch_of(events, privacy, at))
    return store


def stats_after(folder: Path, *events: Event) -> UsageStats:
    return stats(kept(folder, *events))
