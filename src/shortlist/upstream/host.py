"""What all servers of a pool share: who hears them, what bounds them, and how often things are tried."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from shortlist.config.settings import Limits
from shortlist.upstream.events import Client, OnEvent

PARALLEL_STARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often things are tried; tests make it quick."""

    first_retry_seconds: float = 1.0
    longest_retry_seconds: float = 300.0
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
    slot_seconds: float = 3.0
    """A slow start holds its place among the parallel ones no longer than this."""

    def back_off(self, attempts: int) -> float:
        """Give the seconds before the next attempt: doubled each time, capped, and spread at random."""
        grown = self.first_retry_seconds * 2.0 ** min(attempts - 1, 30)
        return min(grown, self.longest_retry_seconds) * secrets.SystemRandom().uniform(0.5, 1.0)


DEFAULT_CADENCE = Cadence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What all servers of a pool share."""

    on_event: OnEvent
    limits: Limits
    cadence: Cadence
    client: Client | None = None
    log_directory: Path | None = None
    starts: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(PARALLEL_STARTS))
