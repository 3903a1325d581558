"""Charts as numbers: round ticks, shapes inside their box, gaps where nothing was measured."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.web.charts import HEIGHT, WIDTH, Chart, EffectInterval, Series, path, round_ticks, spark

amounts = st.floats(min_value=1e-6, max_value=1e12)
columns = st.lists(st.none() | st.floats(min_value=0, max_value=1e9), min_size=1, max_size=40)


def chart(*values: list[float | None], lines: bool = False) -> Chart:
    return Chart(
        title="Calls",
        kind="lines" if lines else "bars",
        moments=[f"day {n}" for n in range(len(values[0]))],
        series=[Series(f"s{n}", column, tone=n + 1) for n, column in enumerate(values)],
        show=lambda number: f"{number:g}",
    )


@given(amounts)
def test_ticks_are_few_even_and_reach_beyond_the_largest(most: float) -> None:
    ticks = round_ticks(most)
    steps = [later - earlier for earlier, later in itertools.pairwise(ticks)]
    assert ticks[0] == 0
    assert most <= ticks[-1] * (1 + 1e-9)
    assert 2 <= len(ticks) <= 6
    assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.parametrize(("most", "ticks"), [(0, (0, 1)), (7, (0, 2, 4, 6, 8)), (100, (0, 25, 50, 75, 100))])
def test_ticks_are_numbers_that_people_like(most: float, ticks: tuple[float, ...]) -> None:
    assert round_ticks(most) == ticks


@given(columns, columns)
def test_bars_stand_on_each_other_inside_the_box(one: list[float | None], other: list[float | None]) -> None:
    both = chart(one[: len(other)], other[: len(one)])
    for bar in both.bars:
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.1
        assert -0.1 <= bar.y <= bar.y + bar.height <= HEIGHT + 0.1


def test_a_stack_is_as_high_as_its_parts_together() -> None:
    lower, upper = chart([3.0], [1.0]).bars
    assert lower.y + lower.height == pytest.approx(HEIGHT)
    assert upper.y + upper.height == pytest.approx(lower.y)
    assert lower.height == pytest.approx(3 * upper.height)


def test_a_line_breaks_where_nothing_was_measured() -> None:
    drawn = path([1.0, 1.0, None, 1.0, None, 0.5, 0.5], 1.0, 10.0)
    assert drawn.count("M") == 3
    assert drawn.count("L") == 2
    assert drawn.count("H") == 1  # alone between two gaps: a dash
    assert path([None, None], 1.0, 10.0) == ""


@given(st.integers(min_value=1, max_value=60))
def test_labels_are_evenly_spaced_from_the_first_to_the_last(count: int) -> None:
    drawn = chart([1.0] * count)
    places = [at for at, label in enumerate(drawn.labels) if label]
    assert [drawn.labels[at] for at in places] == [drawn.moments[at] for at in places]
    gaps = {later - earlier for earlier, later in itertools.pairwise(places)}
    assert places[0] == 0
    assert places[-1] == count - 1
    assert len(gaps) <= 1


def test_a_chart_says_the_same_in_words() -> None:
    drawn = chart([2.0, None], [1.0, 0.0], lines=True)
    assert [slot.words for slot in drawn.slots] == ["s0 2, s1 1", "s0 –, s1 0"]
    assert [slot.moment for slot in drawn.slots] == ["day 0", "day 1"]
    assert list(drawn.rows) == [("day 0", ["2", "1"]), ("day 1", ["–", "0"])]


def test_a_chart_of_nothing_is_empty() -> None:
    assert chart([None, 0.0]).empty
    assert not chart([None, 0.1]).empty
    assert spark([]) == spark([None]) == ""


def test_an_interval_has_zero_in_the_middle() -> None:
    interval = EffectInterval(2.0, 1.0, 3.0)
    assert interval.at(0) == 50
    assert 50 < interval.at(1.0) < interval.at(2.0) < interval.at(3.0) < 100
    assert not EffectInterval(math.nan, -math.inf, math.inf).drawable
