"""The upstream servers: state, tools and usage."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist.config.masking import masked
from shortlist.config.settings import HttpTransport, SseTransport, StdioTransport
from shortlist.gateway.view import definition_tokens
from shortlist.models import Json, Tool
from shortlist.telemetry.figures import ToolFigures
from shortlist.upstream.events import UpstreamStatus
from shortlist.web.page import NoSuchPage, Page, Use, Visit
from shortlist.web.pages.attention import TROUBLE


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
    rows = [_row(visit, status, use) for status in visit.servers().values()]
    return Page("servers.html", "Servers", {"rows": sorted(rows, key=_trouble), "disabled": _disabled(visit)})


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
            "may_switch": visit.sources.switch is not None and not visit.limited,
            "settings": _settings(visit, row.status.server),
        },
    )


def reconnect(visit: Visit) -> str:
    """Reconnect a server, or list its tools again."""
    name = _named(visit).server
    if visit.sources.reconnect is None or visit.limited:
        raise NoSuchPage(f"Server {name!r} cannot be reconnected from here.")
    visit.sources.reconnect(name)
    return visit.address.removesuffix("/reconnect")


def disable(visit: Visit) -> str:
    """Keep a server in the configuration without using it."""
    return _switched(visit, _named(visit).server, on=False)


def enable(visit: Visit) -> str:
    """Use a disabled server again."""
    name = visit.path["server"]
    if name not in _disabled(visit):
        raise NoSuchPage(f"No disabled server {name!r}.")
    return _switched(visit, name, on=True)


def _switched(visit: Visit, name: str, *, on: bool) -> str:
    if visit.sources.switch is None or visit.limited:
        raise NoSuchPage(f"Server {name!r} cannot be changed from here.")
    visit.sources.switch.turn(name, on=on)
    return "/servers"


def _disabled(visit: Visit) -> Sequence[str]:
    return visit.sources.switch.disabled() if visit.sources.switch is not None and not visit.limited else ()


def _trouble(row: "ServerRow") -> tuple[int, float]:
    """Sort servers in trouble first, then those whose calls fail most; others keep their order."""
    state = row.status.state
    place = TROUBLE.index(state) if state in TROUBLE else len(TROUBLE)
    return place, -((row.used.error_rate if row.used else None) or 0.0)


def _settings(visit: Visit, name: str) -> Mapping[str, str]:
    """Return the effective settings of a server as its configuration would write them, secrets masked."""
    found = visit.state.settings.servers.get(name)
    if found is None or visit.limited:
        return {}
    transport = found.transport
    entry: dict[str, Json] = {}
    if isinstance(transport, StdioTransport):
        shown = masked({"args": list(transport.args)})["args"]
        entry["Command"] = shlex.join([transport.command, *map(str, shown)])
    elif isinstance(transport, HttpTransport | SseTransport):
        entry["URL"] = masked({"url": transport.url})["url"]
    return {
        **entry,
        "Start": found.start.replace("_", " "),
        "Trust": found.trust,
        "Call timeout": f"{found.timeout_seconds:g} s",
        "Start timeout": f"{found.start_seconds:g} s",
        "Concurrent calls": str(found.max_concurrency),
        **({"Hidden tools": ", ".join(found.exclude)} if found.exclude else {}),
    }


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
