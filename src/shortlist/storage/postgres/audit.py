"""The audit log of all gateways in one database.

A record is written to a file of its process first, which a kill does not lose, so that no call waits for the database.
A thread sends records on; what an earlier process could not send, the next one with the same data folder sends.
"""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby, islice
from operator import itemgetter

from shortlist.errors import NothingRecorded, StoreError
from shortlist.storage.audit import (
    CLOSED,
    AuditChain,
    AuditCheck,
    AuditLine,
    AuditLog,
    AuditRecord,
    check_trail,
    day_of,
    new_pseudonym,
    process_name,
    resolved,
    trail_name,
)
from shortlist.storage.postgres.database import Postgres, PostgresConnection, key_text
from shortlist.storage.shared import LeftRecords, Spool

MOST_WAITING = 50_000
"""Records that may wait for a database that is away; further ones cannot be kept."""
BATCH = 1_000
GATHER_SECONDS = 0.2
RETRY_SECONDS = (0.5, 10.0)
"""How long to wait before a database that failed is tried again: at first, and at most."""
CLOSE_SECONDS = 3.0
SPOOL_BYTES = 1_000_000
"""From a spool of this size, what is stored is removed."""
FEW = 200
"""Calls wait while so many records at most are written to a smaller spool."""

logger = logging.getLogger(__name__)


