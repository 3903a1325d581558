import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shortlist.errors import IndexFormatError, InvalidInput
from shortlist.index import nearest
from shortlist.index.choosing import choose_index
from shortlist.index.index import Index
from shortlist.index.nearest import ApproximateVectorIndex, Moments
from shortlist.index.ports import Among
from shortlist.index.store import load_index, save_index
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import Filters
from tests.fakes import WORKPLACE, HashingEmbedder, catalog
from tests.index.contract import CONTRACT, Make, drawn, exact_index

pytest.importorskip("faiss", reason="needs the extra 'ann'")

ROWS = 30_000
"""Enough for the rows that a query does not look at to be most of them, where nothing is filtered."""


@pytest.fixture(scope="module")
def compressed() -> Make:
    made = ApproximateVectorIndex.over(exact_index(ROWS))

    def make(exact: ExactVectorIndex) -> ExactVectorIndex:
        if exact.size != ROWS:
            return ApproximateVectorIndex.over(exact)
        return ApproximateVectorIndex(exact, made.finder, moments=Moments.of(exact))

    return make


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("kind", ["exact", "compressed"])
def test_an_index_of_vectors_keeps_the_contract(clause: object, kind: str, compressed: Make) -> None:
    assert callable(clause)
    clause(compressed if kind == "compressed" else lambda exact: exact, ROWS)


def saved_compressed(folder: Path) -> Index:
    index = Index.build(catalog(WORKPLACE)).embedded(HashingEmbedder())
    assert index.dense is not None
    save_index(replace(index, dense=ApproximateVectorIndex.over(index.dense)), folder)
    return index


def test_compressed_vectors_are_saved_with_the_index(tmp_path: Path) -> None:
    index = saved_compressed(tmp_path / "index")
    loaded = load_index(tmp_path / "index").dense
    assert isinstance(loaded, ApproximateVectorIndex)
    assert index.dense is not None
    query, everything = HashingEmbedder().embed_query("send mail")[None], index.among(Filters())
    found, wanted = (dense.retrieve(query, 5, everything) for dense in (loaded, index.dense))
    assert found.rows.tolist() == wanted.rows.tolist()
    assert found.mean == pytest.approx(wanted.mean, abs=1e-6)
    assert found.deviation == pytest.approx(wanted.deviation, abs=1e-6)


@pytest.mark.parametrize("damage", ["truncated", "garbage", "of other vectors", "moments of another width"])
def test_damaged_compressed_vectors_are_refused_on_loading(tmp_path: Path, damage: str) -> None:
    saved_compressed(tmp_path / "index")
    place = tmp_path / "index" / "dense-compressed.npy"
    whole = np.load(place)
    other = ApproximateVectorIndex.over(exact_index(100)).state()["compressed"]
    if damage == "moments of another width":
        np.save(tmp_path / "index" / "dense-products.npy", np.zeros((3, 3), np.float32))
    else:
        made = {"truncated": whole[: len(whole) // 2], "garbage": np.full(99, 7, np.uint8), "of other vectors": other}
        np.save(place, made[damage])
    with pytest.raises(IndexFormatError, match="build it again"):
        load_index(tmp_path / "index")


def test_without_the_library_a_saved_index_is_searched_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_compressed(tmp_path / "index")
    monkeypatch.setattr(nearest, "is_available", lambda: False)
    assert type(load_index(tmp_path / "index").dense) is ExactVectorIndex


def test_exact_search_stays_exact_where_another_process_saved_compressed_vectors(tmp_path: Path) -> None:
    saved_compressed(tmp_path / "index")
    assert type(choose_index("exact")(load_index(tmp_path / "index")).dense) is ExactVectorIndex


def test_the_mean_and_deviation_are_those_of_all_rows_that_may_answer() -> None:
    """Also after rows came and others were removed."""
    exact, query = exact_index(2_000), drawn(1, 3)
    newer = ApproximateVectorIndex.over(exact).grown(2_010).with_vectors(np.arange(2_000, 2_010), drawn(10, 4))
    removed = np.ones(2_010, np.bool_)
    removed[[5, 1_000, 2_003]] = False
    for mask in (None, removed):
        among = Among(size=2_010, rows=mask)
        wanted = newer.exact().retrieve(query, 10, among)
        assert newer._spread(query, among) == pytest.approx((wanted.mean, wanted.deviation), abs=1e-5)


def test_a_row_whose_vector_comes_after_compressing_is_found_and_counted() -> None:
    vectors, query = drawn(2_000, 1), drawn(1, 3)
    waiting = vectors.copy()
    waiting[700] = 0
    index = ApproximateVectorIndex.over(ExactVectorIndex.of("drawn", waiting))
    filled = index.with_vectors(np.array([700]), query)
    for among in (Among(size=2_000), Among(size=2_000, rows=np.arange(2_000) != 5)):
        found, wanted = (each.retrieve(query, 1, among) for each in (filled, filled.exact()))
        assert found.rows.tolist() == wanted.rows.tolist() == [700]
        assert filled._spread(query, among) == pytest.approx((wanted.mean, wanted.deviation), abs=1e-5)
    hidden = Among(size=2_000, rows=np.arange(2_000) != 700)
    assert 700 not in filled.retrieve(query, 10, hidden).rows
    assert 700 not in index.retrieve(query, 10, Among(size=2_000)).rows, "the index before the update is unchanged"
    assert "compressed" not in filled.state(), "it is compressed again before it is saved"


def test_a_new_finder_is_due_once_a_fifth_of_the_rows_came_later() -> None:
    index = ApproximateVectorIndex.over(exact_index(100))
    assert not index.grown(120).is_outdated
    assert index.grown(130).is_outdated


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InvalidInput, match=r"shortlist-mcp\[ann\]"):
        ApproximateVectorIndex.over(ExactVectorIndex.empty(4, "none", 3))
