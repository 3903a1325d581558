"""Tool ids and the names clients see: `server__tool`, at most 64 characters of `[A-Za-z0-9_-]`."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from shortlist.models import ToolId

MAX_LENGTH = 64
SEPARATOR = "__"
_HASH_LENGTH = 8
_SERVER_LENGTH = 24
"""What a long name keeps of its server, so that the tool's own words still fit."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Names:
    """Both directions of one catalog's names; the same ids always give the same names."""

    by_id: Mapping[ToolId, str]
    by_name: Mapping[str, ToolId]


def names_of(members: Mapping[str, Iterable[ToolId]], *, plain: bool = False) -> Names:
    """Name the tools of every server; `plain` keeps the server's own names (passthrough over one server).

    Where two tools come to one name, each of them takes the hash of its id: a name never changes hands.
    """
    wanted: dict[ToolId, str] = {}
    for server, ids in members.items():
        for tool_id in ids:
            name = own_name(tool_id, server)
            wanted[tool_id] = name if plain else wire_name(server, name)
    takers: dict[str, list[ToolId]] = defaultdict(list)
    for tool_id, name in wanted.items():
        takers[name].append(tool_id)
    for name, sharing in takers.items():
        if len(sharing) > 1:
            wanted.update({tool_id: _hashed(name, tool_id) for tool_id in sharing})
    return Names(MappingProxyType(wanted), MappingProxyType({name: i for i, name in wanted.items()}))


def own_name(tool_id: ToolId, server: str) -> str:
    """Give the server's own name of a tool: an id is `server/name`."""
    return tool_id.removeprefix(f"{server}/") if server else tool_id


@lru_cache(maxsize=65_536)
def wire_name(server: str, name: str) -> str:
    """Give the name of one item of a server (a tool, a prompt), readable and within the limits."""
    whole = f"{server}{SEPARATOR}{name}" if server else name
    safe = _UNSAFE.sub("_", whole)
    if len(safe) <= MAX_LENGTH and name:
        return safe
    short_server = _UNSAFE.sub("_", server)[:_SERVER_LENGTH]
    return _hashed(f"{short_server}{SEPARATOR}{_UNSAFE.sub('_', name)}" if server else safe, whole)


def _hashed(name: str, identity: str) -> str:
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=_HASH_LENGTH // 2).hexdigest()
    return f"{name[: MAX_LENGTH - _HASH_LENGTH - 1]}_{digest}"
