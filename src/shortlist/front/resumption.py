"""Legacy HTTP sessions: their clients can resume a broken stream, and calls of clients that are gone are cancelled."""

import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, serve_connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, RequestId
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from shortlist.access.principal import ANONYMOUS, Principal, principal_of_session
from shortlist.errors import StoreError
from shortlist.fairness import gives_way
from shortlist.front.event_log import KEPT_BYTES, EventLog, SessionEvents
from shortlist.front.legacy import OpenSession, serve_legacy_call
from shortlist.front.server import DualServer
from shortlist.front.sessions import (
    HELD_SESSIONS,
    IDLE_SECONDS,
    REST_SECONDS,
    RETRY_SECONDS,
    SESSION_HEADER,
    TOUCH_SECONDS,
    SharedSessions,
)
from shortlist.front.streams import use_lean_streams
from shortlist.front.transport import use_lean_transport
from shortlist.large import parsed
from shortlist.storage.shared import StoredSession

RETRY_MILLISECONDS = 1_000
"""How soon a client whose stream ended comes back."""
VANISHED_SECONDS = 10.0
"""A call whose client is gone for so long, without resuming, is cancelled: it holds one of its server's places."""
RESTING_AT_ONCE = 4
"""How many sessions at most leave the memory when another one is opened."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How sessions are shared with other gateways."""

    sessions: SharedSessions
    mark: str
    """Begins the ids that only this gateway knows."""
    restored: Callable[[Scope, Connection, StoredSession], Awaitable[None]]
    """Told of a session that another gateway opened, when it is first used here."""
    changed: Callable[[Connection, StoredSession], Awaitable[None]]


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, each with events of its own, and with the calls of vanished clients cancelled.

    The SDK names a stream by the client's request id, which other sessions use as well; with one store for all
    of them a client that comes back would be sent another's answer.
    """

    def __init__(
        self,
        app: DualServer,
        connection: Callable[[str], Connection | None],
        *,
        most_bytes: int = KEPT_BYTES,
        sharing: Sharing | None = None,
        **options: Any,
    ) -> None:
        self.log = EventLog(most_bytes, sharing.mark if sharing is not None else "")
        self._sharing = sharing
        self._restoring: dict[str, anyio.Lock] = {}
        self._dual = app
        self._connection = connection
        self._open: dict[str, OpenSession] = {}
        self.cancelled = 0
        """How many calls of vanished clients were cancelled."""
        self.displaced = 0
        """How many idle sessions ended so that another could be opened."""
        self._resumptions: dict[str, int] = {}
        self._gone: deque[_Gone] = deque()
        use_lean_streams()
        use_lean_transport()
        if sharing is not None:
            options["session_idle_timeout"] = IDLE_SECONDS
        super().__init__(app, retry_interval=RETRY_MILLISECONDS, **options)
        self._server_instances: OrderedDict[str, StreamableHTTPServerTransport] = OrderedDict()
        """The SDK's sessions, here with the one that was used last at the end."""

    def end_unless(self, is_current: Callable[[Principal], bool]) -> Callable[[], Awaitable[None]]:
        """Return the task that ends every session whose principal is no longer valid, with all its streams."""

        async def end() -> None:
            for session, transport in tuple(self._server_instances.items()):
                owner = self._session_owners.get(session)
                principal = ANONYMOUS
                if owner is not None:
                    principal = principal_of_session(owner["client_id"], owner["subject"] or "")
                if not is_current(principal):
                    await self._discard_session(session, transport)

        return end

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Open a session; where all are open, the caller with the most loses the one that was idle for longest."""
        self._rest_idle()
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            by_use = sorted(self._server_instances, key=lambda session: _idle_until(self._server_instances[session]))
            owners = {session: _owner_key(self._session_owners.get(session)) for session in by_use}
            idle = gives_way(owners, _owner_key(requestor), lambda session: _is_idle(self._server_instances[session]))
            if idle is None or self._task_group is None:
                return None
            self.displaced += 1
            self._task_group.start_soon(self._discard_session, idle, self._server_instances.pop(idle))
        transport = super()._admit_session(requestor)
        if transport is not None:
            transport._event_store = self.log.session(_owner_key(requestor))
        return transport

    def _rest_idle(self) -> None:
        """Leave the sessions that were idle for longest to the store, which brings them back when they are used."""
        if self._sharing is None or self._task_group is None:
            return
        for _ in range(min(RESTING_AT_ONCE, len(self._server_instances) - HELD_SESSIONS)):
            session, transport = next(iter(self._server_instances.items()))
            if self._is_working(session, transport) or not self._sharing.sessions.is_stored(session):
                self._server_instances.move_to_end(session)
            elif _idle_until(transport) - IDLE_SECONDS > anyio.current_time() - REST_SECONDS:
                return
            else:
                del self._server_instances[session]
                self._task_group.start_soon(self._discard_session, session, transport)

    def _is_working(self, session: str, transport: StreamableHTTPServerTransport) -> bool:
        """Return whether a request of a session is open, or runs on though its client disconnected."""
        connection = self._connection(session)
        if transport.idle_scope is None or not _is_idle(transport):
            return True
        return connection is not None and bool(_in_flight(connection))

    async def serve(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Serve a request whose body has arrived; a call whose client disconnects is watched."""
        session = Headers(scope=scope).get(SESSION_HEADER)
        if self._sharing is not None:
            if session is None:
                send = self._sharing.sessions.opening(scope, body, send)
            elif session in self._server_instances:
                self._server_instances.move_to_end(session)
            else:
                await self._restore(self._sharing, session, scope)
        if session is None or scope["method"] != "POST":
            # Only sessions that are open: any other id would be remembered for ever.
            if scope["method"] == "GET" and session is not None and session in self._server_instances:
                self._resumptions[session] = self._resumptions.get(session, 0) + 1
            if self._sharing is not None and session is not None and scope["method"] == "DELETE":
                send = self._sharing.sessions.ending(session, send)
            await self._handle_request(scope, receive, send)
            return
        opened = self._opened(session, scope)
        if opened is not None and await serve_legacy_call(opened, scope, receive, send, body):
            return
        watch = _Watch(receive, send)
        await self._handle_request(scope, watch.receive, watch.send)
        if watch.is_disconnected and not watch.is_complete:
            self._vanished(session, _request_id(body))

    async def _restore(self, sharing: Sharing, session: str, scope: Scope) -> None:
        """Serve a session that another gateway opened, as if its handshake had been made here."""
        lock = self._restoring.setdefault(session, anyio.Lock())
        try:
            async with lock:
                if session not in self._server_instances and self._task_group is not None:
                    stored = await sharing.sessions.find(session, scope)
                    if stored is None:
                        return
                    transport = self._admit_session(_requestor(scope))
                    if transport is None:
                        return
                    self._rename(transport, session)
                    sharing.sessions.serve(session)
                    connection: Connection = await self._task_group.start(
                        self._run_restored, transport, session, stored
                    )
                    await sharing.restored(scope, connection, stored)
        finally:
            self._restoring.pop(session, None)

    def _rename(self, transport: StreamableHTTPServerTransport, session: str) -> None:
        """Let a new session continue under the id that its client knows."""
        made = transport.mcp_session_id or ""
        del self._server_instances[made]
        self._server_instances[session] = transport
        if (owner := self._session_owners.pop(made, None)) is not None:
            self._session_owners[session] = owner
        transport.mcp_session_id = session

    async def _run_restored(
        self,
        transport: StreamableHTTPServerTransport,
        session: str,
        stored: StoredSession,
        *,
        task_status: TaskStatus[Connection],
    ) -> None:
        """Run a session as the SDK does, from its second message on."""
        try:
            async with transport.connect() as (read, write):
                dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
                connection = Connection.for_loop(dispatcher, session_id=session)
                handshake = from_json(stored.handshake)
                connection.client_params, connection.protocol_version = ServerRunner._negotiate_initialize(handshake)
                connection.initialized.set()
                with transport.idle_scope or anyio.CancelScope():
                    task_status.started(connection)
                    await serve_connection(
                        self.app, dispatcher, connection=connection, lifespan_state=self._lifespan_state
                    )
        except Exception:
            logger.exception("a session of another gateway could not be served")
        finally:
            await self._discard_session(session, transport)

    async def changed_elsewhere(self, key: str) -> None:
        """Apply what another gateway stored about a session; it ends here where it has ended there."""
        session = self._sharing.sessions.served(key) if self._sharing is not None else None
        if self._sharing is None or session is None:
            return
        stored = await self._sharing.sessions.look_again(session)
        if stored is not None:
            if self._sharing.sessions.is_changed(session):
                return  # what the client has asked for here is newer
            if (connection := self._connection(session)) is not None:
                await self._sharing.changed(connection, stored)
        elif (transport := self._server_instances.get(session)) is not None:
            await self._discard_session(session, transport)

    async def changed_anywhere(self) -> None:
        """Look every session up again, since changes by other gateways may have been missed."""
        for key in self._sharing.sessions.keys if self._sharing is not None else ():
            try:
                await self.changed_elsewhere(key)
            except StoreError as error:
                logger.debug("sessions could not be looked up again: %s", error)
                return

    async def keep_stored(self) -> None:
        """Keep the sessions that are open here from being forgotten."""
        while self._sharing is not None:
            for _ in range(round(TOUCH_SECONDS / RETRY_SECONDS)):
                await anyio.sleep(RETRY_SECONDS)
                await self._sharing.sessions.save_again()
            await self._sharing.sessions.touch(tuple(self._server_instances))

    def _opened(self, session: str, scope: Scope) -> OpenSession | None:
        """Return a session whose handshake is done, to the client that it belongs to and to nobody else."""
        transport = self._server_instances.get(session)
        if transport is None or _requestor(scope) != self._session_owners.get(session):
            return None
        if session not in self._open:
            connection = self._connection(session)
            if connection is None or not connection.initialize_accepted:
                return None
            events = cast("SessionEvents", transport._event_store)
            vanished = partial(self._vanished, session)
            self._open[session] = OpenSession(self._dual, transport, connection, events.keep, vanished)
        return self._open[session]

    def _vanished(self, session: str, request: RequestId | None) -> None:
        """Watch a call whose client disconnected; one task watches all of them, since most are answered soon."""
        if self._task_group is None or request is None:
            return
        due = anyio.current_time() + VANISHED_SECONDS
        self._gone.append(_Gone(due, session, request, self._resumptions.get(session, 0)))
        if len(self._gone) == 1:
            self._task_group.start_soon(self._cancel_vanished, self._task_group)

    async def _cancel_vanished(self, tasks: TaskGroup) -> None:
        """Cancel the calls that still run when they are due, unless their client came back."""
        while self._gone:
            await anyio.sleep_until(self._gone[0].due)
            gone = self._gone.popleft()
            transport = self._server_instances.get(gone.session)
            came_back = self._resumptions.get(gone.session, 0) != gone.resumed
            if transport is not None and not came_back and self._is_running(gone):
                tasks.start_soon(self._cancel, transport, gone.request)

    def _is_running(self, gone: "_Gone") -> bool:
        connection = self._connection(gone.session)
        return connection is not None and coerce_request_id(gone.request) in _in_flight(connection)

    async def _cancel(self, transport: StreamableHTTPServerTransport, request: RequestId) -> None:
        params = {"requestId": request, "reason": "the client is gone"}
        cancel = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
        writer = transport._read_stream_writer
        if writer is not None:
            self.cancelled += 1
            logger.info("cancelled a call whose client has been gone for %g s", VANISHED_SECONDS)
            try:
                await writer.send(SessionMessage(cancel))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                logger.debug("the session ended meanwhile")

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        """End the calls of a session that ends, and forget what it was sent."""
        try:
            if self._server_instances.get(session_id, transport) is transport:
                await self._end_session(session_id, transport)
            elif not transport.is_terminated:  # the session came back from the store, with another transport
                with anyio.CancelScope(shield=True):
                    await transport.terminate()
        finally:
            if isinstance(transport._event_store, SessionEvents):
                self.log.forget(transport._event_store)

    async def _end_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        if self._sharing is not None:
            self._sharing.sessions.forget(session_id)
        opened = self._open.pop(session_id, None)
        if opened is not None:
            opened.end()
        self._resumptions.pop(session_id, None)
        await super()._discard_session(session_id, transport)


def _requestor(scope: Scope) -> AuthorizationContext | None:
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


def _owner_key(owner: AuthorizationContext | None) -> tuple[str, str]:
    return (owner["client_id"], owner["subject"] or "") if owner is not None else ("", "")


def _is_idle(transport: StreamableHTTPServerTransport) -> bool:
    return not transport._requests_in_flight


def _idle_until(transport: StreamableHTTPServerTransport) -> float:
    return transport.idle_scope.deadline if transport.idle_scope is not None else 0.0


def _request_id(body: bytes) -> RequestId | None:
    try:
        message = parsed(body)
    except ValueError:
        return None
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str | int) else None


def _in_flight(connection: Connection) -> Mapping[RequestId, object]:
    """Return the requests of a session that are being answered."""
    return cast("JSONRPCDispatcher[Any]", connection.outbound)._in_flight


@dataclass(frozen=True, slots=True)
class _Gone:
    """A call whose client disconnected before its answer, and how often the session had been resumed by then."""

    due: float
    session: str
    request: RequestId
    resumed: int


class _Watch:
    """Sees whether a response was completed, and whether its client disconnected before."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.is_disconnected = self.is_complete = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_disconnected = self.is_disconnected or message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.is_complete = True
