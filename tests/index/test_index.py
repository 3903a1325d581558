from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.catalog.catalog import Catalog
from shortlist.index import index as index_module
from shortlist.index.embedders import Vectors
from shortlist.index.index import MIN_GONE, Index, IndexChange
from shortlist.models import Filters, Server, Tool, ToolId
from shortlist.search.presets import EVEN
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, catalogs, tool, tools

flags = st.none() | st.booleans()
filters = st.builds(
    Filters,
    servers=st.none() | st.frozensets(st.sampled_from(["alpha", "beta", "nowhere"])),
    read_only=flags,
    exclude=st.frozensets(st.sampled_from(["alpha/create", "beta/get", "gamma/list_event"])),
)


class MemoryCache:
    """A vector cache that remembers what it was asked."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Vectors] = {}

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]:
        return {text: self.kept[model_id, text] for text in texts if (model_id, text) in self.kept}

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None:
        self.kept |= {(model_id, text): vector for text, vector in vectors.items()}


def weights(index: Index) -> dict[ToolId, dict[str, float]]:
    """Return what every live tool is found by."""
    found: dict[ToolId, dict[str, float]] = {tool_id: {} for tool_id in index.rows}
    for term in index.lexical.vocabulary:
        postings = index.lexical.postings(term)
        for row, weight in zip(postings.rows.tolist(), postings.weights.tolist(), strict=True):
            if index.lexical.alive[row]:
                found[index.ids[row]][term] = weight * index.lexical.idf(term)
    return found


@given(st.lists(catalogs, min_size=2, max_size=4))
def test_an_index_brought_up_to_date_equals_one_built_anew(versions: list[Catalog]) -> None:
    updated = Index.build(versions[0])
    updated = updated.embedded(HashingEmbedder())
    for version in versions[1:]:
        updated, _ = updated.updated(version)
    updated = updated.embedded(HashingEmbedder())
    fresh = Index.build(versions[-1])
    fresh = fresh.embedded(HashingEmbedder())
    assert updated.rows.keys() == fresh.rows.keys()
    assert weights(updated) == weights(fresh)
    assert updated.dense is not None
    assert fresh.dense is not None
    order = sorted(fresh.rows)
    mine, theirs = ([index.rows[i] for i in order] for index in (updated, fresh))
    assert (updated.dense.vectors(mine) == fresh.dense.vectors(theirs)).all()


@given(st.lists(catalogs, min_size=2, max_size=4))
def test_sentences_that_are_counted_by_difference_are_those_of_a_fresh_count(versions: list[Catalog]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index_module, "COUNTED_TOOLS", 2)
        updated = Index.build(versions[0])
        for version in versions[1:]:
            updated, _ = updated.updated(version)
        fresh = Index.build(versions[-1])
    assert {name: updated.shared[name] for name in fresh.shared} == fresh.shared
    assert {name: +found for name, found in updated.counts.items() if name in fresh.counts} == fresh.counts
    assert weights(updated) == weights(fresh)


@given(catalogs, catalogs)
def test_an_update_says_what_it_did(older: Catalog, newer: Catalog) -> None:
    diff = older.diff(newer)
    assert Index.build(older).updated(newer)[1] == IndexChange(len(diff.added), len(diff.changed), len(diff.removed))


@given(catalogs, st.lists(tools(), max_size=6), filters)
def test_a_mask_lets_exactly_the_tools_pass_that_the_filters_allow(
    older: Catalog, later: list[Tool], asked: Filters
) -> None:
    index = Index.build(older)
    newer = Catalog.of([*list(older.tools.values())[1:], *later])
    index, _ = index.updated(newer)
    mask = index.among(asked).rows
    passing = {index.ids[row] for row in range(len(index.ids)) if mask is None or mask[row]}
    assert passing == {each.id for each in newer.tools.values() if allowed(each, asked)}


def allowed(each: Tool, asked: Filters) -> bool:
    return (
        (asked.servers is None or each.server in asked.servers)
        and (asked.read_only is None or each.annotations.read_only is asked.read_only)
        and each.id not in asked.exclude
    )


@pytest.mark.parametrize(
    ("asked", "passing"),
    [
        (Filters(categories=frozenset({"finance"})), {"a/pay"}),
        (Filters(tags=frozenset({"money", "sky"})), {"a/pay"}),
        (Filters(destructive=True), {"b/wipe"}),
        (Filters(destructive=False), set()),
        (Filters(among=frozenset({"a/pay", "not/there"})), {"a/pay"}),
        (Filters(among=frozenset()), set()),
        (Filters(servers=frozenset()), set()),
        (Filters(exclude=frozenset({"a/pay"})), {"b/wipe"}),
        (Filters(servers=frozenset({"a"}), destructive=True), set()),
    ],
)
def test_every_kind_of_filter_is_hard(asked: Filters, passing: set[ToolId]) -> None:
    index = Index.build(
        catalog(
            [
                tool("a/pay", _meta={"category": "finance", "tags": ["money"]}),
                tool("b/wipe", annotations={"destructiveHint": True}),
            ]
        )
    )
    mask = index.among(asked).rows
    assert mask is not None
    assert {index.ids[row] for row in np.flatnonzero(mask).tolist()} == passing


def test_a_server_that_is_described_anew_rewords_its_tools() -> None:
    tools_of_a = [tool("a/x", "Same."), tool("a/y", "Same too.")]
    index = Index.build(catalog(tools_of_a, Server(name="a", description="Old words.")))
    renewed = catalog(tools_of_a, Server(name="a", description="Fresh vocabulary."))
    index, change = index.updated(renewed)
    assert change == IndexChange(0, 0, 0)
    assert weights(index) == weights(Index.build(renewed))


def test_a_sentence_that_becomes_boilerplate_is_so_for_the_tools_that_were_there() -> None:
    notice = "Needs an account."
    few = [tool(f"a/t{n}", f"{notice} Own words {n}.") for n in range(2)]
    many = [*few, *(tool(f"a/t{n}", f"{notice} Own words {n}.") for n in range(2, 5))]
    index = Index.build(catalog(few))
    index, _ = index.updated(catalog(many))
    assert weights(index) == weights(Index.build(catalog(many)))


def test_a_tool_that_moves_to_another_server_takes_its_boilerplate_along() -> None:
    notice = "Needs an account."
    before = [replace(tool(f"a/t{n}", f"{notice} Own words {n}."), id=f"t{n}") for n in range(3)]
    moved = replace(tool("b/t0", f"{notice} Own words 0."), id="t0")
    after = [moved, *before[1:]]
    index = Index.build(catalog(before))
    index, _ = index.updated(catalog(after))
    assert weights(index) == weights(Index.build(catalog(after)))


def test_only_what_changed_is_embedded_again() -> None:
    embedder = HashingEmbedder()
    index = Index.build(catalog(WORKPLACE))
    index = index.embedded(embedder)
    embedder.embedded.clear()
    index, _ = index.updated(catalog({**WORKPLACE, "mail/send_email": "Post a letter."}))
    assert index.waiting == 1
    index = index.embedded(embedder)
    assert [text for text in embedder.embedded if "letter" in text] == embedder.embedded
    assert index.waiting == 0


def test_equal_texts_are_embedded_once_and_cached_ones_never() -> None:
    embedder, cache = HashingEmbedder(), MemoryCache()
    twins = [replace(tool("a/x", "Same."), id=f"x{n}") for n in range(3)]
    Index.build(catalog(twins)).embedded(embedder, cache=cache)
    assert len(embedder.embedded) == 1
    Index.build(catalog(twins)).embedded(embedder, cache=cache)
    assert len(embedder.embedded) == 1


def test_another_models_vectors_are_thrown_away() -> None:
    index = Index.build(catalog(WORKPLACE))
    index = index.embedded(HashingEmbedder())
    other = HashingEmbedder("other@1")
    index = index.embedded(other)
    assert index.dense is not None
    assert index.dense.model_id == "other@1"
    assert len(other.embedded) == len(WORKPLACE)


def test_a_comparison_index_has_the_same_rows_after_tools_left() -> None:
    index = Index.build(catalog(WORKPLACE))
    left = dict(list(WORKPLACE.items())[3:])
    index, _ = index.updated(catalog(left))
    plain = index.reindexed(EVEN)
    assert plain.size == index.lexical.size
    assert plain.alive.tolist() == index.lexical.alive.tolist()
    assert plain.frequency("pod") == index.lexical.frequency("pod")


def test_an_empty_catalog_can_be_indexed_embedded_and_filled() -> None:
    index = Index.build(Catalog.of([]))
    index = index.embedded(HashingEmbedder())
    index, _ = index.updated(catalog(WORKPLACE))
    assert len(index) == index.waiting == len(WORKPLACE)


def crowd() -> Catalog:
    """Make three servers of which four departures are more than is kept."""
    each = MIN_GONE // 4 + 1
    return catalog({f"s{n % 3}/tool_{n}": f"Do thing {n}." for n in range(3 * each)})


def test_rows_of_tools_that_left_are_cleared_away_once_they_are_many() -> None:
    whole, index = crowd(), Index.build(crowd())
    index = index.embedded(HashingEmbedder())
    for turn in range(8):
        index, _ = index.updated(whole.without_server(f"s{turn % 3}"))
        index, _ = index.updated(whole)
        index = index.embedded(HashingEmbedder())
        assert len(index.ids) <= len(whole) + MIN_GONE
    fresh = Index.build(whole)
    fresh = fresh.embedded(HashingEmbedder())
    assert weights(index) == weights(fresh)
    assert {index.ids[row] for _, rows in index.names.items() for row in rows} == set(whole.tools)
    mask, servers = index.among(Filters(servers=frozenset({"s1"}))).rows, index.facets.servers
    assert mask is not None
    assert {servers[row] for row in np.flatnonzero(mask).tolist()} == {"s1"}
    assert np.array_equal(vectors_by_tool(index), vectors_by_tool(fresh))


def test_an_index_that_was_updated_still_answers_as_it_did() -> None:
    whole = crowd()
    older = Index.build(whole).embedded(HashingEmbedder())
    assert older.dense is not None
    before = weights(older), older.dense.vectors(np.arange(older.size)).tolist(), older.waiting
    newer = older
    for turn in range(3):
        newer, _ = newer.updated(whole.without_server(f"s{turn}"))
        newer, _ = newer.updated(catalog([*whole.tools.values(), tool(f"new/tool_{turn}", "Do another thing.")]))
        newer = newer.embedded(HashingEmbedder())
    assert newer.rows.keys() - older.rows.keys() == {"new/tool_2"}
    assert (weights(older), older.dense.vectors(np.arange(older.size)).tolist(), older.waiting) == before
    mask = older.among(Filters(servers=frozenset({"s0", "new"}))).rows
    assert mask is not None
    assert {older.ids[row] for row in np.flatnonzero(mask).tolist()} == {i for i in whole.tools if i.startswith("s0/")}


def vectors_by_tool(index: Index) -> Vectors:
    assert index.dense is not None
    return index.dense.vectors([index.rows[tool_id] for tool_id in sorted(index.rows)])
