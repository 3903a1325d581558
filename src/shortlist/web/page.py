"""What a page is made of: a visit by one caller, the sources that it may look into, and a template with its values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, get_args

from shortlist.access.catalog import ScopedCatalog
from shortlist.errors import ShortlistError, StoreError
from shortlist.gateway.state import GatewayState
from shortlist.models import Query, Tool, ToolId
from shortlist.search.searcher import Explained
from shortlist.storage.port import Storage, TallyName
from shortlist.telemetry.figures import ToolFigures, stats_of
from shortlist.upstream.events import UpstreamStatus
from shortlist.web.access import Session

OF_TOOLS: tuple[TallyName, ...] = tuple(name for name in get_args(TallyName) if name.startswith("tool_"))
"""Tallies by tool: all that is asked for where only tools and servers are shown."""


class NoSuchPage(ShortlistError):
    """What the address names is not there, or not for this caller."""


class NotForThisToken(ShortlistError):
    """What all callers do is shown to those that may see all tools."""

    def __init__(self) -> None:
        super().__init__("This token may see some of the tools, and nothing of what other callers do.")


class ServerSwitch(Protocol):
    """Turns servers on and off in the configuration."""

    def turn(self, server: str, *, on: bool) -> None:
        """Enable or disable a server; the gateway applies the change within a second."""
        ...

    def disabled(self) -> Sequence[str]:
        """Return the servers that the configuration disables."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the pages show: the gateway as it is, and what it recorded."""

    state: GatewayState
    explained: Callable[[Query], Explained]
    """Searches, with the reason of every hit."""
    storage: Storage
    reconnect: Callable[[str], None] | None = None
    """Connects to a server again; None where the servers belong to another process."""
    switch: ServerSwitch | None = None
    """None where there is no configuration to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of somebody who was let in."""

    sources: Sources
    session: Session
    address: str = "/"
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> GatewayState:
        return self.sources.state

    @property
    def reach(self) -> ScopedCatalog:
        """The catalog that the visitor can reach. Pages take tools, servers and names from nowhere else."""
        return self.state.reach(self.session.principal)

    @property
    def limited(self) -> bool:
        """Whether the visitor may neither see what other callers do nor act: it lacks `admin`, or reaches only some."""
        scope = self.reach.scope
        return scope.is_limited or "admin" not in scope.actions

    def record(self) -> Storage:
        """Return what was recorded; raises where it is not for this caller."""
        if self.limited:
            raise NotForThisToken
        return self.sources.storage

    def use(self) -> "Use":
        """Return the usage of tools and servers; empty if nothing is recorded, or for a restricted caller."""
        try:
            found = stats_of(self.record().tallies.sums(names=OF_TOOLS))
        except (NotForThisToken, StoreError):
            return Use()
        return Use({tool.name: tool for tool in found.tools}, {server.name: server for server in found.servers})

    def may_see(self, tool_id: ToolId) -> bool:
        return tool_id in self.reach

    def tools(self) -> dict[ToolId, Tool]:
        """Return the tools in reach, in the order of their ids."""
        reach = self.reach
        return {tool_id: reach[tool_id] for tool_id in sorted(reach)}

    def servers(self) -> dict[str, UpstreamStatus]:
        """Return the status of each server in reach, in the order of the configuration."""
        reach = self.reach
        found = self.state.upstreams.status()
        return {name: how for name, how in found.items() if name in reach.servers or reach.has_server(name)}


@dataclass(frozen=True, slots=True)
class Use:
    """What all callers together did with each tool and each server, as long as it is kept."""

    tools: Mapping[ToolId, ToolFigures] = field(default_factory=dict)
    servers: Mapping[str, ToolFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it is filled with."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


MakePage: TypeAlias = Callable[[Visit], Page]
