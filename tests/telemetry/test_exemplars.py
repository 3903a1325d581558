import pytest

from shortlist.models import Asker
from shortlist.storage.port import LearnedPair
from shortlist.telemetry.exemplars import HALF_LIFE_DAYS, exemplars_of, mined_cases, weight_of

NOW = 1_800_000_000.0
DAY = 86_400


def pair(
    *,
    caller: str = "local",
    tool: str = "mail/send",
    query: str = "write to anna",
    successes: int = 1,
    errors: int = 0,
    days_ago: float = 0.0,
) -> LearnedPair:
    last = int((NOW - days_ago * DAY) * 1000)
    return LearnedPair(caller=caller, tool=tool, query=query, successes=successes, errors=errors, last=last)


def test_a_pair_counts_half_after_its_half_life() -> None:
    assert weight_of(pair(), NOW) == 1.0
    assert weight_of(pair(days_ago=HALF_LIFE_DAYS), NOW) == pytest.approx(0.5)
    assert weight_of(pair(days_ago=3 * HALF_LIFE_DAYS), NOW) == pytest.approx(0.125)


def test_a_pair_from_a_clock_that_ran_ahead_counts_as_new() -> None:
    assert weight_of(pair(days_ago=-400), NOW) == 1.0


def test_errors_count_against_a_pair_and_repetition_does_not_count_for_it() -> None:
    assert weight_of(pair(successes=1, errors=3), NOW) == 0.25
    assert weight_of(pair(successes=900), NOW) == weight_of(pair(successes=1), NOW)


def test_calls_that_only_failed_teach_nothing() -> None:
    assert list(exemplars_of([pair(successes=0, errors=5)], NOW, str)) == []


def test_an_exemplar_belongs_to_the_group_that_its_caller_has_now() -> None:
    (made,) = exemplars_of([pair(caller="anna", errors=1)], NOW, lambda _: "sales")
    assert made.by == Asker("anna", "sales")
    assert made.weight == 0.5


def test_cases_are_mined_by_query_over_all_callers_the_most_called_tool_first() -> None:
    pairs = [
        pair(caller="anna", query="write  to anna", successes=2),
        pair(caller="ben", tool="slack/post", successes=3),
        pair(caller="ben", tool="fax/send", successes=1, errors=4),
        pair(query="call ben", successes=0, errors=2),
    ]
    (case,) = mined_cases(pairs)
    assert case["query"] == "write to anna"
    assert case["gold"] == ["slack/post", "mail/send"]
    assert (case["calls"], case["callers"], case["reviewed"]) == (6, 2, False)


def test_a_mined_case_keeps_its_id_when_the_log_grows() -> None:
    (before,) = mined_cases([pair()])
    after = mined_cases([pair(query="another"), pair(successes=7)])
    assert before["id"] in {case["id"] for case in after}
