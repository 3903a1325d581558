"""An immutable snapshot of tools and their servers."""

import hashlib
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import indexOf, is_
from types import MappingProxyType
from typing import Self, TypeVar

from shortlist.models import Server, Tool, ToolId

V = TypeVar("V")

DIGEST_BYTES = 16
_MODULUS = 1 << 8 * DIGEST_BYTES

FEW = 2_000
"""A mapping of so many tools in memory is copied with each change: that takes a millisecond, and each lookup less."""
FEW_ADDED = 64
"""So many members are put in their place one by one; more are sorted."""
MIN_LAYER = 256
"""Changes that are kept apart from the rest, at least; above a quarter of it they are merged."""


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """What turns one catalog into another."""

    added: frozenset[ToolId]
    changed: frozenset[ToolId]
    removed: frozenset[ToolId]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Catalog:
    """Tools by id and servers by name; every change returns a new catalog that shares what stayed.

    `hashes` and `members` repeat what the tools say of their content and server, so that comparing, counting and
    replacing never have to open a tool that lies on disk.
    """

    def __init__(
        self,
        tools: Mapping[ToolId, Tool],
        servers: Mapping[str, Server],
        hashes: Mapping[ToolId, str],
        members: Mapping[str, tuple[ToolId, ...]],
        digest: int | None = None,
        given: Mapping[str, tuple[Tool, ...]] = MappingProxyType({}),
    ) -> None:
        self.tools = tools
        self.servers: Mapping[str, Server] = MappingProxyType(dict(servers))
        self.hashes = hashes
        self.members = members
        self._known_digest = digest
        self._given = given
        """The lists that servers were replaced with last, to recognise what is the same in the next one."""

    @classmethod
    def of(cls, tools: Iterable[Tool], servers: Iterable[Server] = ()) -> Self:
        """Collect tools and what is known of their servers; the last of equal ids wins."""
        known = {tool.id: tool for tool in tools}
        ordered = {tool_id: known[tool_id] for tool_id in sorted(known)}
        members = _grouped((tool_id, tool.server) for tool_id, tool in ordered.items())
        return cls(
            MappingProxyType(ordered),
            _complete({server.name: server for server in servers}, members),
            {tool_id: tool.content_hash for tool_id, tool in ordered.items()},
            members,
        )

    @classmethod
    def stored(
        cls,
        tools: Mapping[ToolId, Tool],
        servers: Iterable[Server],
        hashes: Mapping[ToolId, str],
        members: Mapping[str, tuple[ToolId, ...]],
        fingerprints: Iterable[str],
    ) -> Self:
        """Describe tools that lie on disk; `fingerprints` are those of parts that make up the whole."""
        digest = sum(int(each, 16) for each in fingerprints) % _MODULUS
        known = {server.name: server for server in servers}
        return cls(tools, _complete(known, members), hashes, members, digest)

    def __len__(self) -> int:
        return len(self.tools)

    @property
    def by_server(self) -> Mapping[str, tuple[Tool, ...]]:
        return {name: tuple(self.of_server(name)) for name in self.servers}

    def of_server(self, name: str) -> list[Tool]:
        """Return the tools of one server."""
        return [self.tools[tool_id] for tool_id in self.members.get(name, ())]

    @property
    def fingerprint(self) -> str:
        """Name the content: equal catalogs have equal fingerprints, whatever the order of their tools."""
        return f"{self._digest:0{2 * DIGEST_BYTES}x}"

    @cached_property
    def _digest(self) -> int:
        """The sum of the digests of all tools and servers: a change adds and subtracts what it touches."""
        if self._known_digest is not None:
            return self._known_digest
        return (_tools_digest(self.hashes.items()) + sum(map(_server_digest, self.servers.values()))) % _MODULUS

    def diff(self, newer: "Catalog") -> CatalogDiff:
        """Return what `newer` adds, changes and removes."""
        old, new = self.hashes, newer.hashes
        touched = _perhaps_different(old, new)
        return CatalogDiff(
            added=frozenset(i for i in touched if i not in old and i in new),
            changed=frozenset(i for i in touched if i in old and i in new and old[i] != new[i]),
            removed=frozenset(i for i in touched if i in old and i not in new),
        )

    def with_server(self, server: Server, tools: Iterable[Tool]) -> "Catalog":
        """Return the catalog with these tools in place of all that the server had.

        Tools that are the same objects as in the list before are not looked at: most lists differ in one.
        """
        given, known = tuple(tools), self.members.get(server.name, ())
        before = self._given.get(server.name, ())
        if len(before) != len(known):  # another list made it, or one that named a tool twice
            listed = {tool.id: tool for tool in given}
            gone = frozenset(known) - listed.keys()
        else:
            left, came = differing(before, given)
            listed = {tool.id: tool for tool in came}
            gone = frozenset(tool.id for tool in left) - listed.keys()
        fresh = {tool_id: listed[tool_id] for tool_id in self._perhaps_changed(listed)}
        added = [i for i in fresh if i not in self.hashes or self.tools[i].server != server.name]
        members = _with_server(self.members, server.name, _with_members(known, gone, added))
        servers = {**self.servers, server.name: server}
        hashes = {tool_id: tool.content_hash for tool_id, tool in fresh.items()}
        return Catalog(
            _changed(self.tools, fresh, gone),
            servers if server.name in self.servers else _complete(servers, members),
            _changed(self.hashes, hashes, gone),
            members,
            self._changed_digest(hashes, gone, server.name, server),
            {**self._given, server.name: given},
        )

    def _changed_digest(
        self, fresh: Mapping[ToolId, str], gone: frozenset[ToolId], name: str, server: Server | None
    ) -> int | None:
        """Return the digest after a change, or None where that of this catalog was never asked for."""
        if self._known_digest is None and "_digest" not in self.__dict__:
            return None
        replaced = {i: known for i in (*gone, *fresh) if (known := self.hashes.get(i)) is not None}
        described = _server_digest(server) - _server_digest(self.servers.get(name))
        return (self._digest + described + _tools_digest(fresh.items()) - _tools_digest(replaced.items())) % _MODULUS

    def _perhaps_changed(self, listed: Mapping[ToolId, Tool]) -> Iterator[ToolId]:
        """Yield the tools of a list that are new here, have another content, or say nothing about their content."""
        hashes = self.hashes
        known = hashes.base.get if isinstance(hashes, Layered) else hashes.get
        # Nearly all are found in the base, which takes a third of the time of asking every layer.
        perhaps = {i for i, tool in listed.items() if known(i) != tool.content_hash or not tool.content_hash}
        perhaps.update(i for i in (hashes.touched() if isinstance(hashes, Layered) else ()) if i in listed)
        for tool_id in perhaps:
            content = listed[tool_id].content_hash
            if not content or hashes.get(tool_id) != content:
                yield tool_id

    def without_server(self, name: str) -> "Catalog":
        gone = frozenset(self.members.get(name, ()))
        return Catalog(
            _changed(self.tools, {}, gone),
            {key: server for key, server in self.servers.items() if key != name},
            _changed(self.hashes, {}, gone),
            _with_server(self.members, name, None),
            self._changed_digest({}, gone, name, None),
            {key: tools for key, tools in self._given.items() if key != name},
        )


