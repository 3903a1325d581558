"""Search for an event loop: queries, indexing and embedding run in worker threads, over an index that is swapped.

The searcher is made when it is first needed. A changed catalog is indexed in the background and the newest one wins; a
query waits for it for a moment, then is answered from the index there is. Vectors follow in a thread of their own.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.errors import ShortlistError
from shortlist.models import Query, SearchResult, ToolId

T = TypeVar("T")

logger = logging.getLogger(__name__)

QUIET_SECONDS = 0.5
"""Servers that start together are embedded together."""
CATCH_UP_SECONDS = 0.5
"""How long after a change queries wait for it to be indexed; then they are answered from the index before."""
SEARCHES_AT_ONCE = 2
"""More threads would only compete for the interpreter's lock, also with the event loop."""
WAITING_AT_ONCE = 16
"""How many searches wait for a provider's vectors; they hold no thread that another search needs."""
IDLE_SECONDS = 10.0
"""How long a thread waits for the next search before it ends."""


class Preparable(Protocol):
    """A synchronous search that several threads may use while one updates it and another makes its vectors."""

    @property
    def catalog(self) -> Catalog: ...

    def search(self, query: Query) -> SearchResult: ...

    @property
    def waits(self) -> bool:
        """Whether the vectors of queries come from outside of this process."""
        ...

    def fetch(self, query: Query) -> None:
        """Wait until the vectors of a query are available, or have failed."""
        ...

    def update(self, catalog: Catalog) -> object: ...

    def prepare(self) -> None: ...

    def explain(self, query: Query, tool_id: ToolId) -> Any: ...

    def explained(self, query: Query) -> Any: ...


_Job: TypeAlias = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class SearchThreads:
    """A few threads that search for an event loop; handing a search over costs half of what `anyio.to_thread` does."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._running = 0
        self._changing = threading.Lock()
        """Guards the number of running threads."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run work in one of the threads; if the caller is cancelled, work that has begun ends by itself."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._jobs.put((partial(copy_context().run, work), loop, answer))
        try:
            self._start_a_thread()
        except RuntimeError:  # the system has no more threads
            answer.cancel()
            raise
        return await answer

    def _start_a_thread(self) -> None:
        """Start a thread unless there are enough; raise RuntimeError where there is none and none can be started."""
        with self._changing:
            if self._running == self._most:
                return
            try:
                threading.Thread(target=self._work, name="shortlist-search", daemon=True).start()
            except RuntimeError:
                if not self._running:
                    raise
            else:
                self._running += 1

    def _work(self) -> None:
        while True:
            try:
                _do(*self._jobs.get(timeout=IDLE_SECONDS))
            except Empty:
                with self._changing:
                    if self._jobs.empty():  # a job that comes from here on starts a thread of its own
                        self._running -= 1
                        return


def _do(work: Callable[[], Any], loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]") -> None:
    if answer.cancelled():
        return
    try:
        settle = partial(_settle, answer, work(), None)
    except BaseException as error:  # whoever waits for the answer gets it
        settle = partial(_settle, answer, None, error)
    with suppress(RuntimeError):  # the event loop is closed, and nobody waits
        loop.call_soon_threadsafe(settle)


