"""Who calls, the way back to the client, and the workspace that holds what this caller has loaded.

Protocol 2026-07-28 forbids a tool list that varies by connection. So a legacy session owns a workspace, and
a modern client names one: by a handle that the gateway minted, as an argument or in the endpoint's path, or
by the principal of its token.
"""

import hashlib
import logging
import math
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import anyio

from shortlist.access.catalog import ScopedCatalog
from shortlist.access.principal import OWNER, Principal
from shortlist.config.settings import Limits, ServerSettings
from shortlist.errors import InvalidInput, RequestRefused, StoreError
from shortlist.gateway.view import ServeOptions
from shortlist.models import UNIDENTIFIED, Json, SearchResult, ToolId
from shortlist.storage.owned import StoredWorkspace, WorkspaceLimits, WorkspaceStore, owner_of
from shortlist.upstream.events import Era
from shortlist.upstream.sessions import session_name

logger = logging.getLogger(__name__)

WorkspaceKey: TypeAlias = str
"""Names a workspace; holds only a hash of a handle, so that it may be logged."""

HANDLE_BYTES = 18
"""144 random bits."""
REMEMBERED_SEARCHES = 12
REMEMBERED_TOOLS = 8
OPEN_LINK = "elicitation/create url"
"""Asked of `Exchange.can`: whether the client can let its user open a link."""
QUESTIONS = ("sampling/createMessage", "elicitation/create", "roots/list")
"""What a server may ask of a client."""
LASTING = ("handle:", "principal:")
"""How the keys begin of workspaces that outlive a connection and a gateway."""
SESSION = "session:"
"""How the key begins of a legacy session's workspace; it lasts where other gateways may serve the session."""
REFRESHES = 24
"""How often a workspace that is used is saved again within its time."""
REMEMBERED_SHARES = 10_000
INVALID_REQUEST = -32600
OVERLOADED = -32000
"""A server error of JSON-RPC: the request may be repeated later."""
METHOD_NOT_FOUND = -32601


