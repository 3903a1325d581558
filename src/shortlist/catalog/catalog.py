"""An immutable snapshot of tools and their servers."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
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
    """Tools by id and servers by name; every change gives a new catalog.

    `hashes` and `members` repeat what the tools say of their content and server, so that comparing, counting and
    replacing never have to open a tool that lies on disk.
    """

    def __init__(
        self,
        tools: Mapping[ToolId, Tool],
        servers: Mapping[str, Server],
        hashes: Mapping[ToolId, str],
        members: Mapping[str, tuple[ToolId, ...]],
    ) -> None:
        self.tools = tools
        self.hashes = hashes
        self.members = members
        self.servers: Mapping[str, Server] = MappingProxyType(
            {name: servers.get(name) or Server(name=name) for name in sorted(members.keys() | servers.keys())}
        )

    @classmethod
    def of(cls, tools: Iterable[Tool], servers: Iterable[Server] = ()) -> Self:
        """Collect tools and what is known of their servers; the last of equal ids wins."""
        known = {tool.id: tool for tool in tools}
        ordered = {tool_id: known[tool_id] for tool_id in sorted(known)}
        return cls(
            MappingProxyType(ordered),
            {server.name: server for server in servers},
            {tool_id: tool.content_hash for tool_id, tool in ordered.items()},
            _grouped((tool_id, tool.server) for tool_id, tool in ordered.items()),
        )

    @classmethod
    def stored(
        cls, tools: Mapping[ToolId, Tool], servers: Mapping[str, Server], hashes: Mapping[ToolId, str], homes: list[str]
    ) -> Self:
        """Describe tools that lie on disk: `homes` names the server of each."""
        return cls(tools, servers, hashes, _grouped(zip(tools, homes, strict=True)))

    def __len__(self) -> int:
        return len(self.tools)

    @property
    def by_server(self) -> Mapping[str, tuple[Tool, ...]]:
        return {name: tuple(self.of_server(name)) for name in self.servers}

    def of_server(self, name: str) -> list[Tool]:
        """Give the tools of one server."""
        return [self.tools[tool_id] for tool_id in self.members.get(name, ())]

    @cached_property
    def fingerprint(self) -> str:
        """Name the content: equal catalogs, equal fingerprints, whatever the order they came in."""
        digest = hashlib.blake2b(digest_size=16)
        for tool_id in sorted(self.hashes):
            digest.update(f"{tool_id}\0{self.hashes[tool_id]}\n".encode())
        for server in self.servers.values():
            digest.update(f"{server!r}\n".encode())
        return digest.hexdigest()

    def diff(self, newer: "Catalog") -> CatalogDiff:
        """Say what `newer` adds, changes and removes."""
        old, new = self.hashes, newer.hashes
        differing = {tool_id for tool_id, _ in new.items() - old.items()}
        return CatalogDiff(
            added=frozenset(differing - old.keys()),
            changed=frozenset(differing & old.keys()),
            removed=frozenset(old.keys() - new.keys()),
        )

    def with_server(self, server: Server, tools: Iterable[Tool]) -> "Catalog":
        """Put these tools in the place of all the server had."""
        fresh = {tool.id: tool for tool in tools}
        gone = frozenset(self.members.get(server.name, ())) - fresh.keys()
        return Catalog(
            _Layered.over(self.tools, fresh, gone),
            {**self.servers, server.name: server},
            {
                **{i: found for i, found in self.hashes.items() if i not in gone},
                **{i: t.content_hash for i, t in fresh.items()},
            },
            {**self.members, server.name: tuple(sorted(fresh))},
        )

    def without_server(self, name: str) -> "Catalog":
        gone = frozenset(self.members.get(name, ()))
        return Catalog(
            _Layered.over(self.tools, {}, gone),
            {key: server for key, server in self.servers.items() if key != name},
            {i: found for i, found in self.hashes.items() if i not in gone},
            {key: ids for key, ids in self.members.items() if key != name},
        )


class _Layered(Mapping[ToolId, Tool]):
    """Tools with some replaced and some gone, without a copy of the rest."""

    def __init__(self, base: Mapping[ToolId, Tool], fresh: dict[ToolId, Tool], gone: frozenset[ToolId]) -> None:
        self._base, self._fresh, self._gone = base, fresh, gone

    @classmethod
    def over(cls, tools: Mapping[ToolId, Tool], fresh: dict[ToolId, Tool], gone: frozenset[ToolId]) -> "_Layered":
        if not isinstance(tools, _Layered):
            return cls(tools, fresh, gone)
        kept = {tool_id: tool for tool_id, tool in tools._fresh.items() if tool_id not in gone}
        return cls(tools._base, {**kept, **fresh}, (tools._gone | gone) - fresh.keys())

    def __getitem__(self, tool_id: ToolId) -> Tool:
        if tool_id in self._fresh:
            return self._fresh[tool_id]
        if tool_id in self._gone:
            raise KeyError(tool_id)
        return self._base[tool_id]

    def __contains__(self, tool_id: object) -> bool:
        return tool_id in self._fresh or (tool_id in self._base and tool_id not in self._gone)

    def __iter__(self) -> Iterator[ToolId]:
        return iter(sorted((self._base.keys() - self._gone) | self._fresh.keys()))

    def __len__(self) -> int:
        return len((self._base.keys() - self._gone) | self._fresh.keys())


def _grouped(homes: Iterable[tuple[ToolId, str]]) -> dict[str, tuple[ToolId, ...]]:
    groups: dict[str, list[ToolId]] = {}
    for tool_id, server in homes:
        groups.setdefault(server, []).append(tool_id)
    return {server: tuple(ids) for server, ids in groups.items()}
