"""Tool ids and the names clients see: `server__tool`, at most 64 characters of `[A-Za-z0-9_-]`."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shortlist.models import ToolId

MAX_LENGTH = 64
SEPARATOR = "__"
_HASH_LENGTH = 8
_SERVER_LENGTH = 24
"""The maximum length of the server part in a long name, so that the tool's name still fits."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_UNSAFE_IN_LINES = re.compile(r"[^A-Za-z0-9_\n-]")


@dataclass(frozen=True, slots=True)
class Names:
    """Tool ids and client-facing names in both directions. The same ids always get the same names."""

    by_id: Mapping[ToolId, str]
    by_name: Mapping[str, ToolId]
    shared: frozenset[str] = frozenset()
    """Names that several tools would get; each of these tools has a hash in its name instead."""

    def changed(self, added: Iterable[ToolId], removed: Iterable[ToolId], *, plain: str | None) -> "Names | None":
        """Return the names after a small change; None where a name is shared, so that all must be named again."""
        by_id, by_name = dict(self.by_id), dict(self.by_name)  # of plain dicts, which are copied in a fraction of a ms
        for tool_id in removed:
            name = _wanted(tool_id, plain=plain)
            if name in self.shared:
                return None
            del by_name[by_id.pop(tool_id)]
        for tool_id in added:
            name = _wanted(tool_id, plain=plain)
            if name in self.shared or name in by_name:
                return None
            by_id[tool_id], by_name[name] = name, tool_id
        return Names(by_id, by_name, self.shared)


NO_NAMES = Names({}, {})


def _wanted(tool_id: ToolId, *, plain: str | None) -> str:
    server, _, name = tool_id.partition("/")
    return name if server == plain else wire_name(server, name)


def names_of(members: Mapping[str, Collection[ToolId]], *, plain: str | None = None) -> Names:
    """Name the tools of every server; `plain` is one whose own names are kept (passthrough over it alone).

    Where two tools would get the same name, each gets the hash of its id as well: a name never changes owner.
    """
    wanted: dict[ToolId, str] = {}
    for server, ids in members.items():
        start = f"{server}/" if server else ""
        own = [tool_id.removeprefix(start) for tool_id in ids]
        wanted.update(zip(ids, own if server == plain else _wire_names(server, own), strict=True))
    by_name = {name: tool_id for tool_id, name in wanted.items()}
    if len(by_name) == len(wanted):
        return Names(wanted, by_name)
    shared = frozenset(name for name, count in Counter(wanted.values()).items() if count > 1)
    wanted = {tool_id: _hashed(name, tool_id) if name in shared else name for tool_id, name in wanted.items()}
    by_name = {name: tool_id for tool_id, name in wanted.items()}
    return Names(wanted, by_name, shared)


def own_name(tool_id: ToolId, server: str) -> str:
    """Return the server's own name of a tool, from its id `server/name`."""
    return tool_id.removeprefix(f"{server}/") if server else tool_id


@lru_cache(maxsize=65_536)
def wire_name(server: str, name: str) -> str:
    """Return the client-facing name of a server's tool or prompt, readable and within the limits."""
    return _wire_names(server, (name,))[0]


def shown_name(tool_id: ToolId) -> str:
    """Return the client-facing name of a tool by its id alone, for pages and commands that may know no catalog."""
    server, mark, name = tool_id.partition("/")
    return wire_name(server, name) if mark else tool_id


def _wire_names(server: str, names: Sequence[str]) -> list[str]:
    """Return the client-facing names of tools of one server, in their order."""
    separator = SEPARATOR if server else ""
    raw, plain = server + separator, _UNSAFE.sub("_", server)
    start, short = plain + separator, plain[:_SERVER_LENGTH] + separator
    lines = "\n".join(names)  # all at once: a pattern takes longer to start than to run
    safe = names if _UNSAFE_IN_LINES.search(lines) is None else _UNSAFE_IN_LINES.sub("_", lines).split("\n")
    if "\n" in lines and lines.count("\n") != len(names) - 1:  # line breaks in names
        safe = [_UNSAFE.sub("_", name) for name in names]
    room = MAX_LENGTH - len(start)
    return [
        start + known if 0 < len(known) <= room else _hashed(short + known, raw + name)
        for known, name in zip(safe, names, strict=True)
    ]


def _hashed(name: str, identity: str) -> str:
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=_HASH_LENGTH // 2).hexdigest()
    return f"{name[: MAX_LENGTH - _HASH_LENGTH - 1]}_{digest}"
