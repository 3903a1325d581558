"""Tool ids and the names clients see: `server__tool`, at most 64 characters of `[A-Za-z0-9_-]`."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from shortlist.models import Tool, ToolId

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


def names_of(tools: Iterable[Tool], *, plain: bool = False) -> Names:
    """Name every tool of a catalog; `plain` keeps the server's own names (passthrough over one server).

    Where two tools come to one name, each of them takes the hash of its id: a name never changes hands.
    """
    wanted = {tool.id: tool.name if plain else wire_name(tool.server, tool.name) for tool in tools}
    takers: dict[str, list[ToolId]] = defaultdict(list)
    for tool_id, name in wanted.items():
        takers[name].append(tool_id)
    for name, ids in takers.items():
        if len(ids) > 1:
            wanted.update({tool_id: _hashed(name, tool_id) for tool_id in ids})
    return Names(MappingProxyType(wanted), MappingProxyType({name: i for i, name in wanted.items()}))


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
