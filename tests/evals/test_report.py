import json
import math
from dataclasses import replace

import numpy as np
import pytest

from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import InvalidInput
from shortlist.evals.ablation import ablate
from shortlist.evals.cells import change, interval, label, mark, percent
from shortlist.evals.compare import compare
from shortlist.evals.contender import NOTHING_FOUND
from shortlist.evals.doctor import Doctor
from shortlist.evals.gates import Gate, read_limits
from shortlist.evals.report import (
    ablation_tables,
    comparison_table,
    diagnosis_tables,
    leaderboard,
    moved_table,
    quality_table,
    size_tables,
    sweep_table,
)
from shortlist.evals.runner import Run
from shortlist.evals.significance import UNKNOWN, Interval
from shortlist.evals.sizes import measure_size
from shortlist.evals.summary import summarise_each
from shortlist.evals.sweep import Point
from shortlist.evals.tables import Table, plain, to_json, to_markdown
from tests.evals.fakes import case, contender, dataset, runner, tool

TOOLS = (tool("a", server="s"), tool("b", server="s"))
CASES = tuple(case(f"q{n}", f"query {n}", "a", split="easy" if n % 2 else "hard") for n in range(10))
NO_MATCH = case("none", "sing", split="hard")
RIGHT = {each.query: ["a", "b"] for each in CASES}
WRONG = {each.query: ["b", "a"] for each in CASES}


def run_of(answers: dict[str, list[str]], name: str = "fake") -> Run:
    return runner(*TOOLS).run(dataset(*CASES, NO_MATCH, name=name), contender(answers))


def column(table: Table, name: str) -> list[str]:
    return [row[table.columns.index(name)] for row in table.rows]


def test_the_quality_table_shows_the_set_its_splits_and_their_macro_average() -> None:
    table = quality_table([run_of(RIGHT)])
    assert column(table, "part") == ["all", "hard", "easy", "macro over splits"]
    assert column(table, "top-1") == ["100.0 [100.0, 100.0]"] * 4
    assert column(table, "none recall") == ["100.0", "100.0", "–", "100.0"]


def test_several_sets_end_in_their_macro_average() -> None:
    summaries = summarise_each([run_of(RIGHT, "x"), run_of(WRONG, "y")])
    assert [(each.dataset, each.part) for each in summaries][-1] == ("macro", "")
    assert summaries[-1].metrics["top1"].mean == 0.5


def test_abstention_is_left_out_where_every_query_has_an_answer() -> None:
    only_answerable = replace(run_of(RIGHT), records=run_of(RIGHT).records[:-1])
    assert "none recall" not in quality_table([only_answerable]).columns


def test_the_comparison_marks_what_is_significant() -> None:
    table = comparison_table(compare([run_of(WRONG)], [run_of(RIGHT)]), "old", "new")
    assert column(table, "top-1") == ["+100.0** [+100.0, +100.0]"]
    assert table.title == "From old to new"


def test_the_leaderboard_marks_contenders_against_the_reference() -> None:
    runs = {
        "ours": [run_of(RIGHT, "x"), run_of(RIGHT, "y")],
        "theirs": [run_of(WRONG, "x"), run_of(RIGHT, "y")],
    }
    table = leaderboard(runs, "top1", "ours")
    assert table.columns == ("pipeline", "x", "y", "macro")
    assert table.rows == (("ours", "100.0", "100.0", "100.0"), ("theirs", "0.0**", "100.0", "50.0**"))


def test_a_contender_without_a_set_has_a_gap_in_the_leaderboard() -> None:
    runs = {"ours": [run_of(RIGHT, "x"), run_of(RIGHT, "y")], "theirs": [run_of(RIGHT, "x")]}
    assert leaderboard(runs, "top1", "ours").rows[1] == ("theirs", "100.0", "–", "–")


def test_the_ablation_tables_have_a_row_for_each_part() -> None:
    found = ablate(runner(*TOOLS), dataset(*CASES), contender(RIGHT), {"dense": contender(WRONG)})
    (table,) = ablation_tables(found, ["all"])
    assert column(table, "part off") == ["full", "dense"]
    assert column(table, "ΔMRR") == ["+0.0 [+0.0, +0.0]", "-50.0** [-50.0, -50.0]"]
    moved = moved_table(found, {"q0": "query 0"})
    assert moved.rows[0] == ("dense", "q0", "query 0", "1", "2")


