"""Connections on which a server may send a few interim responses before each response, and nothing after it."""

import re
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2

MOST_INTERIM = 16
"""Interim responses (`100 Continue`, `103 Early Hints`) before the response; usual are none or one."""
AT_ONCE = 1 << 20
"""More than the event loop takes from a socket in one piece: what has come is here, and not in a buffer below."""
_HEAD_END = re.compile(rb"\n\r?\n")


def bounded(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """Let a client give up on endless interim responses, and on connections that say more than was asked."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.AsyncHTTPTransport):
            # httpx2 has no parameter for the network backend; a transport of our own would lose the user's proxies.
            transport._pool._network_backend = BoundedNetwork(transport._pool._network_backend)
    return client


class BoundedNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections that bound what comes before a response and give up those on which something follows it."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend) -> None:
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return BoundedStream(await self._network.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A connection on which a server may send a few interim responses before each response, and nothing after it.

    The HTTP client passes over any number of interim responses, thousands in one piece of work of the event loop.
    It would take bytes after a response for the answer to the next request. So the last byte of what came is held back
    until the client asks for more: if it does not, its response ended before, and the connection is not used again.
    The replies of a SOCKS proxy are not HTTP; each is read in one piece.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._awaits_head = True
        self._interim = 0
        self._rest = b""
        self._held = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._held:
            self._held = await self._stream.read(max(max_bytes, AT_ONCE), timeout)
            is_http = not self._awaits_head or bool(self._rest) or self._held.startswith(b"H")
            if self._awaits_head:
                self._count(self._rest + self._held)
            if not is_http:
                data, self._held = self._held, b""
                return data
        size = min(max_bytes, max(len(self._held) - 1, 1))
        data, self._held = self._held[:size], self._held[size:]
        return data

    def _count(self, data: bytes) -> None:
        while data[9:10] in (b"", b"1"):  # HTTP/1.1 100
            end = _HEAD_END.search(data)
            if end is None:
                self._rest = data  # bounded by the HTTP client, which waits for the end of the same head
                return
            self._interim += 1
            if self._interim > MOST_INTERIM:
                raise httpcore2.RemoteProtocolError(f"it sent more than {MOST_INTERIM} interim responses")
            data = data[end.end() :]
        self._awaits_head, self._rest = False, b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._awaits_head, self._interim, self._rest = True, 0, b""
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return BoundedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and (self._held or self._has_more()):  # asked before a connection is used again
            return True
        return self._stream.get_extra_info(info)

    def _has_more(self) -> bool:
        """Return whether more came over TLS; it is read to know, and the connection is not used again."""
        secured: ssl.SSLObject | None = self._stream.get_extra_info("ssl_object")
        if secured is None:
            return False
        try:
            secured.read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True
        return True
