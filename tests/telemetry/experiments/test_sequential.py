import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.telemetry.experiments.sequential import (
    MISMATCH_PRIOR,
    MIXTURE,
    TIGHTEST_AT,
    UNSEEN,
    RatioSample,
    difference,
    estimate,
    mean,
    mismatch,
)

LOOKS = 20
EXPERIMENTS = 1_000
UNITS = 1_000
ALPHA = 0.05


def test_a_ratio_is_the_ratio_of_the_sums_and_its_variance_is_taken_between_units() -> None:
    sample = RatioSample.of([1, 0, 3], [4, 2, 6])
    residuals = [1 - 4 / 3, -2 / 3, 1.0]
    assert sample.value == pytest.approx(4 / 12)
    assert sample.variance == pytest.approx((sum(r * r for r in residuals) + UNSEEN**2) / 12**2 * 3 / 2)


def test_units_without_a_denominator_say_nothing() -> None:
    assert RatioSample.of([1, 0, 0], [2, 0, 2]).units == 2
    assert RatioSample.of([0], [0]).units == 0
    assert math.isnan(RatioSample.of([], []).value)


def test_one_unit_gives_no_bounds() -> None:
    lonely = mean(RatioSample.of([1], [2]), ALPHA)
    assert (lonely.low, lonely.high, lonely.p_value) == (-math.inf, math.inf, 1.0)


def test_an_interval_is_the_published_one() -> None:
    """Waudby-Smith et al., the normal mixture: σ √((tρ²+1)/(t²ρ²) · log((tρ²+1)/α²))."""
    units, sigma = 400, 2.0
    found = estimate(0.0, sigma**2 / units, units, ALPHA)
    scaled = units * MIXTURE
    published = sigma * math.sqrt((scaled + 1) / (units**2 * MIXTURE) * math.log((scaled + 1) / ALPHA**2))
    assert found.high == pytest.approx(published)


def test_intervals_are_narrowest_where_they_are_meant_to_be() -> None:
    def relative_width(units: int) -> float:
        return estimate(0.0, 1.0, units, ALPHA).high

    widths = {units: relative_width(units) for units in (TIGHTEST_AT // 2, TIGHTEST_AT, TIGHTEST_AT * 2)}
    assert min(widths, key=widths.__getitem__) == TIGHTEST_AT


@given(st.floats(0.01, 5), st.integers(10, 100_000), st.floats(0.001, 0.2))
def test_the_p_value_is_the_level_at_which_the_interval_reaches_zero(value: float, units: int, alpha: float) -> None:
    found = estimate(value, 1 / units, units, alpha)
    assert found.excludes_zero == (found.p_value < alpha) or found.p_value == pytest.approx(alpha)


def test_no_errors_in_either_arm_do_not_prove_that_there_are_none() -> None:
    none = RatioSample.of(np.zeros(50), np.full(50, 4.0))
    found = difference(none, none, ALPHA)
    assert found.value == 0
    assert found.high > 0.02


def looks(variants: np.ndarray, numerators: np.ndarray, denominators: np.ndarray) -> list[bool]:
    """Look at an experiment as it grows; say at each look whether it claims an effect."""
    alarms = []
    for size in np.linspace(UNITS / LOOKS, UNITS, LOOKS).astype(int):
        one, other = (
            RatioSample.of(numerators[:size][chosen], denominators[:size][chosen])
            for chosen in (variants[:size] == 1, variants[:size] == 0)
        )
        alarms.append(min(one.units, other.units) >= 20 and difference(one, other, ALPHA).excludes_zero)
    return alarms


def calls_and_errors(rng: np.random.Generator, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Workspaces that differ in how much they call and in how often it fails."""
    calls = rng.poisson(rng.gamma(1.0, 8.0, len(rates)))
    return rng.binomial(calls, rng.beta(20 * rates, 20 * (1 - rates))).astype(float), calls.astype(float)


def test_experiments_without_an_effect_that_are_looked_at_twenty_times_keep_to_the_stated_rate() -> None:
    rng = np.random.default_rng(1)
    alarmed = 0
    for _ in range(EXPERIMENTS):
        variants = rng.integers(0, 2, UNITS)
        alarmed += any(looks(variants, *calls_and_errors(rng, np.full(UNITS, 0.1))))
    assert alarmed / EXPERIMENTS <= ALPHA


def test_a_planted_effect_is_found() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(50):
        variants = rng.integers(0, 2, UNITS)
        found += any(looks(variants, *calls_and_errors(rng, np.where(variants == 1, 0.2, 0.1))))
    assert found >= 49


def test_arms_that_fill_as_planned_are_no_mismatch_at_any_look() -> None:
    rng = np.random.default_rng(3)
    alarmed = sum(mismatch(rng.integers(0, 2, 2_000).tolist(), (0.5, 0.5)) < ALPHA for _ in range(EXPERIMENTS))
    assert alarmed / EXPERIMENTS <= ALPHA


def test_an_arm_that_loses_a_fifth_of_its_units_is_noticed() -> None:
    rng = np.random.default_rng(4)
    assert mismatch((rng.random(2_000) < 0.8 / 1.8).astype(int).tolist(), (0.5, 0.5)) < 0.01


def test_a_mismatch_stays_one_after_the_arms_have_evened_out() -> None:
    lopsided, evening = [0] * 200, [1] * 200
    assert mismatch(lopsided + evening, (0.5, 0.5)) <= mismatch(lopsided, (0.5, 0.5)) < 0.01


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_a_mismatch_is_judged_by_the_likelihood_of_each_unit_in_turn(variants: list[int]) -> None:
    shares, counts, ratio, highest = (0.5, 0.3, 0.2), [0, 0, 0], 1.0, 0.0
    for seen, variant in enumerate(variants):
        ratio *= (MISMATCH_PRIOR * shares[variant] + counts[variant]) / (MISMATCH_PRIOR + seen) / shares[variant]
        counts[variant] += 1
        highest = max(highest, ratio)
    assert mismatch(variants, shares) == pytest.approx(min(1.0, 1 / highest))


def test_nobody_exposed_is_no_mismatch() -> None:
    assert mismatch([], (0.5, 0.5)) == 1.0
