"""Search that answers at once: words first, and vectors when they are made."""

from typing import Protocol

import anyio
import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.models import Query, SearchResult

QUIET_SECONDS = 0.5
"""Servers that start together are embedded together."""


class Preparable(Protocol):
    """A search whose vectors take time; it answers and takes up changes while they are made."""

    @property
    def catalog(self) -> Catalog: ...

    def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...

    def prepare(self) -> None: ...


class BackgroundSearch:
    """Keeps a search up to date, and makes its vectors beside the event loop."""

    def __init__(self, searcher: Preparable) -> None:
        self._searcher = searcher
        self._changed = anyio.Event()

    @property
    def catalog(self) -> Catalog:
        return self._searcher.catalog

    def search(self, query: Query) -> SearchResult:
        return self._searcher.search(query)

    def update(self, catalog: Catalog) -> None:
        """Take up a changed catalog; its new tools are found by their words until their vectors come."""
        self._searcher.update(catalog)
        self._changed.set()

    async def run(self) -> None:
        """Make vectors whenever something changed, until cancelled."""
        while True:
            await self._quiet()
            await anyio.to_thread.run_sync(self._searcher.prepare)

    async def _quiet(self) -> None:
        await self._changed.wait()
        while self._changed.is_set():
            self._changed = anyio.Event()
            with anyio.move_on_after(QUIET_SECONDS):
                await self._changed.wait()
