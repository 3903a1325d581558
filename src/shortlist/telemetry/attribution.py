"""Which earlier search a call belongs to, and at which rank the tool stood there."""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from shortlist.models import ToolId
from shortlist.telemetry.events import Called, Searched
from shortlist.text.tokens import terms

SEARCHES = 10
"""A call is looked for in so many of the last searches of its workspace …"""
SECONDS = 1_800.0
"""… that are not older than this."""
REPHRASE_SECONDS = 300.0
SHARED_TERMS = 1 / 3
"""Of all terms of two queries; from here the later one is the earlier one rephrased."""
SHARED_HITS = 1 / 2
"""Of the fewer hits of two searches; likewise."""
REMEMBERED_TOOLS = 8
REMEMBERED_PAIRS = 1_000
REMEMBERED_WORKSPACES = 2_000


@dataclass(slots=True)
class Place:
    """Where an event stands in the store; known once it is written."""

    id: int | None = None


@dataclass(slots=True, kw_only=True)
class Remembered:
    """A search that calls may belong to."""

    place: Place
    seconds: float
    hour: int
    ranks: Mapping[ToolId, int]
    terms: frozenset[str]
    picked: set[ToolId] = field(default_factory=set)
    """What has been called of it."""
    closed: bool = False
    """Something was called since: whatever is searched next is something else."""

    def alike(self, other: "Remembered") -> bool:
        """Say whether two searches ask for the same: by their words, or by what they found."""
        words = len(self.terms & other.terms) >= SHARED_TERMS * max(len(self.terms | other.terms), 1)
        fewer = min(len(self.ranks), len(other.ranks))
        hits = fewer > 0 and len(self.ranks.keys() & other.ranks.keys()) >= SHARED_HITS * fewer
        return words or hits


@dataclass(frozen=True, slots=True)
class Attribution:
    """What is known of an event from what went before it in its workspace."""

    search: Remembered | None = None
    """The search that returned the called tool, or that a search rephrases."""
    rank: int | None = None
    fresh: bool = False
    """The first call of this tool since that search, or, where none returned it, since the last search."""
    together: tuple[ToolId, ...] = ()
    """Tools with which a called one is now used together for the first time in this workspace."""


ALONE = Attribution()


class Trail:
    """What one workspace did lately; `seconds` come from a clock that never jumps."""

    def __init__(self) -> None:
        self._searches: deque[Remembered] = deque(maxlen=SEARCHES)
        self._request: list[Remembered] = []
        self._unfound: set[ToolId] = set()
        self._used: deque[ToolId] = deque(maxlen=REMEMBERED_TOOLS)
        self._together: set[frozenset[ToolId]] = set()
        self.listed = 0
        """Tokens of the longest list shown so far, and below of what everything would have cost."""
        self.upfront = 0

    def searched(self, event: Searched, place: Place, seconds: float, hour: int) -> Attribution:
        """Remember a search; give the one that it rephrases."""
        ranks: dict[ToolId, int] = {}
        for hit in event.hits:
            for tool in (hit.tool, *hit.family):
                ranks.setdefault(tool, hit.rank)
        asked = frozenset(terms(event.query))
        now = Remembered(place=place, seconds=seconds, hour=hour, ranks=ranks, terms=asked)
        before = () if event.part or event.offset else tuple(self._request)
        if not event.part:
            self._request = []
            self._unfound.clear()
        self._request.append(now)
        self._searches.append(now)
        return Attribution(next((earlier for earlier in before if _rephrases(earlier, now)), None))

    def called(self, event: Called, seconds: float) -> Attribution:
        """Find the last search that returned the called tool."""
        for search in self._request:
            search.closed = True
        together = self._use(event.tool) if event.outcome == "ok" else ()
        found = self.found(event.tool, seconds)
        if found is None:
            fresh = event.tool not in self._unfound
            self._unfound.add(event.tool)
            return Attribution(fresh=fresh, together=together)
        fresh = event.tool not in found.picked
        found.picked.add(event.tool)
        return Attribution(found, found.ranks[event.tool], fresh, together)

    def found(self, tool: ToolId, seconds: float) -> Remembered | None:
        """Give the last search that returned a tool, if it is not too old."""
        recent = (s for s in reversed(self._searches) if seconds - s.seconds <= SECONDS)
        return next((search for search in recent if tool in search.ranks), None)

    def _use(self, tool: ToolId) -> tuple[ToolId, ...]:
        new = tuple(other for other in self._used if other != tool and frozenset((tool, other)) not in self._together)
        if len(self._together) > REMEMBERED_PAIRS:
            self._together.clear()
        self._together.update(frozenset((tool, other)) for other in new)
        if tool not in self._used:
            self._used.append(tool)
        return new


class Trails:
    """A trail for every workspace, those used last."""

    def __init__(self) -> None:
        self._trails: OrderedDict[str, Trail] = OrderedDict()

    def __getitem__(self, workspace: str) -> Trail:
        trail = self._trails.setdefault(workspace, Trail())
        self._trails.move_to_end(workspace)
        if len(self._trails) > REMEMBERED_WORKSPACES:
            self._trails.popitem(last=False)
        return trail


def _rephrases(earlier: Remembered, now: Remembered) -> bool:
    return not earlier.closed and now.seconds - earlier.seconds <= REPHRASE_SECONDS and now.alike(earlier)