def differing(before: Sequence[Tool], after: Sequence[Tool]) -> tuple[Sequence[Tool], Sequence[Tool]]:
    """Return the parts in which two lists of tools may differ: without the objects that both begin and end with."""
    shorter = min(len(before), len(after))
    start = _alike(map(is_, before, after), shorter)
    end = min(_alike(map(is_, reversed(before), reversed(after)), shorter), shorter - start)
    return before[start : len(before) - end], after[start : len(after) - end]


def _alike(same: Iterable[bool], most: int) -> int:
    """Return how many are the same at the start."""
    try:
        return indexOf(same, False)
    except ValueError:
        return most


def _with_members(known: tuple[ToolId, ...], gone: frozenset[ToolId], added: Sequence[ToolId]) -> tuple[ToolId, ...]:
    if not gone and not added:
        return known
    kept = [tool_id for tool_id in known if tool_id not in gone] if gone else list(known)
    if len(added) > FEW_ADDED:
        return tuple(sorted((*kept, *added)))
    for tool_id in added:
        insort(kept, tool_id)
    return tuple(kept)


def _with_server(
    members: Mapping[str, tuple[ToolId, ...]], name: str, ids: tuple[ToolId, ...] | None
) -> Mapping[str, tuple[ToolId, ...]]:
    """Return the members with those of one server replaced, or without it; what lies on disk is not read."""
    if isinstance(members, dict):
        kept = {key: known for key, known in members.items() if key != name}
        return kept if ids is None else {**kept, name: ids}
    return Layered.over(members, {} if ids is None else {name: ids}, frozenset((name,) if ids is None else ()))


