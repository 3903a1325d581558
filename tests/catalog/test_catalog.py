import random
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.catalog.catalog import Catalog, Layered
from shortlist.catalog.readers import tool_from_mcp
from shortlist.models import Server, Tool
from tests.fakes import catalogs, tool, tools


def test_tools_stand_in_the_order_of_their_ids() -> None:
    assert list(Catalog.of([tool("b/x"), tool("a/z"), tool("a/y")]).tools) == ["a/y", "a/z", "b/x"]


def test_a_catalog_cannot_be_changed() -> None:
    catalog = Catalog.of([tool("a/x")])
    assert isinstance(catalog.tools, MappingProxyType)
    with pytest.raises(TypeError):
        catalog.tools["a/y"] = tool("a/y")  # type: ignore[index]


def test_a_server_that_nobody_described_is_there_by_its_name() -> None:
    catalog = Catalog.of([tool("a/x")], [Server(name="b", description="No tools yet.")])
    assert dict(catalog.servers) == {"a": Server(name="a"), "b": Server(name="b", description="No tools yet.")}
    assert {name: len(found) for name, found in catalog.by_server.items()} == {"a": 1, "b": 0}


@given(st.lists(tools(), unique_by=lambda each: each.id), st.randoms())
def test_equal_catalogs_have_equal_fingerprints_in_whatever_order_they_came(
    every: list[Tool], order: random.Random
) -> None:
    shuffled = list(every)
    order.shuffle(shuffled)
    assert Catalog.of(every).fingerprint == Catalog.of(shuffled).fingerprint


@given(catalogs, catalogs)
def test_catalogs_differ_exactly_where_their_diff_says_so(one: Catalog, other: Catalog) -> None:
    diff = one.diff(other)
    assert bool(diff) == (dict(one.tools) != dict(other.tools))
    rebuilt = {i: each for i, each in one.tools.items() if i not in diff.removed | diff.changed}
    rebuilt |= {i: other.tools[i] for i in diff.added | diff.changed}
    assert rebuilt == dict(other.tools)


def test_any_change_of_a_definition_changes_the_hash() -> None:
    before = tool("a/x", "Same words.")
    assert tool("a/x", "Same words.").content_hash == before.content_hash
    for key in ("icons", "_meta", "annotations", "outputSchema"):
        assert tool("a/x", "Same words.", **{key: {"new": 1}}).content_hash != before.content_hash


def test_a_changed_server_description_changes_the_fingerprint() -> None:
    described = Catalog.of([tool("a/x")], [Server(name="a", description="News.")])
    assert described.fingerprint != Catalog.of([tool("a/x")]).fingerprint


def test_a_servers_tools_are_replaced_as_a_whole() -> None:
    catalog = Catalog.of([tool("a/old"), tool("b/kept")])
    renewed = catalog.with_server(Server(name="a", title="A"), [tool("a/new")])
    assert list(renewed.tools) == ["a/new", "b/kept"]
    assert renewed.servers["a"].title == "A"
    assert list(catalog.tools) == ["a/old", "b/kept"], "the catalog before is what it was"


def test_a_server_leaves_with_its_tools() -> None:
    left = Catalog.of([tool("a/x"), tool("b/y")]).without_server("a")
    assert list(left.tools) == ["b/y"]
    assert list(left.servers) == ["b"]


def in_layers(catalog: Catalog) -> Catalog:
    """Return a catalog that keeps changes apart from the rest, as a large one does."""
    nothing_gone: frozenset[str] = frozenset()
    tools, hashes = Layered(catalog.tools, {}, nothing_gone), Layered(catalog.hashes, {}, nothing_gone)
    return Catalog(tools, catalog.servers, hashes, catalog.members)


either = catalogs | catalogs.map(in_layers)
steps = st.lists(st.tuples(st.sampled_from(["alpha", "beta"]), st.none() | st.lists(tools(), max_size=4)), max_size=5)


@given(either, steps, st.booleans())
def test_servers_that_come_and_go_leave_the_catalog_that_their_tools_make(
    catalog: Catalog, changes: list[tuple[str, list[Tool] | None]], fingerprints_are_asked_for: bool
) -> None:
    expected, servers = dict(catalog.tools), dict(catalog.servers)
    for name, listed in changes:
        assert not fingerprints_are_asked_for or catalog.fingerprint
        expected = {i: each for i, each in expected.items() if each.server != name}
        servers.pop(name, None)
        if listed is None:
            catalog = catalog.without_server(name)
            continue
        own = [each for each in listed if each.server == name]
        catalog = catalog.with_server(Server(name=name, title="New"), own)
        expected |= {each.id: each for each in own}
        servers[name] = Server(name=name, title="New")
    fresh = Catalog.of(expected.values(), servers.values())
    assert dict(catalog.tools) == dict(fresh.tools)
    assert list(catalog.tools) == list(fresh.tools)
    assert len(catalog) == len(fresh)
    assert catalog.fingerprint == fresh.fingerprint
    assert catalog.by_server == fresh.by_server
    assert not catalog.diff(fresh)


@given(either, steps)
def test_a_catalog_made_of_another_differs_from_it_as_their_tools_do(
    catalog: Catalog, changes: list[tuple[str, list[Tool] | None]]
) -> None:
    versions = [catalog]
    for name, listed in changes:
        own = [each for each in listed or () if each.server == name]
        last = versions[-1]
        versions.append(last.with_server(Server(name=name), own) if own else last.without_server(name))
    for older, newer in pairwise(versions):
        assert older.diff(newer) == Catalog.of(older.tools.values()).diff(Catalog.of(newer.tools.values()))
    assert versions[-1].diff(catalog) == Catalog.of(versions[-1].tools.values()).diff(catalog)


@given(either)
def test_a_tool_that_left_is_not_there(catalog: Catalog) -> None:
    left = catalog.without_server("alpha")
    for tool_id, each in catalog.tools.items():
        assert (tool_id in left.tools) == (each.server != "alpha")
        assert (left.tools.get(tool_id) is None) == (each.server == "alpha")


def test_the_same_list_with_one_tool_changed_added_or_gone_makes_the_same_catalog_as_a_fresh_one() -> None:
    def listed(names: str, about: str = "") -> list[Tool]:
        return [made.setdefault((n, about), tool_from_mcp({"name": n, "description": about}, "s")) for n in names]

    made: dict[tuple[str, str], Tool] = {}
    catalog, server = Catalog.of(()), Server(name="s")
    for now in (
        listed("badc"),
        listed("bxadc"),
        listed("bdc"),
        [*listed("b"), *listed("d", "changed"), *listed("c")],
        [*listed("d", "changed"), *listed("cbe")],
        listed("bb"),
        listed("abc"),
    ):
        catalog = catalog.with_server(server, now)
        fresh = Catalog.of(now, (server,))
        assert dict(catalog.tools) == dict(fresh.tools)
        assert catalog.members == fresh.members
        assert dict(catalog.hashes) == dict(fresh.hashes)
        assert catalog.fingerprint == fresh.fingerprint
