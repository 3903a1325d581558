"""What is kept by key in PostgreSQL: catalogs, vectors, pins, tokens, programs, workspaces and large results."""

import hashlib
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any

from psycopg.types.json import Jsonb

from shortlist.errors import StoreConflict, StoreError
from shortlist.storage.files import declared_format
from shortlist.storage.memory import DEFAULT_LIMITS
from shortlist.storage.owned import CLOCK_SKEW_SECONDS, ResultLimits, StoredWorkspace, WorkspaceLimits, owner_of
from shortlist.storage.port import (
    Decision,
    PinnedDefinition,
    StoredPins,
    StoredToken,
    StoredVector,
)
from shortlist.storage.postgres.database import Postgres, storable
from shortlist.storage.programs import StoredProgram, program_text, programs_of
from shortlist.storage.tokens import token_of

logger = logging.getLogger(__name__)

LOOKUP = 1_000
_CLAIM = """SELECT place FROM unnest(%s::text[]) WITH ORDINALITY AS asked (name, place)
WHERE pg_try_advisory_xact_lock(hashtextextended(name, 0))"""
_DEFINITION = "kind, name, text, cause, reasons, before, before_name"


class PostgresCatalogs:
    """Saved tool lists; one that was written by a newer version is kept."""

    def __init__(self, database: Postgres) -> None:
        self._database = database
        self._failing = False

    def names(self) -> frozenset[str]:
        try:
            return frozenset(key for (key,) in self._database.read("SELECT key FROM catalogs"))
        except StoreError as error:
            self._report(error)
            return frozenset()

    def load(self, key: str) -> bytes | None:
        try:
            rows = self._database.read("SELECT document FROM catalogs WHERE key = %s", (key,))
        except StoreError as error:
            self._report(error)
            return None
        return bytes(rows[0][0]) if rows else None

    def save(self, key: str, document: bytes) -> None:
        try:
            with self._database.transaction() as connection:
                connection.execute(
                    "INSERT INTO catalogs AS known VALUES (%s, %s, %s) ON CONFLICT (key) DO UPDATE SET "
                    "format = excluded.format, document = excluded.document WHERE known.format <= excluded.format",
                    (key, declared_format(document) or 0, document),
                )
        except StoreError as error:  # costs the next start a little time, and nothing else
            self._report(error)

    def _report(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("saved tools cannot be used: %s", error)


class PostgresVectors:
    """Embeddings by key, shared by all gateways, so that nothing is embedded twice; it never raises."""

    def __init__(self, database: Postgres) -> None:
        self._database = database
        self._failing = False

    def get(self, keys: Sequence[bytes]) -> dict[bytes, StoredVector]:
        found: dict[bytes, StoredVector] = {}
        try:
            for start in range(0, len(keys), LOOKUP):
                part = list(keys[start : start + LOOKUP])
                for key, scale, codes in self._database.read(
                    "SELECT key, scale, codes FROM vectors WHERE key = ANY(%s)", (part,)
                ):
                    if math.isfinite(scale):
                        found[bytes(key)] = StoredVector(scale, bytes(codes))
            self._note_use(list(found))
        except StoreError as error:
            self._report(error)
        return found

    def put(self, vectors: Mapping[bytes, StoredVector]) -> None:
        rows = [(key, vector.scale, vector.codes) for key, vector in vectors.items()]
        try:
            with self._database.transaction() as connection, connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO vectors VALUES (%s, %s, %s, current_date) ON CONFLICT (key) DO UPDATE SET "
                    "scale = excluded.scale, codes = excluded.codes, used = excluded.used",
                    rows,
                )
                cursor.execute("DELETE FROM vectors WHERE used < current_date - 90")
        except StoreError as error:
            self._report(error)

    @contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[frozenset[str]]:
        """Hold names by advisory locks of one transaction, which the database releases when its connection ends."""
        held, granted = ExitStack(), frozenset(names)
        try:
            granted = held.enter_context(self._locked(names))
        except StoreError as error:
            self._report(error)
        try:
            yield granted
        finally:
            with suppress(StoreError):  # the database went away meanwhile, and the locks with it
                held.close()

    @contextmanager
    def _locked(self, names: Sequence[str]) -> Iterator[frozenset[str]]:
        with self._database.filling() as connection:
            found = connection.execute(_CLAIM, ([storable(name) for name in names],)).fetchall()
            yield frozenset(names[place - 1] for (place,) in found)

    def _note_use(self, keys: list[bytes]) -> None:
        if keys:
            with self._database.transaction() as connection:
                sql = "UPDATE vectors SET used = current_date WHERE key = ANY(%s) AND used < current_date"
                connection.execute(sql, (keys,))

    def _report(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("vectors are computed again while the store cannot be used: %s", error)


class PostgresPins:
    """Pins and reviews; two people may decide at once, and both are kept."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def read(self, server: str) -> StoredPins:
        listing = self._database.read("SELECT listing FROM pinned_servers WHERE server = %s", (server,))
        sql = f"SELECT held, {_DEFINITION} FROM pinned_definitions WHERE server = %s ORDER BY kind, name"  # noqa: S608
        found = self._database.read(sql, (server,))
        sql = "SELECT kind, name, hash, approved, by, at FROM decisions WHERE server = %s ORDER BY id"
        accepted, held = (
            tuple(PinnedDefinition(*row[1:]) for row in found if row[0] is held) for held in (False, True)
        )
        return StoredPins(
            listing[0][0] if listing else "",
            accepted,
            held,
            tuple(Decision(*row) for row in self._database.read(sql, (server,))),
        )

    def write(self, server: str, pins: StoredPins, since: str | None = None) -> None:
        with self._database.transaction() as connection, connection.cursor() as cursor:
            _check(cursor, server, since)
            cursor.execute("DELETE FROM pinned_definitions WHERE server = %s", (server,))
            _insert(cursor, server, pins)

    def amend(
        self, server: str, touched: Sequence[tuple[str, str]], pins: StoredPins, since: str | None = None
    ) -> None:
        gone = [(server, True, *map(storable, key)) for key in touched]
        gone += [(server, False, storable(d.kind), storable(d.name)) for d in pins.accepted]
        with self._database.transaction() as connection, connection.cursor() as cursor:
            _check(cursor, server, since)
            sql = "DELETE FROM pinned_definitions WHERE server = %s AND held = %s AND kind = %s AND name = %s"
            cursor.executemany(sql, gone)
            _insert(cursor, server, pins)

    def decide(self, server: str, decisions: Sequence[Decision]) -> None:
        rows = [(server, d.kind, d.name, d.hash, d.approved, d.by, d.at) for d in decisions]
        with self._database.transaction() as connection, connection.cursor() as cursor:
            sql = (
                "INSERT INTO decisions (server, kind, name, hash, approved, by, at) VALUES (%s, %s, %s, %s, %s, %s, %s)"
            )
            cursor.executemany(sql, rows)

    def overview(self) -> dict[str, frozenset[str]]:
        servers = self._database.read("SELECT server FROM pinned_servers ORDER BY server")
        held = self._database.read("SELECT server, name FROM pinned_definitions WHERE held AND kind = 'tool'")
        return {server: frozenset(name for owner, name in held if owner == server) for (server,) in servers}

    def state(self) -> int:
        return int(self._database.read("SELECT coalesce(max(id), 0) FROM decisions")[0][0])


class PostgresTokens:
    """Hashes and scopes of tokens, never the tokens themselves."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def load(self) -> Mapping[str, StoredToken]:
        rows = self._database.read("SELECT name, document, last_used FROM tokens ORDER BY name")
        return {name: token_of(name, {**document, "last_used": used}) for name, document, used in rows}

    def put(self, token: StoredToken) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO tokens VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE SET "
                "document = excluded.document, last_used = excluded.last_used",
                (token.name, Jsonb(asdict(token)), token.last_used),
            )

    def remove(self, name: str) -> bool:
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM tokens WHERE name = %s", (name,)).rowcount > 0

    def note_use(self, used: Mapping[str, float]) -> None:
        with self._database.transaction() as connection, connection.cursor() as cursor:
            sql = "UPDATE tokens SET last_used = greatest(last_used, %s) WHERE name = %s"
            cursor.executemany(sql, [(at, name) for name, at in used.items()])


