"""Logins to servers, kept in the encrypted file of this user's data folder."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from shortlist.cli.words import Stamp, stamp
from shortlist.errors import StoreError
from shortlist.paths import data_folder
from shortlist.storage.private import PrivateLock
from shortlist.storage.secrets import FileSecrets
from shortlist.upstream.grants import LoginKey, TokenGrant
from shortlist.upstream.login import Logins

REFRESH_SECONDS = 20.0
"""A refresh of another process has ended by then."""
TRY_SECONDS = 0.05


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
        text = self._secrets.get(_name(key))
        try:
            return None if text is None else TokenGrant.load(text)
        except ValueError:
            raise StoreError(
                f"The login to {key.server!r} cannot be read. Sign in again: `shortlist login {key.server}`."
            ) from None


def open_logins() -> Logins:
    """Return the logins of this user; no file is created before the first one."""
    return Logins(StoredGrants(FileSecrets(data_folder())))


def _name(key: LoginKey) -> str:
    return f"grant:{key.principal}:{key.server}:{key.resource}"
