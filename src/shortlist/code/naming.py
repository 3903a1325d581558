"""The names of servers and tools in a program: `tools.server.tool`, made of Python identifiers."""

import hashlib
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from shortlist.models import ToolId

ROOT = "tools"
NO_SERVER = "local"
"""Where tools without a server are found."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_HASH_BYTES = 3


class ToolsInReach(Protocol):
    """The tools that a program may name, by server."""

    @property
    def servers(self) -> Sequence[str]: ...

    def members(self, server: str) -> Sequence[ToolId]: ...


class NamedMembers:
    """All tools of a catalog, by server."""

    def __init__(self, members: Mapping[str, Sequence[ToolId]]) -> None:
        self._members = members

    @property
    def servers(self) -> Sequence[str]:
        return tuple(self._members)

    def members(self, server: str) -> Sequence[ToolId]:
        return self._members.get(server, ())


class PythonNames:
    """Maps tools in reach to `server.tool` and back. Names outside the reach never influence those inside it."""

    def __init__(self, tools: ToolsInReach) -> None:
        self._tools = tools
        self._servers = identifiers(tools.servers, own=lambda server: server or NO_SERVER)
        self._by_name = {name: server for server, name in self._servers.items()}
        self._members: dict[str, Mapping[ToolId, str]] = {}
        self._ids: dict[str, Mapping[str, ToolId]] = {}

    def path(self, tool_id: ToolId) -> str:
        """Return the name of a tool in a program, without the leading `tools.`."""
        server = tool_id.partition("/")[0] if tool_id.partition("/")[0] in self._servers else ""
        return f"{self._servers[server]}.{self._named(server)[tool_id]}"

    def find(self, path: str) -> ToolId | None:
        """Return the tool of a path such as `github.create_issue`; None where no tool in reach has it."""
        server_name, _, name = path.removeprefix(f"{ROOT}.").partition(".")
        server = self._by_name.get(server_name)
        if server is None:
            return None
        self._named(server)
        return self._ids[server].get(name)

    def _named(self, server: str) -> Mapping[ToolId, str]:
        if server not in self._members:
            ids = self._tools.members(server)
            names = identifiers(ids, own=lambda tool_id: tool_id.removeprefix(f"{server}/"))
            self._members[server] = names
            self._ids[server] = {name: tool_id for tool_id, name in names.items()}
        return self._members[server]


def identifiers(keys: Iterable[str], own: "OwnName" = str) -> dict[str, str]:
    """Return a distinct attribute name for each key. Keys that would share one each get a hash as a suffix."""
    return _distinct({key: _attribute(own(key)) for key in keys})


def parameter_identifiers(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct parameter name for each argument of a tool."""
    return _distinct({name: identifier(name) for name in names})


class OwnName(Protocol):
    """Returns the part of a key that it is named after."""

    def __call__(self, key: str, /) -> str: ...


def identifier(name: str) -> str:
    """Replace what an identifier cannot hold by `_`; a keyword gets `_` as a suffix."""
    safe = _UNSAFE.sub("_", name)
    if not safe or safe[0].isdigit():
        safe = f"t_{safe}"
    return f"{safe}_" if keyword.iskeyword(safe) else safe


def _attribute(name: str) -> str:
    """Return an identifier without a leading `_`: the sandbox does not look those up."""
    safe = identifier(name)
    return f"t{safe}" if safe.startswith("_") else safe


def _distinct(wanted: dict[str, str]) -> dict[str, str]:
    takers: dict[str, list[str]] = defaultdict(list)
    for key, name in wanted.items():
        takers[name].append(key)
    for name, sharing in takers.items():
        if len(sharing) > 1:
            wanted.update({key: f"{name}_{_hash(key)}" for key in sharing})
    return wanted


def _hash(key: str) -> str:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()