class PostgresPrograms:
    """Saved programs, offered by every gateway that shares the database."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def load(self) -> Mapping[str, StoredProgram]:
        return programs_of([row[0] for row in self._database.read("SELECT document FROM programs ORDER BY name")])

    def put(self, program: StoredProgram) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO programs VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET document = excluded.document",
                (program.name, storable(program_text(program))),
            )

    def remove(self, name: str) -> bool:
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM programs WHERE name = %s", (storable(name),)).rowcount > 0


class PostgresWorkspaces:
    """Workspaces that outlive a connection: any gateway that shares the database can go on with them."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def load(self, key: str) -> StoredWorkspace | None:
        rows = self._database.read("SELECT loaded, used FROM workspaces WHERE key = %s", (storable(key),))
        return StoredWorkspace(key=key, loaded=dict(json.loads(rows[0][0])), used=rows[0][1]) if rows else None

    def save(self, workspace: StoredWorkspace, limits: WorkspaceLimits) -> None:
        owner = storable(owner_of(workspace.key))
        loaded = json.dumps(list(workspace.loaded.items()))
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO workspaces VALUES (%s, %s, %s) ON CONFLICT (key) DO UPDATE SET loaded = excluded.loaded, "
                "used = excluded.used",
                (storable(workspace.key), loaded, workspace.used),
            )
            connection.execute("DELETE FROM workspaces WHERE used < %s", (workspace.used - limits.seconds,))
            # What was used by a clock that was ahead would outlive everything that is used now.
            connection.execute(
                "UPDATE workspaces SET used = %s WHERE used > %s", (workspace.used, workspace.used + CLOCK_SKEW_SECONDS)
            )
            for condition, most in ((_OF_OWNER, limits.most_of_owner), ("true", limits.most)):
                oldest = f"SELECT key FROM workspaces WHERE {condition} ORDER BY used DESC OFFSET %(most)s"  # noqa: S608
                sql = f"DELETE FROM workspaces WHERE key IN ({oldest})"  # noqa: S608
                connection.execute(sql, {"owner": owner, "most": most})

    def of_owner(self, owner: str) -> list[StoredWorkspace]:
        sql = f"SELECT key, loaded, used FROM workspaces WHERE {_OF_OWNER} ORDER BY used DESC"  # noqa: S608
        rows = self._database.read(sql, {"owner": storable(owner)})
        return [StoredWorkspace(key=key, loaded=dict(json.loads(loaded)), used=used) for key, loaded, used in rows]

    def erase(self, owner: str) -> int:
        with self._database.transaction() as connection:
            sql = f"DELETE FROM workspaces WHERE {_OF_OWNER}"  # noqa: S608
            return connection.execute(sql, {"owner": storable(owner)}).rowcount