class PostgresAudit:
    """All trails, and whose pseudonyms they name."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def log(self, spool: Callable[[], Spool]) -> AuditLog:
        log = SpooledAudit(self, spool)
        log.open()
        return log

    def append(self, process: str, records: Sequence[AuditRecord | None], spool: tuple[str, int]) -> None:
        """Add those of the records to the trails of a process that are not stored yet.

        They are the last ones of a spool, which holds as many as `spool` says; None stands for an unreadable one.
        """
        name, count = spool
        with self._database.transaction() as connection:
            missing = count - self._stored(connection, name)
            if missing <= 0:
                return  # all of them arrived, though the answer of the database did not
            new = [record for record in records[-missing:] if record is not None]
            people = self._pseudonyms(connection, {record.principal for record in new})
            for trail, own in groupby(new, key=lambda record: trail_name(record.at, process)):
                self._extend(connection, trail, [record.line(people[record.principal]) for record in own])
            connection.execute(
                "INSERT INTO spools VALUES (%s, %s) ON CONFLICT (name) DO UPDATE "
                "SET stored = excluded.stored, at = excluded.at",
                spool,
            )

    def stored(self, spool: str) -> int:
        """Return how many records of a spool are stored."""
        with self._database.transaction() as connection:
            return self._stored(connection, spool)

    def finish(self, process: str, at: float) -> None:
        """Write the closing line of every trail of a process."""
        with self._database.transaction() as connection:
            sql = "SELECT DISTINCT trail FROM audit WHERE trail LIKE %s"
            for (trail,) in connection.execute(sql, (f"audit-%-{process}.jsonl",)).fetchall():
                self._extend(connection, trail, [{"action": CLOSED, "at": at}])

    def checks(self) -> tuple[AuditCheck, ...]:
        trails = groupby(self._rows("SELECT trail, line FROM audit ORDER BY trail, seq"), key=itemgetter(0))
        return tuple(check_trail(name, (line for _, line in rows)) for name, rows in trails)

    def records(self) -> Iterator[AuditLine]:
        people = {row[0]: row[1] for row in self._rows("SELECT pseudonym, principal FROM audit_people")}
        return iter(resolved((line for (line,) in self._rows("SELECT line FROM audit ORDER BY trail, seq")), people))

    def erase(self, principal: str) -> bool:
        with self._database.transaction() as connection:
            sql = "DELETE FROM audit_people WHERE principal = %s"
            return connection.execute(sql, (key_text(principal),)).rowcount > 0

    def prune(self, before: float) -> int:
        with self._database.transaction() as connection:
            connection.execute("SET LOCAL shortlist.retention = 'on'")
            sql = (
                "WITH old AS (DELETE FROM audit WHERE trail < %s RETURNING trail) SELECT count(DISTINCT trail) FROM old"
            )
            row = connection.execute(sql, (f"audit-{day_of(before)}",)).fetchone()
            return int(row[0]) if row else 0

    def _rows(self, sql: str) -> Iterator[tuple[str, ...]]:
        with suppress(NothingRecorded):
            yield from self._database.rows(sql)

    def _stored(self, connection: PostgresConnection, spool: str) -> int:
        row = connection.execute("SELECT stored FROM spools WHERE name = %s", (spool,)).fetchone()
        return int(row[0]) if row else 0

    def _pseudonyms(self, connection: PostgresConnection, principals: set[str]) -> dict[str, str]:
        names = {principal: key_text(principal) for principal in sorted(principals)}
        connection.cursor().executemany(
            "INSERT INTO audit_people VALUES (%s, %s) ON CONFLICT DO NOTHING",
            [(name, new_pseudonym()) for name in sorted(set(names.values()))],
        )
        sql = "SELECT principal, pseudonym FROM audit_people WHERE principal = ANY(%s)"
        known: dict[str, str] = dict(connection.execute(sql, (list(names.values()),)).fetchall())
        return {principal: known[name] for principal, name in names.items()}

    def _extend(self, connection: PostgresConnection, name: str, lines: Sequence[AuditLine]) -> None:
        sql = "SELECT line FROM audit WHERE trail = %s ORDER BY seq DESC LIMIT 1"
        row = connection.execute(sql, (name,)).fetchone()
        trail, rows = AuditChain.up_to(name, row[0]) if row else AuditChain.begun(name), []
        for fields in lines:
            text, extended = trail.extended(fields)
            rows.append((name, trail.count, text))
            trail = extended
        connection.cursor().executemany("INSERT INTO audit VALUES (%s, %s, %s)", rows)


class SpooledAudit:
    """The log of this process: records reach the operating system at once, and the database a moment later."""

    def __init__(self, store: PostgresAudit, spool: Callable[[], Spool], now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._open_spool = spool
        self._spool: Spool | None = None
        self._now = now
        self._process = process_name()
        self._waiting: deque[AuditRecord] = deque()
        self._stored = 0
        """How many records of the spool are in the database."""
        self._has_trail = False
        self._adding = threading.Lock()
        """Keeps queue and spool in the same order."""
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shortlist-audit", daemon=True)

    def open(self) -> None:
        """Open the spool, and send what earlier processes have left; a spool that does not open is tried again."""
        try:
            self._spool = self._open_spool()
        except StoreError as error:
            logger.warning("audit records cannot be kept yet: %s", error)
        self._thread.start()

    def record(self, record: AuditRecord) -> None:
        """Keep one record; raise StoreError where it cannot be written, or too many wait for the database."""
        with self._adding:
            if self._spool is None:
                raise StoreError("The audit log is not open yet. The log of the gateway says why.")
            if len(self._waiting) >= MOST_WAITING:
                raise StoreError(
                    f"{MOST_WAITING:,} audit records wait for the database, which does not accept them. "
                    "Check that PostgreSQL is running and reachable."
                )
            self._spool.append(spooled(record))
            self._waiting.append(record)
        self._wake.set()

    def close(self) -> None:
        """Send what waits, within some seconds; the rest stays in the spool for the next process."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        if self._spool is not None:
            is_done = not self._waiting and not self._thread.is_alive()
            self._spool.close(discard=is_done)

    def _run(self) -> None:
        if self._retried(self._ensure_spool):
            self._retried(self._recover)
        while not self._closing.is_set() or self._waiting:
            self._wake.wait()
            self._closing.wait(GATHER_SECONDS)
            self._wake.clear()
            while self._waiting:
                if not self._retried(self._send):
                    return
                if len(self._waiting) < BATCH and not self._closing.is_set():
                    self._wake.set()
                    break  # gather first: a transaction for each record would cost the calls more
        if self._has_trail:
            self._retried(lambda: self._store.finish(self._process, self._now()))

    def _ensure_spool(self) -> None:
        if self._spool is None:
            self._spool = self._open_spool()

    def _retried(self, act: Callable[[], None]) -> bool:
        """Act until the database answers; where the gateway closes, try once more, and return whether it did."""
        wait, has_failed, is_last = RETRY_SECONDS[0], False, False
        while not is_last:
            try:
                act()
            except StoreError as error:
                if not has_failed:
                    logger.warning("audit records wait for the database; calls still work: %s", error)
            except Exception:
                if not has_failed:
                    logger.exception("audit records could not be sent to the database")
            else:
                return True
            has_failed, is_last = True, self._closing.is_set()
            self._closing.wait(wait)
            wait = min(wait * 2, RETRY_SECONDS[1])
        return False

    def _send(self) -> None:
        if self._spool is None:
            return
        with self._adding:
            records = tuple(islice(self._waiting, BATCH))
        self._store.append(self._process, records, (self._spool.name, self._stored + len(records)))
        self._stored += len(records)
        self._has_trail = True
        with self._adding:
            for _ in records:
                self._waiting.popleft()
            if self._spool.size > SPOOL_BYTES and len(self._waiting) <= FEW:
                self._spool.renew(self._stored, [spooled(record) for record in self._waiting])

    def _recover(self) -> None:
        """Send what earlier processes with this data folder could not send."""
        for left in self._spool.left() if self._spool is not None else ():
            before, left_over = left.since(self._store.stored(left.name))
            records = [_unspooled(record) for record in left_over]
            for start in range(0, len(records), BATCH):
                batch = records[start : start + BATCH]
                self._store.append(self._process, batch, (left.name, before + start + len(batch)))
                self._has_trail = True
            _put_away(left, records)
            if records:
                logger.info("stored %d audit records that an earlier process had left", len(records))


def _put_away(left: LeftRecords, records: Sequence[AuditRecord | None]) -> None:
    """Remove a spool whose records are stored; keep one in which some of them cannot be read."""
    unreadable = records.count(None)
    if not unreadable:
        left.discard()
        return
    why = "audit records of an earlier process that cannot be read: %d of %d, kept in %s. The others are stored."
    try:
        logger.error(why, unreadable, len(records), left.set_aside())
    except OSError as error:
        logger.warning("%s was stored and cannot be renamed: %s", left.path, error)


def spooled(record: AuditRecord) -> bytes:
    """Return a record as a spool keeps it."""
    return json.dumps(asdict(record)).encode()


def _unspooled(record: bytes) -> AuditRecord | None:
    """Return the record that a spool has kept; None where it cannot be read."""
    try:
        found = AuditRecord(**json.loads(record))
        day_of(found.at)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    return found
