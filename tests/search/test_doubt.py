"""A message whose request is in doubt: what else may be asked is searched, too, and counts as far as it is likely."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist import ToolFilter
from shortlist.models import Confidence, Hit, Level, OtherAsk, Query, SearchResult, Tool
from shortlist.search.doubt import weighed
from shortlist.search.fusion import HIGH, LOW, MEDIUM
from shortlist.search.searcher import Searcher
from shortlist.text.asking import LEAST_LIKELY
from shortlist.text.asks import read_ask
from tests.fakes import catalog

TOOLS = catalog(
    {
        "maps/distance_matrix": "Compute driving times between several addresses.",
        "calendar/create_event": "Create an event in the calendar.",
        "mail/send_email": "Send an email to somebody.",
        "crm/list_customers": "List the customers of the company.",
        "files/read_file": "Read a file from the disk.",
        "weather/get_forecast": "Get the weather forecast for a city.",
    }
)
VISITS = "list our customers"
DRIVES = OtherAsk("compute driving times between these addresses", 0.3)
ROUND_TRIP = "\n".join(
    (
        "customer visits next week:",
        *(f"Example Ltd {n}, {n} High Street, {90_000 + 37 * n} Springfield" for n in range(3, 9)),
        "work out the driving times between all of these, both ways (I start from the office)",
        *(f"Example Inc {n}, {n} Park Lane, {91_000 + 37 * n} Springfield -- ring at gate {n}" for n in range(3, 9)),
    )
)
CHANCES = st.floats(0.0, 1.0)


def levelled(probability: float, match: float) -> Confidence:
    level: Level = "high" if probability >= HIGH else "medium" if probability >= MEDIUM else "low"
    if probability < LOW:
        level = "none"
    return Confidence(
        level=level,
        probability=probability,
        match_probability=max(probability, match),
    )


def answer(*names: str, sure: Confidence, drop: float = 1.0) -> SearchResult:
    hits = (
        Hit(Tool(id=name, server="s", name=name, definition="{}"), -drop * rank, rank)
        for rank, name in enumerate(names, 1)
    )
    return SearchResult(query=Query(text="x", limit=3), hits=tuple(hits), confidence=sure)


def test_a_tool_for_what_else_may_be_asked_is_found_behind_the_first() -> None:
    searcher = Searcher(TOOLS)
    alone = searcher.search(Query(text=VISITS, limit=3))
    assert DRIVES.text not in [hit.wish for hit in alone.hits]
    both = searcher.search(Query(text=VISITS, limit=3, other=DRIVES))
    assert both.hits[0].tool.id == alone.hits[0].tool.id == "crm/list_customers"
    found = {hit.tool.id: hit for hit in both.hits}
    assert found["maps/distance_matrix"].wish == DRIVES.text
    assert [hit.rank for hit in both.hits] == [1, 2, 3]
    assert [hit.score for hit in both.hits] == sorted((hit.score for hit in both.hits), reverse=True)


def test_modes_without_chances_search_for_the_request_alone() -> None:
    searcher = Searcher(TOOLS)
    for mode in ("lexical", "fuzzy", "prefix"):
        alone = searcher.search(Query(text=VISITS, mode=mode))
        both = searcher.search(Query(text=VISITS, mode=mode, other=DRIVES))
        assert [hit.tool.id for hit in both.hits] == [hit.tool.id for hit in alone.hits]


def test_a_tool_is_explained_by_the_reading_that_found_it() -> None:
    searcher = Searcher(TOOLS)
    asked = Query(text=VISITS, limit=3, other=DRIVES)
    why = next(each for each in searcher.explained(asked).explanations if each.tool == "maps/distance_matrix")
    alone = searcher.explain(Query(text=DRIVES.text), "maps/distance_matrix")
    assert (why.wish, why.matches, why.parts) == (DRIVES.text, alone.matches, alone.parts)
    assert why.rank == next(hit.rank for hit in searcher.search(asked).hits if hit.tool.id == why.tool)


def test_all_texts_that_are_searched_are_embedded_ahead() -> None:
    searcher = Searcher(TOOLS)
    assert DRIVES.text in searcher.texts_to_embed(Query(text=VISITS, other=DRIVES))
    ask = read_ask(ROUND_TRIP)
    assert ask.other is not None
    assert {ask.text, ask.other.text} <= set(searcher.texts_to_embed(Query(text=ROUND_TRIP)))


def test_a_request_between_the_lines_of_a_list_is_searched_and_explained() -> None:
    ask = read_ask(ROUND_TRIP)
    assert ask.other is not None
    assert any("work out the driving times" in text for text in (ask.text, ask.other.text))
    source = ToolFilter(list(TOOLS.tools.values()), embedding=None)
    for asked in (ROUND_TRIP, [{"role": "user", "content": ROUND_TRIP}]):
        assert "maps/distance_matrix" in [tool.id for tool in source.filter(asked, limit=3).tools]
        assert f"or asked, with a chance of {ask.other.likelihood:.0%}: " in source.explain(asked).text()


def test_a_clear_request_is_not_in_doubt() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR merge of page {n} failed: no channel" for n in range(20))
    ask = read_ask(f"{log}\n\npost a message about this to our channel, please")
    assert ask.characters
    assert ask.other is None


@given(st.text("ab .?!\n:Pleaseshow", max_size=900))
def test_what_else_may_be_asked_is_part_of_the_message_and_likely_enough(text: str) -> None:
    ask = read_ask(text)
    if ask.other is not None:
        assert all(line in text for line in ask.other.text.split("\n"))
        assert ask.other.text not in ask.text
        assert LEAST_LIKELY <= ask.other.likelihood < 0.6


@given(right=CHANCES, there=CHANCES, other_right=CHANCES, other_there=CHANCES, likelihood=st.floats(0.05, 0.6))
def test_doubt_never_raises_the_confidence_and_its_level_is_that_of_its_probability(
    right: float, there: float, other_right: float, other_there: float, likelihood: float
) -> None:
    one = answer("a", "b", "c", sure=levelled(right, there))
    two = answer("c", "d", "a", sure=levelled(other_right, other_there))
    found = weighed(one, two, OtherAsk("other", likelihood))
    sure = found.confidence
    assert len(found.hits) == 3
    assert sure.probability <= max(right, other_right, LOW)
    assert sure.probability <= sure.match_probability + 1e-9
    if sure.level == "none":
        assert sure.probability < LOW
    else:
        assert (sure.level == "high") <= (sure.probability >= HIGH)
        assert (sure.level == "low") == (sure.probability < MEDIUM)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_answer_without_hits_gives_way(*, is_first: bool) -> None:
    some, none = answer("a", sure=levelled(0.5, 0.6)), answer(sure=levelled(0.0, 0.0))
    found = weighed(*((none, some) if is_first else (some, none)), OtherAsk("other", 0.2))
    assert [hit.tool.id for hit in found.hits] == ["a"]
