from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shortlist.evals.contender import Contender
from shortlist.evals.sizes import advise, draw_samples, measure_size, samples_of_size
from shortlist.models import Tool, ToolId
from tests.evals.fakes import case, contender, dataset, runner, tool

POOL = tuple(f"t{number:03}" for number in range(60))
CASES = tuple(case(f"q{number}", f"query {number}", f"t{number:03}") for number in range(20))
sizes = st.lists(st.integers(2, 60), min_size=2, max_size=5, unique=True).map(sorted)


@given(sizes, st.integers(0, 50))
def test_each_sample_holds_all_smaller_ones_and_has_its_size(wanted: list[int], seed: int) -> None:
    samples = list(draw_samples(POOL, CASES, wanted, seed=seed))
    assert [len(sample.tools) for sample in samples] == wanted
    assert all(small.tools <= big.tools for small, big in pairwise(samples))


@given(sizes, st.integers(0, 50))
def test_a_sample_asks_only_what_it_can_answer(wanted: list[int], seed: int) -> None:
    for sample in draw_samples(POOL, CASES, wanted, seed=seed):
        assert sample.cases
        assert all(set(each.gold) <= sample.tools for each in sample.cases)


def test_half_of_a_small_catalog_is_distractors() -> None:
    (sample,) = draw_samples(POOL, CASES, [10])
    gold = {each.gold[0] for each in CASES}
    assert len(sample.tools & gold) == 5


def test_more_tools_than_there_are_gives_them_all() -> None:
    (sample,) = draw_samples(POOL, CASES, [500])
    assert sample.tools == set(POOL)
    assert len(sample.cases) == len(CASES)


def test_small_sizes_are_drawn_more_often_and_the_whole_catalog_once() -> None:
    many = tuple(f"t{number:04}" for number in range(2_000))
    drawn = [len(list(samples_of_size(many, CASES, size))) for size in (10, 500, 1_500, 2_000)]
    assert drawn == [10, 2, 1, 1]
    assert len(list(samples_of_size(POOL, CASES, 60))) == 1


def sloppy(tools: Mapping[ToolId, Tool]) -> Contender:
    """Right in small catalogs only."""
    first = {each.query: [each.gold[0] if len(tools) < 20 else sorted(tools)[0]] for each in CASES}
    return contender(first, name="sloppy", milliseconds=1)


def build(tools: Mapping[ToolId, Tool]) -> Mapping[str, Contender]:
    careful = contender({each.query: [each.gold[0]] for each in CASES}, name="careful", milliseconds=5)
    return {"sloppy": sloppy(tools), "careful": careful}


def test_the_advice_is_the_fastest_pipeline_that_is_good_enough() -> None:
    everything = runner(*(tool(tool_id) for tool_id in POOL))
    points = [point for size in (10, 60) for point in measure_size(everything, dataset(*CASES), build, size)]
    assert [(each.size, each.pipeline) for each in advise(points)] == [(10, "sloppy"), (60, "careful")]


def test_a_point_says_how_accurate_a_pipeline_is_at_a_size() -> None:
    everything = runner(*(tool(tool_id) for tool_id in POOL))
    _, careful = measure_size(everything, dataset(*CASES), build, 60)
    assert (careful.size, careful.pipeline, careful.accuracy.mean) == (60, "careful", 1)
    assert careful.milliseconds_p50 == 5
