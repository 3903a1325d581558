"""Events into a batch for the store: attributed to earlier searches, tallied, and redacted.

Everything here runs on the recorder's thread, beside the requests.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from shortlist.models import ToolId
from shortlist.storage.port import (
    HOUR,
    Batch,
    Columns,
    EventPlace,
    EventRow,
    ReadTrails,
    StoredEvent,
    ToolPair,
    TrailQuery,
    WorkspaceCounts,
)
from shortlist.telemetry.events import (
    Called,
    CallerEvent,
    Event,
    Searched,
    SessionOpened,
    ToolsListed,
    ToolsLoaded,
    count,
)
from shortlist.telemetry.measures import ALONE, Attribution
from shortlist.telemetry.redaction import Privacy
from shortlist.text.tokens import terms

SEARCHES = 10
"""A call is attributed to one of this many last searches of its workspace …"""
SECONDS = 1_800.0
"""… that are not older than this."""
REPHRASE_SECONDS = 300.0
SHARED_TERMS = 1 / 3
"""Of all terms of two queries; from here the later one rephrases the earlier one."""
SHARED_HITS = 1 / 2
"""Of the fewer hits of two searches; likewise."""
REMEMBERED_TOOLS = 8
REMEMBERED_PAIRS = 1_000
REMEMBERED_WORKSPACES = 2_000
LEAST_TOGETHER = 2
"""Workspaces that called both tools; a single one does not make a pattern."""
MOST_TOGETHER = 5
NO_TERMS: frozenset[str] = frozenset()
OWN_BATCHES = 8_000
"""More than are written while a search is remembered."""


class Stamped(NamedTuple):
    """An event and when it happened: by the wall clock, and by one that never jumps."""

    at: float
    seconds: float
    event: Event


class Entered(NamedTuple):
    """An event as it is added to a batch; a list of tools only with what it has beyond earlier ones."""

    event: Event
    row: EventRow
    known: Attribution
    hour: int


@dataclass(slots=True, kw_only=True)
class RememberedSearch:
    """A search that calls may belong to."""

    place: EventPlace
    seconds: float
    hour: int
    ranks: Mapping[ToolId, int]
    terms: frozenset[str]
    """Its words, until a later request makes it too old to be rephrased."""
    picked: tuple[ToolId, ...] = ()
    """Its tools that have been called."""
    closed: bool = False
    """Something was called since: the next search does not rephrase this one."""

    def alike(self, other: "RememberedSearch") -> bool:
        """Return whether two searches ask for the same: by their words, or by what they found."""
        words = len(self.terms & other.terms) >= SHARED_TERMS * max(len(self.terms | other.terms), 1)
        fewer = min(len(self.ranks), len(other.ranks))
        hits = fewer > 0 and len(self.ranks.keys() & other.ranks.keys()) >= SHARED_HITS * fewer
        return words or hits


class Trail:
    """What one workspace did recently; `seconds` come from a clock that never jumps."""

    __slots__ = ("_request", "_searches", "_together", "_unfound", "_used", "listed", "seen", "upfront")

    def __init__(self) -> None:
        # Lists and dicts take a tenth of the memory of empty deques and sets, and most workspaces do little.
        self._searches: list[RememberedSearch] = []
        self._request: list[RememberedSearch] = []
        self._unfound: dict[ToolId, None] = {}
        self._used: list[ToolId] = []
        self._together: dict[frozenset[ToolId], None] = {}
        self.listed = 0
        """Tokens of the longest list shown so far, and below of what everything would have cost."""
        self.upfront = 0
        self.seen = 0
        """The id up to which stored events were looked at, where several gateways serve the workspace."""

    def searched(self, event: Searched, place: EventPlace, seconds: float, hour: int) -> Attribution:
        """Remember a search; attribute it to the one that it rephrases."""
        ranks: dict[ToolId, int] = {}
        for hit in event.hits:
            for tool in (hit.tool, *hit.family):
                ranks.setdefault(tool, hit.rank)
        asked = frozenset(terms(event.query))
        now = RememberedSearch(place=place, seconds=seconds, hour=hour, ranks=ranks, terms=asked)
        before = () if event.part or event.offset else tuple(self._request)
        rephrased = next((earlier for earlier in before if _rephrases(earlier, now)), None)
        self._remember(now, is_new_request=not event.part)
        return Attribution(rephrased.place, rephrased.hour) if rephrased else ALONE

    def _remember(self, now: RememberedSearch, *, is_new_request: bool) -> None:
        if is_new_request:
            for earlier in self._request:
                earlier.terms = NO_TERMS
            self._request = []
            self._unfound.clear()
        self._request.append(now)
        self._searches = [*self._searches, now][-SEARCHES:]

    def noticed(self, stored: StoredEvent, seconds: float) -> None:
        """Remember what another gateway served for this workspace; it has attributed and counted it."""
        if stored.kind == Called.kind:
            self._call(stored.subject or "", stored.outcome == "ok", seconds)
        elif stored.kind == Searched.kind:
            ranks: dict[ToolId, int] = {}
            for hit in stored.data.get("hits", ()):
                for tool in (hit["tool"], *hit.get("family", ())):
                    ranks.setdefault(tool, hit["rank"])
            place, hour = EventPlace(stored.id), int(stored.at / 1000 // HOUR)
            asked = frozenset(terms(stored.subject or ""))
            now = RememberedSearch(place=place, seconds=seconds, hour=hour, ranks=ranks, terms=asked)
            self._remember(now, is_new_request=not stored.data.get("part"))

    def called(self, event: Called, seconds: float) -> Attribution:
        """Attribute a call to the last search that returned its tool."""
        return self._call(event.tool, event.outcome == "ok", seconds)

    def _call(self, tool: ToolId, is_ok: bool, seconds: float) -> Attribution:
        for search in self._request:
            search.closed = True
        together = self._use(tool) if is_ok else ()
        found = self._found(tool, seconds)
        if found is None:
            fresh = tool not in self._unfound
            self._unfound[tool] = None
            return Attribution(fresh=fresh, together=together)
        fresh = tool not in found.picked
        if fresh:
            found.picked = (*found.picked, tool)
        return Attribution(
            found.place,
            found.hour,
            found.ranks[tool],
            fresh=fresh,
            first_pick=fresh and len(found.picked) == 1,
            together=together,
        )

    def loaded(self, event: ToolsLoaded, seconds: float) -> Attribution:
        """Attribute a load to the last search that returned one of its tools."""
        for tool in event.tools:
            if found := self._found(tool, seconds):
                return Attribution(found.place, found.hour, found.ranks[tool])
        return ALONE

    def grown(self, event: ToolsListed) -> ToolsListed:
        """Return a list with only the tokens beyond earlier lists, which it replaces in the client."""
        tokens, upfront = count(event.tokens), count(event.upfront)
        grown = replace(event, tokens=max(tokens - self.listed, 0), upfront=max(upfront - self.upfront, 0))
        self.listed, self.upfront = max(tokens, self.listed), max(upfront, self.upfront)
        return grown

    def _found(self, tool: ToolId, seconds: float) -> RememberedSearch | None:
        recent = (s for s in reversed(self._searches) if seconds - s.seconds <= SECONDS)
        return next((search for search in recent if tool in search.ranks), None)

    def _use(self, tool: ToolId) -> tuple[ToolId, ...]:
        new = tuple(other for other in self._used if other != tool and frozenset((tool, other)) not in self._together)
        if len(self._together) > REMEMBERED_PAIRS:
            self._together.clear()
        self._together.update(dict.fromkeys(frozenset((tool, other)) for other in new))
        if tool not in self._used:
            self._used = [*self._used, tool][-REMEMBERED_TOOLS:]
        return new


def _rephrases(earlier: RememberedSearch, now: RememberedSearch) -> bool:
    return not earlier.closed and now.seconds - earlier.seconds <= REPHRASE_SECONDS and now.alike(earlier)


class UsedTogether:
    """Which tools were called in the same workspaces; the recorder adds to it while requests read `shares`."""

    def __init__(self) -> None:
        self._partners: defaultdict[ToolId, Counter[ToolId]] = defaultdict(Counter)
        self.shares: dict[ToolId, Mapping[ToolId, float]] = {}
        """The tools most often used with each, as a share of the one used with it most often."""

    @classmethod
    def of(cls, pairs: Iterable[ToolPair]) -> Self:
        """Start from what the store has counted."""
        together = cls()
        for one, other, workspaces in pairs:
            together._count(one, other, workspaces)
        for tool in tuple(together._partners):
            together._share(tool)
        return together

    def add(self, one: ToolId, other: ToolId) -> None:
        """Count one more workspace that called both tools."""
        self._count(one, other, 1)
        self._share(one)
        self._share(other)

    def __call__(self, tool: ToolId) -> frozenset[ToolId]:
        """Return the tools most often used with one."""
        return frozenset(self.shares.get(tool, ()))

    def _count(self, one: ToolId, other: ToolId, workspaces: int) -> None:
        self._partners[one][other] += workspaces
        self._partners[other][one] += workspaces

    def _share(self, tool: ToolId) -> None:
        often = sorted((-count, other) for other, count in self._partners[tool].items() if count >= LEAST_TOGETHER)
        self.shares[tool] = {other: count / often[0][0] for count, other in often[:MOST_TOGETHER]}


class Ledger:
    """Takes events in the order in which they happened, and remembers what later ones are attributed to."""

    def __init__(
        self, privacy: Privacy, together: UsedTogether | None = None, elsewhere: ReadTrails | None = None
    ) -> None:
        self._privacy = privacy
        self._together = together or UsedTogether()
        self._trails: OrderedDict[str, Trail] = OrderedDict()
        self._elsewhere = elsewhere
        self._own: deque[tuple[int, int]] = deque(maxlen=OWN_BATCHES)
        """The first and the last id of batches that were written here, in order."""

    def catch_up(self, coming: Iterable[Stamped]) -> None:
        """Notice what other gateways served for the workspaces of these events, so that they are attributed to it."""
        if self._elsewhere is None:
            return
        asked = {s.event.workspace: s for s in coming if isinstance(s.event, (Searched, Called, ToolsLoaded))}
        if not asked:
            return
        trails = {self._privacy.workspace(name): self._trail(name) for name in asked}
        last = next(reversed(asked.values()))
        after = {name: trail.seen for name, trail in trails.items()}
        # A workspace that is new here has no events from here.
        oldest = min((seen for seen in after.values() if seen), default=float("inf"))
        own = [batch for batch in self._own if batch[1] > oldest]
        events, known = self._elsewhere(TrailQuery(after=after, since=int((last.at - SECONDS) * 1000), own=own))
        for stored in events:
            trails[stored.workspace or ""].noticed(stored, last.seconds - max(0.0, last.at - stored.at / 1000))
        for trail in trails.values():
            trail.seen = known

    def written(self, batch: Batch) -> None:
        """Note which events of the store are from here: a batch is numbered as a whole."""
        if self._elsewhere is not None and batch.entries:
            self._own.append((batch.entries[0].place.id or 0, batch.entries[-1].place.id or 0))

    def enter(self, batch: Batch, stamped: Stamped) -> Entered:
        """Add an event to a batch; work that was deferred on the request's path is done here."""
        event, place, hour = stamped.event, EventPlace(), int(stamped.at // HOUR)
        trail = self._trail(event.workspace) if isinstance(event, CallerEvent) else Trail()
        known = _attribute(trail, event, place, stamped.seconds, hour)
        columns = {"at": int(stamped.at * 1000), **_columns(event, known, self._privacy)}
        if isinstance(event, ToolsListed):
            event = trail.grown(event)
        entered = Entered(event, EventRow(columns, place, known.search), known, hour)
        add_to(batch, entered)
        for other in known.together:
            self._together.add(columns["subject"], other)
        return entered

    def _trail(self, workspace: str) -> Trail:
        trail = self._trails.setdefault(workspace, Trail())
        self._trails.move_to_end(workspace)
        if len(self._trails) > REMEMBERED_WORKSPACES:
            self._trails.popitem(last=False)
        return trail


def add_to(batch: Batch, entered: Entered) -> None:
    """Add the row, the tallies and the counts of an event to a batch."""
    event, row, known, hour = entered
    batch.entries.append(row)
    for name, key, value, earlier in event.tallies(known):
        if value:
            batch.tallies[name, hour if earlier is None else earlier, key] += value
    if isinstance(event, CallerEvent):
        did = batch.workspaces.setdefault(row.columns["workspace"], WorkspaceCounts(caller=event.caller))
        _add(did, event, row.columns)


def _columns(event: Event, known: Attribution, privacy: Privacy) -> Columns:
    """Return all columns of an event but its id, its time and the id of the search it belongs to."""
    shared: Columns = {
        "kind": event.kind,
        "caller": getattr(event, "caller", None),
        "workspace": privacy.workspace(event.workspace) if isinstance(event, CallerEvent) else None,
        "tokens": count(event.tokens) if hasattr(event, "tokens") else None,
        "milliseconds": getattr(event, "milliseconds", None),
        "rank": known.rank,
        "miss": event.miss(known),
        "data": {},
    }
    return {**shared, **event.columns(privacy)}


def _attribute(trail: Trail, event: Event, place: EventPlace, seconds: float, hour: int) -> Attribution:
    if isinstance(event, Searched):
        return trail.searched(event, place, seconds, hour)
    if isinstance(event, Called):
        return trail.called(event, seconds)
    if isinstance(event, ToolsLoaded):
        return trail.loaded(event, seconds)
    return ALONE


def _add(did: WorkspaceCounts, event: CallerEvent, columns: Columns) -> None:
    """Add one event to what its workspace did."""
    did.first, did.last = did.first or columns["at"], columns["at"]
    if isinstance(event, SessionOpened):
        did.mode, did.initial_tools = event.mode, event.tools
    if isinstance(event, ToolsLoaded) and event.toolset and event.toolset not in did.toolsets:
        did.toolsets.append(event.toolset)
    counts = {"misses": 1 if columns["miss"] else 0, "tokens": count(getattr(event, "tokens", 0)), **event.counts()}
    did.counts.update({name: value for name, value in counts.items() if value})
