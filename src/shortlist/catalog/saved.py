"""The tools that servers listed last, saved so that searches are answered before any server has started.

A file begins with a line that names the tools and says where each of them ends. A start parses that line alone; a tool
is parsed when somebody asks for it. Files of the first format, which were parsed as a whole, are read as well.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, TypeVar

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.stored import Place, StoredTools, line_of, server_of, tool_of
from shortlist.config.settings import MemoryTransport, ServerSettings
from shortlist.models import Server, Tool, ToolId
from shortlist.storage.port import CatalogStore

logger = logging.getLogger(__name__)

FORMAT = 2
DIGEST_BYTES = 16
_START = b'{"format": 2, "digest": "%b", '
_CHECKED_FROM = len(_START % bytes(2 * DIGEST_BYTES))
_LIST, _NEXT, _END = b', "tools": [\n', b",\n", b"\n]}"

Saved = TypeVar("Saved", Server, Tool)


@dataclass(frozen=True, slots=True)
class SavedServer:
    """A server and its tools, which are parsed when asked for."""

    server: Server
    ids: Sequence[ToolId]
    hashes: Sequence[str]
    places: Sequence[Place]


class SavedCatalog:
    """The saved tool lists of the servers of a configuration."""

    def __init__(self, store: CatalogStore, servers: Mapping[str, ServerSettings]) -> None:
        self._store = store
        self.servers = servers
        """Those of the current configuration."""

    def load(self) -> Catalog:
        """Return what was saved for these servers; what cannot be read is reported and left out."""
        found = [saved for settings in self.servers.values() if (saved := self._read(settings)) is not None]
        places = {i: place for saved in found for i, place in zip(saved.ids, saved.places, strict=True)}
        hashes = {i: content for saved in found for i, content in zip(saved.ids, saved.hashes, strict=True)}
        homes = {i: saved.server.name for saved in found for i in saved.ids}
        ids = sorted(places)
        return Catalog.stored(
            StoredTools({i: places[i] for i in ids}),
            {saved.server.name: saved.server for saved in found},
            {i: hashes[i] for i in ids},
            [homes[i] for i in ids],
        )

    def save(self, server: Server, tools: Sequence[Tool]) -> None:
        """Save a server's tools."""
        settings = self.servers.get(server.name)
        if settings is None or isinstance(settings.transport, MemoryTransport):
            return
        lines = [line_of(tool) for tool in tools]
        ends = list(accumulate(len(line) for line in lines))
        header = {
            "server": asdict(server),
            "ids": [tool.id for tool in tools],
            "hashes": [tool.content_hash for tool in tools],
            "ends": ends,
        }
        checked = b"".join((json.dumps(header).encode()[1:-1], _LIST, _NEXT.join(lines), _END))
        self._store.save(_key(settings), _START % _digest(checked) + checked)

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
    header: dict[str, Any] = json.loads(b"{%b}" % document[_CHECKED_FROM:first])
    if not len(header["ids"]) == len(header["hashes"]) == len(header["ends"]):
        raise ValueError("its parts differ in size")
    places, start = [], first + len(_LIST)
    for place, end in enumerate(header["ends"]):
        at = first + len(_LIST) + end + place * len(_NEXT)
        places.append((document, start, at))
        start = at + len(_NEXT)
    return SavedServer(server_of(header["server"]), header["ids"], header["hashes"], places)


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
    lines = [line_of(tool) for tool in tools]
    places = [(line, 0, len(line)) for line in lines]
    return SavedServer(server, [tool.id for tool in tools], [tool.content_hash for tool in tools], places)


def _digest(document: bytes | memoryview) -> bytes:
    return hashlib.sha256(document).hexdigest()[: 2 * DIGEST_BYTES].encode()


def _key(settings: ServerSettings) -> str:
    # Environment and headers are not part of a transport's repr: no secret, nor its hash, is written.
    identity = f"{settings.name}\0{settings.transport!r}\0{settings.include}\0{settings.exclude}\0{settings.tools}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


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
