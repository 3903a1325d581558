"""The live feed of events."""

from collections.abc import Mapping

from shortlist.storage.port import EventQuery
from shortlist.web.page import Page, Visit

SHOWN = 60

KINDS: Mapping[str, str] = {
    "": "all",
    "searched": "searches",
    "called": "calls",
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


def _events(visit: Visit) -> Mapping[str, object]:
    kind = visit.query.get("kind", "")
    kind = kind if kind in KINDS else ""
    after = visit.query.get("after", "")
    query = EventQuery(
        after=int(after) if after.isdecimal() and len(after) < 19 else 0,
        kinds=(kind,) if kind else (),
        latest=True,
        limit=SHOWN,
    )
    events = list(visit.record().events.events(query))
    return {"events": events, "kind": kind, "kind_words": WORDS}
