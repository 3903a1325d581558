"""Events on their way to the store: a bounded queue, a thread that writes, and a count of what was lost."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from shortlist.errors import StoreError
from shortlist.telemetry.events import Event, EventsLost
from shortlist.telemetry.ledger import Batch, Ledger, Stamped
from shortlist.telemetry.store import EventWriter

logger = logging.getLogger(__name__)

CAPACITY = 20_000
"""Events that wait to be written: two seconds of ten thousand a second."""
BATCH = 2_000
GATHER_SECONDS = 0.5
"""How long events gather before they are written together; what a kill can lose."""
RETRY_SECONDS = (0.5, 30.0)
"""How long a store that failed is left alone: at first, and at most."""
CLOSE_SECONDS = 3.0
PURGE_SECONDS = 3_600.0
DAY = 86_400.0

Reason: TypeAlias = Literal["queue full", "store failed", "unwritable", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The wall clock, which may jump, and one that only goes on."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long and how much is kept."""

    days: float = 30.0
    megabytes: float = 1_000.0


SYSTEM_CLOCKS = Clocks()
DEFAULT_RETENTION = Retention()


class Recorder:
    """Takes events without blocking or raising; whatever goes wrong behind it is counted and said once."""

    def __init__(
        self,
        open_store: Callable[[], EventWriter],
        ledger: Ledger,
        *,
        retention: Retention = DEFAULT_RETENTION,
        clocks: Clocks = SYSTEM_CLOCKS,
        capacity: int = CAPACITY,
    ) -> None:
        self._open_store = open_store
        self._ledger = ledger
        self._retention = retention
        self._clocks = clocks
        self._capacity = capacity
        self._queue: deque[Stamped] = deque()
        self._lost: Counter[str] = Counter(dict.fromkeys(get_args(Reason), 0))
        self._told: Counter[str] = Counter()
        """What of it the store has been told."""
        self._losing = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._store: EventWriter | None = None
        self._purged: float | None = None
        self._thread = threading.Thread(target=self._run, name="shortlist-events", daemon=True)
        self._started = False

    def __call__(self, event: Event) -> None:
        """Take an event; when too many wait it is counted as lost."""
        if len(self._queue) >= self._capacity or self._closing.is_set():
            self._lose("queue full", 1)
            return
        self._queue.append(self._stamped(event))
        if not self._wake.is_set():
            self._wake.set()
        if not self._started:
            self._start()

    @property
    def lost(self) -> Mapping[str, int]:
        """How many events could not be kept, by reason."""
        with self._losing:
            return dict(self._lost)

    @property
    def untold(self) -> Mapping[str, int]:
        """How many of them the store does not know of yet."""
        with self._losing:
            return dict(self._lost - self._told)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what waits, for a moment at most; what is left is counted as lost."""
        self._closing.set()
        self._wake.set()
        if self._started:
            self._thread.join(seconds)
        if left := len(self._queue):
            self._lose("closed", left)
            logger.warning("%d events were not written in time", left)

    def _stamped(self, event: Event) -> Stamped:
        return Stamped(self._clocks.wall(), self._clocks.steady(), event)

    def _start(self) -> None:
        with self._losing:
            if not self._started:
                self._started = True
                self._thread.start()

    def _lose(self, reason: Reason, count: int) -> None:
        with self._losing:
            self._lost[reason] += count

    def _run(self) -> None:
        while not self._closing.is_set() or self._queue:
            self._wake.wait()
            self._closing.wait(GATHER_SECONDS)
            self._wake.clear()
            while self._queue:
                self._write(self._gather())
            self._purge()
        if self._store is not None:
            self._store.close()

    def _gather(self) -> Batch:
        batch = Batch()
        with self._losing:
            untold, self._told = self._lost - self._told, self._lost.copy()
        for reason, count in untold.items():
            self._ledger.enter(batch, self._stamped(EventsLost(count=count, reason=reason)))
        for _ in range(min(len(self._queue), BATCH)):
            time.sleep(0)  # a request that waits for the interpreter goes first
            try:
                self._ledger.enter(batch, self._queue.popleft())
            except Exception:  # an event that cannot be written down must not take the others with it
                logger.exception("an event could not be written down")
                self._lose("unwritable", 1)
        return batch

    def _write(self, batch: Batch) -> None:
        """Write a batch, trying again until it is written or the gateway closes."""
        wait, failed = RETRY_SECONDS[0], False
        while True:
            try:
                self._opened().append(batch)
            except StoreError as error:
                self._give_up_store()
                if not failed:
                    logger.warning("events are not kept for now, calls go on: %s", error)
                failed = True
            except Exception:
                logger.exception("events could not be written down")
                self._lose("unwritable", len(batch.entries))
                return
            else:
                return
            if self._closing.wait(wait):
                self._lose("store failed", len(batch.entries) + len(self._queue))
                self._queue.clear()
                return
            wait = min(wait * 2, RETRY_SECONDS[1])

    def _opened(self) -> EventWriter:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _give_up_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _purge(self) -> None:
        """Delete what is too old or too much, once in a while."""
        now = self._clocks.steady()
        if self._store is None or (self._purged is not None and now - self._purged < PURGE_SECONDS):
            return
        self._purged = now
        try:
            self._store.purge(self._clocks.wall() - self._retention.days * DAY, self._retention.megabytes)
        except StoreError as error:
            logger.warning("old events stay for now: %s", error)
