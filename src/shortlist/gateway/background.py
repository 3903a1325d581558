"""Search that answers at once: made when it is first needed, by words first, and by vectors when they are there."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

import anyio
import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.errors import ShortlistError
from shortlist.models import Query, SearchResult, ToolId

logger = logging.getLogger(__name__)

QUIET_SECONDS = 0.5
"""Servers that start together are embedded together."""


class Preparable(Protocol):
    """A search whose vectors take time; it must not be changed while they are made."""

    @property
    def catalog(self) -> Catalog: ...

    def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...

    def prepare(self) -> None: ...

    def explain(self, query: Query, tool_id: ToolId) -> Any: ...


class BackgroundSearch:
    """Keeps a search up to date; changes that come while vectors are made wait for them."""

    def __init__(self, make: Callable[[Catalog], Preparable], catalog: Catalog) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: Preparable | None = None
        self._latest = catalog
        self._busy = False
        self._changed = anyio.Event()
        if len(catalog):
            self._changed.set()  # a saved catalog that never changes wants its vectors too

    @property
    def catalog(self) -> Catalog:
        return self._latest

    @property
    def searcher(self) -> Preparable:
        """Give the search itself; the first to ask waits for it."""
        with self._making:
            if self._made is None:
                self._made = self._make(self._latest)
            return self._made

    def search(self, query: Query) -> SearchResult:
        return self.searcher.search(query)

    def update(self, catalog: Catalog) -> None:
        """Take up a changed catalog, now or when the vectors in the making are done."""
        self._latest = catalog
        if self._made is not None and not self._busy:
            self._made.update(catalog)
        self._changed.set()

    async def run(self) -> None:
        """Make vectors whenever something changed, beside the event loop, until cancelled."""
        while True:
            await self._quiet()
            self._busy = True
            try:
                await anyio.to_thread.run_sync(self._prepare)
            except ShortlistError as error:
                logger.warning("searching by words alone: %s", error)
            finally:
                self._busy = False
            if self.searcher.catalog is not self._latest:
                self.searcher.update(self._latest)
                self._changed.set()

    def _prepare(self) -> None:
        self.searcher.prepare()

    async def _quiet(self) -> None:
        await self._changed.wait()
        while self._changed.is_set():
            self._changed = anyio.Event()
            with anyio.move_on_after(QUIET_SECONDS):
                await self._changed.wait()
