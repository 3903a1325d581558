import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shortlist.catalog.catalog import Catalog
from shortlist.errors import IndexFormatError
from shortlist.index.columns import Growing
from shortlist.index.index import Index, IndexChange
from shortlist.index.saved import SAVED_FROM, SavedIndexes
from shortlist.index.store import VERSION, load_index, save_index
from shortlist.models import Filters, Query, Server, Tool
from shortlist.search.searcher import Searcher
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, catalogs, found, tool

QUERIES = ("create a calendar event", "k8s pods", "send mesage", "getHTTPResponseV2", "unheard of")


def saved(folder: Path, source: Catalog, *, dense: bool = True) -> Index:
    index = Index.build(source)
    if dense:
        index = index.embedded(HashingEmbedder())
    save_index(index, folder)
    return index


def answers(index: Index) -> list[list[tuple[str, float]]]:
    searcher = Searcher(index, HashingEmbedder())
    return [[(hit.tool.id, round(hit.score, 4)) for hit in searcher.search(Query(text=text)).hits] for text in QUERIES]


def header(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "index.json").read_text("utf-8"))
    return read


@pytest.mark.parametrize("dense", [True, False])
def test_a_loaded_index_answers_like_the_one_that_was_saved(tmp_path: Path, dense: bool) -> None:
    index = saved(tmp_path / "index", catalog(WORKPLACE, Server(name="slack", tags=("chat",))), dense=dense)
    loaded = load_index(tmp_path / "index")
    assert answers(loaded) == answers(index)
    assert loaded.catalog.fingerprint == index.catalog.fingerprint
    assert dict(loaded.catalog.servers) == dict(index.catalog.servers)


@given(catalogs.filter(len))
def test_every_tool_comes_back_whole(tmp_path_factory: pytest.TempPathFactory, source: Catalog) -> None:
    folder = tmp_path_factory.mktemp("saved") / "index"
    saved(folder, source)
    loaded = load_index(folder)
    assert dict(loaded.catalog.tools) == dict(source.tools)
    assert not source.diff(loaded.catalog)
    assert loaded.waiting == 0


def test_the_tools_of_a_known_catalog_with_the_same_content_are_used(tmp_path: Path) -> None:
    index = saved(tmp_path / "index", catalog(WORKPLACE))
    known, other = catalog(WORKPLACE), catalog({**WORKPLACE, "new/make_coffee": "Brew a cup."})
    assert load_index(tmp_path / "index", known).catalog is known
    assert load_index(tmp_path / "index", other).catalog is not other
    assert answers(load_index(tmp_path / "index", known)) == answers(index)


