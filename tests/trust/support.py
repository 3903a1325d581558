"""What tests of trust share."""

from shortlist.storage.port import PinStore
from shortlist.trust.deciding import decide_shown, held_named


def approve(store: PinStore, server: str, *names: str) -> None:
    """Approve what is held of a server under these names."""
    for name in names:
        decide_shown(store, server, held_named(store, server, name), True, "ann", 1.0)
