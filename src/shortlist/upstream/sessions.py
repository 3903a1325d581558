"""Connections of one caller or workspace to a server that keeps state, or that it is signed in to itself."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from shortlist.config.settings import ServerSettings
from shortlist.fairness import gives_way
from shortlist.models import Json
from shortlist.upstream.errors import UpstreamBusy
from shortlist.upstream.events import CallOptions, Client
from shortlist.upstream.grants import SHARED
from shortlist.upstream.host import Host
from shortlist.upstream.supervisor import Upstream

MOST_SESSIONS = 64
"""Connections beside the shared ones. Where all are open, the caller with the most loses the one not used longest."""


@dataclass(slots=True)
class _Session:
    upstream: Upstream
    client: "_OwnClient | None"
    owner: str
    """The key of the principal that opened it."""
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
            owner = _owner(options.session)
            self._make_room(settings.name, owner)
            self._open[key] = self._started(settings, options.principal or SHARED, owner)
        self._open.move_to_end(key)
        return self._open[key]

    def _started(self, settings: ServerSettings, principal: str, owner: str) -> _Session:
        client = _OwnClient(self._host.client) if self._host.client is not None else None
        # What a connection of one caller hears must not reach the others, and its tools are those of the shared one.
        host = replace(
            self._host, on_event=lambda _: None, client=client, principal=principal, log_directory=None, leases=None
        )
        session = _Session(Upstream(settings, host), client, owner)
        self._tasks.start_soon(session.upstream.run)
        return session

    def _make_room(self, server: str, owner: str) -> None:
        if len(self._open) < MOST_SESSIONS:
            return
        owners = {key: session.owner for key, session in self._open.items()}
        idle = gives_way(owners, owner, lambda key: not self._open[key].running)
        if idle is None:
            raise UpstreamBusy(
                server, f"all {MOST_SESSIONS} connections of single callers are in use; try again shortly"
            )
        self._tasks.start_soon(self._open.pop(idle).upstream.stop)


def session_name(principal: str, workspace: str | None = None) -> str:
    """Name a connection of one principal, or of one of its workspaces; no text in either makes two names equal."""
    return principal if workspace is None else json.dumps([principal, workspace])


def _owner(session: str) -> str:
    """Return the principal of a connection's name; the key of a principal begins with its kind, never with `[`."""
    return str(json.loads(session)[0]) if session.startswith("[") else session
