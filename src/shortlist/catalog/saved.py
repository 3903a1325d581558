"""The tools that servers listed last, saved so that searches are answered before any server has started."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import MemoryTransport, ServerSettings
from shortlist.models import Annotations, Server, Tool
from shortlist.storage.port import CatalogStore

logger = logging.getLogger(__name__)

FORMAT = 1

Saved = TypeVar("Saved", Server, Tool)


class SavedCatalog:
    """The saved tool lists of the servers of a configuration."""

    def __init__(self, store: CatalogStore, servers: Mapping[str, ServerSettings]) -> None:
        self._store = store
        self.servers = servers
        """Those of the current configuration."""

    def load(self) -> Catalog:
        """Return what was saved for these servers; what cannot be read is reported and left out."""
        found = [saved for settings in self.servers.values() if (saved := self._read(settings)) is not None]
        return Catalog.of((tool for _, tools in found for tool in tools), (server for server, _ in found))

    def save(self, server: Server, tools: Sequence[Tool]) -> None:
        """Save a server's tools."""
        settings = self.servers.get(server.name)
        if settings is None or isinstance(settings.transport, MemoryTransport):
            return
        document = {"format": FORMAT, "server": asdict(server), "tools": [asdict(tool) for tool in tools]}
        self._store.save(_key(settings), document)

    def _read(self, settings: ServerSettings) -> tuple[Server, list[Tool]] | None:
        document = self._store.load(_key(settings))
        if document is None:
            return None
        try:
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']!r}, this version reads {FORMAT}")
            server = _server(document["server"], settings.name)
            return server, [_tool(tool, server) for tool in document["tools"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("the saved tools of %r are not used (%s); they are listed again", settings.name, error)
            return None


def _key(settings: ServerSettings) -> str:
    # Environment and headers are not part of a transport's repr: no secret, nor its hash, is written.
    identity = f"{settings.name}\0{settings.transport!r}\0{settings.include}\0{settings.exclude}\0{settings.tools}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _server(raw: Mapping[str, Any], name: str) -> Server:
    server = Server(**{**raw, "categories": tuple(raw["categories"]), "tags": tuple(raw["tags"])})
    if server.name != name:
        raise ValueError(f"they belong to the server {server.name!r}")
    return _checked(server)


def _tool(raw: Mapping[str, Any], server: Server) -> Tool:
    lists = {key: tuple(raw[key]) for key in ("tags", "keywords")}
    tool = _checked(Tool(**{**raw, **lists, "annotations": _annotations(**raw["annotations"])}))
    if tool.server != server.name or not tool.definition.startswith("{"):
        raise ValueError(f"the tool {tool.id!r} is damaged")
    return tool


@lru_cache(maxsize=100, typed=True)
def _annotations(**claims: bool | None) -> Annotations:
    """Return the claims of a tool; there are few different ones."""
    for name, claimed in claims.items():
        if not isinstance(claimed, bool | None):
            raise TypeError(f"{name} is {claimed!r}")
    return Annotations(**claims)


_TEXTS = {kind: attrgetter(*(each.name for each in fields(kind) if each.type is str)) for kind in (Server, Tool)}
_LISTS = {Server: attrgetter("categories", "tags"), Tool: attrgetter("tags", "keywords")}
_TEXT_ALONE = {str}


def _checked(value: Saved) -> Saved:
    """Raise TypeError unless every field has its type: a wrong one would fail much later, in a search."""
    kind: type[Server] | type[Tool] = type(value)
    texts = (*_TEXTS[kind](value), *chain.from_iterable(_LISTS[kind](value)))
    if set(map(type, texts)) != _TEXT_ALONE:
        wrong = next(text for text in texts if type(text) is not str)
        raise TypeError(f"{wrong!r} is not a text")
    return value
