"""Servers over stdio that run in one of several gateways on the same store, and are used by all of them."""

import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from shortlist.errors import StoreError
from shortlist.front.peers import Peers
from shortlist.storage.shared import LEASE_SECONDS, SharedStores
from shortlist.upstream.framing import LineSplitter, Message, decode, encode
from shortlist.upstream.leases import ATTACH_PATH, Lease, cancel_at_end
from shortlist.upstream.pool import UpstreamPool

RENEW_SECONDS = 1.0
CERTAIN_SECONDS = LEASE_SECONDS - 0.5
"""For so long after a renewal no other gateway has taken a lease; a process that was stopped looks again."""
FIRST_LINE_SECONDS = 10.0
MOST_BYTES = 64 * 1024 * 1024
"""The largest message of another gateway; its clients' messages are bounded by that gateway."""
PURPOSE = "servers of other replicas"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    lease: Lease
    holder: str


class SharedLeases:
    """Takes and renews leases in the store, and notices when one that others hold has ended.

    While the store does not answer, nobody can take a lease, so everything stays as it is.
    """

    def __init__(self, stores: SharedStores, peers: Peers, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores = stores
        self._clock = clock
        self._looked = clock()
        """When the leases were last renewed, or could not be since the store did not answer."""
        self._renewing = anyio.Lock()
        self._peers = peers
        self._replica = str(peers.number)
        self._secret = b""
        self._taken: dict[str, _Taken] = {}
        self._unreleased: set[str] = set()
        """Leases that the store still has as those of this replica."""
        self._own_thread = anyio.CapacityLimiter(1)  # never waits for threads that others use

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
        holder, url = await self._take(key)
        lease = Lease(key, None if holder == self._replica else url, f"Bearer {secret.hex()}", self._confirm)
        self._taken[key] = _Taken(lease, holder)
        try:
            yield lease
        finally:
            del self._taken[key]
            if lease.url is None:
                with anyio.CancelScope(shield=True):
                    await self._release(key)
            lease.ended.set()

    def held(self, key: str) -> Lease | None:
        """Return a lease that this gateway holds."""
        taken = self._taken.get(key)
        return taken.lease if taken is not None and taken.lease.url is None else None

    def is_valid(self, authorization: str) -> bool:
        """Return whether a request comes from a gateway on the same store."""
        return bool(self._secret) and hmac.compare_digest(
            authorization.encode(), f"Bearer {self._secret.hex()}".encode()
        )

    async def _shared_secret(self) -> bytes:
        if not self._secret:
            try:
                self._secret = await anyio.to_thread.run_sync(self._stores.key, PURPOSE)
            except StoreError as error:
                raise OSError(f"it is not known which gateway runs it: {error}") from None
        return self._secret

    async def _take(self, key: str) -> tuple[str, str]:
        try:
            found = await anyio.to_thread.run_sync(self._stores.leases.take, key, self._replica, self._peers.url)
        except StoreError as error:
            if key in self._unreleased:
                return self._replica, self._peers.url
            raise OSError(f"it is not known which gateway runs it: {error}") from None
        return found.replica, found.url

    async def _release(self, key: str) -> None:
        try:
            await anyio.to_thread.run_sync(self._stores.leases.release, key, self._replica)
            self._unreleased.discard(key)
        except StoreError:
            self._unreleased.add(key)

    async def _keep_renewing(self) -> None:
        while True:
            await anyio.sleep(RENEW_SECONDS)
            async with self._renewing:
                await self._renew()

    async def _renew(self) -> None:
        asked, started = dict(self._taken), self._clock()
        if not asked:
            self._looked = started
            return
        try:
            renew = self._stores.leases.renew
            holders = await anyio.to_thread.run_sync(renew, self._replica, list(asked), limiter=self._own_thread)
        except StoreError as error:
            logger.debug("leases were not renewed: %s", error)
            self._looked = self._clock()  # nobody else can take them meanwhile
            return
        self._looked = started
        for key, taken in asked.items():
            if self._taken.get(key) is taken and holders.get(key) != taken.holder:
                logger.warning("the lease of %r has ended: another gateway may run this server", key.partition(" ")[0])
                taken.lease.ended.set()

    async def _confirm(self) -> None:
        """Renew the leases before anything is sent, where the last renewal is so old that they may have expired."""
        if self._clock() - self._looked > CERTAIN_SECONDS:
            async with self._renewing:
                if self._clock() - self._looked > CERTAIN_SECONDS:
                    await self._renew()


class Lending:
    """Lets gateways on the same store use the servers that this one runs, each over one request that stays open."""

    def __init__(
        self, pool: UpstreamPool, leases: SharedLeases, admitted: Callable[[], AbstractContextManager[bool]]
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._admitted = admitted

    def route(self) -> Route:
        return Route(ATTACH_PATH, endpoint=self, methods=["POST"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._leases.is_valid(Headers(scope=scope).get("authorization", "")):
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
            return
        lines, wanted = _messages(receive), Message()
        with anyio.move_on_after(FIRST_LINE_SECONDS):
            wanted = await anext(lines, wanted)
        lease = self._leases.held(str(wanted.get("key")))
        if lease is not None:
            await self._serve(str(wanted.get("server")), lease, lines, send)
            return
        await PlainTextResponse("Another gateway runs this server", 409)(scope, receive, send)

    async def _serve(self, server: str, lease: Lease, lines: AsyncIterator[Message], send: Send) -> None:
        async def write(message: Message) -> None:
            await send({"type": "http.response.body", "body": encode(message) + b"\n", "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with self._pool.attached(server, write, self._admitted) as attachment, anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_at_end, lease, tasks.cancel_scope)
            async for message in lines:
                await attachment.take(message)
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _messages(receive: Receive) -> AsyncIterator[Message]:
    """Yield the messages of a request's body until its sender leaves."""
    splitter, event = LineSplitter(MOST_BYTES), await receive()
    while event["type"] == "http.request":
        for line in splitter.feed(event.get("body", b"")):
            if isinstance(line, bytes):
                yield decode(line)
        if not event.get("more_body"):
            return
        event = await receive()