class WorkspaceUnknown(InvalidInput):
    """A handle that was never issued to this caller, or that expired."""

    def __init__(self) -> None:
        super().__init__("No such workspace: the handle expired or was never given. Load again without one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request, the protocol era it speaks, and the workspace it names."""

    principal: Principal = OWNER
    era: Era = "modern"
    session: str | None = None
    """A legacy connection."""
    handle: str | None = field(default=None, repr=False)
    """From the endpoint's path, or the argument of a tool."""
    process: str | None = None
    """A stdio process has one client. That helps to notice loops, and never decides what is listed."""
    options: ServeOptions | None = None
    """How this client's connection is served; None: as the whole gateway is."""
    program: str = ""
    """The program that makes the request; empty for one from outside."""

    @property
    def name(self) -> str:
        return self.principal.name

    @property
    def teacher(self) -> str:
        """The name under which its searches and calls are recorded, and learned from."""
        return UNIDENTIFIED if self.principal.anonymous else self.principal.name


def workspace_key(caller: Caller) -> WorkspaceKey | None:
    """Return the key of a request's workspace; None when a modern client has named none.

    A handle comes first. A legacy client without one has its session, a modern client the principal of its token.
    """
    if caller.handle:
        return f"handle:{caller.name}:{hashlib.sha256(caller.handle.encode()).hexdigest()}"
    if caller.era == "legacy" and caller.session:
        return f"session:{caller.name}:{caller.session}"
    if caller.principal.kind in ("token", "oauth"):
        return f"principal:{caller.name}"
    return None


def session_of(server: ServerSettings | None, caller: Caller, rooted: Mapping[str, WorkspaceKey]) -> tuple[str, str]:
    """Return which connection to a server a caller uses, and whose login; empty for the shared ones.

    `rooted` names the client whose roots the shared connection to a server was told; no other client uses it.
    """
    if server is None or (server.identity == "shared" and server.sessions == "shared"):
        return "", ""
    if server.identity == "shared" and server.sessions == "auto":
        holder = rooted.get(server.name)
        is_free = holder is None or holder == client_key(caller)
        return ("", "") if is_free else (session_name(caller.principal.key, client_key(caller)), "")
    key = caller.principal.key
    # A modern client over stdio names no workspace; its process is one.
    workspace = workspace_key(caller) or caller.process if server.sessions == "per_workspace" else None
    return session_name(key, workspace), key if server.identity == "per_principal" else ""


def client_key(caller: Caller) -> WorkspaceKey:
    """Return which client sends a request, as far as its era tells: its connection, process or workspace."""
    return f"session:{caller.name}:{caller.session}" if caller.session else activity_key(caller)


def activity_key(caller: Caller) -> WorkspaceKey:
    """Return whose activity a request belongs to: one client's process, one workspace, else everybody with this name.

    A process comes first: its client has one conversation, whatever workspaces it names in it.
    """
    if caller.process is not None:
        return f"process:{caller.name}:{caller.process}"
    return workspace_key(caller) or f"caller:{caller.name}"


@dataclass(slots=True)
class Workspace:
    """What one caller has loaded, in the order of loading, and what it did lately."""

    loaded: dict[ToolId, str] = field(default_factory=dict)
    """Tool to the toolset it came with, or "" when it was loaded alone."""
    searches: deque[frozenset[ToolId]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_SEARCHES))
    tools: deque[ToolId] = field(default_factory=lambda: deque(maxlen=REMEMBERED_TOOLS))
    used: float = 0.0
    saved: float = 0.0
    is_stale: bool = False
    """Another gateway has changed it since."""

    def load(self, tools: Iterable[ToolId], toolset: str = "") -> tuple[ToolId, ...]:
        """Add tools at the end; return those that were not loaded before."""
        new = tuple(tool_id for tool_id in dict.fromkeys(tools) if tool_id not in self.loaded)
        self.loaded.update(dict.fromkeys(new, toolset))
        return new

    def unload(self, tools: Iterable[ToolId]) -> tuple[ToolId, ...]:
        """Remove tools, keep the order of the rest, and return those that were removed."""
        gone = tuple(tool_id for tool_id in tools if tool_id in self.loaded)
        for tool_id in gone:
            del self.loaded[tool_id]
        return gone

    def called(self, tool_id: ToolId) -> None:
        """Remember a call, which ends a loop of searches."""
        self.tools.append(tool_id)
        self.searches.clear()

    def circles(self, found: frozenset[ToolId], most: int) -> bool:
        """Note what a search found; return whether it found the same too often without a call in between."""
        self.searches.append(found)
        return bool(found) and self.times(found) > most

    def times(self, found: frozenset[ToolId]) -> int:
        return sum(1 for earlier in self.searches if earlier == found)


