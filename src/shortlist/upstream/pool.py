"""All upstream servers, each supervised on its own."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import anyio

from shortlist.config.settings import DEFAULT_LIMITS, EMPTY, Limits, ServerSettings
from shortlist.errors import UpstreamError
from shortlist.models import Json
from shortlist.upstream.attachments import Attachment
from shortlist.upstream.errors import UpstreamUnavailable
from shortlist.upstream.events import (
    NO_OPTIONS,
    CallOptions,
    Client,
    OnEvent,
    Peer,
    State,
    StateChanged,
    Survey,
    UpstreamEvent,
    UpstreamStatus,
)
from shortlist.upstream.framing import Message
from shortlist.upstream.host import DEFAULT_CADENCE, Cadence, Host
from shortlist.upstream.leases import Leases
from shortlist.upstream.login import Logins
from shortlist.upstream.sessions import Sessions
from shortlist.upstream.supervisor import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a new configuration changed; servers that are not named here keep running."""

    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    """The connection stays; tools are listed again under the new settings."""

    def __bool__(self) -> bool:
        return bool(self.started or self.stopped or self.restarted or self.updated)

    def __str__(self) -> str:
        parts = {"started": self.started, "stopped": self.stopped, "restarted": self.restarted, "updated": self.updated}
        return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)


