"""The tools of running MCP servers: connect, list, and let go."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio

from shortlist.catalog.catalog import Catalog
from shortlist.config.load import load_settings, settings_of
from shortlist.config.settings import ServerSettings, Settings
from shortlist.errors import UpstreamError
from shortlist.library.reading import SourceReading
from shortlist.models import Server
from shortlist.upstream.events import StateChanged, ToolsChanged, UpstreamEvent, UpstreamStatus
from shortlist.upstream.pool import UpstreamPool

START_SECONDS = 30.0


def read_live(source: Settings | Mapping[str, Any] | str | Path, seconds: float = START_SECONDS) -> SourceReading:
    """List the tools of every server of a configuration; one that fails is a problem, all of them an error."""
    settings = _settings(source)
    # In a thread of its own: the caller may be inside an event loop.
    with ThreadPoolExecutor(1, thread_name_prefix="shortlist-list") as thread:
        return thread.submit(anyio.run, _listed, settings, seconds).result()


def _settings(source: Settings | Mapping[str, Any] | str | Path) -> Settings:
    if isinstance(source, Settings):
        return source
    if isinstance(source, Mapping):
        return settings_of(source, source="mcpServers")
    return load_settings(source)


async def _listed(settings: Settings, seconds: float) -> SourceReading:
    seen = _Seen()
    async with UpstreamPool(settings.servers, on_event=seen, limits=settings.limits) as pool:
        await pool.settled(seconds)
        status = pool.status()
    failed = {name: now.error or now.state for name, now in status.items() if name not in seen.tools}
    if failed and not seen.tools:
        name, reason = next(iter(failed.items()))
        raise UpstreamError(name, f"{reason} (none of {len(failed)} servers could be listed)")
    servers = [_server(settings.servers[name], status[name]) for name in seen.tools]
    catalog = Catalog.of((tool for change in seen.tools.values() for tool in change.tools), servers)
    left_out = (f"{name}: {problem}" for name, change in seen.tools.items() for problem in change.problems)
    return SourceReading(catalog, (*(f"{name}: {reason}" for name, reason in failed.items()), *left_out))


class _Seen:
    """Keeps each server's last listing."""

    def __init__(self) -> None:
        self.tools: dict[str, ToolsChanged] = {}

    def __call__(self, event: UpstreamEvent) -> None:
        if isinstance(event, ToolsChanged):
            self.tools[event.server] = event
        elif isinstance(event, StateChanged) and event.status.state == "failed":
            self.tools.pop(event.server, None)


def _server(settings: ServerSettings, status: UpstreamStatus) -> Server:
    info = status.peer.info if status.peer else {}
    said = info.get("description") or (status.peer.instructions if status.peer else "")
    return Server(
        name=settings.name,
        title=settings.title or str(info.get("title") or ""),
        description=settings.description or str(said),
        categories=settings.categories,
        tags=settings.tags,
    )
