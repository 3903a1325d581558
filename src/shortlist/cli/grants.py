"""Logins to servers, encrypted in the data folder of this user or in the database that gateways share."""

import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from shortlist.cli.words import Stamp, stamp
from shortlist.errors import SecretsUnreadable, StoreError
from shortlist.paths import data_folder
from shortlist.storage.port import Storage
from shortlist.storage.private import PrivateLock
from shortlist.storage.secrets import KEY_VARIABLE, FileSecrets, SharedSecrets, sealed_secret
from shortlist.upstream.grants import LoginKey, TokenGrant
from shortlist.upstream.login import Logins

GRANT = "grant:"
"""Begins the names of logins among the secrets."""
REFRESH_SECONDS = 20.0
"""A refresh of another process has ended by then."""
TRY_SECONDS = 0.05
KNOWN_SECONDS = 2.0
"""How long a gateway uses a shared login before it looks for a newer one."""


class StoredGrants:
    """A LoginStore over a file that several processes share; it is read again only when it has changed."""

    def __init__(self, secrets: FileSecrets) -> None:
        self._secrets = secrets
        self._seen: Stamp | None = None
        self._known: dict[LoginKey, TokenGrant | None] = {}

    async def get(self, key: LoginKey) -> TokenGrant | None:
        """Return a grant; a request to a server asks for it each time, so an unchanged file is not read again."""
        now = stamp(self._secrets.path)
        if now is None:
            return None
        if now != self._seen:
            self._known, self._seen = {}, now
        if key not in self._known:
            found = await anyio.to_thread.run_sync(self._read, key)
            if now != self._seen:
                return found
            self._known[key] = found
        return self._known[key]

    async def put(self, key: LoginKey, grant: TokenGrant) -> None:
        await anyio.to_thread.run_sync(self._secrets.put, _name(key), grant.dump())
        self._seen = None

    async def remove(self, key: LoginKey) -> None:
        await anyio.to_thread.run_sync(self._secrets.remove, _name(key))
        self._seen = None

    @asynccontextmanager
    async def refreshing(self, key: LoginKey) -> AsyncIterator[None]:
        """Hold a lock of this grant that other processes respect; without it after a while, rather than never."""
        name = hashlib.sha256(_name(key).encode()).hexdigest()[:16]
        lock = await anyio.to_thread.run_sync(PrivateLock, self._secrets.path.with_name(f"refresh-{name}"))
        try:
            with anyio.move_on_after(REFRESH_SECONDS):
                while not lock.try_acquire():
                    await anyio.sleep(TRY_SECONDS)
            yield
        finally:
            lock.close()

    def _read(self, key: LoginKey) -> TokenGrant | None:
        return _parsed(key, self._secrets.get(_name(key)))


class SharedGrants:
    """A LoginStore over a database that several gateways share."""

    def __init__(self, secrets: SharedSecrets) -> None:
        self._secrets = secrets
        self._known: dict[LoginKey, tuple[float, TokenGrant | None]] = {}

    async def get(self, key: LoginKey) -> TokenGrant | None:
        """Return a grant that is at most KNOWN_SECONDS old, or older while the database does not answer."""
        read, known = self._known.get(key, (float("-inf"), None))
        if time.monotonic() - read < KNOWN_SECONDS:
            return known
        try:
            found = _parsed(key, await anyio.to_thread.run_sync(self._secrets.get, _name(key)))
        except SecretsUnreadable:
            raise
        except StoreError:
            if key not in self._known:
                raise
            return known
        self._known[key] = (time.monotonic(), found)
        return found

    async def put(self, key: LoginKey, grant: TokenGrant) -> None:
        await anyio.to_thread.run_sync(self._secrets.put, _name(key), grant.dump())
        self._known[key] = (time.monotonic(), grant)

    async def remove(self, key: LoginKey) -> None:
        await anyio.to_thread.run_sync(self._secrets.remove, _name(key))
        self._known.pop(key, None)

    @asynccontextmanager
    async def refreshing(self, key: LoginKey) -> AsyncIterator[None]:
        """Hold a lock of this grant that all gateways respect, and read the grant again."""
        held = ExitStack()
        await anyio.to_thread.run_sync(held.enter_context, self._secrets.locked(_name(key)))
        try:
            self._known.pop(key, None)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(held.close)


def open_logins(storage: Storage, mark: str = "") -> Logins:
    """Return the logins that the gateways on a storage use; nothing is created before the first."""
    secrets = login_secrets(storage)
    grants = SharedGrants(secrets) if isinstance(secrets, SharedSecrets) else StoredGrants(secrets)
    return Logins(grants, mark=mark)


def login_secrets(storage: Storage) -> FileSecrets | SharedSecrets:
    """Return where logins are kept: with this user, or in the database that gateways share.

    Gateways share logins where all of them have the same key in the environment: what is in the database alone must
    not be enough to use them.
    """
    key = os.environ.get(KEY_VARIABLE)
    if storage.shared is not None and key is not None:
        return SharedSecrets(storage.shared.grants, key)
    return FileSecrets(data_folder())


def login_places(storage: Storage) -> tuple[FileSecrets | SharedSecrets, ...]:
    """Return every place where logins may be: those of a time before they were shared stay with this user."""
    own = FileSecrets(data_folder())
    if storage.shared is None:
        return (own,)
    return own, SharedSecrets(storage.shared.grants, os.environ.get(KEY_VARIABLE))


def sealed_logins(folder: Path) -> dict[str, bytes] | None:
    """Return the logins of a data folder as gateways share them in a database; None where they share none.

    Raise StoreError for one that cannot be decrypted.
    """
    key, source = os.environ.get(KEY_VARIABLE), FileSecrets(folder)
    names = [name for name in source.names() if name.startswith(GRANT)]
    if key is None:
        return None if names else {}
    return {name: sealed_secret(key, name, source.get(name) or "") for name in names}


def _parsed(key: LoginKey, text: str | None) -> TokenGrant | None:
    try:
        return None if text is None else TokenGrant.load(text)
    except ValueError:
        raise StoreError(
            f"The login to {key.server!r} cannot be read. Sign in again: `shortlist login {key.server}`."
        ) from None


def _name(key: LoginKey) -> str:
    return f"{GRANT}{key.principal}:{key.server}:{key.resource}"
