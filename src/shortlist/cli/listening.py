"""Serves an app over HTTP until a signal comes."""

import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from shortlist.cli.signals import ending_signals
from shortlist.config.settings import DEFAULT_LIMITS
from shortlist.errors import InvalidInput
from shortlist.front.connections import IDLE_SECONDS, guarded_protocol
from shortlist.front.requests import Admission

ACCEPTED_AT_ONCE = 8
"""Connections that are accepted in one pass of the event loop. uvloop accepts one for each listening socket, and a
probe would wait behind thousands of connections that came before it."""
GRACE_SECONDS = 3.0
"""How long requests that are running at a signal may take to be answered."""
RESPONSE_SECONDS = 0.5
"""How long clients may then take to read their last responses."""
EXIT_SECONDS = 4.7
"""After a signal the process has ended by then, whatever still runs in it."""


async def listen(
    app: ASGIApp,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    admission: Admission | None = None,
    own: socket.socket | None = None,
) -> None:
    """Serve an app until a signal comes; its address is announced as soon as clients may connect.

    With `admission`, the requests that are running at the signal are answered while new ones are refused. With `own`,
    other processes share the port, and this socket leads to this process alone.
    """
    bound = listening_socket(host, port, shared=own is not None)
    limits = admission.limits if admission is not None else DEFAULT_LIMITS
    config = uvicorn.Config(
        app,
        http=guarded_protocol(limits, admission.refused if admission is not None else Counter()),
        log_config=None,
        log_level="warning",
        access_log=False,  # paths hold workspace handles
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=RESPONSE_SECONDS,  # type: ignore[arg-type] # asyncio takes fractions too
    )
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, server, admission)
        announce(base_url(host, bound))
        copies = [bound.dup() for _ in range(ACCEPTED_AT_ONCE - 1)] if sys.platform != "win32" else []
        await server.serve(sockets=[bound, *copies, *([own] if own is not None else [])])
        tasks.cancel_scope.cancel()


def base_url(host: str, bound: socket.socket) -> str:
    """Return the address that a socket serves."""
    return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"


def listening_socket(host: str, port: int, *, shared: bool = False, listens: bool = True) -> socket.socket:
    """Bind and listen on an address; raise InvalidInput when that is not possible.

    With `shared`, other processes of this user may listen there too, and each connection goes to one of them. Without
    `listens`, the address is only reserved.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The event loop sets TCP_NODELAY only where the protocol is named: create_server() leaves it 0, and every
    # answer then waits 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there the option lets two programs share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
        if listens:
            listening.listen()
    except OSError as error:
        listening.close()
        raise InvalidInput(
            f"{host}:{port} cannot be used: {error.strerror}. Try another with --http HOST:PORT."
        ) from None
    return listening


class _Server(uvicorn.Server):
    """Exits without raising the signal again, which would end the process before its requests have ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _end_on_signal(server: uvicorn.Server, admission: Admission | None, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(*ending_signals()) as signals:
        task_status.started()
        async for _ in signals:
            exit_soon()
            if admission is not None and not admission.is_closing:
                await admission.close(GRACE_SECONDS)
            # Not by handle_exit: the SDK's event streams watch it, and would end before their answers.
            server.should_exit = True
            return


def exit_soon() -> None:
    """Exit in time, even if a thread is still computing or a stdin that is never closed is being read."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()


def address(text: str) -> tuple[str, int]:
    """Read HOST:PORT."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(f"--http takes HOST:PORT, as in 127.0.0.1:8765, not {text!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)
