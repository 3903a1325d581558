"""The upstream servers: state, tools and usage."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio.from_thread

from shortlist.config.masking import masked
from shortlist.config.settings import HttpTransport, SseTransport, StdioTransport
from shortlist.errors import InvalidInput
from shortlist.gateway.view import definition_tokens
from shortlist.models import Json, Tool
from shortlist.telemetry.figures import ToolFigures
from shortlist.upstream.events import UpstreamStatus
from shortlist.web.controls import NewServer
from shortlist.web.page import LOGIN_CALLBACK, Download, NoSuchPage, Page, Use, Visit, possible
from shortlist.web.pages.attention import TROUBLE
from shortlist.web.templating import segment

NOTICES: Mapping[str, str] = {
    "add": "Added. The gateway applies the change within a second.",
    "remove": "Removed. The gateway applies the change within a second.",
    "enable": "Enabled. The gateway applies the change within a second.",
    "disable": "Disabled. The gateway applies the change within a second.",
    "restart": "The gateway restarts the server within a second.",
}


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
    values = {
        "rows": sorted(rows, key=_trouble),
        "disabled": [name for name in _disabled(visit) if "/" not in name],
        "can": visit.controls,
        "notice": NOTICES.get(visit.query.get("did", ""), ""),
    }
    return Page("servers.html", "Servers", values)


def download(visit: Visit) -> Download:
    """Return the servers as a table."""
    use = visit.use()
    rows = [_row(visit, status, use) for status in visit.servers().values()]
    columns = ("server", "state", "tools", "tokens", "calls", "error_rate", "milliseconds")
    return Download("servers", columns, [_cells(row) for row in sorted(rows, key=_trouble)])


def _cells(row: ServerRow) -> tuple[object, ...]:
    used = row.used
    figures = (used.calls, used.error_rate, used.milliseconds) if used else (0, None, None)
    return (row.status.server, row.status.state, len(row.tools), row.tokens, *figures)


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
            "can": visit.controls,
            "disabled": [name for name in _disabled(visit) if name.startswith(f"{row.status.server}/")],
            "settings": _settings(visit, row.status.server),
        },
    )


def reconnect(visit: Visit) -> str:
    """Reconnect a server, or list its tools again."""
    name = _named(visit).server
    anyio.from_thread.run_sync(possible(visit.controls.reconnect), name)
    return f"/servers/{segment(name)}"


def restart(visit: Visit) -> str:
    """Restart a server: the gateway does within a second."""
    name = _named(visit).server
    possible(visit.controls.restart)(name)
    return "/servers?did=restart"


def login(visit: Visit) -> Page:
    """Begin a login to a server, and show the link at which a person signs in."""
    name = _named(visit).server
    link = possible(visit.controls.logins).begin(name, f"{visit.base}{LOGIN_CALLBACK}")
    return Page("login.html", f"Log in to {name}", {"server": name, "link": link})


def disable(visit: Visit) -> str:
    """Keep a server in the configuration without using it."""
    return _switched(visit, _named(visit).server, on=False)


def enable(visit: Visit) -> str:
    """Use a disabled server or tool again."""
    name = visit.path["server"]
    if name not in _disabled(visit):
        raise NoSuchPage(f"Nothing is disabled as {name!r}.")
    return _switched(visit, name, on=True)


def remove(visit: Visit) -> str:
    """Remove a server from the configuration."""
    possible(visit.controls.editor).remove(_named(visit).server)
    return "/servers?did=remove"


def new(visit: Visit) -> Page:
    """Show the form that adds a server."""
    possible(visit.controls.editor)
    return Page("add.html", "Add a server", {"typed": NewServer(what=""), "values": "", "proposal": None})


def propose(visit: Visit) -> Page:
    """Show the exact command or URL before it is added."""
    editor, typed = possible(visit.controls.editor), _typed(visit)
    values = {"typed": typed, "values": visit.form.get("values", ""), "proposal": editor.propose(typed)}
    return Page("add.html", "Add a server", values)


def add(visit: Visit) -> str:
    """Add a server as it was shown."""
    possible(visit.controls.editor).add(_typed(visit), visit.form.get("digest", ""))
    return "/servers?did=add"


def _typed(visit: Visit) -> NewServer:
    lines = [line.partition("=") for line in visit.form.get("values", "").splitlines() if line.strip()]
    bad = next((name for name, equals, _ in lines if not equals or not name.strip()), None)
    if bad is not None:
        raise InvalidInput(f"Values are written as NAME=VALUE, one per line, not {bad!r}.")
    values = {name.strip(): value.strip() for name, _, value in lines}
    return NewServer(what=visit.form.get("what", "").strip(), name=visit.form.get("name", "").strip(), values=values)


def _switched(visit: Visit, name: str, *, on: bool) -> str:
    possible(visit.controls.switch).turn(name, on=on)
    return f"/servers?did={'enable' if on else 'disable'}"


def _disabled(visit: Visit) -> Sequence[str]:
    return visit.controls.switch.disabled() if visit.controls.switch is not None else ()


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
