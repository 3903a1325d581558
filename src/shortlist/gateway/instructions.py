"""What a client is told when it connects: when to search, and which servers it can reach."""

from collections.abc import Mapping
from types import MappingProxyType

from shortlist.access.catalog import ScopedCatalog
from shortlist.config.settings import Mode
from shortlist.gateway.view import MenuName
from shortlist.text.tokens import one_line

NAMED_SERVERS = 60
DESCRIBED_SERVERS = 12
"""So many are described; more are only named, or the instructions would cost more than the menu."""
DESCRIPTION = 60

_HOW: Mapping[Mode, str] = MappingProxyType(
    {
        "search": "Many tools are connected but not listed. When a task may need one, use search_tools with the "
        "action in plain words, then call_tool with the name and arguments it shows.",
        "dynamic": "Many tools are connected but not listed. Use search_tools, then call_tool, or load_tools to "
        "bind the few you will use often.",
        "static": "The tools listed here are what this gateway offers.",
        "passthrough": "The tools of all connected servers are listed.",
    }
)


_HOW_TO_RUN = (
    "Many tools are connected but not listed. Use search_tools with the actions in plain words, then run_code with one "
    "program that calls the functions it shows."
)


def instructions_of(mode: Mode, tools: ScopedCatalog, menu: MenuName | None = None) -> str:
    """Write the instructions; the same bytes while the tools in reach are the same."""
    how, servers = _HOW_TO_RUN if menu == "code" else _HOW[mode], tools.servers
    if not servers:
        return how
    if len(servers) > DESCRIBED_SERVERS:
        more = f" and {len(servers) - NAMED_SERVERS} more" if len(servers) > NAMED_SERVERS else ""
        return f"{how}\nServers: {', '.join(one_line(name, 40) for name in servers[:NAMED_SERVERS])}{more}"
    return "\n".join((how, "Servers:", *(_server_line(tools, name) for name in servers)))


def _server_line(tools: ScopedCatalog, name: str) -> str:
    server = tools.server(name)
    description = one_line(server.description, DESCRIPTION) if server else ""
    return f"- {one_line(name, 40)} ({len(tools.members(name))})" + (f": {description}" if description else "")