def _changed(older: Mapping[ToolId, V], fresh: dict[ToolId, V], gone: frozenset[ToolId]) -> Mapping[ToolId, V]:
    """Return a mapping with some values replaced and some gone, in the order of the keys."""
    is_in_memory = not older or isinstance(older, dict | MappingProxyType)
    if is_in_memory and len(older) + len(fresh) <= FEW:
        known = {key: value for key, value in older.items() if key not in gone} | fresh
        return MappingProxyType({key: known[key] for key in sorted(known)})
    return Layered.over(older, fresh, gone)


class Layered(Mapping[ToolId, V]):
    """A mapping with some values replaced and some gone, without a copy of the rest."""

    def __init__(self, base: Mapping[ToolId, V], fresh: dict[ToolId, V], gone: frozenset[ToolId]) -> None:
        self.base, self.fresh, self.gone = base, fresh, gone

    @classmethod
    def over(cls, older: Mapping[ToolId, V], fresh: dict[ToolId, V], gone: frozenset[ToolId]) -> "Layered[V]":
        if not isinstance(older, Layered):
            return cls(older, fresh, gone)
        if len(older.fresh) + len(older.gone) > max(MIN_LAYER, len(older.base) // 4):
            return cls({key: older[key] for key in older}, fresh, gone)  # copied once, shared by all that follow
        kept = {key: value for key, value in older.fresh.items() if key not in gone} if gone else older.fresh
        return cls(older.base, {**kept, **fresh}, (older.gone | gone) - fresh.keys())

    def __getitem__(self, key: ToolId) -> V:
        if key in self.fresh:
            return self.fresh[key]
        if key in self.gone:
            raise KeyError(key)
        return self.base[key]

    def __contains__(self, key: object) -> bool:
        return key in self.fresh or (key in self.base and key not in self.gone)

    def __iter__(self) -> Iterator[ToolId]:
        return iter(sorted((self.base.keys() - self.gone) | self.fresh.keys()))

    def __len__(self) -> int:
        return len(self.base) - sum(i in self.base for i in self.gone) + sum(i not in self.base for i in self.fresh)

    def touched(self) -> frozenset[ToolId]:
        """Return the keys for which this may differ from its base."""
        return self.gone | self.fresh.keys()


def _tools_digest(hashes: Iterable[tuple[ToolId, str]]) -> int:
    return sum(_digest_of(f"{tool_id}\0{content}") for tool_id, content in hashes)


def _server_digest(server: Server | None) -> int:
    return _digest_of(repr(server)) if server is not None else 0


def _digest_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=DIGEST_BYTES).digest())


def _perhaps_different(old: Mapping[ToolId, str], new: Mapping[ToolId, str]) -> frozenset[ToolId]:
    """Return the keys in which two mappings can differ: few, where one was made of the other."""
    layers = [layer for layer in (old, new) if isinstance(layer, Layered)]
    bases = {id(layer.base if isinstance(layer, Layered) else layer) for layer in (old, new)}
    if len(bases) > 1:
        return frozenset(old.keys() | new.keys())
    return frozenset().union(*(layer.touched() for layer in layers))


def _complete(servers: Mapping[str, Server], members: Mapping[str, tuple[ToolId, ...]]) -> dict[str, Server]:
    """Return a server for every name, in the order of the names."""
    return {name: servers.get(name) or Server(name=name) for name in sorted(members.keys() | servers.keys())}


def _grouped(homes: Iterable[tuple[ToolId, str]]) -> dict[str, tuple[ToolId, ...]]:
    groups: dict[str, list[ToolId]] = {}
    for tool_id, server in homes:
        groups.setdefault(server, []).append(tool_id)
    return {server: tuple(ids) for server, ids in groups.items()}
