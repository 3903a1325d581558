"""The servers behind the gateway: how they are, what they offer and how they do."""

from dataclasses import dataclass

from shortlist.gateway.snapshot import definition_tokens
from shortlist.models import Tool
from shortlist.telemetry.figures import ToolFigures
from shortlist.upstream.events import UpstreamStatus
from shortlist.web.page import NoSuchPage, Page, Use, Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """One server, with what the caller may see of it."""

    status: UpstreamStatus
    title: str
    description: str
    stale: bool
    """Its tools are those of the last time."""
    tools: tuple[Tool, ...]
    used: ToolFigures | None

    @property
    def tokens(self) -> int:
        """Count what a model would pay for all its definitions."""
        return sum(definition_tokens(tool) for tool in self.tools)


def listing(visit: Visit) -> Page:
    """Show all servers."""
    use = visit.use()
    return Page("servers.html", "Servers", {"rows": [_row(visit, status, use) for status in visit.servers().values()]})


def page(visit: Visit) -> Page:
    """Show one server."""
    use = visit.use()
    row = _row(visit, _named(visit), use)
    return Page(
        "server.html",
        row.status.server,
        {
            "row": row,
            "names": visit.state.snapshot.name,
            "used": use.tools,
            "may_reconnect": visit.sources.reconnect is not None and not visit.limited,
        },
    )


def reconnect(visit: Visit) -> str:
    """Connect to a server again, or list its tools again."""
    name = _named(visit).server
    if visit.sources.reconnect is None or visit.limited:
        raise NoSuchPage(f"{name!r} cannot be reconnected from here.")
    visit.sources.reconnect(name)
    return visit.address.removesuffix("/reconnect")


def _named(visit: Visit) -> UpstreamStatus:
    name = visit.path["server"]
    found = visit.servers().get(name)
    if found is None:
        raise NoSuchPage(f"There is no server {name!r}.")
    return found


def _row(visit: Visit, status: UpstreamStatus, use: Use) -> ServerRow:
    name, catalog = status.server, visit.state.snapshot.catalog
    server = catalog.servers.get(name)
    return ServerRow(
        status=status,
        title=server.title if server else "",
        description=server.description if server else "",
        stale=name in visit.state.stale,
        tools=tuple(tool for tool in catalog.of_server(name) if visit.may_see(tool.id)),
        used=use.servers.get(name),
    )
