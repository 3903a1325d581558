"""The catalog of the last time, so that searches are answered before any server has started.

One file per server, replaced whole: two gateways share the folder without locks, and the last writer wins.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import MemoryTransport, ServerSettings
from shortlist.models import Annotations, Server, Tool

FORMAT = 1


class SavedCatalog:
    """A folder of saved tool lists."""

    def __init__(self, folder: Path, servers: Mapping[str, ServerSettings]) -> None:
        self._folder = folder
        self.servers = servers
        """Those of the configuration as it is now."""

    def load(self) -> Catalog:
        """Read what was saved for the servers of this configuration; what cannot be read is left out."""
        found = [saved for settings in self.servers.values() if (saved := self._read(settings)) is not None]
        return Catalog.of((tool for _, tools in found for tool in tools), (server for server, _ in found))

    def save(self, server: Server, tools: Sequence[Tool]) -> None:
        """Keep a server's tools; a full disk costs the next start a little time and nothing else."""
        settings = self.servers.get(server.name)
        if settings is None or isinstance(settings.transport, MemoryTransport):
            return
        path = self._path(settings)
        document = {"format": FORMAT, "server": asdict(server), "tools": [asdict(tool) for tool in tools]}
        written = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            written.write_text(json.dumps(document), "utf-8")
            os.replace(written, path)
        except OSError:
            written.unlink(missing_ok=True)

    def _read(self, settings: ServerSettings) -> tuple[Server, list[Tool]] | None:
        try:
            document = json.loads(self._path(settings).read_text("utf-8"))
            if document["format"] != FORMAT:
                return None
            return _server(document["server"]), [_tool(tool) for tool in document["tools"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _path(self, settings: ServerSettings) -> Path:
        # Environment and headers are not part of a transport's repr: no secret, nor its hash, is written.
        identity = f"{settings.name}\0{settings.transport!r}\0{settings.include}\0{settings.exclude}\0{settings.tools}"
        return self._folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def _server(raw: dict[str, Any]) -> Server:
    return Server(**{**raw, "categories": tuple(raw["categories"]), "tags": tuple(raw["tags"])})


def _tool(raw: dict[str, Any]) -> Tool:
    lists = {key: tuple(raw[key]) for key in ("tags", "keywords")}
    return Tool(**{**raw, **lists, "annotations": Annotations(**raw["annotations"])})
