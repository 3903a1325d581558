"""The local socket of a gateway: this user's stdio clients and commands, each greeted and then served."""

import asyncio
import json
import logging
import os
import socket
import struct
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

import anyio

from shortlist.cli.answers import COMMANDS, LOCAL_CALLER, check_arguments
from shortlist.cli.rendezvous import FORMAT, Listener, Rendezvous, is_same_user, named_variables
from shortlist.cli.stack import SETTLE_SECONDS, Stack
from shortlist.errors import InvalidInput, ShortlistError, ToolNotFound
from shortlist.front.server import LOCAL_CLIENT, LocalClient
from shortlist.front.stdio import open_socket
from shortlist.gateway.view import ServeOptions
from shortlist.upstream.errors import UpstreamUnavailable
from shortlist.version import own_version

GREETING_SECONDS = 10.0
FAILED, BAD_INPUT = 1, 2

logger = logging.getLogger(__name__)


class LocalDoor:
    """Serves the clients of one socket until it is cancelled, told to stop, or idle for long enough."""

    def __init__(self, stack: Stack, place: Rendezvous, held: Listener, stop: Callable[[], None] | None = None) -> None:
        self._stack = stack
        self._place = place
        self._held = held
        self._stop = stop
        self._clients: dict[int, int | None] = {}
        self._started = time.monotonic()
        self._changed = anyio.Event()
        self._accepting = anyio.CancelScope()

    async def serve(self) -> None:
        """Accept clients; one that misbehaves ends alone."""
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            with self._accepting:
                while True:
                    connection, _ = await loop.sock_accept(self._held.listening)
                    tasks.start_soon(self._contained, connection)

    def close(self) -> None:
        """Accept no more clients; those that are connected stay."""
        self._accepting.cancel()
        self._place.socket.unlink(missing_ok=True)

    async def idle(self, seconds: float) -> None:
        """Wait until there was no client for so long."""
        while True:
            self._changed = anyio.Event()
            with anyio.move_on_after(seconds) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught and not self._clients:
                return

    async def _contained(self, connection: socket.socket) -> None:
        self._clients[id(connection)] = _pid(connection)
        self._changed.set()
        try:
            if not is_same_user(connection):
                logger.warning("a process of another user connected to %s and was refused", self._place.socket)
                return
            connection.setblocking(False)
            reader, writer = await asyncio.open_unix_connection(sock=connection)
            try:
                await self._greeted(reader, writer)
            finally:
                writer.close()
        except OSError as error:
            logger.debug("a local client is gone: %s", error)
        except Exception:  # the border to a foreign process: whatever it does, the others go on
            logger.exception("a local client could not be served")
        finally:
            connection.close()
            del self._clients[id(connection)]
            self._changed.set()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with anyio.fail_after(GREETING_SECONDS):
                wish = json.loads(await reader.readline())
        except (TimeoutError, ValueError):
            return  # not one of ours
        if not isinstance(wish, dict) or wish.get("shortlist") != FORMAT or wish.get("version") != own_version():
            await _reply(writer, {})  # our version, so that the client can say what differs
            return
        try:
            if "serve" in wish and (other := self._other_variables(wish.get("variables") or {})):
                await _reply(
                    writer, {"alone": f"this client gets a gateway of its own: the shared one has another {other}"}
                )
            elif "serve" in wish:
                await self._serve(wish["serve"], reader, writer)
            elif "command" in wish:
                await _reply(writer, await self._answer(str(wish["command"]), wish.get("arguments") or {}))
            elif wish.get("do") == "stop":
                await self._end(writer)
            else:
                await _reply(writer, self._status())
        except ToolNotFound as error:
            told = ToolNotFound(error.tool_id, suggestions=error.suggestions, finder="`shortlist search`")
            await _reply(writer, {"error": str(told), "status": BAD_INPUT})
        except ShortlistError as error:
            status = BAD_INPUT if isinstance(error, InvalidInput) else FAILED
            await _reply(writer, {"error": str(error), "status": status})

    async def _serve(self, wish: Mapping[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one MCP client with the options of its connection."""
        stack, server = self._stack, self._stack.front.server
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in wish.items()}
        options = ServeOptions(**{each.name: given[each.name] for each in fields(ServeOptions) if each.name in given})
        async with stack.gateway.state.serving(options):
            await _reply(writer, {"notes": [f"using {self._described()}, shared by your clients (pid {os.getpid()})"]})
            LOCAL_CLIENT.set(LocalClient(options=options))
            async with open_socket(reader, writer, stack.settings.limits) as (read, write):
                await server.run(read, write, server.create_initialization_options())

    def _other_variables(self, theirs: Mapping[str, str]) -> str:
        """Return the variables of the configuration whose values differ from those of this process."""
        ours = named_variables(self._place.config)
        return ", ".join(f"${name}" for name, digest in ours.items() if theirs.get(name) != digest)

    async def _answer(self, command: str, given: Mapping[str, Any]) -> dict[str, Any]:
        stack, arguments = self._stack, Namespace(**given)
        check_arguments(arguments, stack.gateway.state.settings)
        if command != "call" or not await self._knows(arguments.name):
            await stack.pool.settled(SETTLE_SECONDS)
            await stack.gateway.settled()
        answer = await COMMANDS[command](arguments, stack)
        return {"notes": answer.notes, "output": answer.shown(arguments), "status": answer.status}

    async def _knows(self, tool: str) -> bool:
        state = self._stack.gateway.state
        try:
            await state.find(await state.admit(LOCAL_CALLER), tool)
        except (ToolNotFound, UpstreamUnavailable):
            return False
        return True

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        if self._stop is None:
            error = f"The gateway (pid {os.getpid()}) also serves HTTP. End that process itself."
            await _reply(writer, {"error": error, "status": BAD_INPUT})
            return
        await _reply(writer, {})
        self._stop()

    def _status(self) -> dict[str, Any]:
        return {
            "seconds": round(time.monotonic() - self._started, 1),
            "config": self._stack.gateway.state.settings.source,
            "log": str(self._place.log),
            "clients": [{"pid": pid} for number, pid in list(self._clients.items())[:-1]],
            "servers": dict(Counter(self._stack.pool.states.values())),
        }

    def _described(self) -> str:
        settings = self._stack.gateway.state.settings
        count = len(settings.servers)
        servers = f"{count} server{'' if count == 1 else 's'}"
        return f"{settings.source} ({servers})" if settings.source else f"the bundled demo ({servers})"


async def _reply(writer: asyncio.StreamWriter, head: Mapping[str, Any]) -> None:
    writer.write(json.dumps({"version": own_version(), "pid": os.getpid(), **head}).encode() + b"\n")
    with suppress(OSError):
        await writer.drain()


def _pid(connection: socket.socket) -> int | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid
