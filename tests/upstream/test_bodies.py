"""Responses that would fill the memory: bombs, endless bodies, and bodies that nobody asked for."""

import gzip
import ssl
import zlib
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import httpcore2
import httpx2
import pytest

from shortlist.upstream import bodies
from shortlist.upstream.addresses import MAX_METADATA_BYTES, fetch
from shortlist.upstream.bodies import (
    PIECE_BYTES,
    BodyTooLarge,
    _Unpacking,
    decoded,
    read_body,
    responding,
)
from shortlist.upstream.errors import ConnectionFailed
from shortlist.upstream.framing import LineSplitter
from shortlist.upstream.guarded import guarded_client
from shortlist.upstream.http import HttpChannel, HttpNotes, SseChannel, _events, http_client
from shortlist.upstream.interim import MOST_INTERIM, BoundedStream

pytestmark = pytest.mark.anyio
URL, LIMIT, CHUNK = "http://server.test/mcp", 100_000, b"x" * 65_536


class Endless(httpx2.AsyncByteStream):
    """A body that never ends, and how many of its chunks were read."""

    read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.read += 1
            yield CHUNK


def client_of(*responses: httpx2.Response) -> httpx2.AsyncClient:
    """Return a client whose requests are answered by these, one after the other."""
    left = iter(responses)
    return httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: next(left)))


def encoded(encoding: str, content: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-encoding": encoding}, stream=httpx2.ByteStream(content))


BOMBS = {
    "gzip": gzip.compress(b"0" * 10_000_000),
    "X-GZip": gzip.compress(b"0" * 10_000_000),
    "deflate": zlib.compress(b"0" * 10_000_000),
    "gzip, gzip": gzip.compress(gzip.compress(b"0" * 10_000_000)),
    "deflate, gzip": gzip.compress(zlib.compress(b"0" * 10_000_000)),
    "br": b"\x1b\x00\x00",
    "zstd": b"\x28\xb5\x2f\xfd",
    "identity, gzip": gzip.compress(b"0"),
    "": b"0" * 10_000_000,
}


@pytest.mark.parametrize("encoding", BOMBS)
async def test_a_bomb_of_any_encoding_is_refused_and_unpacked_in_small_pieces(encoding: str) -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(encoded(encoding, BOMBS[encoding]), LIMIT)
    with pytest.raises(httpx2.HTTPError):
        await fetch(client_of(encoded(encoding, BOMBS[encoding])), httpx2.Request("GET", URL))
    if encoding in ("gzip", "X-GZip", "deflate"):
        response = encoded(encoding, BOMBS[encoding])
        assert max([len(piece) async for piece in decoded(response)]) <= PIECE_BYTES < MAX_METADATA_BYTES


async def test_a_compressed_stream_of_line_ends_leaves_the_event_loop_to_others() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        response = encoded("gzip", gzip.compress(b":\n\n" * 500_000))
        assert [event async for event in _events(response, LIMIT)] == []
        tasks.cancel_scope.cancel()
    assert turns >= 1_500_000 // PIECE_BYTES


async def test_every_client_asks_only_for_encodings_that_are_unpacked_within_a_bound() -> None:
    for client in (guarded_client(ssl.create_default_context()), http_client({"authorization": "Bearer x"})):
        async with client:
            asked = client.build_request("GET", URL).headers["accept-encoding"]
        for encoding in asked.split(", "):
            whole = encoded(encoding, gzip.compress(b"whole") if encoding == "gzip" else zlib.compress(b"whole"))
            assert await read_body(whole, LIMIT) == b"whole"


async def test_ids_that_a_server_chooses_go_back_as_they_came() -> None:
    answer = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        content = "id: größe €\nretry: 0\ndata:\n\n".encode() if request.method == "POST" else answer
        headers = {b"content-type": b"text/event-stream", b"mcp-session-id": "sitzung-ä".encode()}
        return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(content))

    received: list[object] = []
    async with anyio.create_task_group() as tasks:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
        channel = HttpChannel(URL, client, tasks, LIMIT, HttpNotes())
        channel._deliver = received.append
        await channel.send({"jsonrpc": "2.0", "id": 1, "method": "initialize"}, {})
        await channel.send({"jsonrpc": "2.0", "method": "notifications/cancelled"}, {})
        await channel.close()
    assert len(received) == 1
    raw = dict(asked[1].headers.raw)
    assert raw[b"last-event-id"].decode() == "größe €"
    assert {dict(each.headers.raw).get(b"mcp-session-id") for each in asked[2:]} == {"sitzung-ä".encode()}


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 65_536])
async def test_interim_responses_are_counted_however_they_come_and_anew_for_each_request(end: bytes, size: int) -> None:
    interim = b"HTTP/1.1 103 Early Hints\nlink: </a>" + end
    data = interim * MOST_INTERIM + b"HTTP/1.1 200 OK" + end + interim * 100  # which is the body
    stream = BoundedStream(Scripted(data, size))
    for _ in range(2):
        await stream.write(b"GET / HTTP/1.1\r\n\r\n")
        received = b""
        while len(received) < len(data):
            received += await stream.read(size)
        assert received == data
    endless = BoundedStream(Scripted(interim * 1_000, size))
    with pytest.raises(httpcore2.RemoteProtocolError, match="more than 16 interim responses"):
        _ = [await endless.read(size) for _ in range(len(interim) * 1_000)]


