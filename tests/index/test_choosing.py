import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shortlist.errors import InvalidInput
from shortlist.index import choosing, nearest
from shortlist.index.choosing import choose_index
from shortlist.index.embedders import Progress, Vectors
from shortlist.index.index import Index
from shortlist.index.milvus import collection_name
from shortlist.index.nearest import ApproximateVectorIndex
from shortlist.index.saved import indexes_folder
from shortlist.library.filter import ToolFilter
from shortlist.models import Query
from shortlist.search.searcher import Searcher, SearchOptions
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, found, tool

QUERIES = ("send a message", "create a calendar event", "k8s pods")


@pytest.mark.parametrize("choice", ["", "auto", "milvus", "milvus:", "approximate:3"])
def test_an_unknown_index_is_refused_with_the_choices(choice: str) -> None:
    with pytest.raises(InvalidInput, match=r"use exact, approximate, or milvus:ADDRESS") as raised:
        choose_index(choice)
    assert repr(choice) in str(raised.value)
    with pytest.raises(InvalidInput):
        ToolFilter(catalog(WORKPLACE), embedding=None, saved_index=False, index=choice)


@pytest.mark.parametrize(("choice", "extra"), [("approximate", "ann"), ("milvus:file.db", "milvus")])
def test_an_index_whose_library_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, choice: str, extra: str
) -> None:
    monkeypatch.setattr(choosing, "find_spec", lambda _: None)
    monkeypatch.setattr(choosing, "is_available", lambda: False)
    with pytest.raises(InvalidInput, match=rf"shortlist-mcp\[{extra}\]"):
        choose_index(choice)


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="needs the extra 'ann'")
def test_a_prepared_searcher_answers_from_compressed_vectors_and_new_tools_are_found_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "FEW_PASSING", 5)
    options = SearchOptions(arrange=choose_index("approximate"))
    searcher, exact = (Searcher(catalog(WORKPLACE), HashingEmbedder(), options=o) for o in (options, SearchOptions()))
    searcher.prepare()
    exact.prepare()
    assert isinstance(searcher.index.dense, ApproximateVectorIndex)
    for text in QUERIES:
        one, other = (each.search(Query(text=text)).hits for each in (searcher, exact))
        assert [hit.tool.id for hit in one] == [hit.tool.id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-5)
    searcher.update(catalog([*searcher.catalog.tools.values(), tool("new/brew_coffee", "Brew a cup of coffee.")]))
    searcher.prepare()
    assert found(searcher, "brew coffee")[0] == "new/brew_coffee"
    assert isinstance(searcher.index.dense, ApproximateVectorIndex)


class OfWidth:
    """An embedder whose vectors have any number of dimensions, also odd ones."""

    model_id = "of a width"

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:  # noqa: ARG002
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        digest = hashlib.blake2b(text.encode(), digest_size=self.dimensions).digest()
        vector = np.frombuffer(digest, np.uint8).astype(np.float32) - 100
        unit: Vectors = vector / np.linalg.norm(vector)
        return unit


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="needs the extra 'ann'")
@pytest.mark.parametrize("dimensions", [1, 2, 3, 33])
def test_approximate_search_takes_vectors_of_any_width(monkeypatch: pytest.MonkeyPatch, dimensions: int) -> None:
    monkeypatch.setattr(choosing, "FEW_PASSING", 5)
    monkeypatch.setattr(nearest, "FEW_PASSING", 5)
    monkeypatch.setattr(nearest, "KEPT_SQUARES", 1.0)  # every axis is wanted, also the last of an odd number
    exact, approximate = (
        ToolFilter(catalog(WORKPLACE), embedder=OfWidth(dimensions), index=index, saved_index=False, vector_cache=None)
        for index in ("exact", "approximate")
    )
    is_compressed = isinstance(approximate._searcher.index.dense, ApproximateVectorIndex)
    assert is_compressed == (dimensions > 1), "codes stand for pairs of axes"
    for text in QUERIES:
        one, other = (each.search(text, mode="dense", limit=4).hits for each in (exact, approximate))
        assert [hit.tool.id for hit in one] == [hit.tool.id for hit in other]


def test_few_tools_are_searched_exactly_whatever_is_chosen() -> None:
    searcher = Searcher(
        catalog(WORKPLACE), HashingEmbedder(), options=SearchOptions(arrange=choose_index("approximate"))
    )
    searcher.prepare()
    assert not isinstance(searcher.index.dense, ApproximateVectorIndex)


def named(index: Index) -> str:
    assert index.dense is not None
    return collection_name(index, index.dense)


def test_indexes_that_number_their_rows_or_make_their_vectors_differently_do_not_share_a_collection() -> None:
    whole = catalog(WORKPLACE)
    fresh, same = (Index.build(whole).embedded(HashingEmbedder()) for _ in range(2))
    grown, _ = Index.build(whole.without_server("github")).embedded(HashingEmbedder()).updated(whole)
    incomplete = grown.compacted()
    complete = grown.embedded(HashingEmbedder()).compacted()
    other_model = Index.build(whole).embedded(HashingEmbedder("hashing@2"))
    assert fresh.catalog.fingerprint == complete.catalog.fingerprint == other_model.catalog.fingerprint
    assert named(fresh) == named(same)
    assert len({named(index) for index in (fresh, incomplete, complete, other_model)}) == 4


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("embedder", [None, HashingEmbedder()])
def test_indexes_are_saved_in_the_folder_that_was_chosen(
    tmp_path: Path, embedder: HashingEmbedder | None, waits: bool
) -> None:
    assert indexes_folder(str(tmp_path)) == tmp_path
    many = [tool(f"s/tool_{number}", f"Does number {number}.") for number in range(600)]
    made = ToolFilter(catalog(many), embedder=embedder, saved_index=str(tmp_path), vector_cache=None, wait=waits)
    made.wait()
    assert len(list(tmp_path.iterdir())) == 1