def test_vectors_that_come_later_do_not_change_what_is_saved(tmp_path: Path) -> None:
    index = Index.build(catalog(WORKPLACE))
    half = np.arange(len(WORKPLACE) // 2)
    texts = list(index.texts_without_vector(HashingEmbedder()).values())
    save_index(
        index.with_vectors(HashingEmbedder(), half, HashingEmbedder().embed_documents(texts)[half]), tmp_path / "i"
    )
    assert load_index(tmp_path / "i").embedded(HashingEmbedder()).waiting == 0
    assert load_index(tmp_path / "i").waiting == len(WORKPLACE) - len(half)


def test_definitions_pass_through_disk_unchanged(tmp_path: Path) -> None:
    odd = tool(
        "a/odd\u2028name",
        "Line\nbreaks, \x1b[0m and 日本\U0001f327",
        icons=[{"src": "x"}],
        _meta={"k": [None, 1.5]},
        annotations={"readOnlyHint": True},
    )
    saved(tmp_path / "index", catalog([odd]))
    (back,) = load_index(tmp_path / "index").catalog.tools.values()
    assert back == odd
    assert back.mcp() == odd.mcp()


def test_a_loaded_index_is_brought_up_to_date_like_any_other(tmp_path: Path) -> None:
    saved(tmp_path / "index", catalog(WORKPLACE))
    newer = catalog({**dict(list(WORKPLACE.items())[2:]), "new/make_coffee": "Brew a cup.", "files/read_file": "Open."})
    loaded = load_index(tmp_path / "index")
    loaded, change = loaded.updated(newer)
    assert change == IndexChange(1, 1, 2)
    loaded = loaded.embedded(HashingEmbedder())
    fresh = Index.build(newer)
    fresh = fresh.embedded(HashingEmbedder())
    assert answers(loaded) == answers(fresh)
    assert found(Searcher(loaded), "brew coffee")[0] == "new/make_coffee"


def test_what_left_the_catalog_is_not_saved(tmp_path: Path) -> None:
    index = saved(tmp_path / "index", catalog(WORKPLACE))
    left = dict(list(WORKPLACE.items())[5:])
    index, _ = index.updated(catalog(left))
    save_index(index, tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert list(loaded.ids) == sorted(left)
    assert loaded.waiting == 0
    assert answers(loaded) == answers(index)


def test_filters_work_on_a_loaded_index(tmp_path: Path) -> None:
    saved(tmp_path / "index", catalog([tool("a/x", annotations={"readOnlyHint": True}), tool("b/y")]))
    loaded = load_index(tmp_path / "index")
    mask = loaded.among(Filters(read_only=True)).rows
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == [0]


def test_an_empty_catalog_can_be_saved(tmp_path: Path) -> None:
    saved(tmp_path / "index", Catalog.of([]))
    assert len(load_index(tmp_path / "index")) == 0


def test_saving_again_replaces_the_whole(tmp_path: Path) -> None:
    saved(tmp_path / "index", catalog(WORKPLACE))
    saved(tmp_path / "index", catalog({"a/x": "Only this."}), dense=False)
    loaded = load_index(tmp_path / "index")
    assert list(loaded.ids) == ["a/x"]
    assert loaded.dense is None
    assert [path.name for path in tmp_path.iterdir()] == ["index"], "nothing is left beside it"


@pytest.mark.parametrize("version", [VERSION + 1, 0, "2", None])
def test_another_format_version_is_refused_with_the_remedy(tmp_path: Path, version: Any) -> None:
    saved(tmp_path / "index", catalog(WORKPLACE))
    (tmp_path / "index" / "index.json").write_text(json.dumps({**header(tmp_path / "index"), "version": version}))
    with pytest.raises(
        IndexFormatError, match=rf"format {version!r}, but this version reads {VERSION}; build it again"
    ):
        load_index(tmp_path / "index")


def test_a_missing_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="damaged or missing"):
        load_index(tmp_path / "nowhere")


READ_WHOLE = (
    "index.json",
    "catalog.json",
    "lexical-starts.npy",
    "lexical-alive.npy",
    "lexical-inverted_rows.npy",
    "dense-codes.npy",
    "dense-scales.npy",
    "ids-block.npy",
    "ids-hashes.npy",
    "names-ends.npy",
    "named-rows.npy",
    "facets-servers.npy",
    "facets-tags_starts.npy",
    "hashes-block.npy",
    "places-ends.npy",
    "members-rows.npy",
)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *((file, "gone") for file in (*READ_WHOLE, "tools.jsonl")),
        *((file, "empty") for file in (*READ_WHOLE, "tools.jsonl")),
        *((file, "cut") for file in (*READ_WHOLE, "tools.jsonl")),
        *((file, "garbage") for file in READ_WHOLE),
    ],
)
def test_any_damaged_file_is_noticed_on_loading(tmp_path: Path, file: str, damage: str) -> None:
    saved(tmp_path / "index", catalog(WORKPLACE))
    path = tmp_path / "index" / file
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "garbage": b"garbage " * 20}[damage])
    with pytest.raises(IndexFormatError, match="build it again"):
        load_index(tmp_path / "index")


@pytest.mark.parametrize("file", [file for file in READ_WHOLE if file.endswith(".npy")])
def test_a_column_that_claims_more_than_memory_holds_is_damaged(tmp_path: Path, file: str) -> None:
    saved(tmp_path / "index", catalog(WORKPLACE))
    path = tmp_path / "index" / file
    column = np.load(path)
    with path.open("wb") as damaged:
        claimed = {"descr": column.dtype.str, "fortran_order": False, "shape": (2**48, *column.shape[1:])}
        np.lib.format.write_array_header_1_0(damaged, claimed)
        damaged.write(column.tobytes())
    with pytest.raises(IndexFormatError, match="build it again"):
        load_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("file", "key"),
    [
        *(("index.json", key) for key in ("version", "fingerprint", "vocabulary", "facets", "shared", "model")),
        ("catalog.json", "servers"),
    ],
)
def test_an_incomplete_description_is_noticed_on_loading(tmp_path: Path, file: str, key: str) -> None:
    saved(tmp_path / "index", catalog(WORKPLACE))
    path = tmp_path / "index" / file
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != key}))
    with pytest.raises(IndexFormatError, match="build it again"):
        load_index(tmp_path / "index")


def test_files_of_two_indexes_do_not_mix(tmp_path: Path) -> None:
    saved(tmp_path / "one", catalog(WORKPLACE))
    saved(tmp_path / "other", catalog(dict(list(WORKPLACE.items())[3:])))
    for path in (tmp_path / "other").glob("lexical-*"):
        shutil.copy(path, tmp_path / "one" / path.name)
    with pytest.raises(IndexFormatError, match="differ in size"):
        load_index(tmp_path / "one")


