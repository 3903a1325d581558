"""What one of the gateway's own tools is: a record of what is listed, how arguments are read, and what answers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from shortlist.config.settings import Settings
from shortlist.gateway.arguments import Defaults, McpResult, ToolArguments
from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.state import CallerView, State
from shortlist.gateway.view import MenuName

AskedT = TypeVar("AskedT")
Translate: TypeAlias = Callable[[ToolArguments], ToolArguments]

STRING = {"type": "string"}
STRINGS = {"type": "array", "items": {"type": "string"}}
INTEGER = {"type": "integer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A `tools/call` of a client: who calls and what it can reach, the way back to it, and its round trip."""

    state: State
    seen: CallerView
    exchange: Exchange
    turn: Round
    inner: Callable[[str, ToolArguments], Awaitable[McpResult]]
    """Calls a tool by name, as call_tool does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaTool(Generic[AskedT]):
    """One of the gateway's own tools."""

    name: str
    description: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    reads: bool = False
    """It changes nothing, so clients need not ask their user before each call."""
    parse: Callable[[ToolArguments, Defaults], AskedT]
    handle: Callable[[ToolCall, AskedT], Awaitable[McpResult]]
    aliases: Mapping[str, Translate] = field(default_factory=dict)
    """Names that other gateways use, with the arguments in their own shape: accepted, never listed."""
    menus: tuple[MenuName, ...] = ()
    is_offered: Callable[[Settings], bool] = lambda _: True
    """Whether the configuration offers it beside any menu, for a tool that is in none."""

    @property
    def definition(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        found = {"name": self.name, "description": self.description, "inputSchema": schema}
        return {**found, "annotations": {"readOnlyHint": True}} if self.reads else found


def same_arguments(arguments: ToolArguments) -> ToolArguments:
    return arguments
