"""One MCP client: a transport that is open, a version that is agreed, requests that are relayed raw."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND

from shortlist.config.settings import HttpTransport, Limits, ServerSettings, Transport
from shortlist.models import Json
from shortlist.upstream.errors import UpstreamNeedsAuth, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from shortlist.upstream.events import CallOptions, OnPause, Peer
from shortlist.upstream.negotiate import negotiate
from shortlist.upstream.normalise import Listing
from shortlist.upstream.stderr import StderrLog
from shortlist.upstream.transports import HttpNotes, open_transport
from shortlist.upstream.wire import Ears, Wire

MAX_PAGES = 2_000
StreamEnd: TypeAlias = Literal["rewatch", "lost", "refused"]
"""What is watched has changed; the stream broke off or was closed; the server has no such stream."""


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
    probe: bool = True


@asynccontextmanager
async def connect(dial: Dial) -> AsyncIterator["Connection"]:
    """Open, negotiate, and close whatever happens; the caller bounds the time."""
    opened = open_transport(dial.transport, log=dial.log, limit=dial.limits.message_bytes, notes=dial.notes)
    async with opened as streams, anyio.create_task_group() as tasks:
        wire = Wire(streams, dial.ears, dial.capabilities)
        await tasks.start(wire.run)
        try:
            yield Connection(dial, wire, await negotiate(wire, probe=dial.probe))
        finally:
            tasks.cancel_scope.cancel()


class Connection:
    """A server that answers; every request is sent once."""

    def __init__(self, dial: Dial, wire: Wire, peer: Peer) -> None:
        self.peer = peer
        self._dial = dial
        self._wire = wire
        self._server = dial.settings.name
        self._watched: frozenset[str] = frozenset()
        self._listens = 0
        self._calls = count(1)
        self._rewatch = anyio.Event()

    def is_lost(self) -> bool:
        return self._wire.closed.is_set() or self._dial.notes.lost.is_set()

    async def lost(self) -> None:
        """Wait until the server is gone, has forgotten the session, or wants credentials."""
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
        """Relay a request; without an answer in time it is cancelled at the server."""
        meta = options.meta
        sent = {**params, "_meta": {**params.get("_meta", {}), **meta}} if meta else params
        try:
            with anyio.move_on_after(seconds), self._pausing(options.on_pause) as request_id:
                return await self._wire.send(method, sent, on_progress=options.on_progress, request_id=request_id)
        except MCPError as error:
            raise await self._failure(error) from None
        raise UpstreamTimeout(
            self._server,
            f"{_what(method, params)} gave no answer in {seconds:.3g} s; it was cancelled, not repeated",
        )

    @contextmanager
    def _pausing(self, on_pause: OnPause | None) -> Iterator[str | None]:
        """Listen for the end of a stream before its answer, where the transport and the era have that."""
        if on_pause is None or self.peer.era == "modern" or not isinstance(self._dial.transport, HttpTransport):
            yield None
            return
        request_id = f"call-{next(self._calls)}"
        self._dial.notes.pauses[request_id] = on_pause
        try:
            yield request_id
        finally:
            del self._dial.notes.pauses[request_id]

    async def notify(self, method: str, params: Mapping[str, Json]) -> None:
        await self._wire.notify(method, params)

    async def ping(self) -> None:
        """Return when the server answers anything at all."""
        try:
            await self._wire.send("ping" if self.peer.era == "legacy" else "server/discover", {})
        except MCPError as error:
            if await self._is_gone(error):
                raise await self._failure(error) from None

    async def list_tools(self, settings: ServerSettings) -> Listing:
        """Read every page raw; a cursor that never ends is cut off and named."""
        listing = Listing(settings, self.peer.era)
        count, seen, cursor = 0, set[str](), None
        for _ in range(MAX_PAGES):
            page = await self._page(cursor)
            raw = page.get("tools")
            tools = raw if isinstance(raw, list) else []
            room = self._dial.limits.tools_per_server - count
            await _extend(listing, tools[:room])
            count += len(tools)
            cursor = page.get("nextCursor")
            if count > self._dial.limits.tools_per_server:
                listing.note(f"only the first {self._dial.limits.tools_per_server:,} tools are kept")
                break
            if not isinstance(cursor, str) or cursor in seen:
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
            raise await self._failure(error) from None

    def announces(self, feature: str) -> bool:
        """Say whether the server promises to tell when its list of tools, prompts or resources changes."""
        offered = self.peer.capabilities.get(feature)
        return isinstance(offered, dict) and offered.get("listChanged") is True

    async def listen(self) -> StreamEnd:
        """Hold the modern era's change stream until it ends, and say why; the legacy era announces unasked."""
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
        return "lost"

    def _subscription(self) -> dict[str, Json]:
        features = ("tools", "prompts", "resources")
        wanted: dict[str, Json] = {f"{f}ListChanged": True for f in features if self.announces(f)}
        if self._watched:
            wanted["resourceSubscriptions"] = sorted(self._watched)
        return wanted

    async def watch(self, uris: Iterable[str]) -> None:
        """Ask to be told when these resources change, and no others."""
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

    async def _failure(self, error: MCPError) -> Exception:
        """Say who failed: the server by its answer, or the connection under the request."""
        if self._dial.notes.challenge is not None:
            return UpstreamNeedsAuth(self._server, auth_remedy(self._dial.notes))
        if await self._is_gone(error):
            return UpstreamUnavailable(self._server, "the connection ended before it answered; reconnecting")
        return UpstreamRefused(self._server, error.code, error.message, error.data)

    async def _is_gone(self, error: MCPError) -> bool:
        if self._dial.notes.lost.is_set():
            return True
        if error.code != CONNECTION_CLOSED:
            return False
        return await self._wire.has_closed()


def auth_remedy(notes: HttpNotes) -> str:
    asked = f" ({notes.challenge})" if notes.challenge else ""
    return (
        f"it answered 401 and wants credentials{asked}; give them in the configuration, "
        'for example "headers": {"Authorization": "Bearer ${TOKEN}"}'
    )


async def _extend(listing: Listing, tools: list[Json]) -> None:
    # Ten thousand schemas take a while; others get their turn in between.
    for start in range(0, len(tools), 100):
        listing.extend(tools[start : start + 100])
        await anyio.lowlevel.checkpoint()


def _what(method: str, params: Mapping[str, Json]) -> str:
    return f"tool {params.get('name')!r}" if method == "tools/call" else f"{method!r}"
