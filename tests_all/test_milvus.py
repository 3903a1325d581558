"""The engine's local file keeps the contract of every index; a cluster speaks the same protocol and was not tested."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pymilvus", reason="needs the extra 'milvus': pip install -r tests_all/milvus.txt")
pytest.importorskip("milvus_lite", reason="milvus-lite has no wheel for this platform")

from tests.fakes import WORKPLACE, HashingEmbedder, catalog, tool
from tests.index.contract import CONTRACT, DIMENSIONS, MODEL, drawn

from shortlist.index import milvus
from shortlist.index.choosing import choose_index
from shortlist.index.index import Index
from shortlist.index.milvus import Collection, MilvusLexicalIndex, expression
from shortlist.index.nearest import ApproximateVectorIndex
from shortlist.index.ports import Among
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import Filters, Query
from shortlist.search.fusion import LexicalRetriever
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.text.queries import analyse

ROWS = 3_000
QUERIES = ("create an issue", "send an email to a colleague", "list k8s pods", "read a file", "translate text")


class Drawn:
    """A model whose vectors are drawn."""

    model_id, dimensions = MODEL, DIMENSIONS


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    index = Index.build(catalog([tool(f"s{n % 7}/tool_{n}", f"Does {n}.") for n in range(ROWS)]))
    index = index.with_vectors(Drawn(), np.arange(ROWS), drawn(ROWS, 1))  # type: ignore[arg-type]
    collection = Collection.open(str(tmp_path_factory.mktemp("milvus") / "index.db"), index)
    yield collection
    collection.close()


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_milvus_keeps_the_contract(clause: object, published: Collection) -> None:
    assert callable(clause)

    def make(exact: ExactVectorIndex) -> ExactVectorIndex:
        return ApproximateVectorIndex(exact, published, exact.size)

    clause(make, ROWS)


def test_rows_far_from_the_query_are_found_when_only_they_may_answer(
    published: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus, "MAX_LIMIT", 100)
    exact, query = ExactVectorIndex.of(MODEL, drawn(ROWS, 1)), drawn(1, 9)
    visible = exact.cosines(query)[0] < 0
    found = published.near(query, 10, Among(size=ROWS, rows=visible))
    assert found.tolist() == visible.nonzero()[0].tolist()


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[tuple[Index, Collection]]:
    offered = [tool("a/look", "Look at a file.", annotations={"readOnlyHint": True}), tool("b/lay", "Lay a file down.")]
    index = Index.build(catalog([*catalog(WORKPLACE).tools.values(), *offered])).embedded(HashingEmbedder())
    collection = Collection.open(str(tmp_path / "index.db"), index)
    yield index, collection
    collection.close()


@pytest.mark.parametrize("filters", [Filters(), Filters(read_only=True), Filters(servers=frozenset({"files", "b"}))])
def test_the_engine_gives_our_lexical_scores(workplace: tuple[Index, Collection], filters: Filters) -> None:
    index, collection = workplace
    by_words, stand_ins = MilvusLexicalIndex(collection, index.lexical), LexicalRetriever(index).stand_ins
    matched = 0
    for text in QUERIES:
        terms = analyse(text).terms
        wanted = index.lexical.retrieve(index.lexical.match(terms, stand_ins), 300, index.among(filters))
        found = by_words.retrieve(by_words.match(terms, stand_ins), 300, index.among(filters))
        assert found.rows.tolist() == wanted.rows.tolist(), text
        assert np.allclose(found.scores, wanted.scores, rtol=1e-5), text
        matched += len(wanted.rows)
    assert matched


def test_filters_are_pushed_down_and_quoted() -> None:
    filters = Filters(servers=frozenset({'a"b', "c"}), read_only=True, tags=frozenset({"x"}))
    assert expression(filters) == 'server in ["a\\"b", "c"] and read_only == 1'


def test_a_search_by_milvus_answers_like_one_in_this_process(tmp_path: Path) -> None:
    arrange = choose_index(f"milvus:{tmp_path / 'search.db'}")
    ours, theirs = (
        Searcher(catalog(WORKPLACE), HashingEmbedder(), options=options)
        for options in (SearchOptions(), SearchOptions(arrange=arrange))
    )
    for searcher in (ours, theirs):
        searcher.prepare()
    assert isinstance(theirs.index.dense, ApproximateVectorIndex)
    for text in QUERIES:
        one, other = (searcher.search(Query(text=text)).hits for searcher in (ours, theirs))
        assert [hit.tool.id for hit in one] == [hit.tool.id for hit in other]


def test_a_collection_that_was_published_before_is_searched_by_the_engine(tmp_path: Path) -> None:
    index = Index.build(catalog(WORKPLACE)).embedded(HashingEmbedder())
    Collection.open(str(tmp_path / "index.db"), index).close()
    reopened = Collection.open(str(tmp_path / "index.db"), index)
    assert len(reopened.near(HashingEmbedder().embed_query("read a file")[None], 3, index.among(Filters()))) == 3
    reopened.close()


@pytest.mark.parametrize("address", ["missing/folder/index.db", "ftp://milvus"])
def test_an_address_that_cannot_be_opened_is_reported_and_search_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    index = Index.build(catalog(WORKPLACE)).embedded(HashingEmbedder())
    assert choose_index(f"milvus:{address}")(index) is index
    assert f"Milvus at {address!r} cannot be opened" in caplog.text
    assert "Check the address in search.index" in caplog.text


def test_an_engine_that_is_down_is_reported_and_every_vector_is_searched_here(
    workplace: tuple[Index, Collection], caplog: pytest.LogCaptureFixture
) -> None:
    index, collection = workplace
    assert index.dense is not None
    searcher = Searcher(replace(index, dense=ApproximateVectorIndex(index.dense, collection, index.size)))
    dense, query = searcher.index.dense, HashingEmbedder().embed_query("read a file")[None]
    assert dense is not None
    collection.drop()
    found = dense.retrieve(query, 5, index.among(Filters()))
    assert found.rows.tolist() == index.dense.retrieve(query, 5, index.among(Filters())).rows.tolist()
    assert "Searching every vector in this process: Milvus did not answer" in caplog.text
