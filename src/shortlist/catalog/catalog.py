"""An immutable snapshot of tools and their servers."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Self

from shortlist.models import Server, Tool, ToolId


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """What turns one catalog into another."""

    added: frozenset[ToolId]
    changed: frozenset[ToolId]
    removed: frozenset[ToolId]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Catalog:
    """Tools by id and servers by name; every change gives a new catalog."""

    def __init__(self, tools: Mapping[ToolId, Tool], servers: Mapping[str, Server]) -> None:
        self.tools: Mapping[ToolId, Tool] = MappingProxyType(dict(sorted(tools.items())))
        named = {tool.server for tool in tools.values()}
        known = {name: servers.get(name) or Server(name=name) for name in named | set(servers)}
        self.servers: Mapping[str, Server] = MappingProxyType(dict(sorted(known.items())))

    @classmethod
    def of(cls, tools: Iterable[Tool], servers: Iterable[Server] = ()) -> Self:
        """Collect tools and what is known of their servers; the last of equal ids wins."""
        return cls({tool.id: tool for tool in tools}, {server.name: server for server in servers})

    def __len__(self) -> int:
        return len(self.tools)

    @cached_property
    def by_server(self) -> Mapping[str, tuple[Tool, ...]]:
        groups: dict[str, list[Tool]] = {name: [] for name in self.servers}
        for tool in self.tools.values():
            groups[tool.server].append(tool)
        return MappingProxyType({name: tuple(group) for name, group in groups.items()})

    @cached_property
    def fingerprint(self) -> str:
        """Name the content: equal catalogs, equal fingerprints, whatever the order they came in."""
        digest = hashlib.blake2b(digest_size=16)
        for tool in self.tools.values():
            digest.update(f"{tool.id}\0{tool.content_hash}\n".encode())
        for server in self.servers.values():
            digest.update(f"{server!r}\n".encode())
        return digest.hexdigest()

    def diff(self, newer: "Catalog") -> CatalogDiff:
        """Say what `newer` adds, changes and removes."""
        old, new = self.tools, newer.tools
        return CatalogDiff(
            added=frozenset(new.keys() - old.keys()),
            changed=frozenset(i for i in old.keys() & new.keys() if old[i].content_hash != new[i].content_hash),
            removed=frozenset(old.keys() - new.keys()),
        )

    def with_server(self, server: Server, tools: Iterable[Tool]) -> "Catalog":
        """Put these tools in the place of all the server had."""
        kept = [tool for tool in self.tools.values() if tool.server != server.name]
        return Catalog.of((*kept, *tools), (*self.servers.values(), server))

    def without_server(self, name: str) -> "Catalog":
        kept = [tool for tool in self.tools.values() if tool.server != name]
        return Catalog.of(kept, (server for server in self.servers.values() if server.name != name))
