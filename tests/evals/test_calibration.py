import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.evals.calibration import abstention, auroc, calibration_bins, expected_calibration_error

scored = st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=2, max_size=40)


def test_two_bins_give_the_error_computed_by_hand() -> None:
    stated = np.array([0.9, 0.1, 0.8, 0.2])
    right = np.array([1.0, 0.0, 0.0, 0.0])
    # low bin: stated .15, observed 0; high bin: stated .85, observed .5
    assert expected_calibration_error(stated, right, bins=2) == pytest.approx((0.15 + 0.35) / 2)


def test_bins_have_equal_mass_and_rising_probability() -> None:
    bins = calibration_bins(np.linspace(0, 1, 100), np.zeros(100))
    assert [each.count for each in bins] == [10] * 10
    assert [each.stated for each in bins] == sorted(each.stated for each in bins)


def test_fewer_queries_than_bins_still_work() -> None:
    assert expected_calibration_error(np.array([1.0]), np.array([1.0])) == 0
    assert math.isnan(expected_calibration_error(np.empty(0), np.empty(0)))


def test_auroc_of_a_small_case_computed_by_hand() -> None:
    scores = np.array([0.9, 0.4, 0.4, 0.1])
    positive = np.array([True, True, False, False])
    # pairs: .9>.4, .9>.1, .4=.4 (half), .4>.1
    assert auroc(scores, positive) == pytest.approx(3.5 / 4)


def test_auroc_without_both_kinds_is_unknown() -> None:
    assert math.isnan(auroc(np.array([0.5]), np.array([True])))


@given(scored)
def test_auroc_agrees_with_counting_pairs_and_turns_over_with_the_labels(
    pairs: list[tuple[float, bool]],
) -> None:
    scores = np.array([score for score, _ in pairs])
    positive = np.array([flag for _, flag in pairs])
    if positive.all() or not positive.any():
        return
    wins = [(p > n) + 0.5 * (p == n) for p in scores[positive] for n in scores[~positive]]
    assert auroc(scores, positive) == pytest.approx(np.mean(wins))
    assert auroc(scores, ~positive) == pytest.approx(1 - np.mean(wins))


@given(scored)
def test_the_calibration_error_lies_between_zero_and_one(pairs: list[tuple[float, bool]]) -> None:
    stated, right = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    assert 0 <= expected_calibration_error(stated, right) <= 1


def test_abstention_counts_by_hand() -> None:
    said_none = [True, True, False, False, True]
    answerable = [False, True, False, True, False]
    result = abstention(said_none, answerable)
    assert result.precision == pytest.approx(2 / 3)
    assert result.recall == pytest.approx(2 / 3)
    assert result.false_rate == pytest.approx(1 / 2)
    assert result.no_match == 3


def test_abstention_without_cases_is_unknown() -> None:
    result = abstention([False], [True])
    assert math.isnan(result.precision)
    assert math.isnan(result.recall)
    assert result.false_rate == 0
