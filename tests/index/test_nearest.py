import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shortlist.errors import IndexFormatError, InvalidInput
from shortlist.index.index import Index
from shortlist.index.nearest import ApproximateVectorIndex
from shortlist.index.store import load_index, save_index
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import Filters
from tests.fakes import WORKPLACE, HashingEmbedder, catalog
from tests.index.contract import CONTRACT, Make, exact_index

pytest.importorskip("faiss", reason="needs the extra 'ann'")

ROWS = 30_000
"""Enough for the cells that a query does not look at to be most of them, where nothing is filtered."""


@pytest.fixture(scope="module")
def cells() -> Make:
    made = ApproximateVectorIndex.over(exact_index(ROWS))
    return lambda exact: ApproximateVectorIndex(exact, made._finder, exact.size)


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("kind", ["exact", "cells"])
def test_an_index_of_vectors_keeps_the_contract(clause: object, kind: str, cells: Make) -> None:
    assert callable(clause)
    clause(cells if kind == "cells" else lambda exact: exact, ROWS)


def test_cells_are_saved_with_the_index_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    index = Index.build(catalog(WORKPLACE)).embedded(HashingEmbedder())
    assert index.dense is not None
    save_index(replace(index, dense=ApproximateVectorIndex.over(index.dense)), tmp_path / "index")
    loaded = load_index(tmp_path / "index").dense
    assert isinstance(loaded, ApproximateVectorIndex)
    query, everything = HashingEmbedder().embed_query("send mail")[None], index.among(Filters())
    assert (
        loaded.retrieve(query, 5, everything).rows.tolist() == index.dense.retrieve(query, 5, everything).rows.tolist()
    )
    np.save(tmp_path / "index" / "dense-cell_rows.npy", np.arange(3, dtype=np.int32))
    with pytest.raises(IndexFormatError, match="differ in size"):
        load_index(tmp_path / "index")


def test_cells_are_due_again_once_a_fifth_of_the_rows_came_later() -> None:
    index = ApproximateVectorIndex.over(exact_index(100))
    assert not index.grown(120).is_outdated
    assert index.grown(130).is_outdated


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InvalidInput, match=r"shortlist-mcp\[ann\]"):
        ApproximateVectorIndex.over(ExactVectorIndex.empty(4, "none", 3))
