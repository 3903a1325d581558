"""A message whose request is in doubt: what else may be asked is searched, too, and counts as far as it is likely."""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist import ToolFilter
from shortlist.index.vectors import QueryVectors
from shortlist.models import Confidence, Filters, Hit, Level, OtherAsk, Query, SearchResult, Tool
from shortlist.search.doubt import weighed
from shortlist.search.fusion import HIGH, LOW, MEDIUM
from shortlist.search.searcher import Searcher
from shortlist.text import asks, word_vectors
from shortlist.text.asking import LEAST_LIKELY
from shortlist.text.asks import read_ask
from tests.fakes import HashingEmbedder, catalog

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
CRM = {"list_customers": "List the customers of the company.", "delete_customer": "Delete a customer for good."}
VISITS = "list our customers"
SEVERAL = "list customers and send an email to Bob"
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
LINES = (
    "customer visits next week:",
    "Could you book a table for two?",
    "please send this to Ruth",
    "2026-03-01 10:00:01 ERROR merge of page 4 failed: no channel",
    "The meeting ended at four. Everybody was tired.",
    "make a chart of it",
    "| name | amount |",
    "> Can you tell me when the parcel arrives?",
    "",
)


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
    both = searcher.search(Query(text=VISITS, limit=3, other=DRIVES))
    assert both.hits[0].tool.id == alone.hits[0].tool.id == "crm/list_customers"
    found = {hit.tool.id: hit for hit in both.hits}
    assert (found["maps/distance_matrix"].other, found["maps/distance_matrix"].wish) == (DRIVES.text, "")
    assert not found["crm/list_customers"].other
    assert [hit.rank for hit in both.hits] == [1, 2, 3]
    assert [hit.score for hit in both.hits] == sorted((hit.score for hit in both.hits), reverse=True)


def test_a_request_for_several_things_keeps_its_answer() -> None:
    searcher = Searcher(TOOLS)
    alone = searcher.search(Query(text=SEVERAL, limit=3))
    assert len(alone.wishes) == 2
    for likelihood in (0.05, 0.5):
        both = searcher.search(Query(text=SEVERAL, limit=3, other=OtherAsk(DRIVES.text, likelihood)))
        assert [hit.tool.id for hit in both.hits] == [hit.tool.id for hit in alone.hits]
        assert both.wishes == alone.wishes
        assert not any(hit.other for hit in both.hits)


def test_a_second_reading_finds_nothing_that_filters_hide() -> None:
    allowed = frozenset({"crm/list_customers", "mail/send_email"})
    query = Query(text=VISITS, other=OtherAsk(DRIVES.text, 0.5), filters=Filters(among=allowed), collapse=True)
    found = Searcher(TOOLS).search(query)
    assert {tool for hit in found.hits for tool in (hit.tool.id, *hit.family)} <= allowed


def test_pages_follow_each_other() -> None:
    searcher = Searcher(catalog({f"s{n}/list_customers_{n}": f"List customers {n}." for n in range(30)}))
    query = Query(text=VISITS, other=OtherAsk("customers 7", 0.4))
    pages = [searcher.search(replace(query, limit=limit)).hits for limit in (1, 5, 10, 20)]
    for short, long in pairwise(pages):
        assert [hit.tool.id for hit in short] == [hit.tool.id for hit in long[: len(short)]]


def test_near_duplicates_are_shown_once() -> None:
    twice = {
        **{f"crm/{name}": text for name, text in CRM.items()},
        **{f"crm2/{name}": text for name, text in CRM.items()},
    }
    searcher = Searcher(catalog(twice))
    found = searcher.search(Query(text=VISITS, other=OtherAsk("list the customers in crm2", 0.4), collapse=True))
    shown = [tool for hit in found.hits for tool in (hit.tool.id, *hit.family)]
    assert len(shown) == len(set(shown))
    assert any(hit.family for hit in found.hits)


