"""What is kept for one caller: its workspaces and its large results. One caller cannot displace what another keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shortlist.models import ToolId

CLOCK_SKEW_SECONDS = 3_600.0
"""How far the clocks of two gateways may differ; a time further ahead was written by a clock that was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorkspace:
    """What one caller has loaded; the key names its owner and holds only a hash of a handle."""

    key: str
    loaded: Mapping[ToolId, str]
    """Tool to the toolset it came with, or "", in the order of loading."""
    used: float
    """Seconds since 1970."""


def owner_of(key: str) -> str:
    """Return the name of the caller in the key of a workspace: `principal:NAME` or `KIND:NAME:ID`."""
    kind, _, rest = key.partition(":")
    return rest if kind == "principal" else rest.rpartition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceLimits:
    """How long a workspace is kept unused, and how many are kept of all callers and of one."""

    seconds: float
    most: int
    most_of_owner: int


class WorkspaceStore(Protocol):
    """Workspaces that outlive a connection, by key."""

    def load(self, key: str) -> StoredWorkspace | None: ...

    def save(self, workspace: StoredWorkspace, limits: WorkspaceLimits) -> None:
        """Add or replace a workspace. Drop those unused for too long, the oldest of its owner, then the oldest."""
        ...

    def of_owner(self, owner: str) -> list[StoredWorkspace]:
        """Return every workspace of one caller, the latest first."""
        ...

    def erase(self, owner: str) -> int:
        """Delete every workspace of one caller, and return how many there were."""
        ...


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """How long a kept result stays, and how much is kept of all callers and of one."""

    seconds: float
    most: int
    most_bytes: int
    most_of_owner: int
    bytes_of_owner: int


class ResultStore(Protocol):
    """Large results by handle, as pages; beyond the limits the oldest go first. Only its owner finds one."""

    @property
    def bytes(self) -> int:
        """Return what the kept results take."""
        ...

    def limit(self, limits: ResultLimits) -> None:
        """Apply limits; results beyond them are dropped now."""
        ...

    def keep(self, owner: str, handle: str, pages: Sequence[str]) -> None:
        """Keep a result. What one owner keeps beyond its own limits displaces its own oldest results first."""
        ...

    def find(self, owner: str, handle: str) -> Sequence[str] | None: ...

    def erase(self, owner: str) -> int:
        """Delete every result of one owner, and return how many there were."""
        ...
