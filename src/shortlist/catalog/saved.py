"""The tools that servers listed last, saved so that searches are answered before any server has started.

A file begins with a line that names the tools and says where each of them ends. A start parses that line alone; a tool
is parsed when somebody asks for it. Files of the first format, which were parsed as a whole, are read as well.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from pydantic_core import from_json

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.stored import ListedLines, StoredTools, line_of, server_of, tool_of
from shortlist.config.settings import MemoryTransport, ServerSettings
from shortlist.models import Json, Server, Tool, ToolId
from shortlist.storage.port import CatalogStore

logger = logging.getLogger(__name__)

FORMAT = 2
OFFERS_FORMAT = 1
CHECKED_DIGITS = 32
OFFERS = "-offers"
"""How the keys of what servers offer beside tools end."""
_START = b'{"format": 2, "digest": "%b", '
_CHECKED_FROM = len(_START % bytes(CHECKED_DIGITS))
_LIST, _NEXT, _END = b', "tools": [\n', b",\n", b"\n]}"

Saved = TypeVar("Saved", Server, Tool)


class SavedServer(NamedTuple):
    """A server and its tools, sorted by id and parsed when asked for."""

    ids: Sequence[ToolId]
    server: Server
    hashes: Sequence[str]
    lines: ListedLines
    content: str
    """The fingerprint of the catalog that has this server alone."""


class SavedCatalog:
    """The saved tool lists of the servers of a configuration."""

    def __init__(self, store: CatalogStore, servers: Mapping[str, ServerSettings]) -> None:
        self._store = store
        self.servers = servers
        """Those of the current configuration."""

    def load(self) -> Catalog:
        """Return what was saved for these servers; what cannot be read is reported and left out."""
        lines: dict[ToolId, ListedLines] = {}
        hashes: dict[ToolId, str] = {}
        members: dict[str, tuple[ToolId, ...]] = {}
        found = [saved for settings in self.servers.values() if (saved := self._read(settings)) is not None]
        for saved in sorted(found, key=attrgetter("ids")):  # which nearly always puts all tools in their order
            lines.update(dict.fromkeys(saved.ids, saved.lines))
            hashes.update(zip(saved.ids, saved.hashes, strict=True))
            if saved.ids:
                members[saved.server.name] = tuple(saved.ids)
        ids = sorted(lines)
        if ids != list(lines):
            lines, hashes = {i: lines[i] for i in ids}, {i: hashes[i] for i in ids}
        return Catalog.stored(
            StoredTools(lines),
            [saved.server for saved in found],
            hashes,
            members,
            [saved.content for saved in found],
        )

    def save(self, server: Server, tools: Iterable[Tool]) -> None:
        """Save a server's tools."""
        settings = self.servers.get(server.name)
        if settings is None or isinstance(settings.transport, MemoryTransport):
            return
        catalog = Catalog.of(tools, (server,))
        lines = [line_of(tool) for tool in catalog.tools.values()]
        header = {
            "server": asdict(server),
            "ids": list(catalog.tools),
            "hashes": list(catalog.hashes.values()),
            "ends": list(accumulate(len(line) + len(_NEXT) for line in lines)),
            "content": catalog.fingerprint,
        }
        checked = b"".join((json.dumps(header).encode()[1:-1], _LIST, _NEXT.join(lines), _END))
        self._store.save(_key(settings), _START % _digest(checked) + checked)

    def offers(self) -> dict[str, Json]:
        """Return what else was saved of these servers, by name: prompts, resources, instructions."""
        kept = {key for key in self._store.names() if key.endswith(OFFERS)}  # of most servers there is nothing
        keys = {name: _offers_key(settings) for name, settings in self.servers.items()} if kept else {}
        found = {name: self._store.load(key) for name, key in keys.items() if key in kept}
        return {name: _parsed(document) for name, document in found.items() if document is not None}

    def save_offers(self, server: str, document: Mapping[str, Json]) -> None:
        """Save what a server offers beside its tools."""
        settings = self.servers.get(server)
        if settings is not None:
            self._store.save(_offers_key(settings), json.dumps({"format": OFFERS_FORMAT, **document}).encode())

    def _read(self, settings: ServerSettings) -> SavedServer | None:
        document = self._store.load(_key(settings))
        if document is None:
            return None
        try:
            saved = _read_lines(document) if document.startswith(_START[:12]) else _read_first_format(document)
            if saved.server.name != settings.name:
                raise ValueError(f"they belong to the server {saved.server.name!r}")
            return saved
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            logger.warning("the saved tools of %r are not used (%s); they are listed again", settings.name, error)
            return None


def _read_lines(document: bytes) -> SavedServer:
    if document[:_CHECKED_FROM] != _START % _digest(memoryview(document)[_CHECKED_FROM:]):
        raise ValueError("the file is damaged")
    first = document.index(_LIST)
    header: dict[str, Any] = from_json(b"{%b}" % document[_CHECKED_FROM:first], cache_strings="none")
    ids, hashes, ends = header["ids"], header["hashes"], header["ends"]
    if not len(ids) == len(hashes) == len(ends):
        raise ValueError("its parts differ in size")
    if ids != sorted(ids):
        raise ValueError("its tools are not in order")
    lines = ListedLines(ids, ends, memoryview(document)[first + len(_LIST) : -len(_END)])
    return SavedServer(ids, server_of(header["server"]), hashes, lines, header["content"])


def _read_first_format(document: bytes) -> SavedServer:
    """Read one JSON document with everything in it, as release 0.1.0 wrote it."""
    raw = json.loads(document)
    if raw["format"] != 1:
        raise ValueError(f"format {raw['format']!r}, this version reads {FORMAT}")
    server = _checked(server_of(raw["server"]))
    tools = [_checked(tool_of(tool)) for tool in raw["tools"]]
    for tool in tools:
        if tool.server != server.name or not tool.definition.startswith("{"):
            raise ValueError(f"the tool {tool.id!r} is damaged")
        for name, claimed in asdict(tool.annotations).items():
            if not isinstance(claimed, bool | None):
                raise TypeError(f"{name} is {claimed!r}")
    catalog = Catalog.of(tools, (server,))
    ids, lines = list(catalog.tools), [line_of(tool) for tool in catalog.tools.values()]
    listed = ListedLines(ids, list(accumulate(map(len, lines))), memoryview(b"".join(lines)))
    return SavedServer(ids, server, list(catalog.hashes.values()), listed, catalog.fingerprint)


def _digest(document: bytes | memoryview) -> bytes:
    return hashlib.sha256(document).hexdigest()[:CHECKED_DIGITS].encode()


def _key(settings: ServerSettings) -> str:
    # Environment and headers are not part of a transport's repr: no secret, nor its hash, is written.
    identity = f"{settings.name}\0{settings.transport!r}\0{settings.include}\0{settings.exclude}\0{settings.tools}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _offers_key(settings: ServerSettings) -> str:
    return f"{_key(settings)}{OFFERS}"


def _parsed(document: bytes) -> Json:
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return None  # the server is listed again


_TEXTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(*(each.name for each in fields(kind) if each.type is str)) for kind in (Server, Tool)
}
_LISTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Server: attrgetter("categories", "tags"),
    Tool: attrgetter("tags", "keywords"),
}


def _checked(value: Saved) -> Saved:
    """Raise TypeError unless every field has its type: a wrong one would fail much later, in a search."""
    for text in (*_TEXTS[type(value)](value), *chain.from_iterable(_LISTS[type(value)](value))):
        if type(text) is not str:
            raise TypeError(f"{text!r} is not a text")
    return value