def test_a_loaded_index_finds_names_by_their_beginning_before_and_after_an_update(tmp_path: Path) -> None:
    saved(tmp_path / "index", catalog({"a/send_mail": "One.", "a/send_fax": "Two.", "b/read": "Three."}))
    loaded = load_index(tmp_path / "index")
    assert {text: list(rows) for text, rows in loaded.names.starting("send")} == {"sendfax": [0], "sendmail": [1]}
    newer, _ = loaded.updated(loaded.catalog.with_server(Server(name="c"), [tool("c/send_mail"), tool("c/sender")]))
    named = {text: {newer.ids[row] for row in rows} for text, rows in newer.names.starting("send")}
    assert named == {"sendfax": {"a/send_fax"}, "sendmail": {"a/send_mail", "c/send_mail"}, "sender": {"c/sender"}}


def test_every_filter_marks_the_same_tools_before_and_after_loading(tmp_path: Path) -> None:
    offered = [
        tool("a/x", annotations={"readOnlyHint": True}, tags=["red", "blue"], category="one"),
        tool("a/y", annotations={"readOnlyHint": False, "destructiveHint": True}, tags=["blue"]),
        tool("b/z", category="two"),
    ]
    index = saved(tmp_path / "index", catalog(offered[:2]))
    whole = catalog(offered)
    older, newer = index.updated(whole)[0], load_index(tmp_path / "index").updated(whole)[0]
    every = frozenset(each.id for each in offered)
    for filters in (
        Filters(servers=frozenset({"a"})),
        Filters(categories=frozenset({"one", "two"})),
        Filters(tags=frozenset({"blue", "unheard of"})),
        Filters(read_only=False),
        Filters(destructive=True),
        Filters(among=every - {"a/x"}),
        Filters(exclude=every - {"b/z"}),
    ):
        one, other = older.among(filters).rows, newer.among(filters).rows
        assert one is not None
        assert other is not None
        assert np.array_equal(one, other), filters
        assert 0 < np.count_nonzero(one) < len(offered), filters


def many(count: int, *more: Tool) -> Catalog:
    return catalog([*(tool(f"s{n % 50}/tool_{n}", f"Does thing number {n}.") for n in range(count)), *more])


def test_processes_that_share_a_folder_open_what_one_of_them_saved_and_keep_their_own_changes(tmp_path: Path) -> None:
    whole = many(SAVED_FROM + 50)
    SavedIndexes(tmp_path, None).keep(Index.build(whole))
    newer = many(SAVED_FROM + 50, tool("new/brew_coffee", "Brew a cup of coffee.")).without_server("s4")
    one, other = SavedIndexes(tmp_path, None).open(newer), SavedIndexes(tmp_path, None).open(whole)
    assert isinstance(one.ids, Growing), "it was read, not built"
    assert found(Searcher(one), "brew coffee")[0] == "new/brew_coffee"
    assert not any(tool_id.startswith("s4/") for tool_id in found(Searcher(one), "thing number", limit=1_000))
    assert "new/brew_coffee" not in other.rows
    assert len(list(tmp_path.iterdir())) == 1, "a tenth has to change before another is saved"


def test_an_index_is_opened_from_a_folder_that_cannot_be_written_while_another_process_removes_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = many(SAVED_FROM)
    SavedIndexes(tmp_path, None).keep(Index.build(whole))
    (place,) = tmp_path.iterdir()
    place.with_name(f"{place.name}-removed").symlink_to(tmp_path / "nowhere")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    assert isinstance(SavedIndexes(tmp_path, None).open(whole).ids, Growing)
    newer = many(SAVED_FROM, tool("new/brew_coffee"))
    assert isinstance(SavedIndexes(tmp_path, None).open(newer).ids, Growing), "that of an older catalog is updated"


def test_what_a_process_left_that_was_killed_while_it_saved_is_removed_after_a_day(tmp_path: Path) -> None:
    left, running = tmp_path / ".index-left", tmp_path / ".index-running"
    for folder in (left, running):
        folder.mkdir()
        (folder / "ids-block.npy").touch()
    os.utime(left, times=(0, 0))
    SavedIndexes(tmp_path, None).keep(Index.build(many(SAVED_FROM)))
    assert not left.exists()
    assert running.exists()


def test_a_truncated_index_is_reported_and_the_tools_are_indexed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = many(SAVED_FROM)
    SavedIndexes(tmp_path, None).keep(Index.build(whole))
    (place,) = tmp_path.iterdir()
    cut = place / "lexical-inverted_rows.npy"
    cut.write_bytes(cut.read_bytes()[:1_000])
    index = SavedIndexes(tmp_path, None).open(whole)
    assert found(Searcher(index), "tool_77")[0] == "s27/tool_77"
    assert f"The index in {str(place)!r} is damaged or missing" in caplog.text
    SavedIndexes(tmp_path, None).keep(index)
    assert load_index(place).ids[0] == index.ids[0], "it is replaced by the next one that is saved"
