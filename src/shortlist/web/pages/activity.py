"""What callers do, as it happens."""

from collections.abc import Mapping

from shortlist.storage.port import EventQuery
from shortlist.web.page import Page, Visit

SHOWN = 60

KINDS: Mapping[str, str] = {
    "": "everything",
    "searched": "searches",
    "called": "calls",
    "loaded": "loads",
    "upstream": "servers",
}
"""What the page can be narrowed to, and what it says for it."""

WORDS: Mapping[str, str] = {
    "opened": "new session",
    "listed": "listed tools",
    "circle": "circle broken",
    "toolsets": "listed toolsets",
    "suggested": "suggestion",
    "exposed": "experiment",
    "reported": "task",
    "upstream": "server",
    "catalog": "tools changed",
    "lost": "events lost",
}
"""Kinds whose own name does not say it."""


def page(visit: Visit) -> Page:
    """Show the latest events."""
    return Page("activity.html", "Activity", {**_events(visit), "kinds": KINDS})


def feed(visit: Visit) -> Page:
    """Give the rows of what came after an event, for the page to put on top."""
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
