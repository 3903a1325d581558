"""The HTTP listener itself, below any request."""

import asyncio
import socket

import pytest

from shortlist.cli.listening import listening_socket

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
