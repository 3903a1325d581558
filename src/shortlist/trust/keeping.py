"""Keep pins between restarts and decide, for each list of tools that arrives, what may be served."""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from shortlist.catalog.catalog import Catalog, differing
from shortlist.config.settings import DEFAULT_LIMITS, Trust
from shortlist.errors import StoreConflict, StoreError
from shortlist.models import Tool
from shortlist.storage.port import PinStore, StoredPins
from shortlist.text.tokens import one_line
from shortlist.trust.definitions import Neighbours, ToolDefinition
from shortlist.trust.pins import (
    INSTRUCTIONS,
    ITEM_NAMES,
    AdmissionRules,
    Admitted,
    Held,
    ItemKind,
    Kind,
    PinnedEntry,
    Pins,
    ServerListing,
    admit,
    admit_items,
    admit_some,
    canonical,
    closed,
    gone_tools,
    is_of_template,
    item_entry,
    listing,
    remembered_bytes,
    tool_entry,
    with_accepted,
    without_gone,
)
from shortlist.trust.stored import (
    BufferedPins,
    doubts_of,
    found_read_only,
    held_of,
    pins_of,
    read_only_of,
    revised,
    stored_pins,
)
from shortlist.trust.verdicts import DefinitionScanner, ScanVerdict, scanner_version

logger = logging.getLogger(__name__)

