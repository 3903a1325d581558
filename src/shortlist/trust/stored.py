"""Pins and reviews as the store keeps them."""

import json
from collections.abc import Iterable

from shortlist.storage.port import PinnedDefinition, StoredPins
from shortlist.trust.pins import ITEM_NAMES, Admitted, Held, Kind, PinnedEntry, Pins
from shortlist.trust.verdicts import Reason

READ_ONLY = "read_only"
"""The kind of a decision that a tool, defined as it is now, only reads."""


def pins_of(stored: StoredPins) -> Pins:
    """Read pins as they are stored."""
    accepted = {(_kind(d.kind), d.name): PinnedEntry(_kind(d.kind), d.name, d.text) for d in stored.accepted}
    latest = {decision.hash: decision.approved for decision in stored.decisions if decision.kind != READ_ONLY}
    approved = frozenset(each for each, yes in latest.items() if yes)
    scanned = {(_kind(d.kind), d.name): d.cause for d in stored.accepted if d.kind in ITEM_NAMES}
    return Pins(bool(stored.listing), accepted, approved, frozenset(latest) - approved, doubts_of(stored), scanned)


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
