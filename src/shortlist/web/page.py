"""What a page is made of: a visit by one caller, the sources that it may look into, and a template with its values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, get_args

from shortlist.access.catalog import ScopedCatalog
from shortlist.errors import ShortlistError, StoreError
from shortlist.gateway.state import GatewayState
from shortlist.models import Query, Tool, ToolId
from shortlist.search.explain import Explained
from shortlist.storage.port import Storage, TallyName, TallyStore
from shortlist.telemetry.figures import ToolFigures, stats_of
from shortlist.telemetry.of_caller import CallerTallies
from shortlist.upstream.events import UpstreamStatus
from shortlist.web.access import Session
from shortlist.web.controls import Controls
from shortlist.web.filters import UseFilter

NO_CONTROLS = Controls()
LOGIN_CALLBACK = "/login/callback"
"""Where a browser brings the answer of a login to a server."""
OF_TOOLS: tuple[TallyName, ...] = tuple(name for name in get_args(TallyName) if name.startswith("tool_"))
"""Tallies by tool: all that is asked for where only tools and servers are shown."""


class NoSuchPage(ShortlistError):
    """What the address names is not there, or not for this caller."""


class NotForThisToken(ShortlistError):
    """What all callers do is shown to those that may see all tools."""

    def __init__(self) -> None:
        super().__init__("This token may see some of the tools, and nothing of what other callers do.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the pages show: the gateway as it is, and what it recorded."""

    state: GatewayState
    explained: Callable[[Query], Explained]
    """Searches, with the reason of every hit."""
    storage: Storage
    controls: Controls = NO_CONTROLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of somebody who was let in."""

    sources: Sources
    session: Session
    base: str = ""
    """The scheme and host under which the browser reaches this gateway."""
    address: str = "/"
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    """What was sent with a change."""

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

    @property
    def controls(self) -> Controls:
        """What the visitor can do here; nothing for a limited one."""
        return NO_CONTROLS if self.limited else self.sources.controls

    @property
    def filter(self) -> UseFilter:
        return UseFilter.of(self.query)

    def record(self) -> Storage:
        """Return what was recorded; raises where it is not for this caller."""
        if self.limited:
            raise NotForThisToken
        return self.sources.storage

    def tallies(self) -> TallyStore:
        """Return the tallies of the chosen caller, or of all callers."""
        record, chosen = self.record(), self.filter
        return CallerTallies(record.events, chosen.caller, chosen.since) if chosen.caller else record.tallies

    def use(self) -> "Use":
        """Return the usage of tools and servers in the time range; empty if nothing is recorded, or limited."""
        try:
            found = stats_of(self.tallies().sums(self.filter.since, OF_TOOLS))
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


Possible = TypeVar("Possible")


def possible(control: Possible | None) -> Possible:
    """Return a control, where this dashboard has it."""
    if control is None:
        raise NoSuchPage("This cannot be done from here: the servers run in another process, or nothing is configured.")
    return control


@dataclass(frozen=True, slots=True)
class Use:
    """What the chosen caller, or all callers together, did with each tool and each server in a time range."""

    tools: Mapping[ToolId, ToolFigures] = field(default_factory=dict)
    servers: Mapping[str, ToolFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it is filled with."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Download:
    """A table as a CSV file."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


MakePage: TypeAlias = Callable[[Visit], Page | Download]
