"""Misses as a worklist: searches that did not lead to a tool call, and calls that no search led to, grouped."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shortlist.errors import InvalidInput
from shortlist.models import ToolId
from shortlist.storage.port import EventQuery, EventStore, StoredEvent
from shortlist.web.page import Download, Page, Visit, possible

LOOKED_AT = 1_000
"""The latest misses of all kinds."""
SHOWN = 40
COMPARED, QUERIES = 12, 4
"""How many misses of a group are looked into, and how many different queries of them are shown."""
LONGEST_WORD = 200

KINDS: Mapping[str, str] = {
    "": "all",
    "unfound": "called, not found",
    "rephrased": "rephrased",
    "empty": "no results",
    "unknown": "unknown tool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissGroup:
    """Misses of one kind with the same words; the latest stands for them."""

    latest: StoredEvent
    searches: tuple[StoredEvent, ...]
    """Searches that did not help, each with other words, the latest first."""
    count: int

    @property
    def key(self) -> str:
        return _key(self.latest)

    @property
    def asked(self) -> StoredEvent | None:
        """The latest search that did not help."""
        return self.searches[0] if self.searches else None

    @property
    def queries(self) -> list[str]:
        """The words of the searches, where they were stored."""
        texts = [search.subject or "" for search in self.searches]
        return [text for text in texts if text and not text.startswith("hash:")]

    @property
    def query(self) -> str:
        return self.queries[0] if self.queries else ""

    @property
    def others(self) -> list[str]:
        return self.queries[1:]

    @property
    def tool(self) -> ToolId:
        """The tool that should have been found."""
        return (self.latest.subject or "") if self.latest.miss == "unfound" else ""

    @property
    def case(self) -> str:
        """The group as evaluation cases, one per line, to be reviewed before use."""
        gold = [self.tool] if self.tool else []
        cases = [{"id": f"miss-{self.key}-{n}", "query": text, "gold": gold} for n, text in enumerate(self.queries, 1)]
        return "\n".join(json.dumps(case, ensure_ascii=False) for case in cases)


def page(visit: Visit) -> Page:
    """Show the misses that were not dismissed, all or of one kind."""
    kind = visit.query.get("kind", "")
    kind = kind if kind in KINDS else ""
    store, grouped = visit.record().events, _grouped(visit)
    chosen = [each for each in grouped.values() if not kind or each[0].miss == kind]
    groups = [MissGroup(latest=each[0], searches=_searches(store, each), count=len(each)) for each in chosen[:SHOWN]]
    counts = {name: sum(each[0].miss == name for each in grouped.values()) for name in KINDS if name}
    values = {
        "groups": groups,
        "kind": kind,
        "kinds": KINDS,
        "counts": {"": len(grouped), **counts},
        "can": visit.controls,
        "sees": visit.may_see,
    }
    return Page("misses.html", "Misses", values)


def download(visit: Visit) -> Download:
    """Return the groups as a table."""
    columns = ("kind", "subject", "count", "caller")
    rows = [(each[0].miss, each[0].subject, len(each), each[0].caller) for each in _grouped(visit).values()]
    return Download("misses", columns, rows)


def dismiss(visit: Visit) -> str:
    """Take a group off the worklist."""
    possible(visit.controls.dismissals).dismiss(visit.form.get("miss", ""))
    return f"/misses{visit.filter.query}"


def add_keyword(visit: Visit) -> str:
    """Add a keyword to the tool that should have been found."""
    tool_id = visit.form.get("tool", "")
    if not visit.may_see(tool_id):
        raise InvalidInput(f"No tool {tool_id!r}.")
    possible(visit.controls.words).add_keyword(tool_id, _word(visit, "keyword"))
    return f"/misses{visit.filter.query}"


def add_synonym(visit: Visit) -> str:
    """Add a synonym for all tools."""
    possible(visit.controls.words).add_synonym(_word(visit, "word"), _word(visit, "meaning"))
    return f"/misses{visit.filter.query}"


def _word(visit: Visit, name: str) -> str:
    text = " ".join(visit.form.get(name, "").split())
    if not text or len(text) > LONGEST_WORD:
        raise InvalidInput(f"The {name} is {text!r}; write one word or a few, at most {LONGEST_WORD} characters.")
    return text


def _grouped(visit: Visit) -> Mapping[str, list[StoredEvent]]:
    """Return the latest misses by group, the latest first in each, without those that were dismissed."""
    query = visit.filter.events(missed=True, limit=LOOKED_AT)
    dismissals = visit.sources.controls.dismissals
    gone = dismissals.dismissed() if dismissals is not None else frozenset()
    return _by_key(event for event in visit.record().events.events(query) if _key(event) not in gone)


def _by_key(events: Iterable[StoredEvent]) -> Mapping[str, list[StoredEvent]]:
    found: dict[str, list[StoredEvent]] = {}
    for event in events:
        found.setdefault(_key(event), []).append(event)
    return dict(sorted(found.items(), key=lambda group: -len(group[1])))


def _key(event: StoredEvent) -> str:
    words = " ".join((event.subject or "").lower().split())
    return hashlib.sha256(f"{event.miss}:{words}".encode()).hexdigest()[:16]


def _searches(store: EventStore, events: Sequence[StoredEvent]) -> tuple[StoredEvent, ...]:
    """Return the searches behind the latest misses of a group, one for each wording."""
    found: dict[str, StoredEvent] = {}
    for event in events[:COMPARED]:
        search = event if event.miss == "empty" else _search_before(store, event)
        if search is not None:
            found.setdefault(" ".join((search.subject or "").lower().split()), search)
    return tuple(found.values())[:QUERIES]


def _search_before(store: EventStore, event: StoredEvent) -> StoredEvent | None:
    """Find the search that a miss rephrases, or the last one of its workspace."""
    if event.search is not None:
        return next(store.events(EventQuery(after=event.search - 1, limit=1)), None)
    if event.workspace is None or event.kind != "called":
        return None
    searches = store.events(EventQuery(workspace=event.workspace, kinds=("searched",)))
    return max((search for search in searches if search.id < event.id), key=lambda search: search.id, default=None)
