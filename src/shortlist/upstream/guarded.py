"""An HTTP client that resolves hosts itself and connects only to addresses that it has checked."""

import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore2
import httpx2

from shortlist.upstream.addresses import REQUEST_SECONDS, ForbiddenAddress, is_public
from shortlist.upstream.bodies import ENCODINGS
from shortlist.upstream.interim import BoundedNetwork


class GuardedBackend(BoundedNetwork):
    """Resolves a host, refuses addresses that are not public, and connects to the address it checked."""

    def __init__(self, allowed_hosts: Iterable[str] = (), *, allow_private: bool = False) -> None:
        super().__init__(httpcore2.AnyIOBackend())
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._allow_private = allow_private

    async def connect_tcp(self, host: str, port: int, *options: Any, **named: Any) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of a host once every address of it was checked."""
        return await super().connect_tcp(await self._checked(host, port), port, *options, **named)

    async def _checked(self, host: str, port: int) -> str:
        try:
            found = await anyio.getaddrinfo(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(f"Cannot resolve {host!r}: {error}") from error
        addresses = [str(entry[4][0]) for entry in found]
        if not self._allow_private and host.lower() not in self._allowed_hosts:
            for address in addresses:
                if not is_public(address):
                    raise ForbiddenAddress(host, address)
        return addresses[0]


def guarded_client(
    verify: ssl.SSLContext, allowed_hosts: Iterable[str] = (), *, allow_private: bool = False
) -> httpx2.AsyncClient:
    """Return an HTTP client for discovery: it follows no redirect and reaches only public or allowed hosts."""
    transport = httpx2.AsyncHTTPTransport(verify=verify)
    # httpx2 has no parameter for the network backend; its pool is the one place that takes it.
    transport._pool = httpcore2.AsyncConnectionPool(
        ssl_context=verify,
        network_backend=GuardedBackend(allowed_hosts, allow_private=allow_private),
    )
    return httpx2.AsyncClient(
        transport=transport,
        timeout=httpx2.Timeout(REQUEST_SECONDS),
        follow_redirects=False,
        trust_env=False,
        headers={"accept": "application/json", **ENCODINGS},
    )
