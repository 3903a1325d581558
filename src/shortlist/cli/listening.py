"""Serving an app over HTTP until a signal comes."""

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp

from shortlist.errors import InvalidInput

GRACE_SECONDS = 3.0


async def listen(app: ASGIApp, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve an app; its address is announced as soon as clients may connect."""
    bound = listening_socket(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,  # paths hold workspace handles
        timeout_graceful_shutdown=int(GRACE_SECONDS),
    )
    announce(f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}")
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell_signals, server)
        await server.serve(sockets=[bound])
        tasks.cancel_scope.cancel()


def listening_socket(host: str, port: int) -> socket.socket:
    """Bind and listen on an address; raise InvalidInput when that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The event loop sets TCP_NODELAY only where the protocol is named: create_server() leaves it 0, and every
    # answer then waits 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there the option lets two programs share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InvalidInput(
            f"{host}:{port} cannot be used: {error.strerror}. Try another with --http HOST:PORT."
        ) from None
    return listening


class _Server(uvicorn.Server):
    """Ends without raising the signal again: that would end the process before what it serves has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _tell_signals(server: uvicorn.Server) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            server.handle_exit(number, None)


def address(text: str) -> tuple[str, int]:
    """Read HOST:PORT."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(f"--http takes HOST:PORT, as in 127.0.0.1:8765, not {text!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)
