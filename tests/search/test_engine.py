"""The engine: made when it is needed, the newest catalog wins, and nothing waits for vectors or for the event loop."""

import threading
import time
from collections.abc import Sequence

import anyio
import numpy as np
import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.errors import ModelError
from shortlist.index.embedders import Progress, Vectors
from shortlist.index.vectors import QueryVectors
from shortlist.models import Confidence, Query, SearchResult, Tool, ToolId
from shortlist.search import engine as engine_module
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher

pytestmark = pytest.mark.anyio
ONE = Catalog.of([Tool(id="a/one", server="a", name="one", description="One.")])
TWO = Catalog.of([*ONE.tools.values(), Tool(id="a/two", server="a", name="two", description="Two.")])
THREE = Catalog.of([*TWO.tools.values(), Tool(id="a/three", server="a", name="three", description="Three.")])
NONE = Confidence(level="none", probability=0.0, match_probability=0.0)
DEADLINE_SECONDS = 60.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Slow:
    """A search whose updates and vectors wait until the test allows them."""

    def __init__(self, catalog: Catalog, failure: ModelError | None = None) -> None:
        self.catalog = catalog
        self.failure = failure
        self.updates: list[Catalog] = []
        self.prepared: list[Catalog] = []
        self.may_update = threading.Event()
        self.may_update.set()
        self.updating = threading.Event()

    def search(self, query: Query) -> SearchResult:
        return SearchResult(query=query, hits=(), confidence=NONE, notes=(str(len(self.catalog)),))

    @property
    def waits(self) -> bool:
        return False

    def fetch(self, query: Query) -> None:
        raise AssertionError(f"nobody waits for {query.text}")

    def update(self, catalog: Catalog) -> None:
        self.updating.set()
        assert self.may_update.wait(DEADLINE_SECONDS)
        self.updates.append(catalog)
        self.catalog = catalog

    def prepare(self) -> None:
        self.prepared.append(self.catalog)
        if self.failure is not None:
            raise self.failure

    def explain(self, query: Query, tool_id: ToolId) -> str:
        return f"{query.text} {tool_id}"

    def explained(self, query: Query) -> str:
        return query.text


class Model:
    """A model that notes when it is loaded."""

    def __init__(self, failure: ModelError | None = None) -> None:
        self.failure = failure
        self.loaded: list[str] = []
        self.done = threading.Event()

    def load(self) -> None:
        self.loaded.append(threading.current_thread().name)
        self.done.set()
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("failure", [None, ModelError("The weights are damaged.")])
async def test_the_first_search_loads_the_model_beside_the_index_and_once(failure: ModelError | None) -> None:
    model, may_make = Model(failure), threading.Event()

    def make(catalog: Catalog) -> Slow:
        assert model.done.wait(DEADLINE_SECONDS)  # the index is not there before the model is
        assert may_make.wait(DEADLINE_SECONDS)
        return Slow(catalog)

    engine = Engine(make, ONE, load_model=model.load)
    engine.begin()
    assert not model.loaded
    may_make.set()
    for _ in range(2):
        assert (await engine.search(Query(text="x"))).notes == ("1",)
    assert model.loaded == ["shortlist-model"]


