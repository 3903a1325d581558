"""Connections to PostgreSQL: pooled, migrated under a lock, and every error a StoreError that says what to do."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, TypeAlias
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from shortlist.errors import InvalidConfig, NothingRecorded, NotStorable, StoreError

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
PostgresConnection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

SCHEMA = "shortlist"
MIGRATING, APPENDING, MOVING = 7_310_001, 7_310_002, 7_310_003
"""Keys of advisory locks."""
WAIT_SECONDS = 5.0
"""How long a query waits for a connection before it fails."""
STATEMENT_SECONDS = 30
AWAY_SECONDS = 2.0
"""After a failed connection, how long all queries fail at once; then one of them tries again."""
TRY_SECONDS = 1.0
"""How long that one waits for a connection."""
MOST_CONNECTIONS = 8
BEGUN = "begun"
LONGEST_KEY = 500
"""Bytes of a text in a key: PostgreSQL holds 2,704 of a whole key, which has up to four texts."""
KEY_DIGITS = 16
SKEW_SECONDS = 5.0
"""How far the clock of a gateway may be from that of the database before it is reported."""
_OPTIONS = f"-c search_path={SCHEMA} -c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout={STATEMENT_SECONDS}s"

logger = logging.getLogger(__name__)
logging.getLogger("psycopg.pool").addFilter(lambda record: not record.getMessage().startswith("discarding closed"))

_CONNECTION: dict[str, Any] = {
    "options": _OPTIONS,
    "connect_timeout": int(WAIT_SECONDS),
    # A server that has vanished from the network is noticed within about ten seconds, not within a quarter of an hour.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "shortlist",
}


class Postgres:
    """One database; connections are opened when they are needed, and again after the server was away."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        parts = read_address(url)
        self.place = _place(parts)
        self._url = make_conninfo(**parts)
        self._pool: ConnectionPool[PostgresConnection] = ConnectionPool(
            self._url,
            min_size=0,
            max_size=MOST_CONNECTIONS,
            timeout=WAIT_SECONDS,
            open=False,
            check=ConnectionPool.check_connection,
            reconnect_timeout=WAIT_SECONDS,
            kwargs=_CONNECTION,
        )
        self._opening = threading.Lock()
        self._ready = False
        self._begun = False
        self._away: tuple[float, str] | None = None
        """Until when nobody tries to reach the server, and why; None where it answered last."""
        self._trying = threading.Lock()
        """Held by the one query that tries to reach a server that is away; the others fail at once."""

    @contextmanager
    def transaction(self, *, create: bool = True) -> Iterator[PostgresConnection]:
        """Commit everything inside, or roll it back; without `create`, raise if nothing was ever recorded."""
        if not create:
            self._require_records()
        with self._connected() as connection, connection.transaction():
            if create and not self._begun:
                connection.execute("INSERT INTO notes VALUES (%s, '') ON CONFLICT DO NOTHING", (BEGUN,))
            yield connection
        if create:
            self._begun = True

    @contextmanager
    def filling(self) -> Iterator[PostgresConnection]:
        """Yield a transaction of its own that does not note that something was recorded."""
        with self._connected() as connection, connection.transaction():
            yield connection

    def rows(self, sql: str, values: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query; raises NothingRecorded where nothing has been recorded."""
        self._require_records()
        with self._connected() as connection, connection.cursor("rows") as cursor:
            yield from cursor.execute(sql, values)  # a cursor of the server: a long answer needs little memory

    def query(self, sql: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        self._require_records()
        return self.read(sql, values)

    def read(self, sql: str, values: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query, also of a store in which nothing has been recorded."""
        with self._connected() as connection:
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def listening(self, channel: str) -> Iterator[PostgresConnection]:
        """Yield a connection outside the pool that hears notifications."""
        self.read("SELECT 1")  # the triggers that notify are part of the schema
        with psycopg.connect(self._url, autocommit=True, **_CONNECTION) as connection:
            connection.execute(f"LISTEN {channel}")
            yield connection

    def close(self) -> None:
        self._pool.close(timeout=0.5)

    def _require_records(self) -> None:
        if not self._begun:
            self._begun = bool(self.read("SELECT 1 FROM notes WHERE name = %s", (BEGUN,)))
        if not self._begun:
            raise NothingRecorded(f"Nothing has been recorded yet in {self.place}. `shortlist serve` records events.")

    @contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        try:
            with self._reached() as connection:
                yield connection
        except (psycopg.Error, PoolTimeout) as error:
            remedy = _remedy(error)
            if remedy is None:
                raise  # a bug of ours, which no retry repairs
            if isinstance(error, _GONE):
                self._ready = False
            said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            why = f"{self.place}: {said}. {remedy}"
            if isinstance(error, _REFUSED):
                raise NotStorable(why) from None
            if _is_away(error):
                self._away = (time.monotonic() + AWAY_SECONDS, why)
            raise StoreError(why) from None

    @contextmanager
    def _reached(self) -> Iterator[PostgresConnection]:
        """Yield a connection; while the server is away, one query at a time tries to get one, and briefly."""
        away = self._away
        if away is not None and (time.monotonic() < away[0] or not self._trying.acquire(blocking=False)):
            raise StoreError(away[1])
        seconds = WAIT_SECONDS if away is None else TRY_SECONDS
        try:
            if not self._ready:
                self._prepare(seconds)
            with self._pool.connection(timeout=seconds) as connection:
                self._away = None
                if away is not None:
                    self._trying.release()
                    away = None
                try:
                    yield connection
                except psycopg.errors.ReadOnlySqlTransaction:
                    connection.close()  # a new one may reach the host that was promoted instead of this one
                    raise
        finally:
            if away is not None:
                self._trying.release()

    def _prepare(self, seconds: float) -> None:
        with self._opening:
            if self._ready:
                return
            self._pool.open()
            with self._pool.connection(timeout=seconds) as connection:
                self._migrate(connection)
                self._compare_clocks(connection)
            self._ready = True

    def _migrate(self, connection: PostgresConnection) -> None:
        """Bring the schema up to date; several gateways may start at once."""
        scripts = migrations()
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY)")
        row = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
        version = int(row[0]) if row else 0
        if version > len(scripts):
            raise StoreError(
                f"{self.place} was written by a newer version of shortlist (schema {version}, this version supports "
                f"{len(scripts)}). Upgrade shortlist, or use another database."
            )
        for number, script in enumerate(scripts[version:], version + 1):
            connection.execute(script.encode())
            connection.execute("INSERT INTO migrations VALUES (%s)", (number,))
        connection.commit()

    def _compare_clocks(self, connection: PostgresConnection) -> None:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
        ahead = self._clock() - float(row[0]) if row else 0.0
        if abs(ahead) > SKEW_SECONDS:
            logger.warning(
                "the clock of this machine is %.0f s %s that of %s: events are recorded with the wrong time. "
                "Sessions and leases are not affected. Synchronise the clocks of all gateways, for example with NTP.",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                self.place,
            )


