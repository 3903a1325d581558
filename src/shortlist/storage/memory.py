"""Stores that live as long as their process: for what may be lost with it, and for gateways that keep nothing."""

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shortlist.storage.owned import ResultLimits, StoredWorkspace, WorkspaceLimits, owner_of

DEFAULT_LIMITS = ResultLimits(
    seconds=3_600, most=100, most_bytes=64 * 1024 * 1024, most_of_owner=50, bytes_of_owner=16 * 1024 * 1024
)


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
            self._displace_own(owner, size)
            self._make_room(1, size)
            self._kept[handle] = _Kept(owner, within, self._clock(), size)
            self._bytes += size

    def find(self, owner: str, handle: str) -> Sequence[str] | None:
        with self._changing:
            self._make_room()
            kept = self._kept.get(handle)
        return kept.pages if kept is not None and kept.owner == owner else None

    def _within(self, pages: Sequence[str]) -> tuple[tuple[str, ...], int]:
        size, most = 0, min(self._limits.most_bytes, self._limits.bytes_of_owner)
        for number, page in enumerate(pages):
            if size + sys.getsizeof(page) > most:
                return (*pages[:number], f"[The rest, over {most:,} bytes, was not kept.]"), size
            size += sys.getsizeof(page)
        return tuple(pages), size

    def erase(self, owner: str) -> int:
        with self._changing:
            own = [handle for handle, kept in self._kept.items() if kept.owner == owner]
            for handle in own:
                self._drop(handle)
            return len(own)

    def _displace_own(self, owner: str, size: int) -> None:
        """Drop an owner's oldest results until one more of this size fits its share."""
        own = [handle for handle, kept in self._kept.items() if kept.owner == owner]
        used = sum(self._kept[handle].bytes for handle in own)
        while own and (len(own) >= self._limits.most_of_owner or used + size > self._limits.bytes_of_owner):
            used -= self._drop(own.pop(0))

    def _drop(self, handle: str) -> int:
        kept = self._kept.pop(handle)
        self._bytes -= kept.bytes
        return kept.bytes

    def _make_room(self, results: int = 0, size: int = 0) -> None:
        limits, oldest = self._limits, self._clock() - self._limits.seconds
        while self._kept:
            handle, kept = next(iter(self._kept.items()))
            fits = len(self._kept) + results <= limits.most and self._bytes + size <= limits.most_bytes
            if fits and kept.at > oldest:
                return
            self._drop(handle)


class MemoryWorkspaces:
    """Workspaces for a gateway without a data folder."""

    def __init__(self) -> None:
        self._saved: dict[str, StoredWorkspace] = {}

    def load(self, key: str) -> StoredWorkspace | None:
        return self._saved.get(key)

    def save(self, workspace: StoredWorkspace, limits: WorkspaceLimits) -> None:
        owner, since = owner_of(workspace.key), workspace.used - limits.seconds
        latest = sorted({**self._saved, workspace.key: workspace}.values(), key=lambda each: -each.used)
        surplus = [each.key for each in latest if owner_of(each.key) == owner][limits.most_of_owner :]
        kept = [each for each in latest if each.used >= since and each.key not in surplus]
        self._saved = {each.key: each for each in kept[: limits.most]}

    def of_owner(self, owner: str) -> list[StoredWorkspace]:
        return sorted((w for w in self._saved.values() if owner_of(w.key) == owner), key=lambda each: -each.used)

    def erase(self, owner: str) -> int:
        before = len(self._saved)
        self._saved = {key: workspace for key, workspace in self._saved.items() if owner_of(key) != owner}
        return before - len(self._saved)