def test_modes_without_chances_search_for_the_request_alone() -> None:
    searcher = Searcher(TOOLS)
    for mode in ("lexical", "dense", "fuzzy", "prefix", "regex", "exact"):
        alone = searcher.search(Query(text=VISITS, mode=mode))
        both = searcher.search(Query(text=VISITS, mode=mode, other=DRIVES))
        assert [hit.tool.id for hit in both.hits] == [hit.tool.id for hit in alone.hits]


def test_a_tool_is_explained_by_the_reading_that_found_it() -> None:
    searcher = Searcher(TOOLS)
    asked = Query(text=VISITS, limit=3, other=DRIVES)
    why = next(each for each in searcher.explained(asked).explanations if each.tool == "maps/distance_matrix")
    alone = searcher.explain(Query(text=DRIVES.text), "maps/distance_matrix")
    assert (why.other, why.wish, why.matches, why.parts) == (DRIVES.text, "", alone.matches, alone.parts)
    assert f"found for the other reading {DRIVES.text!r}" in why.text()
    assert why.rank == next(hit.rank for hit in searcher.search(asked).hits if hit.tool.id == why.tool)


@pytest.mark.parametrize(
    "query",
    [
        Query(text=VISITS, other=DRIVES),
        Query(text=VISITS, other=OtherAsk("compute driving times and create an event for the trip", 0.3)),
        Query(text=VISITS, other=OtherAsk("send it, no wait, create an event", 0.3)),
        Query(text=ROUND_TRIP),
        Query(text=VISITS, other=DRIVES, mode="dense"),
    ],
)
def test_exactly_the_texts_that_are_searched_are_embedded_ahead(query: Query) -> None:
    embedder = HashingEmbedder()
    searcher = Searcher(TOOLS, QueryVectors(embedder))
    searcher.prepare()
    ahead = searcher.texts_to_embed(query)
    read: list[str] = []
    embed = embedder.embed_query
    embedder.embed_query = lambda text: read.append(text) or embed(text)  # type: ignore[method-assign, func-returns-value]
    searcher.search(query)
    assert set(read) == set(ahead)


def test_a_request_between_the_lines_of_a_list_is_searched_and_explained() -> None:
    ask = read_ask(ROUND_TRIP)
    assert ask.other is not None
    assert any("work out the driving times" in text for text in (ask.text, ask.other.text))
    source = ToolFilter(list(TOOLS.tools.values()), embedding=None)
    for asked in (ROUND_TRIP, [{"role": "user", "content": ROUND_TRIP}]):
        assert "maps/distance_matrix" in [tool.id for tool in source.filter(asked, limit=3).tools]
        assert f"it may also ask ({ask.other.likelihood:.0%}): " in source.explain(asked).text()


def test_what_else_may_be_asked_is_not_said_to_ask_nothing() -> None:
    assert not read_ask(ROUND_TRIP).is_clear
    found = Searcher(TOOLS).search(Query(text=ROUND_TRIP))
    assert found.hits[0].other
    assert not any("reads like a request" in reason for reason in found.confidence.reasons)


def test_a_clear_request_is_not_in_doubt() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR merge of page {n} failed: no channel" for n in range(20))
    ask = read_ask(f"{log}\n\npost a message about this to our channel, please")
    assert ask.characters
    assert ask.other is None


@given(st.lists(st.sampled_from(LINES), min_size=6, max_size=30))
def test_what_else_may_be_asked_is_part_of_the_message_and_likely_enough(lines: list[str]) -> None:
    text = "\n".join(lines)
    ask = read_ask(text)
    if ask.other is not None:
        assert all(line in text for line in ask.other.text.split("\n"))
        assert " ".join(ask.other.text.split()) not in " ".join(ask.text.split())
        assert LEAST_LIKELY <= ask.other.likelihood < 0.61


def test_some_of_these_messages_are_in_doubt() -> None:
    draw = Random(7)
    asks = [read_ask("\n".join(draw.choices(LINES, k=20))) for _ in range(100)]
    assert 5 < sum(ask.other is not None for ask in asks) < 95


