"""HTTP for addresses that a stranger named: no private or link-local target, no redirect, bounded time and size."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import anyio
import httpx2

from shortlist.upstream.bodies import BodyTooLarge, read_body
from shortlist.upstream.errors import ConnectionFailed

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


async def fetch(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send a request and read its answer, up to the size that metadata and tokens may have."""
    with anyio.fail_after(REQUEST_SECONDS):
        response = await client.send(request, stream=True)
        try:
            body = await read_body(response, MAX_METADATA_BYTES)
        except (BodyTooLarge, ConnectionFailed) as error:
            raise httpx2.DecodingError(str(error), request=request) from None
        finally:
            await response.aclose()
    headers = {k: v for k, v in response.headers.items() if k.lower() not in ("content-encoding", "content-length")}
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


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
