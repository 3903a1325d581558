import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidQuery
from shortlist.models import Query, SearchMode, Tool
from shortlist.search.searcher import MAX_LIMIT, Searcher
from shortlist.text.tokens import clean_text
from tests.fakes import MODES, WORKPLACE, found, searcher, tool

BOMBS = [
    "(a+)+$",
    "(?:a|a)*b",
    "((((((((((x*)*)*)*)*)*)*)*)*)*",
    "(.*){1000}",
    "[" * 500,
    "(" * 500,
    "(?=x)y",
    r"\1(a)",
]


@pytest.mark.parametrize("text", ["", " ", "\t\n  \r", "\u200b\u2060", "\x00", "\u3000"])
@pytest.mark.parametrize("mode", [*MODES, "regex"])
def test_a_query_without_a_visible_character_is_refused_with_the_remedy(
    workplace: Searcher, text: str, mode: SearchMode
) -> None:
    with pytest.raises(InvalidQuery, match="Say what the tool should do"):
        workplace.search(Query(text=text, mode=mode))


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_an_impossible_limit_is_refused(workplace: Searcher, limit: int) -> None:
    with pytest.raises(InvalidQuery, match=f"limit is {limit}"):
        workplace.search(Query(text="event", limit=limit))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "text",
    [
        "create a calendar event " * 42_000,
        "x" * 1_000_000,
        "🎉🔥👍🏽",
        "(a+)+$" * 50,
        "'; DROP TABLE tools; -- OR 1=1",
        "Создай 日程 événement حدث calendar",
        "half\ud83d a character",
        "\x1b[31mcalendar\x1b[0m\x00",
    ],
    ids=["1 MB of words", "1 MB without a space", "emoji", "regex bomb", "SQL", "mixed scripts", "surrogate", "ANSI"],
)
def test_a_hostile_query_is_answered(workplace: Searcher, text: str, mode: SearchMode) -> None:
    result = workplace.search(Query(text=text, mode=mode))
    assert len(result.hits) <= 5
    assert 0 <= result.confidence.probability <= result.confidence.match_probability <= 1


def test_a_megabyte_that_asks_at_its_end_is_still_understood(by_words: Searcher) -> None:
    pasted = "lorem ipsum " * 80_000
    assert found(by_words, f"{pasted} merge the pull request")[0] == "github/merge_pull_request"


def test_words_in_several_scripts_find_what_any_of_them_names(workplace: Searcher) -> None:
    assert found(workplace, "создай 日程 calendar event create")[0] == "calendar/create_event"


@given(st.text(max_size=200), st.sampled_from(MODES))
def test_any_text_is_answered_or_blank(workplace: Searcher, text: str, mode: SearchMode) -> None:
    if not clean_text(text).strip():
        with pytest.raises(InvalidQuery):
            workplace.search(Query(text=text, mode=mode))
        return
    result = workplace.search(Query(text=text, mode=mode))
    assert result.confidence.level in ("high", "medium", "low", "none")
    if mode == "hybrid":
        assert len(result.hits) == 5


@given(st.text(st.sampled_from("ab(|)*+?{}[]^$\\.1,é\ud83d\x00"), min_size=1, max_size=30))
def test_any_pattern_is_run_or_refused(workplace: Searcher, pattern: str) -> None:
    try:
        workplace.search(Query(text=pattern, mode="regex"))
    except InvalidQuery:
        return


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_regex_bomb_is_run_in_linear_time_or_refused(workplace: Searcher, pattern: str) -> None:
    stuffed = searcher([tool("a/x", "a" * 4_000 + "!")], dense=False)
    try:
        result = stuffed.search(Query(text=pattern, mode="regex"))
    except InvalidQuery:
        return
    assert len(result.hits) <= 1


@pytest.mark.parametrize(
    ("pattern", "says"), [("(", "not a pattern"), ("x" * 1_001, "1000 characters"), ("(?=x)", "RE2")]
)
def test_a_pattern_that_cannot_be_run_is_refused_with_the_reason(workplace: Searcher, pattern: str, says: str) -> None:
    with pytest.raises(InvalidQuery, match=says):
        workplace.search(Query(text=pattern, mode="regex"))


def test_an_empty_catalog_answers_nothing_and_says_so() -> None:
    for dense in (True, False):
        result = searcher({}, dense=dense).search(Query(text="create an event"))
        assert result.hits == ()
        assert result.confidence.level == "none"


def test_a_catalog_of_one_tool_answers_with_it() -> None:
    assert found(searcher({"a/create_event": "Create an event."}), "create an event") == ["a/create_event"]


def stuffed(*words: str) -> Tool:
    return tool("spam/best_tool_ever", " ".join(words))


def test_a_description_stuffed_with_every_word_wins_nothing() -> None:
    everything = sorted({word for text in (*WORKPLACE, *WORKPLACE.values()) for word in text.split()})
    spammed = searcher([*(tool(i, text) for i, text in WORKPLACE.items()), stuffed(*everything * 20)])
    words_alone = searcher(spammed.catalog, dense=False)
    for tool_id, text in WORKPLACE.items():
        for source in (spammed, words_alone):
            assert found(source, text)[0] != "spam/best_tool_ever", tool_id
    assert found(words_alone, "calendar")[0].startswith("calendar/")


def test_a_word_repeated_hundreds_of_times_does_not_beat_the_name() -> None:
    spammed = searcher([*(tool(i, text) for i, text in WORKPLACE.items()), stuffed(*["forecast"] * 500)], dense=False)
    for mode in ("hybrid", "lexical"):
        assert found(spammed, "forecast", mode=mode)[0] == "weather/get_forecast"
