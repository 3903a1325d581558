import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.models import Confidence, Filters, Query
from shortlist.search.fusion import (
    CONFIDENCE_FEATURES,
    FARTHEST,
    HIGH,
    LOW,
    MEDIUM,
    NONE_AT_MOST,
    Calibration,
    as_asked,
    beside_a_paste,
    with_other_words,
)
from shortlist.search.pipeline import Matrix
from shortlist.search.searcher import Searcher
from shortlist.text.asks import Ask
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


def test_a_product_that_no_tool_mentions_makes_a_match_unlikely(workplace: Searcher) -> None:
    here = workplace.search(Query(text="create an event in the calendar"))
    elsewhere = workplace.search(Query(text="create an event in PagerDuty"))
    assert "no tool here mentions pagerduty" in elsewhere.confidence.reasons
    assert elsewhere.confidence.match_probability < here.confidence.match_probability


def test_a_product_that_a_server_is_named_after_is_not_missing() -> None:
    found = searcher({"pagerduty/create_incident": "Create an incident."}, dense=False)
    assert not [
        r for r in found.search(Query(text="create one in PagerDuty")).confidence.reasons if "mentions pager" in r
    ]


def test_a_name_spelled_out_is_a_reason(workplace: Searcher) -> None:
    assert "the query spells its name" in workplace.search(Query(text="send_email")).confidence.reasons


def calibration(*, right: float, present: float, slope: float = 0.0) -> Calibration:
    """State these chances, in logits, whatever is asked; `slope` is what the first feature adds to the first."""
    count = len(CONFIDENCE_FEATURES)
    weights = np.zeros((2, count), np.float32)
    weights[0, 0] = slope
    return Calibration(
        centre=np.zeros(count, np.float32),
        spread=np.ones(count, np.float32),
        weights=weights,
        pairs=np.zeros((2, count, count), np.float32),
        bias=np.array((right, present), np.float32),
        none_below=0.5,
    )


def features(first: float = 0.0) -> Matrix:
    found = np.zeros(len(CONFIDENCE_FEATURES), np.float32)
    found[[0, CONFIDENCE_FEATURES.index("size")]] = first, 0.5
    return found


def test_a_doubtful_match_is_none_and_no_likelier_right_than_there() -> None:
    judged = calibration(right=1.0, present=-2.0).judge(features())
    assert judged.level == "none"
    assert judged.probability <= judged.match_probability < 0.2


def test_a_first_hit_that_is_sure_is_answered_however_few_of_the_words_it_has() -> None:
    judged = calibration(right=2.0, present=-2.0).judge(features())
    assert judged.level == "high"
    assert judged.match_probability >= judged.probability > 0.8


def test_what_lies_beyond_all_that_was_seen_counts_no_more_than_the_farthest() -> None:
    one = calibration(right=0.0, present=2.0, slope=0.5)
    assert one.judge(features(1e6)).probability == one.judge(features(FARTHEST)).probability < 0.9


LEVELS = {"none": (0.0, NONE_AT_MOST), "low": (LOW, MEDIUM), "medium": (MEDIUM, HIGH), "high": (HIGH, 1.0)}
chances = st.floats(-12, 12)


def agrees(stated: Confidence) -> bool:
    low, high = LEVELS[stated.level]
    return low <= stated.probability <= high


@given(chances, chances, st.floats(0, 1))
def test_level_and_probability_never_contradict_each_other(right: float, present: float, proven: float) -> None:
    judged = calibration(right=right, present=present).judge(features(), proven)
    assert agrees(judged)
    assert judged.probability <= judged.match_probability


@given(chances, chances)
def test_a_lowered_confidence_keeps_level_and_probability_together(right: float, present: float) -> None:
    judged = calibration(right=right, present=present).judge(features())
    pasted = (Ask("x", "y"), Ask("x", characters=5_000, is_clear=False), Ask("x", asks=False))
    for lowered in (with_other_words(judged), *(as_asked(judged, ask) for ask in pasted)):
        assert agrees(lowered)
        assert lowered.probability <= judged.probability


def test_a_barely_high_confidence_is_medium_beside_a_paste() -> None:
    barely, sure = (calibration(right=right, present=5.0).judge(features()) for right in (1.2, 3.0))
    assert (barely.level, beside_a_paste(barely).level) == ("high", "medium")
    assert beside_a_paste(sure) == sure
