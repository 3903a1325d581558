"""What only gateways that share a store need: sessions that any of them can serve, who else runs, and what changed."""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SESSION_SECONDS = 3_600.0
"""A session that no gateway has served for so long is forgotten."""
REPLICA_SECONDS = 10.0
"""A replica that has not been seen for so long counts as gone."""
LOCK_SECONDS = 20.0
"""A change of a secret by another gateway has ended by then."""
LEASE_SECONDS = 4.5
"""How long a lease lasts unless its holder renews it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A legacy HTTP session: what a gateway that has never seen it needs in order to serve it."""

    owner: str
    """Identifies the credential that opened it; no other may use it."""
    handshake: str
    """JSON of the params of its `initialize`."""
    level: str = ""
    """The log level that the client has set; empty where it has set none."""
    subscriptions: tuple[str, ...] = ()
    """URIs of resources."""


class SessionStore(Protocol):
    """Legacy sessions by id; adapters keep only a hash of it. Every method raises StoreError where it cannot act."""

    def open(self, session: str, stored: StoredSession) -> None: ...

    def find(self, session: str) -> StoredSession | None:
        """Return a session that has not ended, and note that it is in use."""
        ...

    def change(self, session: str, level: str, subscriptions: Sequence[str]) -> None:
        """Replace what a client has asked for since its handshake."""
        ...

    def touch(self, sessions: Sequence[str]) -> None:
        """Note that sessions are in use, and forget those that are not."""
        ...

    def end(self, session: str) -> None: ...


class ReplicaStore(Protocol):
    """The gateways that share the store and run now; the clock of the store decides."""

    def announce(self, replica: str, url: str) -> None:
        """Note that a replica runs, and where the others reach it; repeat this more often than REPLICA_SECONDS."""
        ...

    def others(self, replica: str) -> dict[str, str]:
        """Return the addresses of the other replicas that run, by their ids."""
        ...

    def leave(self, replica: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Holder:
    """The replica that holds a lease, and where the others reach it."""

    replica: str
    url: str
    is_expired: bool = False
    """It has not renewed the lease in time; it stays the holder until another replica takes the lease over."""


class LeaseStore(Protocol):
    """Leases on what only one replica may run; the clock of the store decides. Every method may raise StoreError."""

    def take(self, key: str, replica: str, url: str, over: str = "") -> Holder:
        """Take a lease for LEASE_SECONDS if it is free, or if it has expired and `over` holds it; return its holder."""
        ...

    def renew(self, replica: str, keys: Sequence[str]) -> dict[str, Holder]:
        """Prolong those of the leases that a replica holds; return the holder of each that somebody holds."""
        ...

    def release(self, key: str, replica: str) -> None: ...


class SealedStore(Protocol):
    """Secrets that were encrypted before they came here. Every method may raise StoreError."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, sealed: bytes) -> None: ...

    def remove(self, name: str) -> bool:
        """Forget a secret and return whether there was one."""
        ...

    def names(self) -> tuple[str, ...]: ...

    def locked(self, name: str) -> AbstractContextManager[None]:
        """Let one gateway at a time change a secret; after LOCK_SECONDS the others no longer wait."""
        ...


Heard = Callable[[str], None]
"""Told what changed: the name of a kind of record, in some cases followed by a space and a key. After the connection
was lost and came back it is told an empty string: anything may have changed meanwhile."""


class Changes(Protocol):
    """Changes that any gateway makes in the store."""

    def listen(self, heard: Heard, ended: threading.Event) -> None:
        """Report changes until `ended` is set; a store that cannot be reached is tried again."""
        ...


@dataclass(frozen=True, slots=True)
class LeftRecords:
    """What a process that is gone has left in its spool."""

    name: str
    records: tuple[bytes, ...]
    """In the order in which they were written; empty for one that cannot be decrypted."""
    path: Path
    first: int = 0
    """The number of the first one; those before it are stored."""

    def since(self, stored: int) -> tuple[int, tuple[bytes, ...]]:
        """Return the records after so many that are stored, and how many come before them."""
        before = max(stored, self.first)
        return before, self.records[before - self.first :]

    def discard(self) -> None:
        remove_stored(self.path)

    def set_aside(self) -> Path:
        """Keep the file under a name that is not read again, and return its path."""
        return self.path.rename(self.path.with_suffix(".damaged"))


def remove_stored(path: Path) -> None:
    """Remove a file of records that are stored; where that fails, the store still knows that it has them."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s was stored and cannot be removed: %s", path, error)


class Spool(Protocol):
    """Records on their way to the store that survive a kill of this process."""

    name: str
    count: int
    """Records so far."""
    size: int
    """Bytes of those that are kept."""

    def append(self, record: bytes) -> None:
        """Keep a record; raises StoreError where that is not possible."""
        ...

    def renew(self, first: int, records: Sequence[bytes]) -> bool:
        """Keep only these records, of which the first has the number `first`; return whether that was possible.

        Those before them have reached the store.
        """
        ...

    def close(self, *, discard: bool) -> None: ...

    def left(self) -> Iterator[LeftRecords]:
        """Yield what processes that no longer run have left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStores:
    """Stores that make several gateways one service."""

    sessions: SessionStore
    replicas: ReplicaStore
    leases: LeaseStore
    grants: SealedStore
    changes: Changes
    key: Callable[[str], bytes]
    """Returns a random key of 32 bytes that all gateways share, by its purpose; the first to ask makes it."""
    spooled: Callable[[str], int]
    """Returns how many records of a spool are stored."""


def session_key(session: str) -> str:
    """Return what a session is stored under, and what a change of it names."""
    return hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()
