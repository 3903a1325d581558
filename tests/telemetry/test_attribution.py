"""Which search a call belongs to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.storage.port import EventPlace
from shortlist.telemetry.events import Searched
from shortlist.telemetry.ledger import SEARCHES, SECONDS, Trail
from shortlist.telemetry.measures import FoundTool
from tests.telemetry.happenings import call, search


def searched(trail: Trail, event: Searched, seconds: float = 0.0) -> EventPlace:
    place = EventPlace()
    trail.searched(event, place, seconds, 0)
    return place


def test_a_call_belongs_to_the_last_search_that_returned_its_tool() -> None:
    trail = Trail()
    searched(trail, search("first", "s/a", "s/b"))
    wanted = searched(trail, search("second", "s/b"))
    searched(trail, search("third", "s/c"))
    known = trail.called(call("s/b"), 1.0)
    assert known.search is not None
    assert known.search is wanted
    assert (known.rank, known.fresh) == (1, True)


def test_a_near_duplicate_was_found_at_the_rank_of_the_hit_that_stands_for_it() -> None:
    trail = Trail()
    hit = FoundTool(tool="s/a", rank=2, score=1.0, family=("t/a", "u/a"))
    searched(trail, replace(search("q"), hits=(hit,)))
    assert trail.called(call("u/a"), 1.0).rank == 2


def test_a_call_repeated_after_the_same_search_is_fresh_once() -> None:
    trail = Trail()
    searched(trail, search("q", "s/a"))
    assert [trail.called(call("s/a"), 1.0).fresh for _ in range(3)] == [True, False, False]
    searched(trail, search("again", "s/a"))
    assert trail.called(call("s/a"), 2.0).fresh


def test_a_search_that_is_too_old_does_not_count() -> None:
    trail = Trail()
    searched(trail, search("q", "s/a"), seconds=0.0)
    assert trail.called(call("s/a"), SECONDS).rank == 1
    assert trail.called(call("s/a"), SECONDS + 1).search is None


def test_only_the_last_searches_count() -> None:
    trail = Trail()
    searched(trail, search("q", "s/a"))
    for number in range(SEARCHES):
        searched(trail, search(f"other {number}", "s/b"))
    assert trail.called(call("s/a"), 1.0).search is None


def rephrased(trail: Trail, event: Searched, seconds: float = 1.0) -> bool:
    return trail.searched(event, EventPlace(), seconds, 0).search is not None


@pytest.mark.parametrize(
    ("later", "is_rephrased"),
    [
        (search("open a new issue on github", "s/x"), True),  # shares its words
        (search("file a ticket", "s/a", "s/b"), True),  # finds the same
        (search("file a ticket", "s/x", "s/y"), False),
        (search("create a github issue", "s/a", offset=5), False),  # reads on
        (search("create a github issue", "s/a", part=1), False),  # belongs to the same request
    ],
)
def test_a_search_for_the_same_rephrases_the_one_before(later: Searched, is_rephrased: bool) -> None:
    trail = Trail()
    searched(trail, search("create a github issue", "s/a", "s/b"))
    assert rephrased(trail, later) is is_rephrased


def test_after_a_call_or_a_while_a_similar_search_is_a_new_one() -> None:
    trail = Trail()
    searched(trail, search("create a github issue", "s/a"))
    trail.called(call("t/other"), 0.5)
    assert not rephrased(trail, search("create a gitlab issue", "s/a"))
    assert not rephrased(trail, search("create a jira issue", "s/a"), seconds=1_000.0)


def test_two_tools_are_used_together_once_in_a_workspace() -> None:
    trail = Trail()
    together = [trail.called(call(tool), 1.0).together for tool in ("s/a", "s/b", "s/a", "s/c")]
    assert together == [(), ("s/a",), (), ("s/a", "s/b")]
    assert trail.called(call("s/d", "error"), 1.0).together == ()


steps = st.lists(
    st.one_of(
        st.lists(st.sampled_from("abcd"), unique=True).map(lambda tools: ("search", tools)),
        st.sampled_from("abcd").map(lambda tool: ("call", tool)),
    ),
    max_size=30,
)


@given(steps)
def test_a_rank_is_the_place_in_the_last_of_the_remembered_searches_that_has_the_tool(
    steps: list[tuple[str, str]],
) -> None:
    trail, done = Trail(), []
    for kind, value in steps:
        if kind == "search":
            done.append(list(value))
            searched(trail, search("q", *value))
        else:
            known = trail.called(call(value), 1.0)
            having = [tools for tools in done[-SEARCHES:] if value in tools]
            assert known.rank == (having[-1].index(value) + 1 if having else None)
