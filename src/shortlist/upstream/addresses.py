"""HTTP for addresses that a stranger named: no private or link-local target, no redirect, bounded time and size."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import anyio
import httpcore2
import httpx2

REQUEST_SECONDS = 15.0
MAX_METADATA_BYTES = 256 * 1024
_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = (IPv6Network("::/96"), IPv6Network("64:ff9b:1::/48"))
"""IPv4-compatible addresses, and NAT64 within one network; Python calls them global."""


class ForbiddenAddress(Exception):
    """A host that resolves to an address which may not be contacted."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(
            f"{host!r} resolves to {address}, which is not a public address. "
            "Set `allow_private_addresses` in the server's `oauth` settings if that is intended."
        )


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a host, refuses addresses that are not public, and connects to the address it checked."""

    def __init__(self, allowed_hosts: Iterable[str] = (), *, allow_private: bool = False) -> None:
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._allow_private = allow_private
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of a host once every address of it was checked."""
        address = await self._checked(host, port)
        return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

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


def guarded_client(allowed_hosts: Iterable[str] = (), *, allow_private: bool = False) -> httpx2.AsyncClient:
    """Return an HTTP client for discovery: it follows no redirect and reaches only public or allowed hosts."""
    transport = httpx2.AsyncHTTPTransport()
    # httpx2 has no parameter for the network backend; its pool is the one place that takes it.
    transport._pool = httpcore2.AsyncConnectionPool(
        ssl_context=httpx2.create_ssl_context(),
        network_backend=GuardedBackend(allowed_hosts, allow_private=allow_private),
    )
    return httpx2.AsyncClient(
        transport=transport,
        timeout=httpx2.Timeout(REQUEST_SECONDS),
        follow_redirects=False,
        trust_env=False,
        headers={"Accept": "application/json"},
    )


async def fetch(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send a request and read its answer, up to the size that metadata and tokens may have."""
    with anyio.fail_after(REQUEST_SECONDS):
        response = await client.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_METADATA_BYTES:
                    raise httpx2.StreamError(f"the answer is larger than {MAX_METADATA_BYTES:,} bytes")
        finally:
            await response.aclose()
    headers = {k: v for k, v in response.headers.items() if k.lower() not in ("content-encoding", "content-length")}
    return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet."""
    parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if any(parsed in network for network in _NOT_PUBLIC):
            return False
        parsed = _embedded(parsed) or parsed
    return parsed.is_global and not parsed.is_multicast


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a gateway in the network would contact in the place of an IPv6 address."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def is_loopback_host(host: str | None) -> bool:
    """Return whether a host of a URL names this machine."""
    if host is None:
        return False
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
