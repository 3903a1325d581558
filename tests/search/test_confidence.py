import pytest

from shortlist.models import Filters, Query
from shortlist.search.searcher import Searcher
from tests.fakes import searcher


def test_an_unknown_word_lowers_confidence_and_does_not_gate(workplace: Searcher) -> None:
    known = workplace.search(Query(text="create a calendar event"))
    unknown = workplace.search(Query(text="create a calendar event for zorbnaxian"))
    assert unknown.hits[0].tool.id == "calendar/create_event"
    assert unknown.confidence.match_probability < known.confidence.match_probability


@pytest.mark.parametrize("dense", [True, False])
def test_nothing_but_unknown_words_still_shows_the_closest_tools(dense: bool) -> None:
    many = {f"s/tool_{n:03}": f"Does thing number {n}." for n in range(150)}
    result = searcher(many, dense=dense).search(Query(text="zorbnax quux"))
    assert len(result.hits) == 5
    assert result.confidence.level in ("none", "low")


def test_a_filter_that_nothing_passes_is_answered_with_none(workplace: Searcher) -> None:
    result = workplace.search(Query(text="create event", filters=Filters(servers=frozenset({"nowhere"}))))
    assert result.hits == ()
    assert result.confidence.level == "none"


def test_a_name_spelled_out_is_a_reason(workplace: Searcher) -> None:
    assert "the query spells its name" in workplace.search(Query(text="send_email")).confidence.reasons
