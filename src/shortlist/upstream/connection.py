"""One MCP client: an open channel, an agreed version, and requests that are relayed unchanged."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread
from mcp import MCPError
from mcp_types import METHOD_NOT_FOUND

from shortlist.config.settings import (
    HttpTransport,
    Limits,
    MemoryTransport,
    NoTransport,
    ServerSettings,
    SseTransport,
    StdioTransport,
    Transport,
)
from shortlist.errors import shortened
from shortlist.models import Json, Tool
from shortlist.upstream.errors import (
    ConnectionFailed,
    UpstreamBusy,
    UpstreamNeedsAuth,
    UpstreamNotSent,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from shortlist.upstream.events import CallOptions, Circuit, Peer
from shortlist.upstream.guardian import Guardian
from shortlist.upstream.http import HttpNotes, open_http, open_sse
from shortlist.upstream.leases import Leases, open_leased
from shortlist.upstream.login import BearerAuth
from shortlist.upstream.negotiate import negotiate
from shortlist.upstream.normalise import Listing
from shortlist.upstream.stderr import StderrLog
from shortlist.upstream.stdio import open_stdio
from shortlist.upstream.stored import filled, secret_values
from shortlist.upstream.wire import Channel, Ears, Wire, open_memory

MAX_PAGES = 2_000
CURSOR_CHARACTERS = 4_096
"""All cursors of a list are kept until it ends; a longer one ends the list."""
FindSecret: TypeAlias = Callable[[str], str | None]
"""Returns a stored secret by its name; may be slow."""
StreamEnd: TypeAlias = Literal["rewatch", "lost", "refused"]
"""The watched resources changed; the stream broke off or was closed; the server has no such stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Everything that one attempt to connect needs."""

    settings: ServerSettings
    transport: Transport
    ears: Ears
    capabilities: Mapping[str, Json]
    limits: Limits
    log: StderrLog
    notes: HttpNotes
    guardian: Guardian
    auth: BearerAuth | None = None
    """Signs the requests over HTTP; None where the server has no login."""
    probe: bool = True
    secrets: FindSecret | None = None
    leases: Leases | None = None
    """Decides which gateway runs the server; None where it is this one in any case."""


READ_AT_ONCE = 200
"""Definitions that are read in a thread before the next ones."""
CHALLENGE_CHARACTERS = 300
"""How long tools of a list are read before other work gets its turn."""
PROBE_SECONDS = 1.0
"""How often an open circuit is tried again."""


@dataclass(slots=True)
class Breaker:
    """Counts connection errors and timeouts in a row; any answer of the server, an error too, starts anew."""

    failures: int
    """How many in a row open the circuit."""
    on_change: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    circuit: Circuit = "closed"
    reason: str = ""
    _in_a_row: int = 0
    _probing: bool = False
    _next_try: float = field(default=0.0)

    def admit(self) -> bool:
        """Return whether a request may be sent now; in a half-open circuit the first one is the probe."""
        if self.circuit == "half_open" and not self._probing:
            self._probing = True
            return True
        return self.circuit == "closed"

    @contextmanager
    def judging(self, hears_nothing: Callable[[], bool]) -> Iterator[None]:
        """Learn from how one request ends.

        A timeout counts only where the server was silent meanwhile: a caller with little patience, or a server that is
        busy with something else, is no sign of a server that hangs.
        """
        was, verdict = self.circuit, False
        try:
            yield
            verdict = True
            self.answered()
        except UpstreamRefused:
            verdict = True
            self.answered()
            raise
        except UpstreamBusy:
            raise
        except (UpstreamTimeout, UpstreamUnavailable) as error:
            verdict = isinstance(error, UpstreamUnavailable) or hears_nothing()
            if verdict:
                self.failed(str(error))
            raise
        finally:
            if not verdict:
                self.gave_up()
            if self.circuit != was:
                self.on_change()

    def answered(self) -> None:
        """Close the circuit: the server answered."""
        self.circuit, self._in_a_row, self._probing = "closed", 0, False

    def failed(self, reason: str) -> None:
        """Count a connection error or a timeout."""
        self._in_a_row += 1
        self.reason = reason
        if self.circuit == "half_open" or self._in_a_row >= self.failures:
            self._open()

    def gave_up(self) -> None:
        """Let the next request be the probe: this one ended without a verdict."""
        self._probing = False

    def responded(self) -> None:
        """Half-open the circuit: the server answers pings again."""
        if self.circuit == "open":
            self.circuit, self._probing = "half_open", False

    def unresponsive(self) -> None:
        """Stay open until the next ping."""
        self._next_try = self.clock() + PROBE_SECONDS

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the next try."""
        return max(0.0, self._next_try - self.clock())

    def _open(self) -> None:
        self.circuit, self._probing = "open", False
        self._next_try = self.clock() + PROBE_SECONDS


