"""What all servers of a pool share: listeners, limits, and how often things are tried."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from shortlist.config.settings import Limits, MemoryTransport, ServerSettings
from shortlist.upstream.events import Client, OnEvent
from shortlist.upstream.grants import SHARED
from shortlist.upstream.guardian import Guardian
from shortlist.upstream.leases import Leases
from shortlist.upstream.login import Logins

PARALLEL_STARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often things are tried; tests make it quick."""

    first_retry_seconds: float = 1.0
    longest_retry_seconds: float = 60.0
    stable_seconds: float = 60.0
    """A connection that held this long starts the back-off anew."""
    reconnect_seconds: float = 10.0
    """How long a call waits for a server that is being reconnected."""
    ping_seconds: float = 60.0
    pong_seconds: float = 15.0
    poll_seconds: float = 300.0
    """Tools are listed again this often where the server does not announce changes."""
    relist_gap_seconds: float = 0.5
    head_start_seconds: float = 1.0
    """Servers that start later wait so long: the first answers need not share the processor with their starts."""
    idle_seconds: float = 300.0
    """How long a server that starts on demand stays after its last request."""
    unused_seconds: float = 10.0
    """How long one stays that was started only to list what it has."""
    slot_seconds: float = 3.0
    """A slow start holds its place among the parallel ones no longer than this."""

    def back_off(self, attempts: int) -> float:
        """Return the seconds before the next attempt: doubled each time, capped, and spread at random."""
        grown = self.first_retry_seconds * 2.0 ** min(attempts - 1, 30)
        return min(grown, self.longest_retry_seconds) * secrets.SystemRandom().uniform(0.5, 1.0)


DEFAULT_CADENCE = Cadence()


@dataclass(slots=True, kw_only=True)
class Host:
    """What all servers of a pool share; `limits` change with the configuration."""

    on_event: OnEvent
    limits: Limits
    cadence: Cadence
    client: Client | None = None
    log_directory: Path | None = None
    logins: Logins | None = None
    """Signs requests to servers that need a login; without it, only configured credentials are sent."""
    secrets: Callable[[str], str | None] | None = None
    """Returns a stored secret that a server's entry refers to."""
    principal: str = SHARED
    """Whose logins are used."""
    guardian: Guardian = field(default_factory=Guardian)
    on_demand: bool = False
    """End servers that nobody uses, as far as their settings allow it."""
    leases: Leases | None = None
    """Decides which gateway runs a server over stdio; None where this gateway shares none with others."""
    starts: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(PARALLEL_STARTS))

    def may_end(self, settings: ServerSettings) -> bool:
        """Return whether a server ends while nobody uses it. One in this process costs nothing."""
        is_apart = not isinstance(settings.transport, MemoryTransport)
        return self.on_demand and settings.start == "on_demand" and is_apart

    async def take_slot(self, tasks: TaskGroup, started: anyio.Event) -> None:
        """Wait for a turn to start a process, so that fifty servers do not start fifty at once."""
        await self.starts.acquire()
        tasks.start_soon(self._give_back, started)

    async def _give_back(self, started: anyio.Event) -> None:
        try:
            with anyio.move_on_after(self.cadence.slot_seconds):
                await started.wait()
        finally:
            self.starts.release()
