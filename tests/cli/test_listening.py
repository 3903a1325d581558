"""The HTTP listener itself, below any request."""

import asyncio
import socket
import sys

import pytest

from shortlist.cli import listening
from shortlist.cli.listening import ACCEPTED_AT_ONCE, listen, listening_socket

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_accepted_connections_send_their_answers_without_delay() -> None:
    options: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            options.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    bound = listening_socket("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(Accepting, sock=bound)
    async with server:
        _, writer = await asyncio.open_connection(*bound.getsockname())
        assert await options
        writer.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there the loop accepts in another way")
async def test_the_loop_accepts_several_connections_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[socket.socket] = []

    async def serve(_: object, sockets: list[socket.socket]) -> None:
        given.extend(sockets)

    monkeypatch.setattr(listening._Server, "serve", serve)
    await listen(lambda *_: None, "127.0.0.1", 0, lambda _: None)  # type: ignore[arg-type]
    assert ACCEPTED_AT_ONCE >= 8
    assert len(given) == ACCEPTED_AT_ONCE
    assert len({each.getsockname() for each in given}) == 1
    for each in given:
        each.close()
