import importlib.util
from pathlib import Path

import pytest

from shortlist.errors import InvalidInput
from shortlist.index import choosing
from shortlist.index.choosing import choose_index
from shortlist.index.nearest import ApproximateVectorIndex
from shortlist.index.saved import indexes_folder
from shortlist.library.filter import ToolFilter
from shortlist.models import Query
from shortlist.search.searcher import Searcher, SearchOptions
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, found, tool


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
    for text in ("send a message", "create a calendar event", "k8s pods"):
        one, other = (each.search(Query(text=text)).hits for each in (searcher, exact))
        assert [hit.tool.id for hit in one] == [hit.tool.id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-5)
    searcher.update(catalog([*searcher.catalog.tools.values(), tool("new/brew_coffee", "Brew a cup of coffee.")]))
    searcher.prepare()
    assert found(searcher, "brew coffee")[0] == "new/brew_coffee"
    assert isinstance(searcher.index.dense, ApproximateVectorIndex)


def test_few_tools_are_searched_exactly_whatever_is_chosen() -> None:
    searcher = Searcher(
        catalog(WORKPLACE), HashingEmbedder(), options=SearchOptions(arrange=choose_index("approximate"))
    )
    searcher.prepare()
    assert not isinstance(searcher.index.dense, ApproximateVectorIndex)


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
