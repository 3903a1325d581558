"""HTTP responses of servers that are not trusted: only decoded bytes within a limit enter memory, and nothing else."""

import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpx2
from mcp.shared._httpx_utils import next_request_within_origin

from shortlist.upstream.errors import ConnectionFailed

ENCODINGS = {"accept-encoding": "gzip, deflate"}
"""What requests ask for: an HTTP client would also name encodings that it can unpack, but not within a bound."""
PIECE_BYTES = 64 * 1024
CHUNKS_AT_ONCE = 256
CHUNK_BYTES = 16
"""After so many chunks of a body others get their turn; where they were shorter on average, the server waits."""
FLOOD_PAUSE_SECONDS = 0.02


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
        async for chunk in _paced(response):
            yield chunk
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise BodyTooLarge(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")
    unpack = _Unpacking(PIECE_BYTES, plain_deflate=encoding == "deflate")
    async for chunk in _paced(response):
        for piece in unpack.feed(chunk):
            yield piece
            await anyio.lowlevel.checkpoint()


async def _paced(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield a body as it comes, with pauses: a server can send thousands of chunks of one byte in one packet."""
    chunks = size = 0
    async for chunk in response.aiter_raw():
        yield chunk
        chunks += 1
        size += len(chunk)
        if chunks == CHUNKS_AT_ONCE:
            await anyio.sleep(FLOOD_PAUSE_SECONDS if size < CHUNKS_AT_ONCE * CHUNK_BYTES else 0)
            chunks = size = 0


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
