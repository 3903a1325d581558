"""Review: definitions that are held, with their reasons and a word-level diff, and the decisions about them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from shortlist.errors import InvalidInput
from shortlist.storage.port import PinStore
from shortlist.trust.deciding import decide_shown, held_as_shown, set_hash
from shortlist.trust.diff import WordChange, words_changed
from shortlist.trust.pins import Held
from shortlist.trust.stored import held_of, pins_of
from shortlist.web.page import Page, Visit

SHOWN = 20
"""How many definitions of a server are compared word by word on one page."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A held definition as the page shows it."""

    held: Held
    changes: tuple[WordChange, ...]
    rejected: bool
    """Somebody has decided against it; it stays held, and can still be approved."""


@dataclass(frozen=True, slots=True)
class HeldServer:
    """What is held of one server; `set_hash` stands for all of it in a form."""

    server: str
    set_hash: str
    rows: tuple[HeldRow, ...]
    more: int

    @property
    def count(self) -> int:
        return len(self.rows) + self.more


def page(visit: Visit) -> Page:
    """Show everything that is held."""
    return Page("review.html", "Review", {"servers": list(_servers(visit.record().pins))})


def approve(visit: Visit) -> str:
    """Approve what the form was shown for."""
    return _decided(visit, approved=True)


def reject(visit: Visit) -> str:
    """Reject what the form was shown for."""
    return _decided(visit, approved=False)


def _decided(visit: Visit, *, approved: bool) -> str:
    """Decide about a definition, or about everything that is held of a server, by the hash that was on the page."""
    store, server, shown = visit.record().pins, visit.path["server"], visit.path["hash"]
    held = held_of(store.read(server))
    chosen = held_as_shown(held, shown)
    if not chosen:
        raise InvalidInput(f"What is held of {server!r} has changed since this page was shown. Look at it again.")
    decide_shown(store, server, chosen, approved, visit.session.principal.name, time.time())
    return "/review"


def _servers(store: PinStore) -> Iterator[HeldServer]:
    for server in store.overview():
        stored = store.read(server)
        held, rejected = held_of(stored), pins_of(stored).rejected
        if held:
            rows = tuple(
                HeldRow(each, tuple(words_changed(each.before, each.entry)), each.entry.hash in rejected)
                for each in held[:SHOWN]
            )
            yield HeldServer(server, set_hash(held), rows, len(held) - len(rows))