def test_the_sweep_table_has_a_row_for_each_value() -> None:
    table = sweep_table([Point(0.2, (run_of(RIGHT),)), Point(1.0, (run_of(WRONG),))], "α")
    assert column(table, "α") == ["0.2", "1"]
    assert column(table, "top-1")[1].startswith("0.0")


def test_the_size_tables_show_accuracy_and_advice() -> None:
    contenders = {"fast": contender(RIGHT), "slow": contender(RIGHT, milliseconds=9)}
    points = measure_size(runner(*TOOLS), dataset(*CASES), lambda _tools: contenders, 2)
    accuracy, advice = size_tables(points)
    assert accuracy.rows == (("2", "100.0 [100.0, 100.0] 1.00 ms", "100.0 [100.0, 100.0] 9.00 ms"),)
    assert advice.rows == (("2", "fast", "fast"),)


def test_the_diagnosis_is_shown_as_findings_and_costs() -> None:
    lost = Doctor(rank=lambda _query, _limit: NOTHING_FOUND)
    findings, costs = diagnosis_tables(lost.examine({"a": TOOLS[0]}))
    assert findings.rows[0][:2] == ("empty description", "a")
    assert costs.rows == (("s", "1", str(estimate_tokens(TOOLS[0].definition))),)


def test_markdown_is_a_table_whose_cells_cannot_break_it() -> None:
    text = to_markdown([Table("T", ("x", "y"), (("a|b\nc", "\x1b[31mred"),), ("A note.",))])
    assert text == "### T\n\n| x | y |\n| --- | --- |\n| a\\|b c | red |\n\nA note.\n"


def test_json_has_null_for_what_is_unknown() -> None:
    assert plain(UNKNOWN) == {"mean": None, "low": None, "high": None}
    assert plain({"x": (math.inf, np.array([1.0, math.nan]))}) == {"x": [None, [1.0, None]]}


def test_summaries_become_json() -> None:
    (summary, *_) = json.loads(to_json(summarise_each([run_of(RIGHT)])))
    assert summary["dataset"] == "fake"
    assert summary["metrics"]["top1"]["mean"] == 1
    assert summary["abstention"]["no_match"] == 1
    assert summary["match_auroc"] == 1


def test_figures_are_written_the_same_everywhere() -> None:
    assert [percent(0.1234), percent(math.nan)] == ["12.3", "–"]
    assert interval(Interval(0.5, 0.4, 0.6)) == "50.0 [40.0, 60.0]"
    assert [mark(0.5), mark(0.04), mark(0.001)] == ["", "*", "**"]
    assert [label(name) for name in ("lenient_top1", "r@5", "lenient_ndcg@10", "mrr", "complete@5")] == [
        "top-1",
        "R@5",
        "nDCG@10",
        "MRR",
        "complete@5",
    ]
    (same,) = compare([run_of(RIGHT)], [run_of(RIGHT)])
    assert change(same.deltas[0]) == "+0.0 [+0.0, +0.0]"


def test_a_floor_that_is_missed_fails_the_gate() -> None:
    gate = Gate(floors={"top1": 0.8}, drops={})
    assert gate.failures([run_of(RIGHT)]) == ()
    assert gate.failures([run_of(WRONG)]) == ("top1 is 0.0000, below 0.8",)


def test_a_fall_from_the_baseline_fails_the_gate() -> None:
    gate = Gate(floors={}, drops={"mrr": 0.1}, baseline=(run_of(RIGHT),))
    assert gate.failures([run_of(RIGHT)]) == ()
    assert gate.failures([run_of(WRONG)]) == ("mrr fell by 0.5000, more than 0.1",)


def test_a_gain_never_fails_the_gate() -> None:
    gate = Gate(floors={}, drops={"mrr": 0.0}, baseline=(run_of(WRONG),))
    assert gate.failures([run_of(RIGHT)]) == ()


def test_limits_are_fractions_or_percentages() -> None:
    assert read_limits(["top1=0.8", "r@5=95%"]) == {"top1": 0.8, "r@5": 0.95}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("top1", "METRIC=VALUE"),
        ("top1=x", "METRIC=VALUE"),
        ("top1=80", "from 0 to 1"),
        ("nope=0.5", "No metric"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_limits([text])
