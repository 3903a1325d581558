"""Servers over stdio that run in one of several gateways on the same store, and are used by all of them.

Taking a lease needs the store, so while no gateway reaches it, nobody can take one, and the servers go on where they
run. A gateway that is cut off from the store renews its leases through another one. If some of the others do not answer
either, they may have taken its leases, so it ends its servers before the leases expire. An expired lease is taken over
only from a gateway that is gone, says that it does not run the server, or does not answer.
"""

import hashlib
import hmac
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread
from pydantic import TypeAdapter
from pydantic_core import to_json

from shortlist.errors import StoreError
from shortlist.front.peers import GONE_STATUS, PeerAnswer, Peers
from shortlist.storage.shared import LEASE_SECONDS, Holder, SharedStores
from shortlist.upstream.leases import Lease

RENEW_PATH, HELD_PATH = "/replicas/leases", "/replicas/leases/held"
RENEW_SECONDS = 1.0
AGAIN_SECONDS = 0.25
"""How soon a renewal is tried again while the store is away."""
STORE_SECONDS = 0.75
"""How long a renewal waits for the store."""
AWAY_SECONDS = 3.0
"""For so long after it did not answer, the store counts as away; others are told so without trying again."""
ASK_SECONDS, LEAST_ASK_SECONDS = 1.0, 0.25
"""How long another gateway may take to answer: it may wait for the store itself."""
HOLDER_SECONDS = 0.5
"""How long the holder of an expired lease may take to answer that it runs the server."""
CERTAIN_SECONDS = LEASE_SECONDS - 0.5
"""For so long after a renewal no other gateway has taken a lease; a process that was stopped looks again."""
OK_STATUS, NOT_FOUND_STATUS, NOT_HELD_STATUS, AWAY_STATUS = 200, 404, 409, 503
CANNOT_TAKE = frozenset({GONE_STATUS, AWAY_STATUS})
"""How a gateway answers that cannot take a lease now: it is gone, or does not reach the store."""
DOES_NOT_RUN = frozenset({GONE_STATUS, NOT_HELD_STATUS, NOT_FOUND_STATUS})
"""How a gateway answers that does not run a server; one of an older version does not know the question."""
PURPOSE = "servers of other replicas"
_HOLDERS = TypeAdapter(dict[str, Holder])

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    lease: Lease
    holder: str