class Workspaces:
    """All workspaces, bounded in number; those unused for long expire. Lasting ones are saved when they change."""

    def __init__(
        self,
        store: WorkspaceStore,
        limits: WorkspaceLimits,
        *,
        is_shared: bool = False,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._is_shared = is_shared
        self._lasting = (*LASTING, SESSION) if is_shared else LASTING
        self._today = today
        self._failure = ""
        self._limits = limits
        self._clock = clock
        self._open: OrderedDict[WorkspaceKey, Workspace] = OrderedDict()

    def limit(self, limits: WorkspaceLimits) -> None:
        """Apply new limits; workspaces beyond them end now."""
        self._limits = limits
        self._expire()
        for owner in {owner_of(key) for key in self._open}:
            self._shrink(owner)

    async def fetch(self, caller: Caller, *, up_to_date: bool = False) -> None:
        """Bring back what another gateway saved for this caller; call this before `of`.

        One that is known here is read again with `up_to_date`, where other gateways may have changed it.
        """
        key = workspace_key(caller)
        if key is None or not key.startswith(self._lasting):
            return
        known = self._open.get(key)
        if known is not None and not known.is_stale and not (up_to_date and self._is_shared):
            if known.loaded and self._clock() - known.saved > self._limits.seconds / REFRESHES:
                await self.save(caller)
            return
        try:
            stored = await anyio.to_thread.run_sync(self._store.load, key)
        except StoreError as error:
            self._report(error)
            return
        if stored is None or stored.used <= self._today() - self._limits.seconds:
            return
        present = self._open.get(key)
        if present is None:
            self._put(key, Workspace(loaded=dict(stored.loaded), saved=self._clock()))
        elif known is not None:
            present.loaded, present.is_stale = dict(stored.loaded), False

    def forget(self, key: WorkspaceKey) -> bool:
        """Read a workspace again when it is next used, since it was changed elsewhere; return whether it was here."""
        found = self._open.get(key)
        if found is None or not key.startswith(self._lasting):
            return False
        found.is_stale = True
        return True

    def forget_all(self) -> None:
        """Read every workspace again when it is next used, since changes elsewhere may have been missed."""
        for key in self._open:
            self.forget(key)

    async def save(self, caller: Caller) -> None:
        """Save a lasting workspace after a change; one that cannot be saved stays as long as this gateway."""
        key = workspace_key(caller)
        workspace = self._open.get(key) if key is not None else None
        if key is None or workspace is None or not key.startswith(self._lasting):
            return
        workspace.saved = self._clock()
        stored = StoredWorkspace(key=key, loaded=dict(workspace.loaded), used=self._today())
        try:
            await anyio.to_thread.run_sync(self._store.save, stored, self._limits)
        except StoreError as error:
            self._report(error)

    def _report(self, error: StoreError) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            logger.warning("workspaces are not saved: %s", error)

    def mint(self, caller: Caller) -> tuple[str, Workspace]:
        """Make a workspace for a caller and return its handle, which is shown only this once."""
        handle, made = secrets.token_urlsafe(HANDLE_BYTES), Workspace()
        self._put(f"handle:{caller.name}:{hashlib.sha256(handle.encode()).hexdigest()}", made)
        return handle, made

    def of(self, caller: Caller) -> Workspace | None:
        """Return the caller's workspace; raise WorkspaceUnknown for a handle that is not known."""
        key = workspace_key(caller)
        if key is None:
            return None
        self._expire()
        found = self._open.get(key)
        if found is None:
            if key.startswith("handle:"):
                raise WorkspaceUnknown
            found = Workspace()
        self._put(key, found)
        return found

    def for_circles(self, caller: Caller) -> Workspace | None:
        """Return where a caller's searches are remembered: its workspace, or that of its stdio process."""
        found = self.of(caller)
        if found is not None or caller.process is None:
            return found
        key = f"process:{caller.name}:{caller.process}"
        workspace = self._open.get(key) or Workspace()
        self._put(key, workspace)
        return workspace

    def close(self, caller: Caller) -> None:
        """Forget a legacy session's workspace when its connection ends."""
        key = workspace_key(caller)
        if key is not None and key.startswith(SESSION):
            self._open.pop(key, None)

    def __len__(self) -> int:
        return len(self._open)

    def _put(self, key: WorkspaceKey, workspace: Workspace) -> None:
        workspace.used, is_new = self._clock(), key not in self._open
        self._open[key] = workspace
        self._open.move_to_end(key)
        if is_new:
            self._shrink(owner_of(key))

    def _shrink(self, owner: str) -> None:
        """End the oldest workspaces of a caller that has too many, then the oldest of all."""
        own = [key for key in self._open if owner_of(key) == owner]
        for key in own[: max(0, len(own) - self._limits.most_of_owner)]:
            del self._open[key]
        while len(self._open) > self._limits.most:
            self._open.popitem(last=False)

    def _expire(self) -> None:
        oldest = self._clock() - self._limits.seconds
        while self._open and next(iter(self._open.values())).used < oldest:
            self._open.popitem(last=False)


def workspace_limits(limits: Limits) -> WorkspaceLimits:
    return WorkspaceLimits(
        seconds=limits.workspace_seconds, most=limits.workspaces, most_of_owner=limits.workspaces_per_caller
    )


class TooManyCalls(RequestRefused):
    """A call beyond the fair share of its caller; it was not sent, and may be repeated after some seconds."""

    def __init__(self, server: str, reason: str, seconds: int) -> None:
        wait = f"{seconds} second{'s' if seconds != 1 else ''}"
        super().__init__(
            f"The call to {server!r} was not sent: {reason}. Try again in {wait}.",
            code=OVERLOADED,
            data={"retryAfterSeconds": seconds},
        )


class Shares:
    """What each caller may use of each server: calls at the same time, and calls in a minute."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._running: Counter[tuple[str, str, str]] = Counter()
        self._left: OrderedDict[tuple[str, str, str], tuple[float, float]] = OrderedDict()
        """Calls that are left of a minute's allowance, and when that was counted."""

    @contextmanager
    def turn(self, caller: Caller, server: str) -> Iterator[None]:
        """Count a call while it runs; raise TooManyCalls where its caller has used up its share."""
        key = (caller.principal.kind, caller.principal.name, server)
        if self._running[key] >= self.limits.calls_per_caller:
            most = self.limits.calls_per_caller
            raise TooManyCalls(server, f"you have {most} calls running there (limits.calls_per_caller)", 1)
        if self.limits.calls_per_minute is not None:
            self._spend(key, self.limits.calls_per_minute)
        self._running[key] += 1
        try:
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]

    def _spend(self, key: tuple[str, str, str], most: int) -> None:
        now = self._clock()
        left, at = self._left.get(key, (float(most), now))
        left = min(float(most), left + (now - at) * most / 60)
        if left < 1:
            seconds = math.ceil((1 - left) * 60 / most)
            raise TooManyCalls(key[-1], f"you may make {most} calls a minute there (limits.calls_per_minute)", seconds)
        self._left[key] = (left - 1, now)
        self._left.move_to_end(key)
        while len(self._left) > REMEMBERED_SHARES:  # those that were not used for longest have all of it again
            self._left.popitem(last=False)


