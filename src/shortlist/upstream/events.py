"""Values that describe upstream servers: their state, their events, and what they may ask."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias

from shortlist.models import Json, Tool

State: TypeAlias = Literal["connecting", "ready", "idle", "down", "stale", "failed", "needs_auth", "stopped"]
"""`idle`: not running, because nobody needs it; it starts with the next request, and its last tools are served.
`down`: connected, but it has ceased to answer, so calls fail at once until it does.
`stale`: was ready and is being reconnected; its last tools still answer searches.
`failed`: never got ready; the next attempt follows after a back-off, or with the next call."""
Circuit: TypeAlias = Literal["closed", "open", "half_open"]
"""`closed`: requests pass. `open`: they fail at once. `half_open`: one passes, to find out."""
Era: TypeAlias = Literal["legacy", "modern"]
"""`legacy`: initialize handshake, up to 2025-11-25. `modern`: an envelope per request, 2026-07-28."""


class OnProgress(Protocol):
    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class OnPause(Protocol):
    async def __call__(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a server said about itself when it connected."""

    protocol_version: str
    era: Era
    capabilities: Mapping[str, Json] = field(default_factory=dict)
    info: Mapping[str, Json] = field(default_factory=dict)
    instructions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a server offers beside its tools, so that it need not run to be listed."""

    peer: Peer
    lists: Mapping[str, tuple[Mapping[str, Json], ...]] = field(default_factory=dict)
    """The items of each list, by its method."""

    def document(self) -> dict[str, Json]:
        """Return a form of it that can be saved."""
        return {"peer": asdict(self.peer), "lists": {method: list(items) for method, items in self.lists.items()}}

    @classmethod
    def read(cls, document: Json) -> Self | None:
        """Return what was saved; None for what this version cannot read."""
        try:
            lists = {str(method): tuple(map(dict, items)) for method, items in document["lists"].items()}
            return cls(peer=Peer(**document["peer"]), lists=lists)
        except (TypeError, KeyError, ValueError, AttributeError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamStatus:
    """The state of one server now; `since` is the wall-clock second in which `state` began."""

    server: str
    state: State
    since: float
    tools: int = 0
    error: str | None = None
    stderr: tuple[str, ...] = ()
    peer: Peer | None = None
    attempts: int = 0
    circuit: Circuit = "closed"
    dropped: int = 0
    """Notifications that were dropped because the server sent more than its allowance."""
    problems: tuple[str, ...] = ()
    """Tools of its list that were left out, and why."""

    @property
    def era(self) -> Era | None:
        return self.peer.era if self.peer else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged:
    """A server's whole tool list as it is now; `problems` are tools left out, and why."""

    server: str
    tools: tuple[Tool, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    server: str
    status: UpstreamStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    server: str
    survey: Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """A notification of a server, unchanged: logging, changed prompts and resources, and the like.

    Progress of a call goes to its `on_progress`, and tools/list_changed becomes `ToolsChanged`.
    """

    server: str
    method: str
    params: Mapping[str, Json] = field(default_factory=dict)


UpstreamEvent: TypeAlias = ToolsChanged | StateChanged | Surveyed | Notified
OnEvent: TypeAlias = Callable[[UpstreamEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How one request is relayed; `caller` comes back to `Client.answer` when the server asks something."""

    meta: Mapping[str, Json] | None = None
    on_progress: OnProgress | None = None
    on_pause: OnPause | None = None
    """Called when a legacy HTTP server ends the stream of its answer, to be asked for the rest of it later."""
    timeout_seconds: float | None = None
    """None: the server's own setting."""
    caller: Any = None
    session: str = ""
    """Names a connection that is not shared; empty for the shared one."""
    principal: str = ""
    """Whose login that connection uses; empty for the shared one."""


NO_OPTIONS = CallOptions()


class Client(Protocol):
    """Answers a server's own requests: sampling, roots, elicitation (legacy era only)."""

    @property
    def capabilities(self) -> Mapping[str, Json]:
        """Client capabilities to advertise to every server, in wire form."""
        ...

    async def answer(
        self, server: str, method: str, params: Mapping[str, Json], callers: tuple[Any, ...]
    ) -> dict[str, Json]:
        """Return the raw result; `callers` are those of the calls in flight on that server, oldest first.

        Raise `mcp.MCPError` to refuse.
        """
        ...