class Made:
    """An engine that keeps the searches it made."""

    def __init__(self, failure: ModelError | None = None, *, vectors: bool = False) -> None:
        self.searches: list[Slow] = []
        self.failure = failure
        self.making = threading.Event()
        self.engine = Engine(self.make, ONE, vectors=vectors)
        self.engine.begin()

    def make(self, catalog: Catalog) -> Slow:
        self.making.set()
        time.sleep(0.05)  # longer than a search takes that does not wait
        self.searches.append(Slow(catalog, self.failure))
        return self.searches[-1]

    async def until_prepared(self, catalog: Catalog) -> None:
        """Wait until vectors were made for a catalog."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while not any(catalog in search.prepared for search in self.searches):
                await anyio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "QUIET_SECONDS", 0.01)


async def seen(engine: Engine) -> int:
    return int((await engine.search(Query(text="one"))).notes[0])


async def test_a_search_is_made_once_and_with_the_catalog_of_that_moment() -> None:
    made = Made()
    assert made.searches == []
    made.engine.update(TWO)
    assert [await seen(made.engine) for _ in range(3)] == [2, 2, 2]
    assert len(made.searches) == 1


async def test_a_query_sees_the_update_before_it() -> None:
    made = Made()
    assert await seen(made.engine) == 1
    made.engine.update(TWO)
    assert await seen(made.engine) == 2


async def test_a_query_is_answered_from_the_old_index_while_a_new_one_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "CATCH_UP_SECONDS", 0.01)
    made = Made()
    assert await seen(made.engine) == 1
    (search,) = made.searches
    search.may_update.clear()
    made.engine.update(TWO)
    assert made.engine.catalog is TWO
    assert await seen(made.engine) == 1
    search.may_update.set()


async def test_updates_that_come_while_one_is_indexed_become_one() -> None:
    made = Made()
    await seen(made.engine)
    (search,) = made.searches
    search.may_update.clear()
    made.engine.update(TWO)
    assert search.updating.wait(DEADLINE_SECONDS)
    for catalog in (ONE, TWO, ONE, THREE):
        made.engine.update(catalog)
    search.may_update.set()
    assert await seen(made.engine) == 3
    assert search.updates == [TWO, THREE]


async def test_a_saved_catalog_that_does_not_change_gets_its_vectors_too() -> None:
    made = Made(vectors=True)
    await made.until_prepared(ONE)
    assert len(made.searches) == 1


async def test_vectors_follow_every_change() -> None:
    made = Made(vectors=True)
    await made.until_prepared(ONE)
    made.engine.update(TWO)
    await made.until_prepared(TWO)
    assert len(made.searches) == 1


async def test_a_model_that_fails_is_tried_again_after_the_next_change(caplog: pytest.LogCaptureFixture) -> None:
    made = Made(ModelError("The weights are damaged."), vectors=True)
    await made.until_prepared(ONE)
    assert await seen(made.engine) == 1
    made.engine.update(TWO)
    await made.until_prepared(TWO)
    assert "The weights are damaged." in caplog.text


async def test_what_is_renewed_is_made_again() -> None:
    made = Made()
    await seen(made.engine)
    made.making.clear()
    made.engine.renew()
    assert made.making.wait(DEADLINE_SECONDS)
    await seen(made.engine)
    assert len(made.searches) == 2
    assert made.engine.searcher is made.searches[1]


async def test_an_engine_that_cannot_be_made_says_why_and_is_tried_again() -> None:
    failures = [ModelError("No model in 'here'."), None]

    def make(catalog: Catalog) -> Slow:
        if failure := failures.pop(0):
            raise failure
        return Slow(catalog)

    engine = Engine(make, ONE, vectors=False)
    with pytest.raises(ModelError, match="No model in 'here'"):
        await engine.search(Query(text="one"))
    assert await seen(engine) == 1


async def test_the_event_loop_turns_while_a_search_waits() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Waiting(Slow):
        def search(self, query: Query) -> SearchResult:
            entered.set()
            assert leave.wait(DEADLINE_SECONDS)
            return super().search(query)

    engine = Engine.over(Waiting(ONE))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.search, Query(text="one"))
        with anyio.fail_after(DEADLINE_SECONDS):
            while not entered.is_set():
                await anyio.sleep(0.001)
        leave.set()  # reached only if the loop was free while the search waited


async def test_explanations_come_from_the_same_search() -> None:
    engine = Engine.over(Searcher(TWO))
    assert "a/two" in (await engine.explain(Query(text="two"), "a/two")).text()
    explained = await engine.explained(Query(text="two"))
    assert explained.explanations[0].tool == explained.result.hits[0].tool.id == "a/two"


async def test_searches_that_wait_for_a_provider_hold_up_no_other() -> None:
    leave = threading.Event()

    class Provider:
        model_id, dimensions = "far@1", 4

        def embed_documents(self, texts: Sequence[str], _: Progress | None = None) -> Vectors:
            return np.ones((len(texts), 4), np.float32)

        def embed_query(self, text: str) -> Vectors:
            assert not text.startswith("slow") or leave.wait(DEADLINE_SECONDS)
            return np.ones(4, np.float32)

    searcher = Searcher(TWO, QueryVectors(Provider()))
    searcher.prepare()
    engine = Engine.over(searcher)
    found: list[SearchResult] = []

    async def search(text: str) -> None:
        found.append(await engine.search(Query(text=text)))

    slow = [f"slow {place}" for place in range(2 * engine_module.SEARCHES_AT_ONCE)]
    async with anyio.create_task_group() as tasks:
        for text in slow:
            tasks.start_soon(search, text)
        with anyio.fail_after(DEADLINE_SECONDS):
            await search("two")
        assert [result.query.text for result in found] == ["two"]
        leave.set()
    assert {result.query.text for result in found} == {"two", *slow}


async def test_a_search_whose_caller_left_before_it_began_is_not_made() -> None:
    leave, asked = threading.Event(), list[str]()

    class Waiting(Slow):
        def search(self, query: Query) -> SearchResult:
            asked.append(query.text)
            assert leave.wait(DEADLINE_SECONDS)
            return super().search(query)

    engine = Engine.over(Waiting(ONE))
    async with anyio.create_task_group() as tasks:
        for _ in range(engine_module.SEARCHES_AT_ONCE):
            tasks.start_soon(engine.search, Query(text="stays"))
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(asked) < engine_module.SEARCHES_AT_ONCE:
                await anyio.sleep(0.001)
        with anyio.move_on_after(0) as left:
            await engine.search(Query(text="leaves"))
        assert left.cancelled_caught
        leave.set()
    assert await seen(engine) == 1
    assert "leaves" not in asked


async def test_threads_that_have_nothing_to_search_end_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "IDLE_SECONDS", 0.01)
    threads = engine_module.SearchThreads(1)
    for _ in range(2):
        worker = await threads.run(threading.current_thread)
        await anyio.to_thread.run_sync(worker.join, DEADLINE_SECONDS)
        assert not worker.is_alive()


async def test_a_thread_that_cannot_be_started_fails_one_search_and_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = engine_module.SearchThreads(1)
    with monkeypatch.context() as short_of_threads:
        short_of_threads.setattr(threading.Thread, "start", _not_started)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(lambda: 1)
    with anyio.fail_after(DEADLINE_SECONDS):
        assert await threads.run(lambda: 2) == 2


def _not_started(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_a_search_that_ends_with_stop_iteration_fails_and_does_not_hang() -> None:
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(RuntimeError, match="StopIteration"):
        await engine_module.SearchThreads(1).run(lambda: next(iter(())))
