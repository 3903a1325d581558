import math

from shortlist.evals.ablation import Ablation, ablate
from shortlist.evals.sweep import best, sweep
from tests.evals.fakes import case, contender, dataset, runner, tool

TOOLS = (tool("a", server="s"), tool("b", server="s"), tool("c", server="z"))
CASES = (case("q1", "one", "a", segment="new"), case("q2", "two", "a", segment="power"))
FULL = {"one": ["a", "b"], "two": ["a", "b"]}
WITHOUT_DENSE = {"one": ["b", "a"], "two": ["a", "b"]}
WITHOUT_LEXICAL = {"one": ["a"], "two": ["c"]}


def ablation() -> Ablation:
    variants = {"dense": contender(WITHOUT_DENSE), "lexical": contender(WITHOUT_LEXICAL)}
    return ablate(runner(*TOOLS), dataset(*CASES), contender(FULL), variants)


def test_the_table_has_the_full_pipeline_first_and_a_row_for_each_part_off() -> None:
    assert [row.part for row in ablation().rows()] == ["full", "dense", "lexical"]


def test_each_row_shows_what_is_lost() -> None:
    full, dense, lexical = ablation().rows()
    assert full.values["lenient_mrr"] == 1
    assert (dense.values["lenient_r@1"], dense.values["lenient_r@3"]) == (0.5, 1)
    assert dense.values["lenient_mrr"] == 0.75
    assert dense.change.difference.mean == -0.25
    assert (dense.values["toolset"], lexical.values["toolset"]) == (1, 0.5)


def test_segments_are_shown_apart() -> None:
    found = ablation()
    assert found.segments == ("all", "new", "power")
    assert [row.values["lenient_r@1"] for row in found.rows("new")] == [1, 0, 1]
    assert [row.values["lenient_r@1"] for row in found.rows("power")] == [1, 1, 0]


def test_the_queries_that_a_part_moves_are_listed_with_their_ranks() -> None:
    moves = ablation().moved()
    assert [(move.part, move.case, move.rank, move.rank_without) for move in moves] == [
        ("dense", "q1", 1, 2),
        ("lexical", "q2", 1, math.inf),
    ]


def test_a_sweep_runs_every_value_and_the_best_is_the_first_of_equals() -> None:
    points = sweep(
        runner(*TOOLS),
        dataset(*CASES),
        [0.0, 0.5, 1.0],
        lambda value: contender(FULL if value else WITHOUT_DENSE),
    )
    assert [point.value for point in points] == [0.0, 0.5, 1.0]
    assert best(points, "top1").value == 0.5
