"""Connections to servers over HTTP: what a server sends after a response reaches no other request."""

import asyncio
import datetime
import ssl
from contextlib import suppress
from pathlib import Path

import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shortlist.upstream.http import http_client
from shortlist.upstream.interim import AT_ONCE, BoundedStream

pytestmark = pytest.mark.anyio
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %06d\r\n\r\n"
READ = 65_536
"""What the HTTP client reads at once."""


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server with a certificate of its own uses, and what a client that trusts it uses."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=str(file))


@pytest.mark.parametrize("follows", [b"x", (HEAD % 5) + b"stale"], ids=["a byte", "a response"])
@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("size", [10, READ - len(HEAD % 0), READ, 4 * READ])
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
async def test_a_connection_on_which_more_came_is_not_used_again(
    follows: bytes, apart: bool, size: int, secured: bool, certified: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    body, connections = b"b" * size, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                if apart:
                    writer.write((HEAD % size) + body)
                    await writer.drain()
                    writer.write(follows)
                else:
                    writer.write((HEAD % size) + body + follows)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certified[0] if secured else None)
    url = f"http{'s' * secured}://localhost:{server.sockets[0].getsockname()[1]}/"
    async with http_client({}, verify=certified[1]) as client:
        for _ in range(3):
            assert (await client.get(url)).content == body
            await asyncio.sleep(0.02)  # what comes apart has come before the connection would be used again
    server.close()
    assert connections == 3


async def test_a_connection_on_which_nothing_follows_is_used_again(
    certified: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write((HEAD % READ) + b"b" * READ)
        writer.close()

    for context, scheme in ((certified[0], "https"), (None, "http")):
        connections = 0
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        async with http_client({}, verify=certified[1]) as client:
            for _ in range(5):
                response = await client.get(f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}/")
                assert response.content == b"b" * READ
        server.close()
        assert connections == 1


class Arrived(httpcore2.AsyncNetworkStream):
    """A connection on which all of this has come."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Take what is sent."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        data, self._data = self._data[:max_bytes], self._data[max_bytes:]
        return data


async def test_replies_of_a_proxy_that_are_not_http_are_read_in_one_piece() -> None:
    stream = BoundedStream(Arrived(b"\x05\x00"))
    await stream.write(b"\x05\x01\x00")
    assert await stream.read(10) == b"\x05\x00"
    assert not stream.get_extra_info("is_readable")


async def test_no_piece_is_larger_than_asked_for() -> None:
    data = (HEAD % AT_ONCE) + b"b" * (2 * AT_ONCE)
    stream = BoundedStream(Arrived(data))
    pieces = []
    while piece := await stream.read(1_000):
        pieces.append(piece)
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == 1_000