class SharedLeases:
    """Takes and renews leases in the store, and notices when one has ended."""

    def __init__(self, stores: SharedStores, peers: Peers, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores = stores
        self._clock = clock
        self._looked = clock()
        """When it was last certain that no other gateway had taken the leases of this one."""
        self._reached = self._reached_since = clock()
        """When the store last answered, and since when it has answered without a break."""
        self._failed = -math.inf
        """When it last did not answer."""
        self._renewing = anyio.Lock()
        self._peers = peers
        self._replica = str(peers.number)
        self._secret = b""
        self._taken: dict[str, _Taken] = {}
        self._unreleased: set[str] = set()
        """Leases that this gateway no longer uses, and still has in the store."""

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renew leases until this ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_renewing)
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def taken(self, server: str, recipe: str) -> AsyncIterator[Lease]:
        await self._peers.has_joined.wait()
        secret = await self._shared_secret()
        key = f"{server} {hmac.digest(secret, recipe.encode(), hashlib.sha256).hex()}"
        holder = await self._take(key)
        url = None if holder.replica == self._replica else holder.url
        lease = Lease(key, url, self._authorization, self._confirm)
        self._taken[key] = _Taken(lease, holder.replica)
        try:
            yield lease
        finally:
            del self._taken[key]
            if lease.url is None:
                with anyio.CancelScope(shield=True):
                    await self._release(lease)
            lease.ended.set()

    def held(self, key: str) -> Lease | None:
        """Return a lease that this gateway holds."""
        taken = self._taken.get(key)
        return taken.lease if taken is not None and taken.lease.url is None else None

    def is_valid(self, authorization: str) -> bool:
        """Return whether a request comes from a gateway on the same store."""
        return bool(self._secret) and hmac.compare_digest(authorization.encode(), self._authorization.encode())

    async def renewed_for(self, replica: str, keys: Sequence[str]) -> Mapping[str, Holder]:
        """Renew the leases of a gateway that does not reach the store; raise StoreError where this one does not.

        That gateway relies on the error: this one takes over nothing for LEASE_SECONDS, see `_taken_over`.
        """
        if self._is_away:
            self._reached = -math.inf
            raise StoreError("it did not answer a moment ago")
        return await self._renewed(replica, keys)

    async def _renewed(self, replica: str, keys: Sequence[str]) -> Mapping[str, Holder]:
        renew = self._stores.leases.renew
        try:
            with anyio.fail_after(STORE_SECONDS):
                holders = await anyio.to_thread.run_sync(renew, replica, list(keys), abandon_on_cancel=True)
        except (StoreError, TimeoutError) as error:
            self._reached, self._failed = -math.inf, self._clock()
            raise StoreError(str(error) or "it does not answer") from None
        self._note_reached()
        self._failed = -math.inf
        return holders

    @property
    def _authorization(self) -> str:
        return f"Bearer {self._secret.hex()}"

    async def _shared_secret(self) -> bytes:
        if not self._secret:
            try:
                self._secret = await anyio.to_thread.run_sync(self._stores.key, PURPOSE)
            except StoreError as error:
                raise OSError(f"it is not known which gateway runs it: {error}") from None
        return self._secret

    async def _take(self, key: str) -> Holder:
        take = self._stores.leases.take
        try:
            found = await anyio.to_thread.run_sync(take, key, self._replica, self._peers.url)
            self._note_reached()
            return await self._taken_over(key, found)
        except StoreError as error:
            if key in self._unreleased and self._is_certain:
                return Holder(self._replica, self._peers.url)
            raise OSError(f"it is not known which gateway runs it: {error}") from None

    async def _taken_over(self, key: str, found: Holder) -> Holder:
        """Return the holder of a lease: this gateway, where the lease has expired and its holder does not run it.

        A holder that does not answer has had time to renew it since the store was last away.
        """
        if not found.is_expired or found.replica == self._replica:
            return found
        said = await self._peers.ask(f"{found.url}{HELD_PATH}", key.encode(), self._authorization, HOLDER_SECONDS)
        had_time = self._clock() - self._reached_since > LEASE_SECONDS
        if said.status == OK_STATUS or (said.status not in DOES_NOT_RUN and not had_time):
            return found
        take = partial(self._stores.leases.take, key, self._replica, self._peers.url, over=found.replica)
        return await anyio.to_thread.run_sync(take)

    async def _release(self, lease: Lease) -> None:
        try:
            await anyio.to_thread.run_sync(self._stores.leases.release, lease.key, self._replica)
            self._unreleased.discard(lease.key)
        except StoreError:
            if not lease.ended.is_set():
                self._unreleased.add(lease.key)

    async def _keep_renewing(self) -> None:
        await self._peers.has_joined.wait()
        while True:
            with suppress(OSError):
                await self._shared_secret()  # others ask also a gateway that has taken no lease
            async with self._renewing:
                await self._renew()
            await anyio.sleep(min(RENEW_SECONDS, AGAIN_SECONDS) if self._is_away else RENEW_SECONDS)

    async def _renew(self) -> None:
        """Renew the leases, and end those that others hold or may hold."""
        asked, started = dict(self._taken), self._clock()
        if not asked and not self._unreleased:
            self._looked = started
            return
        found: dict[str, Mapping[str, Holder] | None] = {}

        async def through_others() -> None:
            found["others"] = await self._renewed_through_others(asked)

        async with anyio.create_task_group() as tasks:
            if self._is_away:
                tasks.start_soon(through_others)
            try:
                found["store"] = await self._renewed(self._replica, list(asked))
                self._unreleased.clear()  # others take them over when they expire
            except StoreError as error:
                logger.debug("leases were not renewed: %s", error)
        if not found:
            started = self._clock()
            await through_others()
        holders = found.get("store", found.get("others"))
        if holders is not None:
            self._looked = started
            await self._compare(asked, holders)
        elif not self._is_certain:
            self._end_own()

    async def _renewed_through_others(self, asked: Mapping[str, _Taken]) -> Mapping[str, Holder] | None:
        """Renew leases through a gateway that reaches the store; where none of them does, everything stays as it is.

        Return None where one that does not answer may reach the store.
        """
        question = to_json({"replica": self._replica, "keys": list(asked)})
        left = self._looked + CERTAIN_SECONDS - self._clock()
        seconds = min(ASK_SECONDS, max(LEAST_ASK_SECONDS, left))
        answers: list[PeerAnswer] = []

        async def ask(url: str) -> None:
            answers.append(await self._peers.ask(f"{url}{RENEW_PATH}", question, self._authorization, seconds))

        async with anyio.create_task_group() as tasks:
            for url in self._peers.urls:
                tasks.start_soon(ask, url)
        for said in answers:
            if said.status == OK_STATUS:
                self._unreleased.clear()
                return _HOLDERS.validate_json(said.body)
        if any(said.status not in CANNOT_TAKE for said in answers):
            return None
        return {key: Holder(taken.holder, "") for key, taken in asked.items()}

    async def _compare(self, asked: Mapping[str, _Taken], holders: Mapping[str, Holder]) -> None:
        """End the leases that are no longer held by whom this gateway took for their holder."""

        async def compare(key: str, taken: _Taken) -> None:
            holder = holders.get(key)
            with suppress(StoreError):
                holder = await self._taken_over(key, holder) if holder is not None else None
            if self._taken.get(key) is taken and (holder is None or holder.replica != taken.holder):
                self._end(key, taken)

        async with anyio.create_task_group() as tasks:
            for key, taken in asked.items():
                tasks.start_soon(compare, key, taken)

    def _end_own(self) -> None:
        """End what this gateway runs: others may start it when the leases expire."""
        self._unreleased.clear()
        for key, taken in self._taken.items():
            if taken.lease.url is None:
                self._end(key, taken)

    def _end(self, key: str, taken: _Taken) -> None:
        logger.warning("the lease of %r has ended: another gateway may run this server", key.partition(" ")[0])
        taken.lease.ended.set()

    @property
    def _is_away(self) -> bool:
        return self._clock() - self._failed < AWAY_SECONDS

    @property
    def _is_certain(self) -> bool:
        return self._clock() - self._looked <= CERTAIN_SECONDS

    def _note_reached(self) -> None:
        """Note that the store has answered; a break could have kept others from renewing their leases."""
        now = self._clock()
        if now - self._reached > LEASE_SECONDS / 2:
            self._reached_since = now
        self._reached = now

    async def _confirm(self) -> None:
        """Renew the leases before anything is sent, where the last renewal is so old that they may have expired."""
        if not self._is_certain:
            async with self._renewing:
                if not self._is_certain:
                    await self._renew()
