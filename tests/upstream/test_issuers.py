"""Authorization servers that are slow, lie, redirect or never answer: a refusal, and nothing hangs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from shortlist.config.load import settings_of
from shortlist.config.settings import ClaimRule, IssuerSettings
from shortlist.errors import InvalidConfig
from shortlist.upstream import addresses
from shortlist.upstream.issuers import IssuerClient

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[str]:
    """Answer every request with these bytes; None never answers."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            if answer is None:
                await anyio.sleep_forever()
            else:
                await stream.send(answer)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.listeners[0].extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


def issuer(url: str) -> IssuerSettings:
    return IssuerSettings(name="company", issuer=url, audiences=("x",), rules=(ClaimRule(),))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhat",
        b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b" " * 400_000,
        b"this is not HTTP\r\n\r\n",
        None,
    ],
    ids=["redirect", "list", "no JSON", "huge", "no HTTP", "silence"],
)
async def test_an_issuer_that_does_not_answer_properly_fails_the_fetch(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is None:
        monkeypatch.setattr(addresses, "REQUEST_SECONDS", 0.1)
    async with answering(answer) as url:
        with pytest.raises((OSError, TimeoutError, ValueError)):
            await IssuerClient().fetch(issuer(url), f"{url}/keys")


async def test_keys_on_a_private_address_of_another_host_are_not_fetched() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as url:
        with pytest.raises(OSError, match="not a public address"):
            await IssuerClient().fetch(issuer("https://login.example.com"), f"{url}/keys")


@pytest.mark.parametrize(
    ("oauth", "problem"),
    [
        ({"resource": "http://tools.example.com/mcp", "issuers": {}}, "is not an https:// address"),
        (
            {"resource": "https://x.example", "issuers": {"a:b": {"issuer": "https://i", "rules": [{}]}}},
            "rename it",
        ),
        ({"resource": "https://x.example", "issuers": {"a": {"issuer": "ftp://i", "rules": [{}]}}}, "https://"),
        (
            {"resource": "https://x.example", "issuers": {"a": {"issuer": "https://i", "rules": [{"claim": "g"}]}}},
            "'claim' and 'values' go together",
        ),
    ],
)
def test_a_configuration_that_would_let_in_the_wrong_people_is_refused(oauth: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        settings_of({"shortlist": {"oauth": oauth}}, source="test", environment={})


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::"),
    ],
)
def test_no_spelling_of_a_private_address_is_public(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::", "2606:4700::1111"]
)
def test_a_public_address_stays_public_in_every_spelling(address: str) -> None:
    assert addresses.is_public(address)