def _settle(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(result)
    elif isinstance(error, StopIteration):  # a future does not take it
        answer.set_exception(RuntimeError("StopIteration ended the search"))
    else:
        answer.set_exception(error)


class Engine:
    """Searches a catalog that changes, without ever blocking the event loop."""

    def __init__(
        self,
        make: Callable[[Catalog], Preparable],
        catalog: Catalog,
        *,
        vectors: bool = True,
        load_model: Callable[[], None] | None = None,
    ) -> None:
        self._make = make
        self._load_model = load_model
        """Loads what embeds queries; the first search starts it, beside the index that it waits for."""
        self._latest = catalog
        self._vectors = vectors
        """Whether to make vectors in the background; otherwise search is lexical."""
        self._state = threading.Condition()
        """Guards the fields below, and notifies of every change to them."""
        self._searcher: Preparable | None = None
        self._failure: Exception | None = None
        self._renewals, self._included = 0, 0
        """How often the searcher was to be made again, and how many of these times the present one knows of."""
        self._indexer: threading.Thread | None = None
        self._embedder: threading.Thread | None = None
        self._unembedded = threading.Event()
        self._changed_at = 0.0
        self._threads = SearchThreads(SEARCHES_AT_ONCE)
        self._waiting: anyio.CapacityLimiter | None = None

    @classmethod
    def over(cls, searcher: Preparable) -> "Engine":
        """Return an engine over an existing searcher, whose vectors are made elsewhere."""
        engine = cls(lambda _: searcher, searcher.catalog, vectors=False)
        engine._searcher = searcher
        return engine

    def begin(self) -> None:
        """Index the catalog before anybody searches it; vectors follow, which one that never changes needs too."""
        if len(self._latest) and self._vectors:
            with self._state:
                self._index_soon()

    @property
    def catalog(self) -> Catalog:
        """The newest catalog, which the index may not have caught up with yet."""
        return self._latest

    @property
    def searcher(self) -> Preparable:
        """The searcher, for callers in a thread of their own; the first one waits until it is made."""
        return self._caught_up()

    async def search(self, query: Query) -> SearchResult:
        found: SearchResult = await self._in_a_thread(query, lambda searcher: searcher.search(query))
        return found

    async def explained(self, query: Query) -> Any:
        """Search, and explain every hit."""
        return await self._in_a_thread(query, lambda searcher: searcher.explained(query))

    async def explain(self, query: Query, tool_id: ToolId) -> Any:
        """Explain the rank of one tool."""
        return await self._in_a_thread(query, lambda searcher: searcher.explain(query, tool_id))

    def explained_here(self, query: Query) -> Any:
        """Like `explained`, in the caller's thread."""
        return self._caught_up().explained(query)

    def update(self, catalog: Catalog) -> None:
        """Switch to a changed catalog; returns at once. New tools are found by their words until they have vectors."""
        with self._state:
            self._latest = catalog
            self._index_soon()

    def renew(self) -> None:
        """Rebuild the searcher after a change other than the catalog; the old one answers meanwhile."""
        with self._state:
            self._renewals += 1
            self._index_soon()

    async def _in_a_thread(self, query: Query, work: Callable[[Preparable], T]) -> T:
        known = self._searcher
        if known is None and self._load_model is not None:
            load, self._load_model = self._load_model, None
            threading.Thread(target=_loaded, args=(load,), name="shortlist-model", daemon=True).start()
        if known is not None and known.waits:
            self._waiting = self._waiting or anyio.CapacityLimiter(WAITING_AT_ONCE)
            await anyio.to_thread.run_sync(known.fetch, query, abandon_on_cancel=True, limiter=self._waiting)
        return await self._threads.run(lambda: work(self._caught_up()))

    def _caught_up(self) -> Preparable:
        """Wait until the index has the newest catalog: a moment if an older one has tools, else until it is there."""
        with self._state:
            if not self._is_current():
                self._index_soon()
                left = self._changed_at + CATCH_UP_SECONDS - time.monotonic()
                has_tools = self._searcher is not None and len(self._searcher.catalog) > 0
                self._state.wait_for(self._is_settled, max(left, 0.0) if has_tools else None)
            if self._searcher is None:
                failure, self._failure = self._failure, None
                raise failure or RuntimeError("the searcher could not be made")
            return self._searcher

    def _is_current(self) -> bool:
        if self._searcher is None or self._included != self._renewals:
            return False
        return self._searcher.catalog is self._latest

    def _is_settled(self) -> bool:
        return self._is_current() or self._failure is not None

    def _index_soon(self) -> None:
        """Start the thread that indexes, unless it runs; called with the state locked."""
        self._failure = None
        if self._indexer is None:
            self._changed_at = time.monotonic()
            self._indexer = threading.Thread(target=self._index, name="shortlist-index", daemon=True)
            self._indexer.start()

    def _index(self) -> None:
        """Index the newest catalog until there is no newer one, then end."""
        while True:
            with self._state:
                if self._is_settled():
                    self._indexer = None
                    self._state.notify_all()
                    break
                catalog, renewals = self._latest, self._renewals
                searcher = self._searcher if self._included == renewals else None
            try:
                if searcher is None:
                    searcher = self._make(catalog)
                else:
                    searcher.update(catalog)
            except Exception as error:  # raised to the searches that wait; the thread must not end silently
                # Not a warning: searches raise it, and a command that ends may close what the index reads.
                logger.info("the tools could not be indexed: %s", error)
                with self._state:
                    self._failure, self._included = error, renewals
                continue
            with self._state:
                self._searcher, self._included = searcher, renewals
                self._state.notify_all()
        if self._vectors:
            self._embed_soon()

    def _embed_soon(self) -> None:
        with self._state:
            self._unembedded.set()
            if self._embedder is None:
                self._embedder = threading.Thread(target=self._embed, name="shortlist-vectors", daemon=True)
                self._embedder.start()

    def _embed(self) -> None:
        """Make vectors once nothing has changed for a moment, until nothing is left to embed, then end."""
        while True:
            while self._unembedded.is_set():
                self._unembedded.clear()
                self._unembedded.wait(QUIET_SECONDS)
            try:
                self._caught_up().prepare()
            except ShortlistError as error:
                logger.warning("falling back to lexical search: %s", error)
            with self._state:
                if not self._unembedded.is_set():
                    self._embedder = None
                    return


def _loaded(load: Callable[[], None]) -> None:
    with suppress(ShortlistError):  # the search that embeds its query reports it
        load()
