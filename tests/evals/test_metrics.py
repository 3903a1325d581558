import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.evals.metrics import LENIENT, METRICS, first_rank, marks, measure, strict_groups
from shortlist.models import ToolId

IDS = st.sampled_from([f"t{number}" for number in range(12)])
rankings = st.lists(IDS, unique=True, max_size=10)
golds = st.lists(IDS, unique=True, min_size=1, max_size=4)


def naive_ndcg(ranked: list[ToolId], gold: list[ToolId], k: int) -> float:
    gained = 0.0
    for position in range(1, k + 1):
        if position <= len(ranked) and ranked[position - 1] in gold:
            gained += 1 / math.log2(position + 1)
    best = 0.0
    for position in range(1, min(k, len(gold)) + 1):
        best += 1 / math.log2(position + 1)
    return gained / best


def naive_mrr(ranked: list[ToolId], gold: list[ToolId]) -> float:
    for position, tool_id in enumerate(ranked, start=1):
        if tool_id in gold:
            return 1 / position
    return 0.0


def test_a_gold_tool_in_second_place_gives_the_values_computed_by_hand() -> None:
    values = measure(["x", "a", "y"], ["a"], strict_groups(["a"]))
    assert values["top1"] == 0
    assert values["r@1"] == 0
    assert values["r@3"] == 1
    assert values["mrr"] == 0.5
    assert values["ndcg@10"] == pytest.approx(1 / math.log2(3))
    assert values["complete@5"] == 1


def test_two_gold_tools_give_the_values_computed_by_hand() -> None:
    values = measure(["a", "x", "b", "y"], ["a", "b"], strict_groups(["a", "b"]))
    assert values["top1"] == 1
    assert values["r@1"] == 0.5
    assert values["r@3"] == 1
    assert values["ndcg@5"] == pytest.approx((1 + 1 / 2) / (1 + 1 / math.log2(3)))
    assert values["complete@5"] == 1


def test_completeness_needs_every_gold_tool() -> None:
    assert measure(["a"], ["a", "b"], strict_groups(["a", "b"]))["complete@10"] == 0


def test_a_miss_has_rank_infinity_and_scores_zero_everywhere() -> None:
    assert first_rank(marks(["x", "y"], strict_groups(["a"]))) == math.inf
    assert set(measure(["x", "y"], ["a"], ()).values()) == {0.0}


def test_an_empty_ranking_is_a_miss() -> None:
    assert set(measure([], ["a"], ()).values()) == {0.0}


def test_a_query_without_gold_has_no_ranking_metrics() -> None:
    assert measure(["a"], [], ()) == {}


def test_lenient_scoring_accepts_an_equivalent_tool_and_strict_does_not() -> None:
    values = measure(["fork"], ["gold"], [frozenset({"gold", "fork"})])
    assert (values["top1"], values[LENIENT + "top1"]) == (0, 1)


def test_a_group_counts_once_however_many_members_are_found() -> None:
    groups = [frozenset({"a", "a2", "a3"}), frozenset({"b"})]
    assert marks(["a", "a2", "a3", "b"], groups) == (1, 0, 0, 1)


def test_the_lenient_ideal_is_the_number_of_groups() -> None:
    values = measure(["a2"], ["a"], [frozenset({"a", "a2", "a3"})])
    assert values[LENIENT + "ndcg@10"] == 1
    assert values[LENIENT + "r@5"] == 1


def test_a_repeated_id_meets_nothing_the_second_time() -> None:
    twice = [frozenset({"a", "b"}), frozenset({"a", "c"})]
    assert marks(["a", "a"], twice) == (1, 0)


@given(rankings, golds)
def test_ndcg_and_mrr_agree_with_a_naive_implementation(ranked: list[ToolId], gold: list[ToolId]) -> None:
    values = measure(ranked, gold, ())
    assert values["ndcg@5"] == pytest.approx(naive_ndcg(ranked, gold, 5))
    assert values["ndcg@10"] == pytest.approx(naive_ndcg(ranked, gold, 10))
    assert values["mrr"] == pytest.approx(naive_mrr(ranked, gold))


@given(rankings, golds)
def test_every_metric_lies_between_zero_and_one(ranked: list[ToolId], gold: list[ToolId]) -> None:
    assert all(0 <= value <= 1 + 1e-12 for value in measure(ranked, gold, ()).values())


@given(rankings, golds, st.sets(IDS))
def test_lenient_is_never_below_strict_when_groups_do_not_overlap(
    ranked: list[ToolId], gold: list[ToolId], more: set[ToolId]
) -> None:
    groups = (frozenset({gold[0]} | (more - set(gold))), *strict_groups(gold[1:]))
    values = measure(ranked, gold, groups)
    assert all(values[LENIENT + name] >= values[name] - 1e-12 for name in METRICS)


@given(golds)
def test_the_gold_tools_alone_are_a_perfect_ranking(gold: list[ToolId]) -> None:
    values = measure(gold, gold, ())
    assert values["ndcg@10"] == pytest.approx(1)
    assert values["top1"] == values["mrr"] == values["complete@10"] == 1


@given(rankings, golds)
def test_moving_a_gold_tool_to_the_front_never_lowers_a_metric(ranked: list[ToolId], gold: list[ToolId]) -> None:
    better = [gold[0], *(each for each in ranked if each != gold[0])]
    before, after = measure(ranked, gold, ()), measure(better, gold, ())
    assert all(after[name] >= before[name] - 1e-12 for name in ("top1", "r@1", "mrr"))


@given(rankings, golds)
def test_recall_grows_with_k(ranked: list[ToolId], gold: list[ToolId]) -> None:
    values = measure(ranked, gold, ())
    assert values["r@1"] <= values["r@3"] <= values["r@5"] <= values["r@10"]
