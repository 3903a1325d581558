"""The live feed of events."""

import json
from collections.abc import Mapping

from shortlist.storage.port import EventQuery, EventStore, StoredEvent
from shortlist.web.page import Download, NoSuchPage, Page, Visit
from shortlist.web.templating import moment

SHOWN = 60
DOWNLOADED = 50_000
COLUMNS = ("time", "kind", "subject", "outcome", "rank", "miss", "milliseconds", "tokens", "caller", "workspace")
NEAR, AROUND = 100, 40
"""How many events before one are looked at, and how many of its workspace are shown."""

KINDS: Mapping[str, str] = {
    "": "all",
    "searched": "searches",
    "called": "calls",
    "program": "programs",
    "loaded": "loads",
    "upstream": "servers",
}
"""Event kinds that the page can filter by, with their labels."""

WORDS: Mapping[str, str] = {
    "opened": "session opened",
    "listed": "listed tools",
    "circle": "loop stopped",
    "toolsets": "listed toolsets",
    "suggested": "suggested",
    "exposed": "exposed",
    "reported": "task reported",
    "upstream": "server",
    "catalog": "tools changed",
    "lost": "events lost",
}
"""Labels of the other kinds."""


def page(visit: Visit) -> Page:
    """Show the latest events."""
    return Page("activity.html", "Activity", {**_events(visit), "kinds": KINDS})


def feed(visit: Visit) -> Page:
    """Return the rows of events newer than one, which the page prepends."""
    return Page("activity_rows.html", "", _events(visit))


def event(visit: Visit) -> Page:
    """Show one event, the search it belongs to, and what its workspace did around it."""
    number = visit.path["event"]
    store = visit.record().events
    found = _one(store, int(number)) if number.isdecimal() and len(number) < 19 else None
    if found is None:
        raise NoSuchPage(f"No event {number!r}: it never happened, or is older than what is kept.")
    around: list[StoredEvent] = []
    if found.workspace is not None:
        near = EventQuery(workspace=found.workspace, after=max(found.id - NEAR, 0), limit=AROUND)
        around = [each for each in store.events(near) if each.id != found.id]
    values = {
        "event": found,
        "search": _one(store, found.search) if found.search is not None else None,
        "around": around,
        "kind_words": WORDS,
        "data": json.dumps(dict(found.data), indent=2, ensure_ascii=False),
    }
    return Page("event.html", f"Event {found.id}", values)


def _one(store: EventStore, number: int) -> StoredEvent | None:
    found = next(store.events(EventQuery(after=number - 1, limit=1)), None)
    return found if found is not None and found.id == number else None


def _events(visit: Visit) -> Mapping[str, object]:
    """Return the events of a page; the calls of a program are shown inside it."""
    kind = visit.query.get("kind", "")
    kind = kind if kind in KINDS else ""
    after = visit.query.get("after", "")
    query = visit.filter.events(
        after=int(after) if after.isdecimal() and len(after) < 19 else 0,
        kinds=("program", "called") if kind == "program" else (kind,) if kind else (),
        limit=SHOWN,
    )
    found = list(visit.record().events.events(query))
    inner: dict[str, list[StoredEvent]] = {str(e.data.get("program")): [] for e in found if e.kind == "program"}
    events = []
    for event in found:
        if event.kind == "called" and event.data.get("program") in inner and kind in ("", "program"):
            inner[event.data["program"]].insert(0, event)
        elif kind in ("", event.kind):
            events.append(event)
    return {"events": events, "inner": inner, "kind": kind, "kind_words": WORDS}


def download(visit: Visit) -> Download:
    """Return the events of the time range as a table, the latest first."""
    events = visit.record().events.events(visit.filter.events(limit=DOWNLOADED))
    return Download("activity", COLUMNS, [_cells(event) for event in events])


def _cells(event: StoredEvent) -> tuple[object, ...]:
    return (moment(event.at / 1000), *(getattr(event, name) for name in COLUMNS[1:]))