def open_channel(dial: Dial) -> AbstractAsyncContextManager[Channel]:
    """Open the channel that a server's transport asks for."""
    transport, limit = dial.transport, dial.limits.message_bytes
    match transport:
        case StdioTransport():
            start = partial(open_stdio, transport, log=dial.log, limit=limit, guardian=dial.guardian)
            if dial.leases is None:
                return start()
            return open_leased(dial.leases, dial.settings.name, transport, limit, start)
        case HttpTransport():
            return open_http(transport, limit, dial.notes, dial.auth)
        case SseTransport():
            return open_sse(transport, limit, dial.notes, dial.auth)
        case MemoryTransport():
            return open_memory(transport)
        case NoTransport():
            raise ConnectionError(transport.reason)


@asynccontextmanager
async def connect(dial: Dial) -> AsyncIterator["Connection"]:
    """Open and negotiate a connection, and always close it; the caller bounds the time."""
    transport = await anyio.to_thread.run_sync(filled, dial.transport, dial.secrets)
    dial.log.hide(secret_values(dial.transport, transport))
    async with open_channel(replace(dial, transport=transport)) as channel, anyio.create_task_group() as tasks:
        wire = Wire(channel, dial.ears, dial.capabilities)
        await tasks.start(wire.run)
        try:
            yield Connection(dial, wire, await negotiate(wire, probe=dial.probe))
        finally:
            tasks.cancel_scope.cancel()


