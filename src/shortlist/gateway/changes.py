"""Changes that clients may have to hear of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from shortlist.access.scope import Scope
from shortlist.gateway.callers import WorkspaceKey
from shortlist.gateway.view import ServeOptions
from shortlist.models import ToolId
from shortlist.upstream.events import Notified


@dataclass(frozen=True, slots=True)
class ListChanged:
    """The listed tools changed: in one workspace, or for every client that can reach one of these tools."""

    workspace: WorkspaceKey | None = None
    tools: frozenset[ToolId] | None = None
    """None: whatever a client can reach."""
    options: ServeOptions | None = None
    """None: whatever options a client is served with."""


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """The configuration was replaced: principals may have lost access."""


GatewayChange: TypeAlias = ListChanged | AccessChanged | Notified
OnChange: TypeAlias = Callable[[GatewayChange], None]


def reaches(scope: Scope, change: ListChanged) -> bool:
    """Return whether a change of the listed tools concerns somebody with this scope."""
    return change.tools is None or any(scope.covers(tool_id) for tool_id in change.tools)
