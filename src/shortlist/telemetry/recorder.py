"""Records events without blocking: a bounded queue, a thread that writes, and a count of what was lost."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

from shortlist.errors import NotStorable, StoreError
from shortlist.storage.port import Batch, EventStore
from shortlist.storage.shared import Spool
from shortlist.telemetry.events import Event, EventsLost, RecordEvent
from shortlist.telemetry.ledger import Entered, Ledger, Stamped, add_to
from shortlist.telemetry.spooling import decode_spooled, encode_spooled

logger = logging.getLogger(__name__)

CAPACITY = 20_000
"""Events that may wait to be written: two seconds at ten thousand a second."""
BATCH = 2_000
GATHER_SECONDS = 0.3
"""How long events are collected before they are written together: with the time to write them, half a second at most
that a kill can lose."""
RETRY_SECONDS = (0.5, 30.0)
"""How long to wait before a store that failed is tried again: at first, and at most."""
CLOSE_SECONDS = 3.0
PURGE_SECONDS = 3_600.0
SPOOL_BYTES = 1_000_000
"""From a spool of this size, what is stored is removed."""
FEW = 200
"""Requests wait while so many events at most are written to a smaller spool."""
DAY = 86_400.0
YEAR_2020, YEAR_2080 = 1_577_836_800.0, 3_471_292_800.0
"""A clock that shows another time is not set, as on a machine that has just booted; nothing is deleted by it."""

LossReason: TypeAlias = Literal["queue full", "store failed", "unwritable", "closed"]


def is_set(wall: float) -> bool:
    """Return whether a clock shows a time that can be right."""
    return YEAR_2020 <= wall < YEAR_2080


def record_to(*records: RecordEvent) -> RecordEvent:
    """Return a recorder that hands every event to all of these."""

    def record(event: Event) -> None:
        for each in records:
            each(event)

    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The wall clock, which may jump, and a monotonic one."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long and how much to keep."""

    days: float = 30.0
    megabytes: float = 1_000.0


@dataclass(frozen=True, slots=True)
class Spooling:
    """Where events survive a kill until they are stored, and how many of a spool are."""

    spool: Spool
    stored: Callable[[str], int]


class Recorded(NamedTuple):
    """An event of a batch, and how many records of the spool are stored with it; None where it is not in the spool."""

    entered: Entered
    spooled: int | None


@dataclass(slots=True)
class BatchPart:
    """A batch and what it was made of, so that the store can be given less of it."""

    batch: Batch = field(default_factory=Batch)
    events: list[Recorded] = field(default_factory=list)

    def halves(self) -> "list[BatchPart]":
        middle = len(self.events) // 2
        return [self._of(self.events[:middle]), self._of(self.events[middle:])]

    def _of(self, events: list[Recorded]) -> "BatchPart":
        part = BatchPart(events=events)
        for event in events:
            add_to(part.batch, event.entered)
        spooled = max((event.spooled for event in events if event.spooled is not None), default=None)
        if self.batch.spool is not None and spooled is not None:
            part.batch.spool = (self.batch.spool[0], spooled)
        return part


SYSTEM_CLOCKS = Clocks()
DEFAULT_RETENTION = Retention()


