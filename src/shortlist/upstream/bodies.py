"""HTTP responses of servers that are not trusted: bounded before their heads, and decoded within a limit of bytes."""

import re
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio.lowlevel
import httpcore2
import httpx2
from mcp.shared._httpx_utils import next_request_within_origin

from shortlist.upstream.errors import ConnectionFailed

ENCODINGS = {"accept-encoding": "gzip, deflate"}
"""What requests ask for: an HTTP client would also name encodings that it can unpack, but not within a bound."""
PIECE_BYTES = 64 * 1024
MOST_INTERIM = 16
"""Interim responses (`100 Continue`, `103 Early Hints`) before the response; usual are none or one."""
_HEAD_END = re.compile(rb"\n\r?\n")


class BodyTooLarge(Exception):
    """A response over the byte limit, or in an encoding that cannot be bounded."""


@asynccontextmanager
async def responding(
    client: httpx2.AsyncClient, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
) -> AsyncIterator[httpx2.Response]:
    """Send a request and yield its response unread, after redirects within its origin.

    The SDK's `stream_within_origin` reads the body of a redirect to its end, however much that is once it is unpacked.
    """
    # Encoded here: sessions and event ids are whatever the server named, and the client takes only ASCII as text.
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    request = client.build_request(method, url, headers=encoded, content=body)
    for remaining in reversed(range(client.max_redirects + 1)):
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            following = next_request_within_origin(response) if remaining else None
            if following is None:
                yield response
                return
            request = following
        finally:
            await response.aclose()


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """Read a response within a limit of decoded bytes; raise BodyTooLarge beyond it."""
    parts, size = [], 0
    async for part in decoded(response):
        size += len(part)
        if size > limit:
            raise BodyTooLarge(f"the answer is over the limit of {limit:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def decoded(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield decoded bytes in small pieces, between which other work runs: a small body can hold gigabytes."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    if encoding == "identity":
        async for chunk in response.aiter_raw():
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BodyTooLarge(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")
    unpack = _Unpacking(PIECE_BYTES, plain_deflate=encoding == "deflate")
    async for chunk in response.aiter_raw():
        for piece in unpack.feed(chunk):
            yield piece
            await anyio.lowlevel.checkpoint()


def bounded(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """Let a client give up on servers that send interim responses without end."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.AsyncHTTPTransport):
            # httpx2 has no parameter for the network backend; a transport of our own would lose the user's proxies.
            transport._pool._network_backend = BoundedNetwork(transport._pool._network_backend)
    return client


class BoundedNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections that bound what comes before the head of a response."""

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
    """A connection on which a server may send a few interim responses before each response.

    The HTTP client passes over any number of them, thousands in one piece of work of the event loop.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._awaits_head = True
        self._interim = 0
        self._rest = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        if self._awaits_head:
            self._count(self._rest + data)
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
        return self._stream.get_extra_info(info)


class _Unpacking:
    """Decompresses a stream in bounded pieces."""

    def __init__(self, piece_bytes: int, *, plain_deflate: bool) -> None:
        self._piece_bytes = piece_bytes
        self._plain_deflate = plain_deflate  # some servers send deflate without its zlib header
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        while chunk and not self._inflate.eof:  # zlib would keep all that comes after the end
            try:
                piece = self._inflate.decompress(chunk, self._piece_bytes)
            except zlib.error as error:
                if not self._plain_deflate:
                    raise ConnectionFailed(f"the answer is not valid {error}") from None
                self._plain_deflate, self._inflate = False, zlib.decompressobj(-zlib.MAX_WBITS)
                continue
            self._plain_deflate = False
            chunk = self._inflate.unconsumed_tail
            yield piece
