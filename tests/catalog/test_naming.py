import re

from hypothesis import given
from hypothesis import strategies as st

from shortlist.catalog.naming import MAX_LENGTH, names_of, wire_name

texts = st.text(min_size=1, max_size=90)
members = st.dictionaries(texts, st.lists(texts, max_size=4, unique=True), max_size=5).map(
    lambda servers: {server: [f"{server}/{name}" for name in names] for server, names in servers.items()}
)


@given(texts, texts)
def test_a_wire_name_is_always_within_the_limits_of_strict_clients(server: str, name: str) -> None:
    assert re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_LENGTH}}}", wire_name(server, name))


@given(members)
def test_names_lead_back_to_their_tools(servers: dict[str, list[str]]) -> None:
    names = names_of(servers)
    ids = {tool_id for held in servers.values() for tool_id in held}
    assert {names.by_name[names.by_id[tool_id]] for tool_id in ids} == ids


@given(members)
def test_the_order_of_arrival_does_not_matter(servers: dict[str, list[str]]) -> None:
    assert dict(names_of(servers).by_id) == dict(names_of(dict(reversed(servers.items()))).by_id)


def test_a_short_name_is_readable() -> None:
    assert wire_name("github", "create_issue") == "github__create_issue"


def test_a_long_name_keeps_its_beginning_and_takes_a_hash() -> None:
    long = wire_name("github", "create_" + "very_" * 20 + "long_issue")
    other = wire_name("github", "create_" + "very_" * 20 + "long_tissue")
    assert long.startswith("github__create_very_")
    assert len(long) == MAX_LENGTH
    assert long != other


def test_two_tools_that_want_one_name_both_give_it_up() -> None:
    alone = names_of({"a": ["a/b__c"]})
    assert alone.by_id["a/b__c"] == "a__b__c"
    both = names_of({"a": ["a/b__c"], "a__b": ["a__b/c"]})
    assert "a__b__c" not in both.by_name
    assert len(both.by_name) == 2


def test_plain_names_are_the_servers_own() -> None:
    assert names_of({"s": ["s/weird name.v2"]}, plain="s").by_id["s/weird name.v2"] == "weird name.v2"