MOST_ITEMS = 5_000
"""Prompts, resources and templates of a server that are pinned; further ones are scanned each time they change."""
ANY_URI = frozenset({"{uri}"})
"""Stands for the held items where they cannot be read."""
CONFLICTS = 10
"""How often definitions are compared again because another gateway has written meanwhile, before none is served."""
CHANGED = "changed"
"""Stands for the hash of a set that changed since it was compared whole: the next start compares it whole again."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a server listed last, and what became of it."""

    tools: tuple[Tool, ...]
    said: Mapping[str, str]
    trust: Trust
    admission: Admitted
    pins: Pins | None
    """What was accepted up to now; None where the store could not be used."""
    definitions: Mapping[str, str]
    """By the name of the tool."""
    only_read: frozenset[tuple[str, str]] = frozenset()
    """Name and hash of the definitions that a review found to be read-only."""
    listing: str = ""
    """The `listing` of its pins when they were last read or written."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """What remembering each tool takes that the server no longer lists, in bytes by name."""

    @property
    def held_tools(self) -> frozenset[str]:
        """The names of the tools that are not served."""
        accepted = self.admission.accepted
        named = (each.entry.name for each in self.admission.held if each.entry.kind == "tool")
        return frozenset(name for name in named if ("tool", name) not in accepted)


@dataclass(frozen=True, slots=True)
class ArrivedItems:
    """The prompts, resources or templates that a server has listed, and which of them are held."""

    hashes: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()

    def with_page(self, hashes: Mapping[str, str], held: frozenset[str]) -> "ArrivedItems":
        """Return what is known after another page or list; too much of it is forgotten and compared again."""
        known = {} if len(self.hashes) > 2 * MOST_ITEMS else self.hashes
        return ArrivedItems({**known, **hashes}, (self.held & known.keys()) - hashes.keys() | held)


class Keeper:
    """Admits the tools, prompts and resources of servers; safe to call from any thread.

    `scanner` is made when the first definition has to be judged: it loads numbers that most starts do not need.
    `gone_bytes` returns how much is remembered of tools that one server no longer lists. Beyond it, new tools of that
    server are held: if pins were forgotten instead, a server could invent names until a changed tool passes as new.
    """

    def __init__(
        self,
        store: PinStore,
        scanner: Callable[[], DefinitionScanner],
        trust: Callable[[str], Trust],
        gone_bytes: Callable[[], int] = lambda: DEFAULT_LIMITS.gone_definitions_bytes,
    ) -> None:
        self._store, self._make, self._trust, self._gone_bytes = BufferedPins(store), scanner, trust, gone_bytes
        self._scanner: DefinitionScanner | None = None
        self._arrived: dict[str, Arrival] = {}
        self._held: Mapping[str, frozenset[str]] = {}
        self.unlisted: frozenset[str] = frozenset()
        """Servers of which something is held, and that have listed nothing since the start: the last decision may be
        about them, so they are to list."""
        self._around: dict[str, Neighbours] = {}
        """What surrounds each server, until the names of any tools change."""
        self._items: dict[tuple[str, ItemKind], ArrivedItems] = {}
        self._saved: dict[str, Mapping[Kind, frozenset[str]]] = {}
        """The items that were held of each server when it was last compared with its pins."""
        self._decided: int | None = None
        self._lock = threading.RLock()

    def admit(self, server: str, tools: Sequence[Tool], said: Mapping[str, str]) -> tuple[Tool, ...]:
        """Return the tools that may be served; the others are held, and shown in reviews."""
        with self._lock:
            trust, before = self._trust(server), self._arrived.get(server)
            if before is not None and (before.trust, before.said) == (trust, said):
                arrival = self._changed(server, before, tools)
            else:
                arrival = self._listed(server, tools, said, trust)
            self._arrived[server] = arrival
            held = arrival.held_tools
            return tuple(tool for tool in tools if tool.name not in held) if held else tuple(tools)

    @property
    def unsaved(self) -> tuple[str, ...]:
        """The servers whose pins could not be saved, and are kept in memory."""
        return self._store.unsaved

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the store of pins, in sentences."""
        found = [
            f"approvals cannot be read, so a server that connects serves nothing: {reason}"
            for reason in dict.fromkeys(self._store.unreadable.values())
        ]
        if names := ", ".join(self._store.unsaved):
            found.append(f"approvals of {names} are in memory only, since they cannot be saved: {self._store.problem}")
        return tuple(found)

    def words(self, server: str, said: Mapping[str, str]) -> Mapping[str, str]:
        """Return what a server says of itself, as far as it was accepted."""
        with self._lock:
            if self._trust(server) == "auto":
                return said
            arrival = self._arrived.get(server)
            accepted = arrival.admission.accepted if arrival else self._saved_pins(server).accepted
            entry = accepted.get(("instructions", INSTRUCTIONS))
            words: dict[str, str] = json.loads(entry.value) if entry else {}
            return words

    def _saved_pins(self, server: str) -> Pins:
        """Return the pins of a server that has listed nothing yet; none where they cannot be read."""
        try:
            return pins_of(self._store.read(server))
        except StoreError:
            return Pins()

    def admit_items(self, server: str, kind: ItemKind, items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the prompts, resources or templates that may be served; the others are held, and shown in reviews."""
        trust = self._trust(server)
        if trust == "auto":
            return list(items)
        named = {str(item.get(ITEM_NAMES[kind], "")): item for item in reversed(items)}
        items = [item for name, item in reversed(named.items())]  # the first of equal names, as of tools
        entries = {entry.name: entry for entry in (item_entry(kind, item) for item in items)}
        hashes = {name: entry.hash for name, entry in entries.items()}
        with self._lock:
            known = self._items.get((server, kind), ArrivedItems())
            if not known.hashes.items() >= hashes.items():
                held = self._held_items(server, trust, entries)
                if len(known.hashes) > 2 * MOST_ITEMS:  # which are forgotten now, so that what is saved counts again
                    self._saved.pop(server, None)
                known = known.with_page(hashes, held)
                self._items[server, kind] = known
        return [item for item in items if str(item.get(ITEM_NAMES[kind], "")) not in known.held]

    def holds(self, server: str, kind: ItemKind, name: str) -> bool:
        """Return whether a prompt or resource of a server is held, as the server listed it last, or as it was saved.

        For templates, `name` is a URI: one that a held template, listed or saved, stands for is held, unless the server
        lists it as a resource that is served.
        """
        known = self._items.get((server, kind), ArrivedItems())
        saved = self._saved_items(server, kind)
        held = known.held | (saved - known.hashes.keys())  # a client may have listed the first page alone
        if kind != "template":
            return name in held or saved is ANY_URI
        if not any(is_of_template(name, template) for template in held):
            return False
        resources = self._items.get((server, "resource"), ArrivedItems())
        return name not in resources.hashes or name in resources.held

    def _saved_items(self, server: str, kind: ItemKind) -> frozenset[str]:
        """Return the items of a server that were held when it was last compared with its pins."""
        if self._trust(server) == "auto":
            return frozenset()
        try:
            if server not in self._saved:
                self._saved[server] = _items_in(held_of(self._store.read(server)))
        except StoreError:
            return ANY_URI
        return self._saved[server].get(kind, frozenset())

    def _held_items(self, server: str, trust: Trust, entries: Mapping[str, PinnedEntry]) -> frozenset[str]:
        """Compare items with their pins, keep the new ones up to a bound, and return the names of those held."""
        for _ in range(CONFLICTS):
            with suppress(StoreConflict):
                return self._compared_items(server, trust, entries)
        logger.error("no prompts and resources of %r are served: other gateways change its approvals.", server)
        return frozenset(entries)

    def _compared_items(self, server: str, trust: Trust, entries: Mapping[str, PinnedEntry]) -> frozenset[str]:
        try:
            stored = self._store.read(server)
            pins, version = pins_of(stored), scanner_version()
            stale = {key for key in pins.scanned if pins.scanned[key] != version}
            rules = AdmissionRules(trust, self._judging(server, self._definitions_of(server)))
            decided = admit_items(server, entries.values(), stale, pins, rules)
            room = max(0, MOST_ITEMS - sum(d.kind in ITEM_NAMES for d in (*stored.accepted, *stored.held)))
            fresh = {
                key: entry for key, entry in decided.accepted.items() if key in stale or pins.accepted.get(key) != entry
            }
            known = {key: entry for key, entry in fresh.items() if key in pins.accepted}
            new = dict([(key, entry) for key, entry in fresh.items() if key not in known][:room])
            shown = replace(decided, held=decided.held[:MOST_ITEMS])
            if known or new or shown.held or any(d.kind in ITEM_NAMES and d.name in entries for d in stored.held):
                touched = sorted({(entry.kind, entry.name) for entry in entries.values()})
                fresh_pins = replace(pins, accepted={**known, **new}, scanned=dict.fromkeys((*known, *new), version))
                kept = stored_pins(revised(stored.listing.partition(" ")[2]), fresh_pins, shown)
                self._store.amend(server, touched, kept, stored.listing)
                self._note_own(server, stored.listing, kept.listing)
        except StoreConflict:
            raise
        except StoreError as error:
            logger.error("no prompts and resources of %r are served: approvals cannot be read. %s", server, error)
            return frozenset(entries)
        self._report(server, decided)
        return frozenset(held.entry.name for held in decided.held)

    def _note_own(self, server: str, before: str, after: str) -> None:
        """Note a change of the pins by ourselves, which is no reason to compare the tools again."""
        arrival = self._arrived.get(server)
        if arrival is not None and arrival.listing == before:
            self._arrived[server] = replace(arrival, listing=after)

    def _definitions_of(self, server: str) -> Mapping[str, str]:
        arrival = self._arrived.get(server)
        return arrival.definitions if arrival else {}

    def held(self, server: str) -> tuple[Held, ...]:
        with self._lock:
            arrival = self._arrived.get(server)
            return arrival.admission.held if arrival else ()

    def doubts(self, server: str) -> dict[str, str]:
        """Return the families of attack that served tools of a server are suspected of, by the names of the tools.

        Those of a server that has not listed its tools yet are read as they were saved.
        """
        arrival = self._arrived.get(server)  # without the lock, which is held while thousands of tools are scanned
        try:
            doubts = arrival.admission.doubts if arrival else doubts_of(self._store.read(server))
        except StoreError:
            return {}
        return {name: found[0].family for name, found in doubts.items() if found}

    def read_only(self, server: str) -> frozenset[str]:
        """Return the tools that a review found to be read-only; none where the reviews cannot be read."""
        arrival = self._arrived.get(server)
        if arrival is not None and arrival.pins is not None:
            accepted = arrival.pins.accepted
            known = {name: entry for name, _ in arrival.only_read if (entry := accepted.get(("tool", name)))}
            return frozenset(name for name, entry in known.items() if (name, entry.hash) in arrival.only_read)
        try:
            return read_only_of(self._store.read(server))
        except StoreError:
            return frozenset()

    def opened(self, catalog: Catalog) -> Catalog:
        """Return a saved catalog without what is held; servers that were saved without pins are scanned and pinned."""
        try:
            known = self._store.overview()
        except StoreError as error:
            logger.error("no saved tools are served: approvals cannot be read. %s", error)
            known = {server: frozenset(tool.name for tool in catalog.of_server(server)) for server in catalog.servers}
        self._held = known
        for server, ids in catalog.members.items():
            held = known.get(server)
            if not ids or held == frozenset() or self._trust(server) == "auto":
                continue  # the usual case, in which no saved tool has to be parsed
            tools = tuple(catalog.of_server(server))
            served = self.admit(server, tools, {}) if held is None else [t for t in tools if t.name not in held]
            catalog = catalog.with_server(catalog.servers[server], served)
        return catalog

    def reviewed(self) -> dict[str, tuple[Tool, ...]]:
        """Return everything that servers listed, to be admitted again, if somebody has decided something meanwhile."""
        try:
            state = self._store.state()
        except StoreError:
            return {}
        with self._lock:
            outdated = {
                server: self._arrived.pop(server).tools for server in self._store.outdated & self._arrived.keys()
            }
            self._store.outdated.clear()
            if state == self._decided:
                return outdated
            first, self._decided = self._decided is None, state
            if first:
                return outdated
            listed = {**outdated, **{server: arrival.tools for server, arrival in self._arrived.items()}}
            self.unlisted = frozenset(self._holding().difference(listed))
            self._arrived.clear()
            self._items.clear()
            self._saved.clear()
            return listed

    def _holding(self) -> set[str]:
        """Return the servers of which something was held at the start, or is held now."""
        held = {server for server, names in self._held.items() if names}
        with suppress(StoreError):
            held |= {server for server, names in self._store.overview().items() if names}
        return held

    def _listed(self, server: str, tools: Sequence[Tool], said: Mapping[str, str], trust: Trust) -> Arrival:
        """Compare a whole listing with the pins of its server, as often as another gateway writes meanwhile."""
        for _ in range(CONFLICTS):
            with suppress(StoreConflict):
                return self._compared(server, tools, said, trust)
        listed = listing(server, [tool.mcp() for tool in tools])
        error = StoreError("Other gateways change them again and again.")
        definitions = {tool.name: tool.definition for tool in tools}
        return Arrival(tuple(tools), dict(said), trust, self._without_store(listed, trust, error), None, definitions)

    def _compared(self, server: str, tools: Sequence[Tool], said: Mapping[str, str], trust: Trust) -> Arrival:
        self._around.clear()
        definitions = {tool.name: tool.definition for tool in tools}
        listed = listing(server, [tool.mcp() for tool in tools], canonical(dict(said)) if said else None)
        pins: Pins | None = None
        only_read: frozenset[tuple[str, str]] = frozenset()
        gone: dict[str, int] = {}
        written = ""
        try:
            if self._decided is None:
                self._decided = self._store.state()  # so that every decision after this reading is noticed
            stored = self._store.read(server)
            pins, only_read = pins_of(stored), found_read_only(stored)
            gone = gone_tools(pins, definitions)
            mark, written = f"{listed.hash} {scanner_version()}", stored.listing
            items = tuple(each for each in held_of(stored) if each.entry.kind in ITEM_NAMES)
            self._saved[server] = _items_in(items)
            if stored.listing.endswith(mark) and len(stored.held) == len(items) and trust != "review":
                admission = Admitted({(e.kind, e.name): e for e in listed.entries}, doubts=pins.doubts)
            else:
                rescan = not stored.listing.endswith(scanner_version())
                is_crowded = self._is_crowded(gone)
                rules = AdmissionRules(trust, self._judging(server, definitions), rescan, is_crowded)
                admission = admit(listed, pins, rules)
                if is_crowded and trust == "auto":  # nothing is compared with these pins
                    pins, gone = without_gone(pins, definitions), {}
                kept = stored_pins(
                    revised(mark), with_accepted(pins, admission), replace(admission, held=(*admission.held, *items))
                )
                # What others have written already is left: each would have to compare it again.
                if rescan or server not in self._arrived or not _is_same(kept, stored):
                    self._store.write(server, kept, stored.listing)
                    written = kept.listing
        except StoreConflict:
            raise
        except StoreError as error:
            admission, pins = self._without_store(listed, trust, error), None
        self._report(server, admission)
        accepted = pins and with_accepted(pins, admission)
        return Arrival(tuple(tools), dict(said), trust, admission, accepted, definitions, only_read, written, gone)

    def _changed(self, server: str, before: Arrival, tools: Sequence[Tool]) -> Arrival:
        """Decide about the tools that are not what they were; the others stay as they were decided."""
        known = before.definitions
        left, came = differing(before.tools, tools)
        fresh = [tool for tool in came if known.get(tool.name) != tool.definition]
        missing = {tool.name for tool in left} - {tool.name for tool in came}
        if not fresh and not missing:
            return before
        definitions = {**known, **{tool.name: tool.definition for tool in fresh}}
        for name in missing:
            del definitions[name]
        if before.pins is None:
            return self._listed(server, tools, before.said, before.trust)
        gone = {name: size for name, size in before.gone.items() if name not in definitions}
        pinned = (before.pins.accepted.get(("tool", name)) for name in missing)
        gone |= {entry.name: remembered_bytes(entry) for entry in pinned if entry}
        is_crowded = self._is_crowded(gone)
        if is_crowded and before.trust == "auto":
            return self._listed(server, tools, before.said, before.trust)  # which drops what is gone
        if missing or any(tool.name not in known for tool in fresh):
            self._around.clear()
        entries = [tool_entry(tool.mcp()) for tool in fresh]
        touched: set[tuple[Kind, str]] = {("tool", name) for name in (*missing, *(tool.name for tool in fresh))}
        decided = admit_some(
            server,
            entries,
            definitions.keys(),
            before.pins,
            AdmissionRules(before.trust, self._judging(server, definitions), crowded=is_crowded),
        )
        pins = with_accepted(before.pins, decided)
        try:
            fresh_pins = replace(pins, accepted=decided.accepted)
            amended = stored_pins(revised(f"{CHANGED} {scanner_version()}"), fresh_pins, decided)
            self._store.amend(server, sorted(touched), amended, before.listing)
        except StoreError:  # another gateway has pinned something, or the store fails, which is said there
            return self._listed(server, tools, before.said, before.trust)
        self._report(server, decided)
        accepted = dict(before.admission.accepted)  # copied whole and amended: most of thousands stay
        for key in touched:
            accepted.pop(key, None)
        accepted.update(decided.accepted)
        held = (*(h for h in before.admission.held if (h.entry.kind, h.entry.name) not in touched), *decided.held)
        admission = Admitted(accepted, held, decided.changed, pins.doubts)
        return replace(
            before,
            tools=tuple(tools),
            admission=admission,
            pins=pins,
            definitions=definitions,
            listing=amended.listing,
            gone=gone,
        )

    def _is_crowded(self, gone: Mapping[str, int]) -> bool:
        return sum(gone.values()) > self._gone_bytes()

    def _without_store(self, listed: ServerListing, trust: Trust, error: StoreError) -> Admitted:
        if trust == "auto":
            return Admitted({(e.kind, e.name): e for e in listed.entries})
        logger.error("nothing of %r is served: its approvals cannot be read. %s", listed.server, error)
        return closed(listed)

    def _report(self, server: str, admission: Admitted) -> None:
        for held in admission.held:
            if held.cause != "unreadable":
                name, why = one_line(held.entry.name, 120), one_line(held.why, 300)
                logger.warning("%s/%s is held: %s. Run `shortlist review`.", server, name, why)

    def _judging(self, server: str, names: Collection[str]) -> Callable[[ToolDefinition], ScanVerdict]:
        """Return how a definition of a server is judged, beside its other tools and those of all servers."""

        @cache  # once for all definitions of a list
        def around() -> Neighbours:
            if server not in self._around:
                others = {other: arrival.definitions for other, arrival in self._arrived.items()}
                self._around[server] = Neighbours.of(server, {**others, server: names})
            return self._around[server]

        def judge(definition: ToolDefinition) -> ScanVerdict:
            if self._scanner is None:
                self._scanner = self._make()
            return self._scanner.scan(definition, around())

        return judge


def _is_same(one: StoredPins, other: StoredPins) -> bool:
    return set(one.accepted) == set(other.accepted) and set(one.held) == set(other.held)


def _items_in(held: Iterable[Held]) -> Mapping[Kind, frozenset[str]]:
    found: dict[Kind, set[str]] = {}
    for each in held:
        found.setdefault(each.entry.kind, set()).add(each.entry.name)
    return {kind: frozenset(names) for kind, names in found.items()}