class UpstreamPool:
    """An async context manager; entering starts every server in parallel and waits for none.

    Events go to `on_event` on the event loop, in order per server; it must not block.
    """

    def __init__(  # noqa: PLR0913 - all but two have a default
        self,
        servers: Mapping[str, ServerSettings],
        *,
        on_event: OnEvent,
        client: Client | None = None,
        limits: Limits = DEFAULT_LIMITS,
        cadence: Cadence = DEFAULT_CADENCE,
        log_directory: str | Path | None = None,
        logins: Logins | None = None,
        secrets: Callable[[str], str | None] | None = None,
        on_demand: bool = False,
        leases: Leases | None = None,
    ) -> None:
        self._host = Host(
            on_event=self._note,
            client=client,
            limits=limits,
            cadence=cadence,
            log_directory=Path(log_directory) if log_directory else None,
            logins=logins,
            secrets=secrets,
            on_demand=on_demand,
            leases=leases,
        )
        self._on_event = on_event
        self._upstreams = {name: Upstream(settings, self._host) for name, settings in servers.items()}
        self.states: dict[str, State] = dict.fromkeys(servers, "connecting")
        """Every server's state, in configuration order: a plain mapping, since every search reads it."""
        self._tasks = anyio.create_task_group()
        self._sessions = Sessions(self._host, self._tasks)
        self._reloading = anyio.Lock()

    def start_later(self, servers: Iterable[str]) -> None:
        """Start these a moment after the others, or when they are first called; call this before entering."""
        for name in servers:
            self._upstreams[name].head_start_seconds = self._host.cadence.head_start_seconds

    def know(self, surveys: Mapping[str, Survey]) -> None:
        """Start these servers when they are needed, where their settings allow it; call this before entering."""
        for name, survey in surveys.items():
            if self._host.may_end(self._upstreams[name].settings):
                self._upstreams[name].know(survey)
                self.states[name] = "idle"

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        for upstream in self._upstreams.values():
            self._tasks.start_soon(upstream.run)
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._sessions.stop()
            await self._stop(tuple(self._upstreams))
            await self._host.guardian.close()
        self._tasks.cancel_scope.cancel()
        # Not given the caller's own error: the group would wrap it.
        await self._tasks.__aexit__(None, None, None)

    def status(self) -> Mapping[str, UpstreamStatus]:
        """Return the status of every server, in configuration order."""
        return {name: upstream.status() for name, upstream in self._upstreams.items()}

    def peer(self, server: str) -> Peer | None:
        """Return what a server said about itself when it connected; cheap, since every call asks."""
        upstream = self._upstreams.get(server)
        if upstream is None or upstream.peer is not None or upstream.rest.survey is None:
            return upstream.peer if upstream else None
        return upstream.rest.survey.peer

    async def call_tool(
        self, server: str, name: str, arguments: Mapping[str, Json], *, options: CallOptions = NO_OPTIONS
    ) -> dict[str, Json]:
        """Call a tool by the server's own name for it; the raw `tools/call` result comes back untouched.

        Raises UpstreamRefused (a JSON-RPC error, to relay), UpstreamTimeout or UpstreamUnavailable.
        A modern server may answer `resultType: input_required`; retry it through `request` with
        `inputResponses` and `requestState` in the params.
        """
        return await self.request(server, "tools/call", {"name": name, "arguments": arguments}, options=options)

    async def request(
        self,
        server: str,
        method: str,
        params: Mapping[str, Json] = EMPTY,
        *,
        options: CallOptions = NO_OPTIONS,
    ) -> dict[str, Json]:
        """Send any request (prompts/get, resources/read, completion/complete, …) and relay its result.

        While the server is still connecting this waits, within the request's time.
        """
        upstream = self._of(server)
        if options.session:
            return await self._sessions.request(upstream.settings, method, params, options)
        return await upstream.request(method, params, options)

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = EMPTY) -> None:
        """Send a notification (notifications/roots/list_changed); dropped while not connected."""
        await self._of(server).notify(method, params)

    async def watch(self, server: str, uris: Iterable[str]) -> None:
        """Subscribe to exactly these resources, as the server's era does it; updates come as `Notified`."""
        await self._of(server).watch(uris)

    @asynccontextmanager
    async def attached(
        self,
        server: str,
        send: Callable[[Message], Coroutine[Any, Any, None]],
        admitted: Callable[[], AbstractContextManager[bool]],
    ) -> AsyncIterator[Attachment]:
        """Let another gateway use a server until this ends; `admitted` yields whether a request may begin."""
        upstream = self._of(server)
        async with anyio.create_task_group() as tasks:
            attachment = Attachment(upstream, send, tasks, admitted)
            upstream.attached.add(attachment)
            try:
                yield attachment
            finally:
                upstream.attached.discard(attachment)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True), suppress(UpstreamError):
                    await attachment.end()

    def refresh(self, server: str) -> None:
        """List a server's tools again, and reconnect one that is failed or needs_auth, without waiting."""
        self._of(server).refresh()
        self._sessions.refresh(server)

    async def reload(self, servers: Mapping[str, ServerSettings], limits: Limits | None = None) -> Reloaded:
        """Start, stop and restart only what differs from the running configuration.

        New limits hold for the next listing and the next connection of every server.
        """
        async with self._reloading:
            if limits is not None and limits != self._host.limits:
                self._host.limits = limits
                for upstream in self._upstreams.values():
                    upstream.refresh()
            running = {name: upstream.settings for name, upstream in self._upstreams.items()}
            changes = _compare(running, servers)
            await self._sessions.stop((*changes.stopped, *changes.restarted, *changes.updated))
            await self._stop((*changes.stopped, *changes.restarted))
            for name in changes.updated:
                self._upstreams[name].adopt(servers[name])
            kept = self._upstreams
            self._upstreams = {
                name: kept[name] if name in kept and name not in changes.restarted else Upstream(settings, self._host)
                for name, settings in servers.items()
            }
            self.states = {name: upstream.state for name, upstream in self._upstreams.items()}
            for name in (*changes.started, *changes.restarted):
                self._tasks.start_soon(self._upstreams[name].run)
            return changes

    async def settled(self, seconds: float) -> None:
        """Wait until no server is in its first attempt to connect, or the time is over."""
        with anyio.move_on_after(seconds):
            for upstream in tuple(self._upstreams.values()):
                await upstream.first_outcome()

    def _note(self, event: UpstreamEvent) -> None:
        if isinstance(event, StateChanged) and event.server in self.states:
            self.states[event.server] = event.status.state
        self._on_event(event)

    async def _stop(self, names: Iterable[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(self._upstreams[name].stop)

    def _of(self, server: str) -> Upstream:
        try:
            return self._upstreams[server]
        except KeyError:
            raise UpstreamUnavailable(server, "there is no such server in the configuration") from None


def _compare(running: Mapping[str, ServerSettings], wanted: Mapping[str, ServerSettings]) -> Reloaded:
    both = [name for name in wanted if name in running and running[name] != wanted[name]]
    restarted = tuple(name for name in both if running[name].transport != wanted[name].transport)
    return Reloaded(
        started=tuple(name for name in wanted if name not in running),
        stopped=tuple(name for name in running if name not in wanted),
        restarted=restarted,
        updated=tuple(name for name in both if name not in restarted),
    )
