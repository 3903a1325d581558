"""Misses: searches that did not lead to a tool call, and calls that no search led to."""

from collections.abc import Mapping
from dataclasses import dataclass

from shortlist.storage.port import EventQuery, EventStore, StoredEvent
from shortlist.web.page import Page, Visit

LOOKED_AT = 1_000
"""The latest misses of all kinds."""
SHOWN = 60

KINDS: Mapping[str, str] = {
    "": "all",
    "unfound": "called, not found",
    "rephrased": "rephrased",
    "empty": "no results",
    "unknown": "unknown tool",
}


@dataclass(frozen=True, slots=True)
class Miss:
    """A missed event, and the search before it."""

    event: StoredEvent
    search: StoredEvent | None


def page(visit: Visit) -> Page:
    """Show the latest misses, all or of one kind."""
    kind = visit.query.get("kind", "")
    kind = kind if kind in KINDS else ""
    store = visit.record().events
    latest = list(store.events(EventQuery(missed=True, latest=True, limit=LOOKED_AT)))
    chosen = [event for event in latest if not kind or event.miss == kind]
    misses = [Miss(event, _search_before(store, event)) for event in chosen[:SHOWN]]
    counts = {name: sum(event.miss == name for event in latest) if name else len(latest) for name in KINDS}
    return Page("misses.html", "Misses", {"misses": misses, "kind": kind, "kinds": KINDS, "counts": counts})


def _search_before(store: EventStore, event: StoredEvent) -> StoredEvent | None:
    """Find the search that a miss rephrases, or the last one of its workspace."""
    if event.search is not None:
        return next(store.events(EventQuery(after=event.search - 1, limit=1)), None)
    if event.workspace is None or event.kind != "called":
        return None
    searches = store.events(EventQuery(workspace=event.workspace, kinds=("searched",)))
    return max((search for search in searches if search.id < event.id), key=lambda search: search.id, default=None)