class Recorder:
    """Takes events without blocking or raising; failures behind it are counted and logged once."""

    def __init__(
        self,
        store: EventStore,
        ledger: Ledger,
        *,
        retention: Retention = DEFAULT_RETENTION,
        clocks: Clocks = SYSTEM_CLOCKS,
        capacity: int = CAPACITY,
        spooling: Spooling | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._retention = retention
        self._clocks = clocks
        self._capacity = capacity
        self._spooling = spooling
        self._adding = threading.Lock()
        """Keeps queue and spool in the same order."""
        self._taken = 0
        """How many records of the spool are part of a batch."""
        self._spool_failed = False
        """Whether events are queued without the spool until it can begin anew: those in it are the oldest."""
        self._queue: deque[Stamped] = deque()
        self._lost: Counter[str] = Counter(dict.fromkeys(get_args(LossReason), 0))
        self._told: Counter[str] = Counter()
        """Losses that were already written to the store."""
        self._losing = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._written = False
        self._purged: float | None = None
        self._thread = threading.Thread(target=self._run, name="shortlist-events", daemon=True)
        self._started = False

    def __call__(self, event: Event) -> None:
        """Queue an event; when the queue is full it is counted as lost."""
        if len(self._queue) >= self._capacity or self._closing.is_set():
            self._lose("queue full", 1)
            return
        if self._spooling is None:
            self._queue.append(self._stamped(event))
        else:
            self._spool(self._stamped(event))
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
        """How many of them have not been written to the store yet."""
        with self._losing:
            return dict(self._lost - self._told)

    def recover(self) -> None:
        """Store what an earlier process has left in the spool, beside the requests."""
        self._start()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is queued, within `seconds`; the rest is counted as lost, or left in the spool."""
        self._closing.set()
        self._wake.set()
        if self._started:
            self._thread.join(seconds)
        if self._spooling is not None:
            spool = self._spooling.spool
            spool.close(discard=self._taken == spool.count and not self._thread.is_alive())
            return
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

    def _lose(self, reason: LossReason, count: int) -> None:
        with self._losing:
            self._lost[reason] += count

    def _spool(self, stamped: Stamped) -> None:
        """Queue an event that a kill of this process does not lose."""
        with self._adding:
            if self._spooling is not None and not self._spool_failed:
                try:
                    self._spooling.spool.append(encode_spooled(stamped.at, stamped.event))
                except StoreError as error:
                    logger.warning("a kill of this gateway may lose events: %s", error)
                    self._spool_failed = True
            self._queue.append(stamped)

    def _recover(self, spooling: Spooling) -> None:
        for left in spooling.spool.left():
            before, records = left.since(spooling.stored(left.name))
            for start in range(0, len(records), BATCH):
                parts = [self._left_part(left.name, before + start, records[start : start + BATCH])]
                while parts:
                    self._append(parts)
            left.discard()
            if records:
                logger.info("recorded %d events that an earlier process had left", len(records))

    def _left_part(self, spool: str, before: int, records: Sequence[bytes]) -> BatchPart:
        """Make a batch of the next records that an earlier process has left in its spool."""
        part = BatchPart()
        for number, record in enumerate(records, before + 1):
            try:
                found = decode_spooled(record)
                stamped = Stamped(found.at, self._clocks.steady(), found.event)
                part.events.append(Recorded(self._ledger.enter(part.batch, stamped), number))
            except Exception:  # one bad event must not take the others with it
                logger.exception("an event of an earlier process could not be recorded")
                self._lose("unwritable", 1)
        part.batch.spool = (spool, before + len(records))
        return part

    def _run(self) -> None:
        if self._spooling is not None:
            try:
                self._recover(self._spooling)
            except StoreError as error:
                logger.warning("events that an earlier process left are recorded at the next start: %s", error)
            except Exception:  # events of this process are still recorded
                logger.exception("events that an earlier process left could not be recorded")
        while not self._closing.is_set() or self._queue:
            self._wake.wait()
            self._closing.wait(GATHER_SECONDS)
            self._wake.clear()
            try:
                self._write_queue()
                self._purge()
            except Exception:  # a thread that ended would record nothing any more
                logger.exception("events could not be recorded")

    def _write_queue(self) -> None:
        while self._queue:
            self._write(self._gather())
            if len(self._queue) < BATCH and not self._closing.is_set():
                self._wake.set()
                break  # gather first: a transaction for each event would cost the requests more

    def _gather(self) -> BatchPart:
        part = BatchPart()
        with self._losing:
            untold, self._told = self._lost - self._told, self._lost.copy()
        for reason, count in untold.items():
            told = self._stamped(EventsLost(count=count, reason=reason))
            part.events.append(Recorded(self._ledger.enter(part.batch, told), None))
        count, before = min(len(self._queue), BATCH), self._taken
        if self._spooling is not None:
            spool = self._spooling.spool
            self._taken = min(before + count, spool.count)
            part.batch.spool = (spool.name, self._taken) if self._taken > before else None
        coming = [self._queue.popleft() for _ in range(count)]
        try:
            self._ledger.catch_up(coming)
        except StoreError as error:
            logger.debug("calls are not attributed to searches with other gateways: %s", error)
        for number, stamped in enumerate(coming, before + 1):
            time.sleep(0)  # let a waiting request have the interpreter first
            try:
                entered = self._ledger.enter(part.batch, stamped)
            except Exception:  # one bad event must not take the others with it
                logger.exception("an event could not be recorded")
                self._lose("unwritable", 1)
            else:
                part.events.append(Recorded(entered, number if number <= self._taken else None))
        return part

    def _write(self, part: BatchPart) -> None:
        """Write what was gathered; retry until it is written or the gateway closes, and then once more."""
        parts, wait, failed, is_last = [part], RETRY_SECONDS[0], False, False
        while parts:
            try:
                self._append(parts)
                continue
            except StoreError as error:
                if not failed:
                    logger.warning("events cannot be recorded at the moment; calls still work: %s", error)
                failed = True
            except Exception:
                logger.exception("events could not be recorded")
                self._lose("unwritable", len(parts.pop(0).events))
                continue
            if is_last:
                self._give_up([event for each in parts for event in each.events])
                return
            is_last = self._closing.wait(wait)  # what kept the store from writing may be over by then
            wait = min(wait * 2, RETRY_SECONDS[1])
        self._renew_spool()

    def _append(self, parts: list[BatchPart]) -> None:
        """Write the first of these parts; where the store refuses it, its halves are left to be written."""
        part = parts[0]
        try:
            self._store.append(part.batch)
        except NotStorable as error:
            if len(part.events) > 1:
                parts[:1] = part.halves()
                return
            logger.error("events could not be recorded: %s", error)
            self._lose("unwritable", len(part.events))
            for event in part.events:
                event.entered.row.place.id = None  # what was to be attributed to it is attributed to nothing
        else:
            self._written = True
            self._ledger.written(part.batch)
        del parts[0]

    def _give_up(self, unwritten: list[Recorded]) -> None:
        """Count what is lost when the gateway closes; the next one with this folder records what is in the spool."""
        if self._spooling is None:
            lost = len(unwritten) + len(self._queue)
            self._lose("store failed", lost)
            logger.warning("%d events could not be recorded and are lost", lost)
        else:
            waiting = self._spooling.spool.count - self._taken
            unspooled = sum(
                event.spooled is None and not isinstance(event.entered.event, EventsLost) for event in unwritten
            )
            self._lose("store failed", unspooled + len(self._queue) - waiting)
            self._taken = -1
        self._queue.clear()

    def _renew_spool(self) -> None:
        with self._adding:
            if self._spooling is None or len(self._queue) > FEW:
                return
            spool = self._spooling.spool
            if self._spool_failed or spool.size > SPOOL_BYTES:
                waiting = [encode_spooled(stamped.at, stamped.event) for stamped in self._queue]
                self._spool_failed = not spool.renew(self._taken, waiting) and self._spool_failed

    def _purge(self) -> None:
        """Delete what is too old or too much, once an hour."""
        now, wall = self._clocks.steady(), self._clocks.wall()
        if not self._written or (self._purged is not None and now - self._purged < PURGE_SECONDS):
            return
        self._purged = now
        if not is_set(wall):
            logger.warning("the clock is not set (%d seconds since 1970): old events are not deleted for now", wall)
            return
        try:
            self._store.purge(wall - self._retention.days * DAY, self._retention.megabytes)
        except StoreError as error:
            logger.warning("old events could not be deleted: %s", error)
        except Exception:  # events are still recorded
            logger.exception("old events could not be deleted")