class Connection:
    """A server that answered the negotiation."""

    def __init__(self, dial: Dial, wire: Wire, peer: Peer) -> None:
        self.peer = peer
        self._dial = dial
        self._wire = wire
        self._server = dial.settings.name
        self._watched: frozenset[str] = frozenset()
        self._listens = 0
        self._rewatch = anyio.Event()

    def is_lost(self) -> bool:
        return self._wire.closed.is_set() or self._dial.notes.lost.is_set()

    async def lost(self) -> None:
        """Wait until the server is gone, has forgotten the session, or requires credentials."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._first_of, self._wire.closed, tasks.cancel_scope)
            tasks.start_soon(self._first_of, self._dial.notes.lost, tasks.cancel_scope)

    @staticmethod
    async def _first_of(event: anyio.Event, scope: anyio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    async def request(
        self, method: str, params: Mapping[str, Json], options: CallOptions, *, seconds: float
    ) -> dict[str, Json]:
        """Relay a request; one without an answer in time is cancelled at the server."""
        meta = options.meta
        sent = {**params, "_meta": {**params.get("_meta", {}), **meta}} if meta else params
        try:
            with anyio.move_on_after(seconds):
                return await self._wire.send(method, sent, on_progress=options.on_progress, on_pause=options.on_pause)
        except (MCPError, ConnectionFailed) as error:
            raise self._failure(error) from None
        raise UpstreamTimeout(
            self._server,
            f"{_what(method, params)} did not answer within {seconds:.3g} s; it was cancelled and not repeated",
        )

    async def notify(self, method: str, params: Mapping[str, Json]) -> None:
        await self._wire.notify(method, params)

    async def ping(self) -> None:
        """Return when the server answers anything, even with an error."""
        try:
            await self._wire.send("ping" if self.peer.era == "legacy" else "server/discover", {})
        except MCPError:
            return
        except ConnectionFailed as error:
            raise self._failure(error) from None

    async def list_tools(self, settings: ServerSettings, most: int, known: Iterable[Tool] = ()) -> Listing:
        """Read every page of the tool list; a cursor that repeats or never ends is cut off and reported."""
        listing = Listing(settings, self.peer.era, {tool.name: tool for tool in known})
        count, seen, cursor = 0, set[str](), None
        for _ in range(MAX_PAGES):
            page = await self._page(cursor)
            raw = page.get("tools")
            tools = raw if isinstance(raw, list) else []
            room = most - count
            await _extend(listing, tools[:room])
            count += len(tools)
            cursor = page.get("nextCursor")
            if count > most:
                listing.note(f"only the first {most:,} tools are kept")
                break
            if not isinstance(cursor, str) or cursor in seen:
                break
            if len(cursor) > CURSOR_CHARACTERS:
                listing.note(f"the rest of the list is ignored: its cursor has {len(cursor):,} characters")
                break
            seen.add(cursor)
        self._wire.header_maps = listing.header_maps
        return listing

    async def _page(self, cursor: str | None) -> dict[str, Json]:
        try:
            return await self._wire.send("tools/list", {"cursor": cursor} if cursor is not None else {})
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND and "tools" not in self.peer.capabilities:
                return {}
            raise self._failure(error) from None
        except ConnectionFailed as error:
            raise self._failure(error) from None

    def announces(self, feature: str) -> bool:
        """Return whether the server announces changes of its list of tools, prompts or resources."""
        offered = self.peer.capabilities.get(feature)
        return isinstance(offered, dict) and offered.get("listChanged") is True

    async def listen(self) -> StreamEnd:
        """Hold the modern era's change stream until it ends and return why; legacy servers announce without one."""
        wanted = self._subscription()
        self._rewatch = anyio.Event()
        end: StreamEnd = "rewatch"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._first_of, self._rewatch, tasks.cancel_scope)
            if self.peer.era == "modern" and wanted:
                end = await self._hold_stream(wanted)
                tasks.cancel_scope.cancel()
        return end

    async def _hold_stream(self, wanted: Mapping[str, Json]) -> StreamEnd:
        self._listens += 1
        request_id = f"listen-{self._listens}"
        try:
            await self._wire.send("subscriptions/listen", {"notifications": wanted}, request_id=request_id)
        except MCPError as error:
            return "refused" if error.code == METHOD_NOT_FOUND else "lost"
        except ConnectionFailed:
            return "lost"
        return "lost"

    def _subscription(self) -> dict[str, Json]:
        features = ("tools", "prompts", "resources")
        wanted: dict[str, Json] = {f"{f}ListChanged": True for f in features if self.announces(f)}
        if self._watched:
            wanted["resourceSubscriptions"] = sorted(self._watched)
        return wanted

    async def watch(self, uris: Iterable[str]) -> None:
        """Subscribe to exactly these resources."""
        wanted = frozenset(uris)
        before, self._watched = self._watched, wanted
        if self.peer.era == "modern":
            if wanted != before:
                self._rewatch.set()
            return
        for method, some in (
            ("resources/subscribe", wanted - before),
            ("resources/unsubscribe", before - wanted),
        ):
            for uri in sorted(some):
                await self.request(method, {"uri": uri}, CallOptions(), seconds=self._dial.settings.timeout_seconds)

    def _failure(self, error: MCPError | ConnectionFailed) -> Exception:
        """Return the error to raise: the server's own answer, or what happened to the connection."""
        if self._dial.notes.challenge is not None:
            return UpstreamNeedsAuth(self._server, auth_remedy(self._dial))
        if isinstance(error, MCPError):
            return UpstreamRefused(self._server, error.code, error.message, error.data)
        if not error.sent:
            return UpstreamNotSent(self._server, f"{error}; the request was not sent")
        return UpstreamUnavailable(self._server, f"{error}; the server may have received the request")

    @property
    def in_flight(self) -> int:
        """Return how many requests wait for their answers."""
        return self._wire.in_flight


def auth_remedy(dial: Dial) -> str:
    """Return what a server that refused the credentials, or the lack of them, needs next."""
    asked = f" ({shortened(dial.notes.challenge, CHALLENGE_CHARACTERS)})" if dial.notes.challenge else ""
    refused = f"it answered 401 and wants credentials{asked}"
    if dial.auth is None:
        return f'{refused}; set them in the configuration: "headers": {{"Authorization": "Bearer ${{TOKEN}}"}}'
    return (
        f"{refused}; sign in with `{dial.auth.command}`, "
        'or set "headers": {"Authorization": "Bearer ${TOKEN}"} in the configuration'
    )


async def _extend(listing: Listing, tools: list[Json]) -> None:
    # Ten thousand schemas take a while, and so do a few of a megabyte each. A part at a time: a thread is not ended.
    for start in range(0, len(tools), READ_AT_ONCE):
        await anyio.to_thread.run_sync(listing.extend, tools[start : start + READ_AT_ONCE])


def _what(method: str, params: Mapping[str, Json]) -> str:
    return f"tool {params.get('name')!r}" if method == "tools/call" else f"{method!r}"
