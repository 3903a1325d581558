import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.evals.significance import Values, bootstrap, bootstrap_columns, macro, paired_p_value

small = st.lists(st.integers(-20, 20), min_size=1, max_size=20).map(lambda twentieths: np.array(twentieths) / 20)


def exact_p_value(differences: list[float]) -> float:
    seen = abs(sum(differences)) - 1e-12
    flips = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(sign * d for sign, d in zip(signs, differences, strict=True))) for signs in flips]
    return sum(value >= seen for value in sums) / len(sums)


def test_macro_averages_the_sets_not_the_queries() -> None:
    assert macro([np.array([1.0]), np.array([0.0, 0.0, 0.0])]) == 0.5


def test_macro_leaves_out_empty_sets_and_is_unknown_without_any() -> None:
    assert macro([np.array([1.0]), np.empty(0)]) == 1
    assert math.isnan(macro([]))


def test_the_interval_of_a_fair_coin_matches_the_normal_approximation() -> None:
    interval = bootstrap([np.array([0.0, 1.0] * 200)])
    assert interval.mean == 0.5
    assert interval.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.01)
    assert interval.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.01)


def test_constant_values_have_an_interval_of_no_width() -> None:
    interval = bootstrap([np.ones(7)])
    assert (interval.mean, interval.low, interval.high) == (1, 1, 1)


def test_the_same_seed_gives_the_same_interval() -> None:
    values: list[Values] = [np.linspace(0, 1, 30)]
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)


def test_several_metrics_at_once_get_the_intervals_they_get_alone() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.random((30, 2)), rng.random((7, 2))
    together = bootstrap_columns([first, second])
    alone = [bootstrap([first[:, column], second[:, column]]) for column in (0, 1)]
    assert [each.low for each in together] == pytest.approx([each.low for each in alone])
    assert [each.high for each in together] == pytest.approx([each.high for each in alone])
    assert together[0].mean == pytest.approx(macro([first[:, 0], second[:, 0]]))


def test_an_interval_over_nothing_is_unknown() -> None:
    assert math.isnan(bootstrap([np.empty(0)]).mean)


@given(small)
@settings(max_examples=30, deadline=None)
def test_the_interval_holds_the_mean_of_its_resamples_within_the_range_of_the_values(values: Values) -> None:
    interval = bootstrap([values], draws=200)
    assert values.min() - 1e-9 <= interval.low <= interval.high <= values.max() + 1e-9


def test_the_p_value_agrees_with_all_flips_counted_by_hand() -> None:
    differences = [1.0, 1.0, 1.0, 1.0, 0.0, -1.0]
    p_value = paired_p_value([np.array(differences)], flips=40_000)
    assert p_value == pytest.approx(exact_p_value(differences), abs=0.01)


def test_a_consistent_gain_is_significant_and_a_balanced_one_is_not() -> None:
    assert paired_p_value([np.ones(20)]) < 0.001
    assert paired_p_value([np.array([1.0, -1.0] * 10)]) == 1


def test_no_difference_at_all_is_certainly_chance() -> None:
    assert paired_p_value([np.zeros(10)]) == 1
    assert paired_p_value([]) == 1


def test_the_macro_test_weighs_sets_equally() -> None:
    small_gain, large_loss = np.ones(10), np.full(1_000, -0.01)
    assert paired_p_value([small_gain, large_loss]) < 0.01
    assert paired_p_value([np.concatenate([small_gain, large_loss])]) == 1


@given(small)
@settings(max_examples=30, deadline=None)
def test_swapping_the_two_runs_keeps_the_p_value(values: Values) -> None:
    there, back = paired_p_value([values], flips=500), paired_p_value([-values], flips=500)
    assert there == pytest.approx(back)


@given(small)
@settings(max_examples=30, deadline=None)
def test_queries_without_a_difference_do_not_change_the_p_value(values: Values) -> None:
    padded = np.concatenate([values, np.zeros(9)])
    assert paired_p_value([values], flips=500) == pytest.approx(paired_p_value([padded], flips=500))
