import re

from hypothesis import given
from hypothesis import strategies as st

from shortlist.catalog.naming import MAX_LENGTH, names_of, wire_name
from shortlist.models import Tool

texts = st.text(min_size=1, max_size=90)
tools = st.lists(st.tuples(texts, texts), max_size=12, unique=True).map(
    lambda pairs: [Tool(id=f"{server}/{name}", name=name, server=server) for server, name in pairs]
)


@given(texts, texts)
def test_a_wire_name_is_always_within_the_limits_of_strict_clients(server: str, name: str) -> None:
    assert re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_LENGTH}}}", wire_name(server, name))


@given(tools)
def test_names_lead_back_to_their_tools(found: list[Tool]) -> None:
    names = names_of(found)
    assert {names.by_name[names.by_id[tool.id]] for tool in found} == {tool.id for tool in found}


@given(tools)
def test_the_order_of_arrival_does_not_matter(found: list[Tool]) -> None:
    assert dict(names_of(found).by_id) == dict(names_of(reversed(found)).by_id)


def test_a_short_name_is_readable() -> None:
    assert wire_name("github", "create_issue") == "github__create_issue"


def test_a_long_name_keeps_its_beginning_and_takes_a_hash() -> None:
    long = wire_name("github", "create_" + "very_" * 20 + "long_issue")
    other = wire_name("github", "create_" + "very_" * 20 + "long_tissue")
    assert long.startswith("github__create_very_")
    assert len(long) == MAX_LENGTH
    assert long != other


def test_two_tools_that_want_one_name_both_give_it_up() -> None:
    one = Tool(id="a/b__c", name="b__c", server="a")
    two = Tool(id="a__b/c", name="c", server="a__b")
    assert names_of([one]).by_id[one.id] == "a__b__c"
    both = names_of([one, two])
    assert "a__b__c" not in both.by_name
    assert len(both.by_name) == 2


def test_plain_names_are_the_servers_own() -> None:
    tool = Tool(id="s/weird name.v2", name="weird name.v2", server="s")
    assert names_of([tool], plain=True).by_id[tool.id] == "weird name.v2"
