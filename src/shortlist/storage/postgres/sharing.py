"""Sessions, replicas, leases, grants, keys and news of changes in PostgreSQL."""

import logging
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from shortlist.errors import StoreError
from shortlist.storage.postgres.database import Postgres, storable
from shortlist.storage.shared import (
    LEASE_SECONDS,
    LOCK_SECONDS,
    REPLICA_SECONDS,
    SESSION_SECONDS,
    Heard,
    Holder,
    SharedStores,
    StoredSession,
    session_key,
)

CHANNEL = "shortlist"
TOUCH_SECONDS = 60.0
"""How often the use of a session is noted at most."""
LISTEN_SECONDS = 0.5
"""How often a listener looks whether it should end."""
RETRY_SECONDS = 1.0
KEY_BYTES = 32
TRY_SECONDS = 0.05

logger = logging.getLogger(__name__)


class PostgresSessions:
    """Legacy sessions under a hash of their id: whoever reads the database cannot use them."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def open(self, session: str, stored: StoredSession) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO client_sessions (id, owner, handshake, level, subscriptions) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT DO NOTHING",  # it arrived, though the answer of the database did not
                (
                    session_key(session),
                    stored.owner,
                    storable(stored.handshake),
                    stored.level,
                    list(stored.subscriptions),
                ),
            )

    def find(self, session: str) -> StoredSession | None:
        sql = (
            "WITH touched AS (UPDATE client_sessions SET used = now() WHERE id = %(id)s "
            "AND used BETWEEN now() - make_interval(secs => %(most)s) AND now() - make_interval(secs => %(often)s)) "
            "SELECT owner, handshake, level, subscriptions FROM client_sessions "
            "WHERE id = %(id)s AND used > now() - make_interval(secs => %(most)s)"
        )
        values = {"id": session_key(session), "most": SESSION_SECONDS, "often": TOUCH_SECONDS}
        rows = self._database.read(sql, values)
        if not rows:
            return None
        owner, handshake, level, subscriptions = rows[0]
        return StoredSession(owner=owner, handshake=handshake, level=level, subscriptions=tuple(subscriptions))

    def change(self, session: str, level: str, subscriptions: Sequence[str]) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE client_sessions SET level = %s, subscriptions = %s WHERE id = %s",
                (level, [storable(uri) for uri in subscriptions], session_key(session)),
            )

    def touch(self, sessions: Sequence[str]) -> None:
        with self._database.transaction() as connection:
            sql = "UPDATE client_sessions SET used = now() WHERE id = ANY(%s)"
            connection.execute(sql, ([session_key(session) for session in sessions],))
            sql = "DELETE FROM client_sessions WHERE used < now() - make_interval(secs => %s)"
            connection.execute(sql, (SESSION_SECONDS,))

    def end(self, session: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM client_sessions WHERE id = %s", (session_key(session),))


class PostgresReplicas:
    """Who runs, by the clock of the database: those of the machines may differ."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def announce(self, replica: str, url: str) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO replicas VALUES (%s, %s, now()) "
                "ON CONFLICT (id) DO UPDATE SET url = excluded.url, seen = excluded.seen",
                (replica, url),
            )
            connection.execute("DELETE FROM replicas WHERE seen < now() - interval '1 day'")

    def others(self, replica: str) -> dict[str, str]:
        sql = "SELECT id, url FROM replicas WHERE id <> %s AND seen > now() - make_interval(secs => %s)"
        return dict(self._database.read(sql, (replica, REPLICA_SECONDS)))

    def leave(self, replica: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM replicas WHERE id = %s", (replica,))


class PostgresLeases:
    """Leases by the clock of the database. One that has expired stays with its holder until another takes it."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def take(self, key: str, replica: str, url: str, over: str = "") -> Holder:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM leases WHERE until < now() - interval '1 day'")
            connection.execute(
                "INSERT INTO leases VALUES (%s, %s, %s, now() + make_interval(secs => %s)) ON CONFLICT (key) DO UPDATE "
                "SET holder = excluded.holder, url = excluded.url, until = excluded.until "
                "WHERE leases.holder = excluded.holder OR (leases.until < now() AND leases.holder = %s)",
                (key, replica, url, LEASE_SECONDS, over),
            )
            sql = "SELECT holder, url, until < now() FROM leases WHERE key = %s"
            row = connection.execute(sql, (key,)).fetchone()
        return Holder(*row) if row else Holder(replica, url)

    def renew(self, replica: str, keys: Sequence[str]) -> dict[str, Holder]:
        with self._database.transaction() as connection:
            sql = "UPDATE leases SET until = now() + make_interval(secs => %s) WHERE holder = %s AND key = ANY(%s)"
            connection.execute(sql, (LEASE_SECONDS, replica, list(keys)))
            sql = "SELECT key, holder, url, until < now() FROM leases WHERE key = ANY(%s)"
            return {key: Holder(*row) for key, *row in connection.execute(sql, (list(keys),))}

    def release(self, key: str, replica: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM leases WHERE key = %s AND holder = %s", (key, replica))


class PostgresGrants:
    """Logins to upstream servers, as the gateways have encrypted them."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def get(self, name: str) -> bytes | None:
        rows = self._database.read("SELECT sealed FROM grants WHERE name = %s", (name,))
        return bytes(rows[0][0]) if rows else None

    def put(self, name: str, sealed: bytes) -> None:
        with self._database.transaction() as connection:
            sql = "INSERT INTO grants VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed"
            connection.execute(sql, (name, sealed))

    def remove(self, name: str) -> bool:
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM grants WHERE name = %s", (name,)).rowcount > 0

    def names(self) -> tuple[str, ...]:
        return tuple(name for (name,) in self._database.read("SELECT name FROM grants ORDER BY name"))

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        deadline = time.monotonic() + LOCK_SECONDS
        with self._database.transaction() as connection:
            sql = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
            while connection.execute(sql, (name,)).fetchone() != (True,) and time.monotonic() < deadline:
                time.sleep(TRY_SECONDS)
            yield


class PostgresChanges:
    """NOTIFY of the database; whoever follows changes also looks from time to time, in case one got lost."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def listen(self, heard: Heard, ended: threading.Event) -> None:
        is_connected = True
        while not ended.is_set():
            try:
                with self._database.listening(CHANNEL) as connection:
                    if not is_connected:
                        logger.info("changes of other gateways are heard again")
                    is_connected = True
                    heard("")
                    while not ended.is_set():
                        for notice in connection.notifies(timeout=LISTEN_SECONDS):
                            heard(notice.payload)
            except (StoreError, psycopg.Error) as error:
                if is_connected:
                    logger.warning("changes of other gateways are polled for, since they are not heard: %s", error)
                is_connected = False
                ended.wait(RETRY_SECONDS)


def shared_stores(database: Postgres) -> SharedStores:
    def key(purpose: str) -> bytes:
        with database.transaction() as connection:
            made = (purpose, secrets.token_bytes(KEY_BYTES))
            connection.execute("INSERT INTO keys VALUES (%s, %s) ON CONFLICT DO NOTHING", made)
            row = connection.execute("SELECT key FROM keys WHERE purpose = %s", (purpose,)).fetchone()
            return bytes(row[0]) if row else made[1]

    def spooled(name: str) -> int:
        rows = database.read("SELECT stored FROM spools WHERE name = %s", (name,))
        return int(rows[0][0]) if rows else 0

    return SharedStores(
        sessions=PostgresSessions(database),
        replicas=PostgresReplicas(database),
        leases=PostgresLeases(database),
        grants=PostgresGrants(database),
        changes=PostgresChanges(database),
        key=key,
        spooled=spooled,
    )
