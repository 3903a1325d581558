"""Pins and reviews as the store keeps them, and in memory while it cannot be written."""

import json
import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from shortlist.errors import StoreConflict, StoreError
from shortlist.storage.port import Decision, PinnedDefinition, PinStore, StoredPins
from shortlist.trust.pins import ITEM_NAMES, Admitted, Held, Kind, PinnedEntry, Pins
from shortlist.trust.verdicts import Reason

READ_ONLY = "read_only"
"""The kind of a decision that a tool, defined as it is now, only reads."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BufferedPins:
    """A store of pins that keeps in memory what cannot be written, and tries again; safe to use from any thread.

    A full disk or a folder that may not be written holds nobody's tools back. A store that cannot be read still raises
    StoreError: what was approved before is unknown then.
    """

    store: PinStore
    problem: str = ""
    """Why pins could not be written, the last time that was tried."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why pins could not be read, the last time that was tried, by server."""
    outdated: set[str] = field(default_factory=set)
    """Servers whose unsaved pins are dropped, since another gateway has written: they have to be compared again."""
    _unsaved: dict[str, StoredPins] = field(default_factory=dict)
    _read_before: dict[str, str | None] = field(default_factory=dict)
    """The `listing` in the store that unsaved pins were compared with."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def unsaved(self) -> tuple[str, ...]:
        """The servers whose pins are in memory only."""
        return tuple(self._unsaved)

    def read(self, server: str) -> StoredPins:
        with self._noticed(server):
            stored, waiting = self.store.read(server), self._unsaved.get(server)
        return stored if waiting is None else replace(waiting, decisions=stored.decisions)

    def write(self, server: str, pins: StoredPins, since: str | None = None) -> None:
        with self._lock:
            self._write(server, pins, since)

    def amend(
        self, server: str, touched: Sequence[tuple[str, str]], pins: StoredPins, since: str | None = None
    ) -> None:
        with self._lock:
            if server not in self._unsaved:
                try:
                    self.store.amend(server, touched, pins, since)
                except StoreConflict:
                    raise
                except StoreError as error:
                    self._report(server, error)
                else:
                    return
            self._write(server, _amended(self.read(server), touched, pins), since)

    def decide(self, server: str, decisions: Sequence[Decision]) -> None:
        self.store.decide(server, decisions)

    def overview(self) -> dict[str, frozenset[str]]:
        waiting = {
            server: frozenset(each.name for each in pins.held if each.kind == "tool")
            for server, pins in tuple(self._unsaved.items())
        }
        with self._noticed("overview"):
            return {**self.store.overview(), **waiting}

    def state(self) -> int:
        """Return the number of the store; try again to write what is in memory only."""
        with self._lock:
            for server, pins in tuple(self._unsaved.items()):
                try:
                    self._write(server, pins, None)
                except StoreConflict:
                    self.outdated.add(server)
        with self._noticed("state"):
            return self.store.state()

    @contextmanager
    def _noticed(self, what: str) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self.unreadable[what] = str(error)
            raise
        self.unreadable.pop(what, None)

    def _write(self, server: str, pins: StoredPins, since: str | None) -> None:
        since = self._read_before.get(server, since)
        try:
            self.store.write(server, pins, since)
        except StoreConflict:
            self._settled(server)
            raise
        except StoreError as error:
            self._report(server, error)
            self._unsaved[server], self._read_before[server] = pins, since
        else:
            self._settled(server)

    def _settled(self, server: str) -> None:
        self._read_before.pop(server, None)
        if self._unsaved.pop(server, None) is not None and not self._unsaved:
            self.problem = ""
            logger.info("approvals are saved again")

    def _report(self, server: str, error: StoreError) -> None:
        if server not in self._unsaved:
            logger.warning("approvals of %r are kept in memory, since they cannot be saved: %s", server, error)
        self.problem = str(error)


def _amended(stored: StoredPins, touched: Iterable[tuple[str, str]], pins: StoredPins) -> StoredPins:
    """Return pins as a store has them after `amend`."""
    gone, accepted = set(touched), {(d.kind, d.name): d for d in (*stored.accepted, *pins.accepted)}
    held = {(d.kind, d.name): d for d in stored.held if (d.kind, d.name) not in gone}
    held |= {(d.kind, d.name): d for d in pins.held}
    return replace(pins, accepted=tuple(accepted.values()), held=tuple(held.values()), decisions=stored.decisions)


def revised(mark: str) -> str:
    """Return a `listing` for pins that are changed now; `mark` is the hash of the set and the scanner's version."""
    return f"{secrets.token_hex(8)} {mark}"


