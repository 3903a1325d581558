"""Decisions about definitions, each bound to the hash of what somebody was shown."""

import hashlib
from collections.abc import Iterable, Sequence

from shortlist.errors import InvalidInput
from shortlist.storage.port import Decision, PinStore
from shortlist.trust.pins import Held, PinnedEntry
from shortlist.trust.stored import READ_ONLY, held_of

SHOWN_DIGITS = 32
"""Digits of a hash that stand for a definition. A server chooses the definition that is shown and the one it replaces
that with, and finds two with the same 12 digits in a minute."""


def held_named(store: PinStore, server: str, name: str = "") -> list[Held]:
    """Return what is held of a server under a name, or all of it; raise InvalidInput where nothing is."""
    held = held_of(store.read(server))
    found = [each for each in held if not name or each.entry.name == name]
    if not found:
        listed = ", ".join(sorted(each.entry.name for each in held)) or "nothing"
        raise InvalidInput(f"{name or server!r} is not held. Held of {server!r}: {listed}.")
    return found


def held_as_shown(held: Sequence[Held], digest: str) -> list[Held]:
    """Return the definitions that a hash of at least 32 digits was shown for: one of them, or all together."""
    if len(digest) < SHOWN_DIGITS:
        return []
    if set_hash(held).startswith(digest):
        return list(held)
    return [each for each in held if each.entry.hash.startswith(digest)]


def set_hash(held: Iterable[Held]) -> str:
    """Return one hash for everything that is held of a server, so that a decision about all of it names what it was."""
    named = sorted(f"{each.entry.kind} {each.entry.name} {each.entry.hash}" for each in held)
    return hashlib.sha256("\n".join(named).encode()).hexdigest()


def decide_shown(store: PinStore, server: str, chosen: Iterable[Held], approved: bool, by: str, at: float) -> None:
    """Approve or reject definitions as they were shown: the decision belongs to their hashes."""
    store.decide(server, [Decision(e.entry.kind, e.entry.name, e.entry.hash, approved, by, at) for e in chosen])


def decide_effect(store: PinStore, server: str, names: Iterable[str], read_only: bool, by: str, at: float) -> list[str]:
    """Record that accepted tools of a server, by name or all of them, only read or may write; return their names.

    The decision is about the definition as it is now: after a change the tool may write again.
    """
    tools = {d.name: PinnedEntry("tool", d.name, d.text) for d in store.read(server).accepted if d.kind == "tool"}
    wanted = set(names)
    unknown = sorted(wanted - tools.keys())
    if unknown or not tools:
        known = ", ".join(sorted(tools)) or "none; the gateway has to connect to it first"
        raise InvalidInput(f"No accepted tool {unknown[0] if unknown else server!r}. Tools of {server!r}: {known}.")
    chosen = [entry for name, entry in sorted(tools.items()) if not wanted or name in wanted]
    store.decide(server, [Decision(READ_ONLY, e.name, e.hash, read_only, by, at) for e in chosen])
    return [entry.name for entry in chosen]
