"""Who gets a place where few are left, and how often something may happen.

No caller displaces one that has fewer, or leaves nothing for the others.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

MOST_SHARE = 0.75
"""How much one caller may take of places that cannot be taken away again."""
BURST_SECONDS = 10.0

Key = TypeVar("Key")
Owner = TypeVar("Owner", bound=Hashable)


def gives_way(held: Mapping[Key, Owner], newcomer: Owner, may_go: Callable[[Key], bool] = lambda _: True) -> Key | None:
    """Return the entry that makes room for another one of the newcomer; None where only callers with fewer have any.

    `held` names the owner of each entry, the first to go first. Of those that may go, the first of the owner with the
    most entries does, which may be the newcomer itself.
    """
    places = Counter(held.values())
    places[newcomer] += 1
    found = [key for key, owner in held.items() if places[owner] >= places[newcomer] and may_go(key)]
    return max(found, key=lambda key: places[held[key]], default=None)


def has_room(taken: Mapping[Owner, int], owner: Owner, most: int, *, alone: bool = False) -> bool:
    """Return whether an owner may take another place; `alone`: there is nobody whom places could be kept for."""
    own = most if alone else max(1, int(most * MOST_SHARE))
    return sum(taken.values()) < most and taken.get(owner, 0) < own


@dataclass(slots=True)
class Allowance:
    """Limits how often something happens, with bursts of a few seconds' allowance, and counts what was dropped."""

    per_second: float
    clock: Callable[[], float] = time.monotonic
    burst_seconds: float = BURST_SECONDS
    dropped: int = 0
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at = self.per_second * self.burst_seconds, self.clock()

    def spend(self) -> bool:
        """Return whether one more may pass."""
        now = self.clock()
        self._left = min(self.per_second * self.burst_seconds, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1:
            self.dropped += 1
            return False
        self._left -= 1
        return True
