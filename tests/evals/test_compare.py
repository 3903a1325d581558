import math
from dataclasses import replace

import pytest

from shortlist.errors import InvalidInput
from shortlist.evals.compare import Comparison, compare
from shortlist.evals.runner import Run
from tests.evals.fakes import case, contender, dataset, runner, tool

TOOLS = (tool("a"), tool("b"), tool("c"))
CASES = tuple(case(f"q{number}", f"query {number}", "a") for number in range(12))
RIGHT = {each.query: ["a", "b"] for each in CASES}
WRONG = {each.query: ["b", "a"] for each in CASES}


def run_of(answers: dict[str, list[str]], *, name: str = "fake", milliseconds: float = 1.0) -> Run:
    return runner(*TOOLS).run(dataset(*CASES, name=name), contender(answers, milliseconds=milliseconds))


def change(comparison: Comparison, metric: str = "lenient_top1") -> float:
    (found,) = [delta for delta in comparison.deltas if delta.metric == metric]
    return found.difference.mean


def test_a_run_against_itself_has_no_difference() -> None:
    run = run_of(RIGHT)
    (same,) = compare([run], [run])
    assert all(delta.difference.mean == 0 and delta.p_value == 1 for delta in same.deltas)
    assert (same.same_top_1, same.overlap_at_5, same.latency_ratio) == (1, 1, 1)


def test_a_consistent_gain_is_significant_with_its_interval() -> None:
    (better,) = compare([run_of(WRONG)], [run_of(RIGHT)])
    top1 = better.deltas[0]
    assert (top1.before, top1.after, top1.difference.mean) == (0, 1, 1)
    assert top1.significant
    assert top1.difference.excludes_zero


def test_agreement_looks_at_the_first_hit_and_at_the_first_five() -> None:
    (turned,) = compare([run_of(WRONG)], [run_of(RIGHT)])
    assert (turned.same_top_1, turned.overlap_at_5) == (0, 1)


def test_the_latency_ratio_is_after_over_before() -> None:
    (slower,) = compare([run_of(RIGHT, milliseconds=2)], [run_of(RIGHT, milliseconds=3)])
    assert slower.latency_ratio == 1.5


def test_several_sets_are_compared_one_by_one_and_on_the_macro_average() -> None:
    before = [run_of(WRONG, name="x"), run_of(RIGHT, name="y")]
    after = [run_of(RIGHT, name="x"), run_of(RIGHT, name="y")]
    found = compare(before, after)
    assert [each.dataset for each in found] == ["x", "y", "macro"]
    assert [change(each) for each in found] == [1, 0, 0.5]


def test_only_common_queries_count_and_the_rest_is_noted() -> None:
    whole = run_of(RIGHT)
    part = replace(whole, records=whole.records[:5], fingerprint="other")
    (found,) = compare([whole], [part])
    assert found.queries == 5
    assert found.notes == ("fake: the catalogs differ", "fake: 7 queries are in one run only")


def test_runs_on_different_sets_cannot_be_compared() -> None:
    with pytest.raises(InvalidInput, match="one side has x, the other y"):
        compare([run_of(RIGHT, name="x")], [run_of(RIGHT, name="y")])


def test_runs_without_a_common_query_cannot_be_compared() -> None:
    whole = run_of(RIGHT)
    with pytest.raises(InvalidInput, match="no query in common"):
        compare([replace(whole, records=whole.records[:1])], [replace(whole, records=whole.records[1:])])


def test_a_ratio_to_no_time_at_all_is_unknown() -> None:
    (found,) = compare([run_of(RIGHT, milliseconds=0)], [run_of(RIGHT)])
    assert math.isnan(found.latency_ratio)
