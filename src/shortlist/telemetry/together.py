"""Tools that are called together, from the log."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Self

from shortlist.models import ToolId
from shortlist.telemetry.tallies import Pair

LEAST = 2
"""Workspaces that called both; one alone is no habit."""
MOST = 5


class UsedTogether:
    """Which tools were called in the same workspaces as another; the writer adds to it while it is asked."""

    def __init__(self) -> None:
        self._partners: defaultdict[ToolId, Counter[ToolId]] = defaultdict(Counter)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Self:
        """Take up what the store has counted."""
        together = cls()
        for one, other, workspaces in pairs:
            together.add(one, other, workspaces=workspaces)
        return together

    def add(self, one: ToolId, other: ToolId, *, workspaces: int = 1) -> None:
        with self._lock:
            self._partners[one][other] += workspaces
            self._partners[other][one] += workspaces

    def __call__(self, tool: ToolId) -> frozenset[ToolId]:
        """Give the tools most often used with one."""
        with self._lock:
            partners: Mapping[ToolId, int] = dict(self._partners.get(tool, {}))
        often = sorted((-count, other) for other, count in partners.items() if count >= LEAST)
        return frozenset(other for _, other in often[:MOST])
