"""Stores that live as long as their process: for what may be lost with it, and for gateways that keep nothing."""

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shortlist.storage.port import ResultLimits, StoredWorkspace

DEFAULT_LIMITS = ResultLimits(seconds=3_600, most=100, most_bytes=64 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class _Kept:
    owner: str
    pages: tuple[str, ...]
    at: float
    bytes: int


class MemoryResults:
    """The large results of recent calls. They may hold anything, so by default they never reach a disk."""

    def __init__(self, limits: ResultLimits = DEFAULT_LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._bytes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._changing = threading.Lock()

    @property
    def bytes(self) -> int:
        return self._bytes

    def limit(self, limits: ResultLimits) -> None:
        with self._changing:
            self._limits = limits
            self._make_room()

    def keep(self, owner: str, handle: str, pages: Sequence[str]) -> None:
        """Keep pages; what is over the byte limit is cut off, and the last page says so."""
        with self._changing:
            within, size = self._within(pages)
            self._make_room(1, size)
            self._kept[handle] = _Kept(owner, within, self._clock(), size)
            self._bytes += size

    def find(self, owner: str, handle: str) -> Sequence[str] | None:
        with self._changing:
            self._make_room()
            kept = self._kept.get(handle)
        return kept.pages if kept is not None and kept.owner == owner else None

    def _within(self, pages: Sequence[str]) -> tuple[tuple[str, ...], int]:
        size, most = 0, self._limits.most_bytes
        for number, page in enumerate(pages):
            if size + sys.getsizeof(page) > most:
                return (*pages[:number], f"[The rest, over {most:,} bytes, was not kept.]"), size
            size += sys.getsizeof(page)
        return tuple(pages), size

    def _make_room(self, results: int = 0, size: int = 0) -> None:
        limits, oldest = self._limits, self._clock() - self._limits.seconds
        while self._kept:
            handle, kept = next(iter(self._kept.items()))
            fits = len(self._kept) + results <= limits.most and self._bytes + size <= limits.most_bytes
            if fits and kept.at > oldest:
                return
            del self._kept[handle]
            self._bytes -= kept.bytes


class MemoryWorkspaces:
    """Workspaces for a gateway without a data folder."""

    def __init__(self) -> None:
        self._saved: dict[str, StoredWorkspace] = {}

    def load(self, key: str) -> StoredWorkspace | None:
        return self._saved.get(key)

    def save(self, workspace: StoredWorkspace, *, since: float, most: int) -> None:
        latest = sorted({**self._saved, workspace.key: workspace}.values(), key=lambda each: -each.used)
        self._saved = {each.key: each for each in latest[:most] if each.used >= since}