def pins_of(stored: StoredPins) -> Pins:
    """Read pins as they are stored."""
    accepted = {(_kind(d.kind), d.name): PinnedEntry(_kind(d.kind), d.name, d.text) for d in stored.accepted}
    latest = {decision.hash: decision.approved for decision in stored.decisions if decision.kind != READ_ONLY}
    approved = frozenset(each for each, yes in latest.items() if yes)
    scanned = {(_kind(d.kind), d.name): d.cause for d in stored.accepted if d.kind in ITEM_NAMES}
    is_known = not stored.listing.endswith(" ") and bool(stored.listing)  # its tools, and not its prompts alone
    return Pins(is_known, accepted, approved, frozenset(latest) - approved, doubts_of(stored), scanned)


def held_of(stored: StoredPins) -> tuple[Held, ...]:
    """Read what is held, with its reasons and what it was before; what is approved meanwhile is not held any more."""
    approved = pins_of(stored).approved
    found = (
        Held(
            PinnedEntry(_kind(d.kind), d.name, d.text),
            d.cause,  # type: ignore[arg-type]
            _reasons(d.reasons),
            PinnedEntry(_kind(d.kind), d.before_name or d.name, d.before) if d.before else None,
        )
        for d in stored.held
    )
    return tuple(held for held in found if held.entry.hash not in approved)


def doubts_of(stored: StoredPins) -> dict[str, tuple[Reason, ...]]:
    """Read why accepted tools are not clean, by name."""
    return {d.name: found for d in stored.accepted if d.kind == "tool" and (found := _reasons(d.reasons))}


def _reasons(text: str) -> tuple[Reason, ...]:
    return tuple(Reason(r["family"], r["field"], tuple(r["span"]), r["why"], r["level"]) for r in json.loads(text))


def _written(reasons: Iterable[Reason]) -> str:
    return json.dumps([{**reason.shown(), "level": reason.level} for reason in reasons], ensure_ascii=False)


def read_only_of(stored: StoredPins) -> frozenset[str]:
    """Read which accepted tools are read-only by a review of their present definition."""
    found = found_read_only(stored)
    marked = {name for name, _ in found}
    entries = (PinnedEntry("tool", d.name, d.text) for d in stored.accepted if d.kind == "tool" and d.name in marked)
    return frozenset(entry.name for entry in entries if (entry.name, entry.hash) in found)


def found_read_only(stored: StoredPins) -> frozenset[tuple[str, str]]:
    """Read the name and hash of each definition that a review found to be read-only."""
    latest = {(d.name, d.hash): d.approved for d in stored.decisions if d.kind == READ_ONLY}
    return frozenset(key for key, yes in latest.items() if yes)


def _kind(text: str) -> Kind:
    return text  # type: ignore[return-value]


def stored_pins(listing: str, pins: Pins, admission: Admitted) -> StoredPins:
    """Return what the store keeps of an admission; `listing` is the hash of the set."""
    doubts = pins.doubts
    accepted = tuple(
        PinnedDefinition(
            e.kind,
            e.name,
            e.text,
            pins.scanned.get((e.kind, e.name), ""),
            _written(doubts.get(e.name, ()) if e.kind == "tool" else ()),
        )
        for e in pins.accepted.values()
    )
    held = tuple(_held_row(each) for each in admission.held)
    return StoredPins(listing, accepted, held)


def _held_row(held: Held) -> PinnedDefinition:
    before = held.before
    return PinnedDefinition(
        held.entry.kind,
        held.entry.name,
        held.entry.text,
        held.cause,
        _written(held.reasons),
        before.text if before else "",
        before.name if before else "",
    )
