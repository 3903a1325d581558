"""Keeps one server connected: lists its tools, pings it, reconnects with back-off, and always ends it."""

import logging
import time
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp_types import METHOD_NOT_FOUND

from shortlist.config.settings import HttpTransport, ServerSettings, SseTransport, StdioTransport, Transport
from shortlist.errors import UpstreamError
from shortlist.fairness import Allowance
from shortlist.models import Json, Tool
from shortlist.upstream.attachments import NOT_RELAYED, Attachments, Watchers, leased_client
from shortlist.upstream.connection import PROBE_SECONDS, Breaker, Connection, Dial, auth_remedy, connect
from shortlist.upstream.errors import (
    ClosedByProbe,
    UpstreamBusy,
    UpstreamNeedsAuth,
    UpstreamNotSent,
    UpstreamUnavailable,
    cause_of,
    reason_of,
)
from shortlist.upstream.events import (
    CallOptions,
    Notified,
    Peer,
    State,
    StateChanged,
    Survey,
    ToolsChanged,
    UpstreamEvent,
    UpstreamStatus,
)
from shortlist.upstream.host import Host
from shortlist.upstream.http import HttpNotes
from shortlist.upstream.login import login_target
from shortlist.upstream.rest import Rest
from shortlist.upstream.stderr import StderrLog, log_path

logger = logging.getLogger(__name__)

STDERR_IN_STATUS = 20
STDERR_IN_ERROR = 5
POLITE_SECONDS = 6.0  # how long an orderly end may take before the connection is cut
HASTE_SECONDS = 1.0
"""A call starts the next attempt to connect at once, unless the last one failed less than this ago."""
HASTENED_SECONDS = 2.0  # how long a call waits for that attempt
BRIEF_ATTEMPTS = 3  # after so many failed ones, calls no longer wait for a server as if it were only restarting
_SSE_ONLY = (400, 404, 405, 406, 415)  # how an endpoint of the old transport answers the new one's POST


