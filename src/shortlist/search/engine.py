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
    """A search whose vectors take time; it answers and takes up changes while they are made."""

    @property
    def catalog(self) -> Catalog: ...

    def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...

    def prepare(self) -> None: ...

    def explain(self, query: Query, tool_id: ToolId) -> Any: ...

    def explained(self, query: Query) -> Any: ...


class Threaded:
    """Adapts a synchronous search to callers on the event loop: every query runs in a worker thread."""

    def __init__(self, inner: "Synchronous") -> None:
        self._inner = inner

    @property
    def catalog(self) -> Catalog:
        return self._inner.catalog

    async def search(self, query: Query) -> SearchResult:
        return await anyio.to_thread.run_sync(self._inner.search, query, abandon_on_cancel=True)

    def update(self, catalog: Catalog) -> None:
        self._inner.update(catalog)


class Synchronous(Protocol):
    """A search that blocks its caller; safe to use from several threads."""

    @property
    def catalog(self) -> Catalog: ...

    def search(self, query: Query) -> SearchResult: ...

    def update(self, catalog: Catalog) -> object: ...


class BackgroundSearch:
    """Makes a search when it is first needed, keeps it up to date, and makes its vectors beside the event loop."""

    def __init__(self, make: Callable[[Catalog], Preparable], catalog: Catalog) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: Preparable | None = None
        self._latest = catalog
        self._outdated = False
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

    def explained(self, query: Query) -> Any:
        """Search, and say of every hit why it is there."""
        return self.searcher.explained(query)

    def update(self, catalog: Catalog) -> None:
        """Take up a changed catalog; its new tools are found by their words until their vectors come."""
        self._latest = catalog
        if self._made is not None:
            self._made.update(catalog)
        self._changed.set()

    def renew(self) -> None:
        """Make the search anew from what has changed beside the catalog; the one there is answers meanwhile."""
        self._outdated = True
        self._changed.set()

    async def run(self) -> None:
        """Make vectors whenever something changed, beside the event loop, until cancelled."""
        while True:
            await self._quiet()
            try:
                await anyio.to_thread.run_sync(self._prepare)
            except ShortlistError as error:
                logger.warning("searching by words alone: %s", error)
            if self.searcher.catalog is not self._latest:
                self.searcher.update(self._latest)
                self._changed.set()

    def _prepare(self) -> None:
        if not self._outdated:
            self.searcher.prepare()
            return
        self._outdated = False  # first: what changes from here on makes it outdated again
        fresh = self._make(self._latest)
        try:
            fresh.prepare()
        finally:  # without a model the old one has no vectors for its queries either
            self._made = fresh

    async def _quiet(self) -> None:
        await self._changed.wait()
        while self._changed.is_set():
            self._changed = anyio.Event()
            with anyio.move_on_after(QUIET_SECONDS):
                await self._changed.wait()
