"""What happened, as frozen facts; whoever records them must neither block nor raise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist.models import Level, ToolId

Outcome: TypeAlias = Literal["ok", "error", "invalid_arguments", "failed", "input_required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    caller: str
    workspace: str | None
    query: str
    hits: tuple[tuple[ToolId, float], ...]
    confidence: Level
    milliseconds: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CircleBroken:
    caller: str
    workspace: str | None
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    caller: str
    workspace: str | None
    tools: tuple[ToolId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    caller: str
    workspace: str | None
    tool: ToolId
    outcome: Outcome
    milliseconds: float
    native: bool
    """Called by its own name, not through call_tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    caller: str
    workspace: str | None
    toolset: str
    tools: tuple[ToolId, ...]
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloaded:
    caller: str
    workspace: str | None
    toolset: str
    tools: tuple[ToolId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged:
    server: str
    tools: int
    fingerprint: str


Event: TypeAlias = Searched | CircleBroken | Described | Called | Loaded | Unloaded | CatalogChanged
Record: TypeAlias = Callable[[Event], None]


def record_nothing(_: Event) -> None:
    """Stand in where nothing is recorded."""
