"""What happened, as frozen facts; whoever records them must neither block nor raise.

`workspace` names whose doing it was (`gateway.workspaces.activity_key`); only a keyed hash of it is ever kept.
The rank of a called tool and the search it was found by are not known here: attribution adds them when it is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from shortlist.models import Json, Level, Signal, ToolId

Outcome: TypeAlias = Literal["ok", "error", "invalid_arguments", "failed", "input_required", "unknown"]
"""`error`: the tool says so itself. `failed`: no answer came. `unknown`: no tool of that name is here."""


class Later:
    """A number that is counted when it is first asked for: counting tokens takes longer than most requests."""

    __slots__ = ("_count", "_number")

    def __init__(self, count: Callable[[], int]) -> None:
        self._count: Callable[[], int] | None = count
        self._number = 0

    def __call__(self) -> int:
        if (count := self._count) is not None:
            self._number = count()
            self._count = None  # and what it was counted from can go
        return self._number


Tokens: TypeAlias = int | Later
"""So many, or how to count them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool:
    """A hit as it was returned; the near-duplicates it stands for were found at its rank."""

    tool: ToolId
    rank: int
    score: float
    signals: Mapping[str, Signal] = field(default_factory=dict)
    family: tuple[ToolId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a caller did, in its workspace."""

    caller: str
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(Act):
    """A workspace was met for the first time by this gateway; `tools` is how many its client would list."""

    mode: str
    tools: int
    tokens: Tokens = 0
    """What the gateway's instructions cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Act):
    """An answer to tools/list, against what listing every tool that the caller may see would cost."""

    tools: int
    tokens: Tokens
    upfront: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched(Act):
    """One query; `part` counts the queries of one request, which share its tokens."""

    query: str
    hits: tuple[FoundTool, ...]
    confidence: Level
    probability: float
    tokens: Tokens
    limit: int = 5
    offset: int = 0
    mode: str = "hybrid"
    filters: Mapping[str, Json] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each step."""
    part: int = 0

    @property
    def milliseconds(self) -> float:
        return sum(self.steps.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CircleBroken(Act):
    query: str
    tokens: Tokens = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Act):
    tools: tuple[ToolId, ...]
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetsListed(Act):
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionGiven(Act):
    """An answer offered to load a toolset."""

    toolset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Act):
    """A tool was called, or (`unknown`) a name that no tool has."""

    tool: ToolId
    outcome: Outcome
    milliseconds: float
    native: bool
    """Called by its own name, not through call_tool."""
    size: int = 0
    """Characters of the result."""
    tokens: Tokens = 0
    """What the gateway's own words cost, where it refused the call."""
    arguments: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Act):
    toolset: str
    """Empty where single tools were asked for."""
    tools: tuple[ToolId, ...]
    milliseconds: float
    tokens: Tokens = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloaded(Act):
    toolset: str
    tools: tuple[ToolId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed(Act):
    """A workspace was served a variant of an experiment."""

    experiment: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReported(Act):
    """The caller says how its task ended."""

    completed: bool
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamChanged:
    """A server came up or went down; `state` is the word of `upstream.events`."""

    server: str
    up: bool
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged:
    """A server's tools are others now; `upfront` is what listing the whole catalog would cost."""

    server: str
    tools: int
    fingerprint: str
    upfront: Tokens = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsLost:
    """Events that could not be kept, written down as soon as something can be again."""

    count: int
    reason: str


Event: TypeAlias = (
    SessionOpened
    | Listed
    | Searched
    | CircleBroken
    | Described
    | ToolsetsListed
    | SuggestionGiven
    | Called
    | Loaded
    | Unloaded
    | Exposed
    | TaskReported
    | UpstreamChanged
    | CatalogChanged
    | EventsLost
)
Record: TypeAlias = Callable[[Event], None]


def record_nothing(_: Event) -> None:
    """Stand in where nothing is recorded."""


def count(tokens: Tokens) -> int:
    """Give a number of tokens, counting them now where that was put off."""
    return tokens if isinstance(tokens, int) else tokens()


def settled(event: Event) -> Event:
    """Give the same event with its tokens counted."""
    late = {
        name: count(getattr(event, name))
        for name in ("tokens", "upfront")
        if isinstance(getattr(event, name, 0), Later)
    }
    return replace(event, **late) if late else event  # type: ignore[arg-type]