@given(right=CHANCES, there=CHANCES, other_right=CHANCES, other_there=CHANCES, likelihood=st.floats(0.05, 0.6))
def test_doubt_never_raises_the_confidence_and_its_level_is_that_of_its_probability(
    right: float, there: float, other_right: float, other_there: float, likelihood: float
) -> None:
    one = answer("a", "b", "c", sure=levelled(right, there))
    two = answer("c", "d", "a", sure=levelled(other_right, other_there))
    found = weighed(one, two, OtherAsk("other", likelihood), 3)
    sure, first = found.confidence, two if found.hits[0].other else one
    assert len(found.hits) == 3
    assert sure.probability <= max(first.confidence.probability, LOW)
    assert sure.probability <= sure.match_probability + 1e-9
    if sure.level == "none":
        assert sure.probability < LOW
    else:
        assert (sure.level == "high") <= (sure.probability >= HIGH)
        assert (sure.level == "low") == (sure.probability < MEDIUM)


NAMES = st.lists(st.sampled_from("abcdef"), max_size=6, unique=True)


@given(ours=NAMES, theirs=NAMES, one=CHANCES, two=CHANCES, there=CHANCES, limit=st.integers(1, 8))
def test_two_answers_of_any_length_are_merged(
    ours: list[str], theirs: list[str], one: float, two: float, there: float, limit: int
) -> None:
    first, second = answer(*ours, sure=levelled(one, there)), answer(*theirs, sure=levelled(two, two))
    found = weighed(first, second, OtherAsk("other", 0.3), limit).hits
    assert len(found) == min(len({*ours, *theirs}), limit)
    assert len({hit.tool.id for hit in found}) == len(found)
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    assert all(hit.tool.id in (theirs if hit.other else ours) for hit in found)


def test_an_unlikely_reading_makes_no_answer_of_none() -> None:
    none, sure = levelled(0.02, 0.03), levelled(0.95, 0.95)
    found = weighed(answer("a", sure=none), answer("b", sure=sure), OtherAsk("other", 0.06), 3)
    assert found.confidence.level == "none"
    assert found.confidence.probability < LOW
    found = weighed(answer("a", sure=none), answer("b", sure=sure), OtherAsk("other", 0.5), 3)
    assert (found.hits[0].tool.id, found.confidence.level) == ("b", "medium")


@pytest.mark.parametrize(("ours", "theirs"), [((), ("a",)), (("a",), ()), ((), ())])
def test_an_answer_without_hits_gives_way(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    one, two = (answer(*names, sure=levelled(0.8 * bool(names), 0.8 * bool(names))) for names in (ours, theirs))
    found = weighed(one, two, OtherAsk("other", 0.2), 3)
    assert [hit.tool.id for hit in found.hits] == [*ours, *theirs]
    assert found.query is one.query
    assert found.confidence.probability <= (0.8 if ours else 0.2)


def test_a_second_search_is_in_the_trace_with_what_it_corrected() -> None:
    searcher = Searcher(TOOLS)
    alone = searcher.search(Query(text=VISITS))
    both = searcher.search(Query(text=VISITS, other=OtherAsk("creat an evnt in the calendar", 0.4)))
    assert len(both.steps) == 2 * len(alone.steps)
    assert both.did_you_mean.keys() >= {"evnt"}


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_without_word_vectors_the_rules_read_messages(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copytree(word_vectors.SHIPPED, tmp_path / "static")
    vectors = copied / "vectors.npy"
    vectors.unlink() if damage == "missing" else vectors.write_bytes(b"x" + vectors.read_bytes()[1:])
    monkeypatch.setattr(word_vectors, "SHIPPED", copied)
    word_vectors.shipped_word_vectors.cache_clear()
    asks._read_long.cache_clear()
    try:
        assert read_ask(ROUND_TRIP) == asks.by_rules(ROUND_TRIP)
    finally:
        monkeypatch.undo()
        word_vectors.shipped_word_vectors.cache_clear()
        asks._read_long.cache_clear()
