"""Events into a batch for the store: attributed, summed up, and with what may not be kept left out."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shortlist.telemetry.attribution import ALONE, Attribution, Place, Trail, Trails
from shortlist.telemetry.events import Act, Called, Event, Listed, Loaded, Searched, count, settled
from shortlist.telemetry.redaction import Privacy
from shortlist.telemetry.rows import Columns, columns_of
from shortlist.telemetry.sessions import SessionChange, change_of
from shortlist.telemetry.tallies import HOUR, tallies_of
from shortlist.telemetry.together import UsedTogether


class Stamped(NamedTuple):
    """An event and when it happened: by the wall clock, and by one that never jumps."""

    at: float
    seconds: float
    event: Event


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in columns; `search` is the place of the earlier search that it belongs to."""

    columns: Columns
    place: Place
    search: Place | None


@dataclass(slots=True)
class Batch:
    """What is written in one transaction."""

    entries: list[Entry] = field(default_factory=list)
    tallies: defaultdict[tuple[str, int, str], float] = field(default_factory=lambda: defaultdict(float))
    """By name, hour and key."""
    sessions: dict[str, SessionChange] = field(default_factory=dict)


class Ledger:
    """Takes events in the order in which they happened, and remembers what later ones are judged by."""

    def __init__(self, privacy: Privacy, together: UsedTogether | None = None) -> None:
        self._privacy = privacy
        self._together = together or UsedTogether()
        self._trails = Trails()

    def enter(self, batch: Batch, stamped: Stamped) -> None:
        """Add an event to a batch; what was put off on the request path is done here."""
        event, place, hour = settled(stamped.event), Place(), int(stamped.at // HOUR)
        trail = self._trails[event.workspace] if isinstance(event, Act) else Trail()
        known = _attribute(trail, event, place, stamped.seconds, hour)
        columns = {"at": int(stamped.at * 1000), **columns_of(event, known, self._privacy)}
        batch.entries.append(Entry(columns, place, known.search.place if known.search else None))
        if isinstance(event, Listed):
            event = _growth(trail, event)
        for name, key, value, earlier in tallies_of(event, known):
            if value:
                batch.tallies[name, hour if earlier is None else earlier, key] += value
        for other in known.together:
            self._together.add(columns["subject"], other)
        if isinstance(event, Act):
            change = batch.sessions.setdefault(columns["workspace"], SessionChange(caller=event.caller))
            change.add(change_of(event, columns["miss"]), columns["at"])


def _attribute(trail: Trail, event: Event, place: Place, seconds: float, hour: int) -> Attribution:
    if isinstance(event, Searched):
        return trail.searched(event, place, seconds, hour)
    if isinstance(event, Called):
        return trail.called(event, seconds)
    if isinstance(event, Loaded):
        for tool in event.tools:
            if found := trail.found(tool, seconds):
                return Attribution(found, found.ranks[tool])
    return ALONE


def _growth(trail: Trail, event: Listed) -> Listed:
    """Count only what a list has more than the workspace's earlier ones: it takes their place in the client."""
    tokens, upfront = count(event.tokens), count(event.upfront)
    grown = replace(event, tokens=max(tokens - trail.listed, 0), upfront=max(upfront - trail.upfront, 0))
    trail.listed, trail.upfront = max(tokens, trail.listed), max(upfront, trail.upfront)
    return grown
