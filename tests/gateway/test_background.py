"""Search in the background: made when it is needed, prepared without being asked, and never the end of the gateway."""

import anyio
import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.errors import ModelError
from shortlist.models import Confidence, Query, SearchResult, Tool, ToolId
from shortlist.search.engine import BackgroundSearch

pytestmark = pytest.mark.anyio
ONE = Catalog.of([Tool(id="a/one", server="a", name="one", description="One.")])
TWO = Catalog.of([*ONE.tools.values(), Tool(id="a/two", server="a", name="two", description="Two.")])
NONE = Confidence(level="none", probability=0.0, match_probability=0.0)


class Slow:
    """A search whose vectors are made when the test allows it."""

    def __init__(self, catalog: Catalog, failure: ModelError | None = None) -> None:
        self.catalog = catalog
        self.failure = failure
        self.prepared: list[Catalog] = []

    def search(self, query: Query) -> SearchResult:
        return SearchResult(query=query, hits=(), confidence=NONE)

    def update(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def prepare(self) -> None:
        self.prepared.append(self.catalog)
        if self.failure is not None:
            raise self.failure

    def explain(self, query: Query, tool_id: ToolId) -> str:
        return f"{query.text} {tool_id}"

    def explained(self, query: Query) -> str:
        return query.text


async def until_prepared(made: list[Slow], times: int) -> None:
    with anyio.fail_after(10):
        while not made or len(made[0].prepared) < times:
            await anyio.sleep(0.01)


def keeping(made: list[Slow], failure: ModelError | None = None) -> BackgroundSearch:
    def make(catalog: Catalog) -> Slow:
        made.append(Slow(catalog, failure))
        return made[-1]

    return BackgroundSearch(make, ONE)


async def test_a_search_is_made_once_and_with_the_catalog_of_that_moment() -> None:
    made: list[Slow] = []
    search = keeping(made)
    search.update(TWO)
    assert made == []
    search.search(Query(text="one"))
    search.search(Query(text="two"))
    assert [slow.catalog for slow in made] == [TWO]


async def test_a_saved_catalog_that_does_not_change_gets_its_vectors_too() -> None:
    made: list[Slow] = []
    search = keeping(made)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(search.run)
        await until_prepared(made, 1)
        tasks.cancel_scope.cancel()
    assert made[0].prepared == [ONE]


async def test_a_model_that_fails_leaves_the_search_by_words() -> None:
    made: list[Slow] = []
    search = keeping(made, ModelError("the weights are gone"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(search.run)
        await until_prepared(made, 1)
        search.update(TWO)
        await until_prepared(made, 2)
        tasks.cancel_scope.cancel()
    assert search.search(Query(text="one")).hits == ()
    assert made[0].prepared == [ONE, TWO]


async def test_a_search_made_anew_takes_the_place_of_the_old_one_when_its_vectors_are_there() -> None:
    made: list[Slow] = []
    search = keeping(made)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(search.run)
        await until_prepared(made, 1)
        search.renew()
        assert search.searcher is made[0]
        search.update(TWO)
        with anyio.fail_after(10):
            while search.searcher is made[0]:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert search.searcher is made[1]
    assert made[1].prepared == [TWO]
