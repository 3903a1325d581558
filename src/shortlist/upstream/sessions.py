"""Connections of one caller or workspace to a server that keeps state, or that it is signed in to itself."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from shortlist.config.settings import ServerSettings
from shortlist.models import Json
from shortlist.upstream.errors import UpstreamBusy
from shortlist.upstream.events import CallOptions, Client
from shortlist.upstream.grants import SHARED
from shortlist.upstream.host import Host
from shortlist.upstream.supervisor import Upstream

MOST_SESSIONS = 64
"""Connections beside the shared ones; the one that was not used for the longest time ends first."""


@dataclass(slots=True)
class _Session:
    upstream: Upstream
    client: "_OwnClient | None"
    running: int = 0


class _OwnClient:
    """Answers a server's questions with the client that uses this connection, and no other."""

    def __init__(self, inner: Client) -> None:
        self.capabilities = inner.capabilities
        self.caller: Any = None
        self._inner = inner

    async def answer(
        self, server: str, method: str, params: Mapping[str, Json], callers: tuple[Any, ...]
    ) -> dict[str, Json]:
        return await self._inner.answer(server, method, params, callers or (self.caller,))


class Sessions:
    """The connections that are not shared, each started by its first request."""

    def __init__(self, host: Host, tasks: TaskGroup) -> None:
        self._host = host
        self._tasks = tasks
        self._open: OrderedDict[tuple[str, str], _Session] = OrderedDict()

    async def request(
        self, settings: ServerSettings, method: str, params: Mapping[str, Json], options: CallOptions
    ) -> dict[str, Json]:
        """Relay a request over the connection that its options name."""
        session = self._of(settings, options)
        if session.client is not None:
            session.client.caller = options.caller
        session.running += 1
        try:
            return await session.upstream.request(method, params, options)
        finally:
            session.running -= 1

    def refresh(self, server: str) -> None:
        """Let the connections to a server try again, after a login."""
        for (name, _), session in self._open.items():
            if name == server:
                session.upstream.refresh()

    async def stop(self, servers: Iterable[str] | None = None) -> None:
        """End the connections to some servers, or all of them."""
        names = None if servers is None else frozenset(servers)
        ended = [key for key in self._open if names is None or key[0] in names]
        async with anyio.create_task_group() as tasks:
            for key in ended:
                tasks.start_soon(self._open.pop(key).upstream.stop)

    def _of(self, settings: ServerSettings, options: CallOptions) -> _Session:
        key = (settings.name, options.session)
        if key not in self._open:
            self._make_room(settings.name)
            self._open[key] = self._started(settings, options.principal or SHARED)
        self._open.move_to_end(key)
        return self._open[key]

    def _started(self, settings: ServerSettings, principal: str) -> _Session:
        client = _OwnClient(self._host.client) if self._host.client is not None else None
        # What a connection of one caller hears must not reach the others, and its tools are those of the shared one.
        host = replace(self._host, on_event=lambda _: None, client=client, principal=principal, log_directory=None)
        session = _Session(Upstream(settings, host), client)
        self._tasks.start_soon(session.upstream.run)
        return session

    def _make_room(self, server: str) -> None:
        if len(self._open) < MOST_SESSIONS:
            return
        idle = next((key for key, session in self._open.items() if not session.running), None)
        if idle is None:
            raise UpstreamBusy(server, f"{MOST_SESSIONS} callers use connections of their own; try again shortly")
        self._tasks.start_soon(self._open.pop(idle).upstream.stop)
