"""The engine's local file keeps the contract of every index; a cluster speaks the same protocol and was not tested."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pymilvus", reason="needs the extra 'milvus': pip install -r tests_all/milvus.txt")
pytest.importorskip("milvus_lite", reason="milvus-lite has no wheel for this platform")

from milvus_lite.server_manager import server_manager_instance
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, tool
from tests.index.contract import CONTRACT, DIMENSIONS, MODEL, drawn

from shortlist.index import milvus
from shortlist.index.choosing import choose_index
from shortlist.index.embedders import Progress, Vectors
from shortlist.index.index import Index
from shortlist.index.milvus import Collection, MilvusLexicalIndex, by_milvus, expression
from shortlist.index.nearest import ApproximateVectorIndex, Moments
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

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        raise NotImplementedError(texts, progress)

    def embed_query(self, text: str) -> Vectors:
        raise NotImplementedError(text)


def index_of(vectors: Vectors) -> Index:
    index = Index.build(catalog([tool(f"s{n % 7}/tool_{n}", f"Does {n}.") for n in range(len(vectors))]))
    return index.with_vectors(Drawn(), np.arange(len(vectors)), vectors)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    collection = Collection.open(str(tmp_path_factory.mktemp("milvus") / "index.db"), index_of(drawn(ROWS, 1)))
    yield collection
    collection.close()


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_milvus_keeps_the_contract(clause: object, published: Collection, tmp_path: Path) -> None:
    assert callable(clause)
    with ExitStack() as opened:

        def make(exact: ExactVectorIndex) -> ExactVectorIndex:
            if exact.size == ROWS:
                return ApproximateVectorIndex(exact, published, moments=Moments.of(exact))
            index = index_of(exact.vectors(np.arange(exact.size)))
            collection = Collection.open(str(tmp_path / "index.db"), index)
            opened.callback(collection.close)
            return by_milvus(index, collection)

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


def test_filters_are_pushed_down_and_no_name_is_part_of_an_expression() -> None:
    filters = Filters(servers=frozenset({'a"b', "c"}), read_only=True, tags=frozenset({"x"}))
    assert re.fullmatch(r"server in \[-?\d+, -?\d+\] and read_only == 1", expression(filters))


ODD_NAMES = ('a"] or row >= 0 or server in ["', "'\\", "日本 🌧", "new\nline\x00", "x" * 5_000)


def test_servers_of_any_name_are_filtered_by_the_engine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offered = [tool(f"{name}/tool_{n}", f"Does {n}.") for name in ODD_NAMES for n in range(50)]
    index = Index.build(catalog(offered)).embedded(HashingEmbedder())
    assert index.dense is not None
    collection, query = Collection.open(str(tmp_path / "index.db"), index), HashingEmbedder().embed_query("does")[None]
    for name in ODD_NAMES:
        among = index.among(Filters(servers=frozenset({name})))
        found = collection.near(query, 10, among)
        assert {index.tool(int(row)).server for row in found} == {name}
        assert 10 <= len(found) < 50, "the engine made the cut"
    assert not [record for record in caplog.records if record.name == milvus.__name__], "the engine answered each time"
    collection.close()


def test_a_tool_of_a_megabyte_is_published(tmp_path: Path) -> None:
    large = tool("files/read_everything", " ".join(f"word{n}" for n in range(95_000)))
    index = Index.build(catalog([*catalog(WORKPLACE).tools.values(), large])).embedded(HashingEmbedder())
    collection = Collection.open(str(tmp_path / "index.db"), index)
    near = collection.near(HashingEmbedder().embed_query("word7 word8")[None], index.size, index.among(Filters()))
    assert len(near) == index.size
    collection.close()


def test_after_many_changes_the_tools_that_are_left_are_published_again(tmp_path: Path) -> None:
    searcher = Searcher(
        catalog(WORKPLACE),
        HashingEmbedder(),
        options=SearchOptions(arrange=choose_index(f"milvus:{tmp_path / 'x.db'}")),
    )
    searcher.prepare()
    more = [tool(f"new/tool_{n}", f"Does {n}.") for n in range(20)]
    newer = catalog([*catalog(WORKPLACE).without_server("github").tools.values(), *more])
    searcher.update(newer)
    searcher.prepare()
    dense = searcher.index.dense
    assert isinstance(dense, ApproximateVectorIndex)
    assert not dense.is_outdated
    assert searcher.index.size == len(newer)
    assert searcher.search(Query(text="does 7")).hits[0].tool.id == "new/tool_7"


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
    workplace: tuple[Index, Collection], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index, collection = workplace
    assert index.dense is not None
    searcher = Searcher(replace(index, dense=by_milvus(index, collection)))
    dense, query = searcher.index.dense, HashingEmbedder().embed_query("read a file")[None]
    assert dense is not None
    server_manager_instance.release_server(str(tmp_path / "index.db"))
    found = dense.retrieve(query, 5, index.among(Filters()))
    assert found.rows.tolist() == index.dense.retrieve(query, 5, index.among(Filters())).rows.tolist()
    assert "Searching every vector in this process: Milvus did not answer" in caplog.text
    dense.retrieve(query, 5, index.among(Filters()))
    assert len(caplog.records) == 1, "an engine that failed is left alone for a while"
    collection._away_until = 0.0
    collection.close()
    assert len(dense.retrieve(query, 5, index.among(Filters())).rows) == len(found.rows)