class Upstream:
    """Runs until it is stopped; whatever the server does, `run` does not raise."""

    def __init__(self, settings: ServerSettings, host: Host) -> None:
        self.settings = settings
        self.head_start_seconds = 0.0
        """How long others go first, unless this server is wanted before."""
        self.rest = Rest()
        self.attached = Attachments()
        self._host = host
        self._client = leased_client(host, settings.transport, self.attached)
        self._log = StderrLog(log_path(host.log_directory, settings.name) if host.log_directory else None)
        self._transport: Transport = settings.transport
        self._probe = True
        self._connection: Connection | None = None
        self.peer: Peer | None = None
        self._state: State = "connecting"
        self._shown: State = "connecting"
        self._breaker = Breaker(host.limits.breaker_failures, self._circuit_changed)
        self._allowance = Allowance(host.limits.notifications_per_second)
        self._resting_since: float | None = None
        self._waiting, self._attempts, self._since = 0, 0, time.time()
        self._error: str | None = None
        self._warned: State | None = None
        self._tools: tuple[Tool, ...] | None = None
        self._changed = anyio.Event()
        self._problems: tuple[str, ...] = ()
        self._wake, self._relist = anyio.Event(), anyio.Event()
        self._announced = False
        self._stopped, self._ended = anyio.Event(), anyio.Event()
        self._scope = anyio.CancelScope()
        self._room = anyio.Semaphore(settings.max_concurrency)
        self._watchers = Watchers()
        self._callers: dict[int, Any] = {}
        self._numbers, self._heard = count(), time.monotonic()
        self._ready_at: float | None = None

    @property
    def state(self) -> State:
        """Return the connection's state, or `down` for a server that is connected but does not answer."""
        return "down" if self._state == "ready" and self._breaker.circuit == "open" else self._state

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(
            server=self.settings.name,
            state=self.state,
            since=self._since,
            tools=len(self._tools or ()),
            error=self._breaker.reason if self.state == "down" else self._error,
            stderr=self._log.last(STDERR_IN_STATUS),
            peer=self.peer,
            attempts=self._attempts,
            circuit=self._breaker.circuit,
            dropped=self._allowance.dropped,
            problems=self._problems,
        )

    async def request(self, method: str, params: Mapping[str, Json], options: CallOptions) -> dict[str, Json]:
        """Relay a request within its time, which includes waiting for a connection and for room.

        One that certainly did not reach the server is sent again when the server is back.
        """
        if self._state in ("idle", "connecting") and (known := self.rest.answer(method, params)) is not None:
            return known
        self.rest.used = time.monotonic()
        self.rest.wanted.set()
        deadline = anyio.current_time() + (options.timeout_seconds or self.settings.timeout_seconds)
        repeated = False
        while True:
            connection = self._live or await self._ready(deadline)
            try:
                return await self._relay(connection, method, params, options, deadline)
            except UpstreamNotSent:
                if repeated or anyio.current_time() >= deadline:
                    raise
                repeated = True

    async def _relay(
        self, connection: Connection, method: str, params: Mapping[str, Json], options: CallOptions, deadline: float
    ) -> dict[str, Json]:
        if not self._breaker.admit():
            raise self._unavailable()
        room, number, began = self._room, next(self._numbers), time.monotonic()
        with self._breaker.judging(lambda: options.timeout_seconds is None and self._heard < began):
            await self._enter(room, deadline)
            self._callers[number] = options.caller
            try:
                left = max(0.0, deadline - anyio.current_time())
                result = await connection.request(method, params, options, seconds=left)
                self._heard = time.monotonic()
                return result
            finally:
                del self._callers[number]
                room.release()

    def _circuit_changed(self) -> None:
        if self._breaker.circuit == "open":
            self._say(logging.WARNING, " is down: %s", self._breaker.reason)
        elif self._breaker.circuit == "closed":
            self._say(logging.INFO, " answers again")
        self._set(self._state, self._error)

    async def notify(self, method: str, params: Mapping[str, Json]) -> None:
        if self._connection is not None:
            await self._connection.notify(method, params)

    async def watch(self, uris: Iterable[str], watcher: object = None) -> None:
        self._watchers.note(watcher, uris)
        if self._watchers or self._live is not None:
            connection = await self._ready(anyio.current_time() + self.settings.timeout_seconds)
            await connection.watch(self._watchers.uris)

    async def connected(self) -> Peer:
        """Start the server where it does not run, and return what it says about itself."""
        return (self._live or await self._ready(anyio.current_time() + self.settings.start_seconds)).peer

    def refresh(self) -> None:
        """List the tools again, or try to connect again, now."""
        self._relist.set()
        self._wake.set()
        self.rest.wanted.set()

    def adopt(self, settings: ServerSettings) -> None:
        """Apply settings that need no new connection."""
        self.settings = settings
        self._room = anyio.Semaphore(settings.max_concurrency)
        self._relist.set()

    async def stop(self) -> None:
        """End the connection, by force where it takes too long; return when nothing of it is left."""
        self._stopped.set()
        if self._connection is None:
            self._scope.cancel()
        with anyio.move_on_after(POLITE_SECONDS):
            await self._ended.wait()
        self._scope.cancel()
        await self._ended.wait()

    def know(self, survey: Survey) -> None:
        """Serve what the server offered last, and start it when it is needed; call this before `run`."""
        self.rest.survey, self._state, self._shown = survey, "idle", "idle"

    async def first_outcome(self) -> None:
        while self._state == "connecting":
            await self._changed.wait()

    async def asked(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Pass a request of the server to the client that answers it."""
        if self._client is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        return await self._client.answer(self.settings.name, method, params, tuple(self._callers.values()))

    def notified(self, method: str, params: Mapping[str, Json]) -> None:
        """Read a changed tool list again, and pass other notifications on, within the server's allowance."""
        self._heard = time.monotonic()
        self.attached.tell(method, params)
        if method == "notifications/tools/list_changed":
            self._relist.set()
        elif method not in NOT_RELAYED and self._allowance.spend():
            self._emit(Notified(server=self.settings.name, method=method, params=params))

    async def run(self) -> None:
        """Connect, serve, and begin again until stopped."""
        try:
            with self._scope:
                with anyio.move_on_after(self.head_start_seconds):
                    await self.rest.wanted.wait()
                while not self._stopped.is_set():
                    if self._state == "idle":
                        await self.rest.wanted.wait()
                        self._set("connecting", None)
                    await self._attempt()
        finally:
            self._set("stopped", None)
            self._ended.set()

    async def _ready(self, deadline: float) -> Connection:
        """Wait for a connection; a server that rests between attempts is tried at once."""
        self.rest.wanted.set()
        now = anyio.current_time()
        if self._resting_since is not None and self._state != "needs_auth":
            if self._attempts >= BRIEF_ATTEMPTS and now - self._resting_since < HASTE_SECONDS:
                raise self._unavailable()
            self._wake.set()
        if self._state not in ("connecting", "idle"):
            is_brief = self._attempts < BRIEF_ATTEMPTS and self._state in ("ready", "stale")
            deadline = min(deadline, now + (self._host.cadence.reconnect_seconds if is_brief else HASTENED_SECONDS))
        asked = self._attempts
        self._waiting += 1
        try:
            with anyio.CancelScope(deadline=deadline):
                while self._live is None and self._may_come(asked):
                    await self._changed.wait()
        finally:
            self._waiting -= 1
        if self._live is None:
            raise self._unavailable()
        return self._live

    def _may_come(self, asked: int) -> bool:
        if self._state in ("needs_auth", "stopped"):
            return False
        is_brief = self._attempts < BRIEF_ATTEMPTS and self._state != "failed"
        return is_brief or self._attempts == asked

    @property
    def _live(self) -> Connection | None:
        connection = self._connection
        return connection if connection is not None and not connection.is_lost() else None

    def _unavailable(self) -> UpstreamUnavailable:
        name, circuit = self.settings.name, self._breaker.circuit
        if self._state == "needs_auth":
            return UpstreamNeedsAuth(name, self._error or "it requires credentials")
        if self._state == "connecting":
            return UpstreamUnavailable(name, "it is still starting; try again later, or run `shortlist status`")
        if self._live is not None and circuit != "closed":
            soon = f"in {self._breaker.seconds_left:.1f} s" if circuit == "open" else "by a call that is running now"
            return UpstreamUnavailable(name, f"it is down ({self._breaker.reason}); it is tried again {soon}")
        return UpstreamUnavailable(name, f"it is {self._state}: {self._error or 'it is not running'}")

    async def _enter(self, room: anyio.Semaphore, deadline: float) -> None:
        if room.value:
            room.acquire_nowait()
            return
        with anyio.CancelScope(deadline=deadline) as waiting:
            await room.acquire()
        if waiting.cancelled_caught:
            running = f"{self.settings.max_concurrency} calls are running and none ended in time"
            raise UpstreamBusy(self.settings.name, f"{running}; this one was not sent")

    async def _attempt(self) -> None:
        notes = HttpNotes()
        self._log.mark()
        try:
            await self._connect_and_serve(notes)
            if self.rest.is_leaving and not self._stopped.is_set():
                self._set("idle", None)
            if self.rest.is_leaving or self._stopped.is_set():
                return
            error: Exception = ConnectionError("the connection ended")
        except Exception as caught:  # the border to foreign code: whatever it does, the others go on
            error = cause_of(caught)
        await self._failed(error, notes)

    async def _connect_and_serve(self, notes: HttpNotes) -> None:
        async with anyio.create_task_group() as tasks:
            if isinstance(self._transport, StdioTransport):
                await self._host.take_slot(tasks, self._changed)
            with anyio.CancelScope(deadline=anyio.current_time() + self.settings.start_seconds) as starting:
                async with connect(self._dial(notes)) as connection:
                    self.peer = connection.peer
                    self._announced = connection.announces("tools")
                    tasks.start_soon(self._keep_listening, connection)  # first: what changes after listing is heard
                    await self._list(connection)
                    starting.deadline = float("inf")
                    await self._serve(connection)
            tasks.cancel_scope.cancel()
            if starting.cancelled_caught:
                raise TimeoutError(f"it did not get ready in {self.settings.start_seconds:g} s")

    def _dial(self, notes: HttpNotes) -> Dial:
        client, logins = self._client, self._host.logins
        target = login_target(self.settings.name, self._transport)
        return Dial(
            settings=self.settings,
            transport=self._transport,
            ears=self,
            capabilities=client.capabilities if client else {},
            limits=self._host.limits,
            log=self._log,
            notes=notes,
            guardian=self._host.guardian,
            auth=logins.auth(target, self._host.principal) if logins and target else None,
            secrets=self._host.secrets,
            leases=self._host.leases,
            probe=self._probe and not isinstance(self._transport, SseTransport),
        )

    async def _serve(self, connection: Connection) -> None:
        self._connection = connection
        self.rest.began()
        self._ready_at = time.monotonic()
        self._breaker.answered()
        self._set("ready", None)
        self._say(logging.DEBUG, " is connected: %d tools", len(self._tools or ()))  # who serves them says when
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_listed, connection)
                tasks.start_soon(self._keep_alive, connection)
                tasks.start_soon(self._watch_again, connection)
                tasks.start_soon(self._probe_when_down, connection)
                tasks.start_soon(self._cancel_when_stopped, tasks)
                if self._host.may_end(self.settings):
                    tasks.start_soon(self._leave_when_unused, connection, tasks)
                await connection.lost()
                self._connection = None
                self._set("stale", "the connection ended")
                tasks.cancel_scope.cancel()
        finally:
            self._connection = None

    async def _cancel_when_stopped(self, tasks: TaskGroup) -> None:
        await self._stopped.wait()
        tasks.cancel_scope.cancel()

    async def _leave_when_unused(self, connection: Connection, tasks: TaskGroup) -> None:
        await self.rest.learn(connection, self.settings.name, self._emit)
        await self.rest.unused(self._host.cadence, lambda: bool(self._callers or self._watchers or self.attached))
        self.rest.leave()
        self._connection = None
        tasks.cancel_scope.cancel()

    async def _keep_listed(self, connection: Connection) -> None:
        while True:
            with anyio.move_on_after(float("inf") if self._announced else self._host.cadence.poll_seconds):
                await self._relist.wait()
            # A server that announces changes without end gets one listing per gap.
            await anyio.sleep(self._host.cadence.relist_gap_seconds)
            self._relist = anyio.Event()
            try:
                with anyio.fail_after(self.settings.start_seconds):
                    await self._list(connection)
            except (UpstreamError, TimeoutError) as error:
                self._say(logging.WARNING, ": listing its tools again failed: %s", error)

    async def _keep_listening(self, connection: Connection) -> None:
        """Open the change stream again whenever it breaks; what changed in between is read anew."""
        broken = count(1)
        while (end := await connection.listen()) != "refused":
            if end == "lost":
                await anyio.sleep(self._host.cadence.back_off(min(next(broken), 6)))
                self._relist.set()
        self._announced = False
        self._relist.set()

    async def _watch_again(self, connection: Connection) -> None:
        try:
            await connection.watch(self._watchers.uris)
        except UpstreamError as error:
            self._say(logging.WARNING, ": watching its resources failed: %s", error)

    async def _keep_alive(self, connection: Connection) -> None:
        """Ping when nothing was heard for a while."""
        cadence = self._host.cadence
        stateless = connection.peer.era == "modern" and isinstance(self._transport, HttpTransport)
        while not stateless:
            await anyio.sleep(cadence.ping_seconds)
            # A server at work on a call may be deaf for as long as that call may take.
            patience = cadence.ping_seconds + (self.settings.timeout_seconds if self._callers else 0.0)
            if time.monotonic() - self._heard < patience:
                continue
            with anyio.move_on_after(cadence.pong_seconds) as waiting:
                await connection.ping()
            if waiting.cancelled_caught:
                raise TimeoutError("it did not answer a ping")

    async def _probe_when_down(self, connection: Connection) -> None:
        """Ping while the circuit is open; the first answer lets a request through again."""
        while True:
            while self._breaker.circuit != "open":
                await self._changed.wait()
            await anyio.sleep(self._breaker.seconds_left)
            try:
                with anyio.fail_after(PROBE_SECONDS):
                    await connection.ping()
            except (TimeoutError, UpstreamError):
                self._breaker.unresponsive()
            else:
                self._breaker.responded()
                self._set(self._state, self._error)

    async def _list(self, connection: Connection) -> None:
        listing = await connection.list_tools(self.settings, self._host.limits.tools_per_server, self._tools or ())
        self._problems = listing.problems
        for problem in self._problems:
            self._say(logging.WARNING, ": %s", problem)
        tools = tuple(listing.tools.values())
        if tools != self._tools:
            self._tools = tools
            self._emit(ToolsChanged(server=self.settings.name, tools=tools, problems=listing.problems))

    async def _failed(self, error: Exception, notes: HttpNotes) -> None:
        """Report what went wrong, then wait for the next attempt, or for new credentials."""
        if self._retry_otherwise(error, notes):
            return
        if self._ready_at and time.monotonic() - self._ready_at > self._host.cadence.stable_seconds:
            self._attempts = 0
        self._ready_at = None
        self._attempts += 1
        if notes.challenge is not None:
            await self._rest("needs_auth", auth_remedy(self._dial(notes)), float("inf"))
            return
        state: State = "failed" if self._tools is None else "stale"
        reason = reason_of(error, notes.status, self._log.since_mark(STDERR_IN_ERROR))
        await self._rest(state, reason, self._host.cadence.back_off(self._attempts))

    def _retry_otherwise(self, error: Exception, notes: HttpNotes) -> bool:
        """Prepare what may suit an older server: the SSE transport, or a start without a probe."""
        if self.peer is not None:
            return False
        transport = self._transport
        if isinstance(transport, HttpTransport) and transport.sse_fallback and notes.status in _SSE_ONLY:
            self._transport = SseTransport(url=transport.url, headers=transport.headers, oauth=transport.oauth)
            return True
        if self._probe and isinstance(error, ClosedByProbe):
            self._probe = False
            return isinstance(transport, StdioTransport)
        return False

    async def _rest(self, state: State, reason: str, seconds: float) -> None:
        # One warning per problem; attempts that fail the same way again are for those who debug.
        self._say(logging.DEBUG if self._warned == state else logging.WARNING, " is %s: %s", state, reason)
        self._warned = state
        self._wake = anyio.Event()
        if self._waiting and self._attempts < BRIEF_ATTEMPTS and state != "needs_auth":
            self._wake.set()  # a call already waits for the next attempt
        self._resting_since = anyio.current_time()
        self._set(state, reason)
        with anyio.move_on_after(seconds):
            await self._wake.wait()
        self._resting_since = None

    def _set(self, state: State, error: str | None) -> None:
        before = self._shown
        self._state, self._error = state, error
        self._shown = self.state
        if state == "ready":
            self._warned = None
        if self._shown != before:
            self._since = time.time()
        self._changed.set()
        self._changed = anyio.Event()
        self._emit(StateChanged(server=self.settings.name, status=self.status()))

    def _say(self, level: int, words: str, *more: object) -> None:
        logger.log(level, f"server %r{words}", self.settings.name, *more, extra={"server": self.settings.name})

    def _emit(self, event: UpstreamEvent) -> None:
        try:
            self._host.on_event(event)
        except Exception:  # a listener's mistake must not take the connection down
            logger.exception("server %r: an event could not be handled", self.settings.name)