class Scripted(httpcore2.AsyncNetworkStream):
    """A connection on which the same bytes come after every request."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces = [data[at : at + size] for at in range(0, len(data), size)]
        self._left = iter(self._pieces)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._left = iter(self._pieces)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return next(self._left, b"")


async def test_what_follows_the_end_of_a_compressed_body_is_not_kept() -> None:
    unpack = _Unpacking(LIMIT, plain_deflate=False)
    pieces = [piece for chunk in (gzip.compress(b"whole"), *[CHUNK] * 10) for piece in unpack.feed(chunk)]
    assert b"".join(pieces) == b"whole"
    assert len(unpack._inflate.unused_data) == 0


async def test_the_body_of_a_redirect_is_not_read() -> None:
    body = Endless()
    redirect = httpx2.Response(307, headers={"location": "/mcp/"}, stream=body)
    async with responding(client_of(redirect, httpx2.Response(200)), "POST", URL, {}, b"{}") as response:
        assert (response.status_code, response.url.path) == (200, "/mcp/")
    assert body.read == 0


async def test_redirects_that_never_end_are_given_back() -> None:
    client = client_of(*[httpx2.Response(307, headers={"location": "/mcp"}) for _ in range(100)])
    async with responding(client, "POST", URL, {}, b"{}") as response:
        assert response.status_code == 307


async def test_answers_that_carry_nothing_are_not_read() -> None:
    ended, posted = Endless(), Endless()
    async with anyio.create_task_group() as tasks:
        channel = HttpChannel(URL, client_of(httpx2.Response(200, stream=ended)), tasks, LIMIT, HttpNotes())
        channel._session = "open"
        await channel.close()
        older = SseChannel(client_of(httpx2.Response(500, stream=posted)), tasks, HttpNotes())
        older._endpoint = URL
        with pytest.raises(ConnectionFailed, match="500"):
            await older.send({"method": "tools/call"}, {})
    assert (ended.read, posted.read) == (0, 0)


async def test_a_line_that_comes_byte_by_byte_costs_its_bytes() -> None:
    splitter = LineSplitter(LIMIT)
    for _ in range(1_000):
        assert splitter.feed(b"y") == []
    assert splitter._kept.__sizeof__() < 3_000
    assert splitter.feed(b"\n") == [b"y" * 1_000]


@pytest.mark.parametrize("line", [b"\n", b":\n", b"x\n\n", b": keep-alive\r\n\r\n"])
async def test_a_stream_that_brings_nothing_waits_and_one_that_brings_events_does_not(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = 0

    async def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr("anyio.sleep", pause)
    flood = encoded("gzip", gzip.compress(line * (20 * PIECE_BYTES // len(line))))
    assert [event async for event in _events(flood, 20 * PIECE_BYTES)] == []
    assert pauses >= 9
    pauses = 0
    events = encoded("gzip", gzip.compress((line * 2 + b"\ndata: 1\n\n") * 20_000))
    assert len([event async for event in _events(events, LIMIT)]) == 20_000
    assert pauses == 0


class Chunks(httpx2.AsyncByteStream):
    """A body of many chunks that are there at once."""

    def __init__(self, chunk: bytes, times: int) -> None:
        self._chunk, self._times = chunk, times

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._times):
            yield self._chunk


@pytest.mark.parametrize(("chunk", "pauses"), [(b" ", 4), (b"x" * 1_000, 0)])
async def test_chunks_of_a_body_leave_the_event_loop_to_others_and_tiny_ones_wait(
    chunk: bytes, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    response = httpx2.Response(200, stream=Chunks(chunk, 4 * bodies.CHUNKS_AT_ONCE))
    assert sum([len(part) async for part in decoded(response)]) == len(chunk) * 4 * bodies.CHUNKS_AT_ONCE
    assert len(slept) == 4
    assert sum(seconds > 0 for seconds in slept) == pauses