class Exchange(Protocol):
    """The way back to the client that sent a request."""

    @property
    def caller(self) -> Caller: ...

    def can(self, method: str) -> bool:
        """Return whether the client can answer a server's request of this method."""
        ...

    @property
    def answers_in_place(self) -> bool:
        """Whether the client answers while its request is open; else it comes back with the answers."""
        ...

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Put a server's request (sampling, elicitation, roots) to the client."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def pause(self) -> None:
        """End the stream of the request where the era allows it: the client comes back for the answer."""
        ...

    async def log(self, params: Mapping[str, Json]) -> None:
        """Pass on a server's log entry, if the client asked for entries of its level."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWish:
    """A client that can follow a call as a task; a legacy one insists on it, to a modern one the server decides."""

    is_required: bool = False
    milliseconds: int | None = None
    """How long it wants the task to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a client adds to a request: its `_meta`, and in a later round trip the answers it was asked for."""

    meta: Mapping[str, Json] = field(default_factory=dict)
    answers: Mapping[str, Json] | None = None
    state: str | None = None
    task: TaskWish | None = None

    @property
    def is_first(self) -> bool:
        return self.answers is None and self.state is None

    def params(self) -> dict[str, Json]:
        """Return the members that a modern server expects in a retry."""
        found = {"inputResponses": self.answers, "requestState": self.state}
        return {key: value for key, value in found.items() if value is not None}


def in_reach(result: SearchResult, tools: ScopedCatalog, offset: int = 0) -> SearchResult:
    """Keep what is in reach: the index may be behind the catalog, and it knows the words of every tool."""
    is_all_in_reach = all(hit.tool.id in tools and not hit.family for hit in result.hits)
    if is_all_in_reach and not offset and not result.did_you_mean:
        return result
    hits = tuple(
        hit._replace(family=tuple(i for i in hit.family if i in tools)) if hit.family else hit
        for hit in result.hits
        if hit.tool.id in tools
    )
    found = replace(result, hits=hits[offset:])
    return found if tools.is_whole or not result.did_you_mean else _without_hidden_words(found)


def known_corrections(result: SearchResult, tools: ScopedCatalog) -> Mapping[str, str] | None:
    """Return the corrections of a query that its explanation may name, of a result in reach; None: all of them."""
    return None if tools.is_whole else result.did_you_mean


def _without_hidden_words(result: SearchResult) -> SearchResult:
    """Leave out corrections to words that no hit shows: they may be those of tools out of reach."""
    from shortlist.search.spelling import respelled  # noqa: PLC0415 - only for a typing error of a limited caller

    shown = " ".join(f"{hit.tool.name} {hit.tool.title} {hit.tool.description}" for hit in result.hits).lower()
    known = {typed: meant for typed, meant in result.did_you_mean.items() if meant.lower() in shown}
    typed = {meant: typed for typed, meant in result.did_you_mean.items() if typed not in known}
    return replace(
        result,
        hits=tuple(hit._replace(wish=respelled(hit.wish, typed)) for hit in result.hits),
        wishes=tuple(wish._replace(text=respelled(wish.text, typed)) for wish in result.wishes),
        did_you_mean=known,
    )