_GONE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
"""The schema was removed, or a backup of an older one was restored; it is brought up to date again."""


_REFUSED = (psycopg.errors.ProgramLimitExceeded, psycopg.DataError)
"""What was to be stored does not fit, as a name of many thousand characters does not fit into an index."""


def _is_away(error: Exception) -> bool:
    """Return whether the server cannot be reached; one that only refused or cancelled a statement can."""
    if not isinstance(error, psycopg.OperationalError):
        return isinstance(error, PoolTimeout)
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P")) or error.sqlstate == "53300"


def _remedy(error: Exception) -> str | None:
    """Return what an operator can do about an error; None where it is a mistake in a statement."""
    return next((remedy for kinds, remedy in _REMEDIES if isinstance(error, kinds)), "")


_REMEDIES: tuple[tuple[tuple[type[Exception], ...], str | None], ...] = (
    (_REFUSED, "It was not stored; everything else still is."),
    ((psycopg.errors.DiskFull,), "Free disk space for PostgreSQL."),
    (
        (psycopg.errors.ReadOnlySqlTransaction,),
        "Allow writing there, or name all hosts in `storage` and add target_session_attrs=read-write to it.",
    ),
    ((psycopg.errors.InsufficientPrivilege,), f"Grant the user of the gateway all rights on the schema {SCHEMA!r}."),
    (_GONE, "Restore the schema from a backup, or use an empty database."),
    ((psycopg.ProgrammingError, psycopg.IntegrityError), None),
    ((Exception,), "Check that PostgreSQL is running and reachable."),
)


def migrations() -> tuple[str, ...]:
    """Return the numbered scripts that make the schema."""
    folder = resources.files("shortlist.storage.postgres").joinpath("migrations")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text("utf-8") for file in found)


def storable(value: Any) -> Any:
    """Return a text as PostgreSQL can keep it, which has no place for NUL and lone surrogates."""
    if not isinstance(value, str):
        return value
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def key_text(text: str) -> str:
    """Return a text that is part of a key; one that is too long for an index is cut off, and ends in a hash."""
    encoded = str(storable(text)).encode()
    if len(encoded) <= LONGEST_KEY:
        return encoded.decode()
    digest = hashlib.sha256(encoded).hexdigest()[:KEY_DIGITS]
    return f"{encoded[: LONGEST_KEY - KEY_DIGITS - 3].decode(errors='ignore')}…{digest}"


def read_address(url: str) -> dict[str, str]:
    """Return the parts of an address, which may name several hosts; raise InvalidConfig without a word of it.

    A password is often put into an address as it is, though libpq wants it percent-encoded.
    """
    start, _, rest = url.partition("://")
    credentials, _, place = rest.rpartition("@")
    user, _, password = credentials.partition(":")
    encoded = f"{start}://{user}:{quote(password, safe='')}@{place}"
    for text in (url, encoded) if password else (url,):
        try:
            parts = {name: str(value) for name, value in conninfo_to_dict(text).items()}
        except psycopg.ProgrammingError:  # its message quotes the password
            continue
        ports = [port for port in parts.get("port", "").split(",") if port]
        if all(map(str.isdecimal, ports)) and "@" not in parts.get("host", "") + parts.get("dbname", ""):
            return parts
    raise InvalidConfig(
        "`storage` is not a valid address of a PostgreSQL database. Write postgresql://USER:PASSWORD@HOST:PORT/NAME "
        "and in user and password, percent-encode what is not a letter or a digit, such as / as %2F."
    )


def _place(parts: Mapping[str, str]) -> str:
    """Return where a database is, without the password."""
    hosts, ports = parts.get("host", "").split(","), parts.get("port", "").split(",")
    ports = ports if len(ports) == len(hosts) else ports * len(hosts)
    named = (
        f"{'localhost' if not host or host[0] == '/' else f'[{host}]' if ':' in host else host}:{port or '5432'}"
        for host, port in zip(hosts, ports, strict=False)
    )
    return f"postgresql://{','.join(named)}/{parts.get('dbname', '')}"