class PostgresResults:
    """Large results; only a hash of the handle is stored. The clock of the database decides what is over."""

    def __init__(self, database: Postgres) -> None:
        self._database = database
        self._limits = DEFAULT_LIMITS

    @property
    def bytes(self) -> int:
        return int(self._database.read("SELECT coalesce(sum(bytes), 0) FROM results WHERE expires > now()")[0][0])

    def limit(self, limits: ResultLimits) -> None:
        self._limits = limits
        with self._database.transaction() as connection:
            connection.execute(_FORGET, asdict(limits))

    def keep(self, owner: str, handle: str, pages: Sequence[str]) -> None:
        limits, kept, size = self._limits, [], 0
        for page in map(storable, pages):
            if size + sys.getsizeof(page) > (most := min(limits.most_bytes, limits.bytes_of_owner)):
                kept.append(f"[The rest, over {most:,} bytes, was not kept.]")
                break
            kept.append(page)
            size += sys.getsizeof(page)
        row = (_hashed(handle), storable(owner), kept, size, limits.seconds)
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO results (handle, owner, pages, bytes, expires) "
                "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s))",
                row,
            )
            connection.execute(_FORGET, asdict(limits))

    def find(self, owner: str, handle: str) -> Sequence[str] | None:
        sql = "SELECT pages FROM results WHERE handle = %s AND owner = %s AND expires > now()"
        rows = self._database.read(sql, (_hashed(handle), storable(owner)))
        return tuple(rows[0][0]) if rows else None

    def erase(self, owner: str) -> int:
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM results WHERE owner = %s", (storable(owner),)).rowcount


def _hashed(handle: str) -> str:
    return hashlib.sha256(handle.encode("utf-8", "replace")).hexdigest()


_OF_OWNER = """(key = 'principal:' || %(owner)s OR (
  substr(key, strpos(key, ':') + 1, length(%(owner)s) + 1) = %(owner)s || ':'
  AND strpos(substr(key, strpos(key, ':') + length(%(owner)s) + 2), ':') = 0 AND NOT starts_with(key, 'principal:')))"""
_FORGET = """
DELETE FROM results WHERE expires <= now() OR handle IN (
  SELECT handle FROM (
    SELECT handle, row_number() OVER latest AS place, sum(bytes) OVER latest AS size,
      row_number() OVER own AS own_place, sum(bytes) OVER own AS own_size
    FROM results WINDOW latest AS (ORDER BY id DESC), own AS (PARTITION BY owner ORDER BY id DESC)) AS placed
  WHERE place > %(most)s OR size > %(most_bytes)s OR own_place > %(most_of_owner)s OR own_size > %(bytes_of_owner)s)
"""


def _check(cursor: Any, server: str, since: str | None) -> None:
    """Lock the row of a server, which is made where there is none, and compare it with what was read before."""
    if since is None:
        return
    cursor.execute("INSERT INTO pinned_servers VALUES (%s, '') ON CONFLICT DO NOTHING", (server,))
    cursor.execute("SELECT listing FROM pinned_servers WHERE server = %s FOR UPDATE", (server,))
    if cursor.fetchone()[0] != since:
        raise StoreConflict(f"Another gateway has changed the approvals of {server!r} meanwhile. Try again.")


def _insert(cursor: Any, server: str, pins: StoredPins) -> None:
    rows = [
        tuple(map(storable, (server, held, d.kind, d.name, d.text, d.cause, d.reasons, d.before, d.before_name)))
        for held, definitions in ((False, pins.accepted), (True, pins.held))
        for d in definitions
    ]
    cursor.execute(
        "INSERT INTO pinned_servers VALUES (%s, %s) ON CONFLICT (server) DO UPDATE SET listing = excluded.listing",
        (server, pins.listing),
    )
    marks = ", ".join(["%s"] * 9)
    sql = f"INSERT INTO pinned_definitions (server, held, {_DEFINITION}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608
    cursor.executemany(sql, rows)
