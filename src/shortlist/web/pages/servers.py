"""The upstream servers: state, tools and usage."""

from dataclasses import dataclass

from shortlist.gateway.view import definition_tokens
from shortlist.models import Tool
from shortlist.telemetry.figures import ToolFigures
from shortlist.upstream.events import UpstreamStatus
from shortlist.web.page import NoSuchPage, Page, Use, Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """One server and its visible tools."""

    status: UpstreamStatus
    title: str
    description: str
    stale: bool
    """Its tools come from the saved catalog."""
    tools: tuple[Tool, ...]
    used: ToolFigures | None

    @property
    def tokens(self) -> int:
        """Tokens of all its tool definitions."""
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
            "names": visit.reach.name,
            "used": use.tools,
            "may_reconnect": visit.sources.reconnect is not None and not visit.limited,
        },
    )


def reconnect(visit: Visit) -> str:
    """Reconnect a server, or list its tools again."""
    name = _named(visit).server
    if visit.sources.reconnect is None or visit.limited:
        raise NoSuchPage(f"Server {name!r} cannot be reconnected from here.")
    visit.sources.reconnect(name)
    return visit.address.removesuffix("/reconnect")


def _named(visit: Visit) -> UpstreamStatus:
    name = visit.path["server"]
    found = visit.servers().get(name)
    if found is None:
        raise NoSuchPage(f"No server {name!r}.")
    return found


def _row(visit: Visit, status: UpstreamStatus, use: Use) -> ServerRow:
    name, reach = status.server, visit.reach
    server = reach.server(name)
    return ServerRow(
        status=status,
        title=server.title if server else "",
        description=server.description if server else "",
        stale=name in visit.state.stale,
        tools=tuple(reach[tool_id] for tool_id in reach.members(name)),
        used=use.servers.get(name),
    )
