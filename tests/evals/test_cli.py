import argparse
import gzip
import json
from pathlib import Path

import pytest

from shortlist.cli import evals
from shortlist.evals.runfile import load_runs
from shortlist.models import Json

TOOLS = [
    {"id": "m/send", "name": "send_email", "server": "m", "description": "Send an email message to somebody."},
    {"id": "f/list", "name": "list_files", "server": "f", "description": "List the files in a folder."},
    {"id": "w/get", "name": "get_weather", "server": "w", "description": "Get the weather forecast of a city."},
]
CASES = [
    {"id": "q1", "query": "send an email", "gold": ["m/send"], "split": "test", "segment": "new"},
    {"id": "q2", "query": "files in a folder", "gold": ["f/list"], "split": "test", "segment": "power"},
    {"id": "q3", "query": "list files", "gold": ["w/get"], "split": "hard", "segment": "power"},
]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    evals.register(parser.add_subparsers(required=True))
    args = parser.parse_args(words)
    code: int = args.run(args)
    return code


def write(path: Path, lines: list[Json]) -> Path:
    text = "\n".join(map(json.dumps, lines)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    catalog = write(tmp_path / "tools.jsonl.gz", TOOLS)
    cases = write(tmp_path / "mine.jsonl", CASES)
    return ["--catalog", str(catalog), "--cases", str(cases), "--embedder", "none"]


def test_eval_prints_a_table_of_the_users_own_cases(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", *own) == 0
    shown = capsys.readouterr()
    assert "| mine | all | 3 | 66.7" in shown.out
    assert "mine default: 3/3" in shown.err


def test_eval_prints_json_for_machines(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", *own, "--json", "--split", "test") == 0
    (summary, *_) = json.loads(capsys.readouterr().out)["summaries"]
    assert (summary["dataset"], summary["queries"]) == ("mine:test", 2)
    assert summary["metrics"]["top1"]["mean"] == 1


def test_eval_of_several_pipelines_adds_a_leaderboard(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", *own, "--pipeline", "lexical", "--pipeline", "bm25") == 0
    shown = capsys.readouterr().out
    assert "### Quality of bm25" in shown
    assert "### top-1 by set" in shown


def test_eval_saves_what_happened_to_every_query(own: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    assert run("eval", *own, "--out", str(out)) == 0
    (saved,) = load_runs(out)
    assert [record.id for record in saved.records] == ["q1", "q2", "q3"]
    assert saved.pipeline == "default"


def test_eval_fails_under_a_floor(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", *own, "--fail-under", "top1=0.5") == 0
    assert run("eval", *own, "--fail-under", "top1=90%") == 1
    assert "top1 is 0.6667, below 0.9" in capsys.readouterr().err


def test_eval_fails_when_it_falls_too_far_from_the_baseline(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl"
    run("eval", *own, "--out", str(out))
    assert run("eval", *own, "--baseline", str(out), "--max-drop", "top1=0") == 0
    assert "From the baseline to default" in capsys.readouterr().out
    bad = ["--pipeline", "exact", "--baseline", str(out), "--max-drop", "top1=0.1"]
    assert run("eval", *own, *bad) == 1
    assert "top1 fell by" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["eval", "nowhere"], "No dataset 'nowhere'"),
        (["eval", "golden:nope"], "No split 'nope'"),
        (["eval", "--cases", "x.jsonl"], "go together"),
        (["eval", "--embedder", "none", "--pipeline", "nope"], "No pipeline 'nope'"),
        (["eval", "--embedder", "nope"], "No embedder 'nope'"),
        (["eval", "--fail-under", "top1"], "METRIC=VALUE"),
        (["eval", "--max-drop", "top1=0.1"], "--baseline"),
        (["eval", "--baseline", "none.jsonl"], "No run"),
        (["compare", "none.jsonl", "lexical"], "No run"),
        (["ablate", "golden", "golden:test", "--embedder", "none"], "one dataset"),
        (["rank", "--catalog", "none.jsonl", "--queries", "none.jsonl", "--out", "o"], "No file"),
        (["lint", "--catalog", "none.json"], "no file"),
    ],
)
def test_bad_input_is_told_with_exit_code_two(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert told in capsys.readouterr().err


def test_impossible_labels_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = write(tmp_path / "tools.jsonl", TOOLS)
    cases = write(tmp_path / "mine.jsonl", [{"id": "q", "query": "fly", "gold": ["gone"]}])
    assert run("eval", "--catalog", str(catalog), "--cases", str(cases), "--embedder", "none") == 0
    assert "impossible label (q): not in the catalog: gone" in capsys.readouterr().err


def test_eval_by_sizes_shows_which_pipeline_to_use(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", *own, "--sizes", "2,3", "--pipeline", "lexical", "--pipeline", "bm25") == 0
    assert "### Which pipeline at which size" in capsys.readouterr().out


def test_sizes_can_be_filled_up_with_another_catalog(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [{"id": f"o{n}", "name": f"other_{n}", "description": f"Do thing {n}."} for n in range(5)]
    more = write(tmp_path / "more.jsonl", [*others, TOOLS[0] | {"id": "copy"}])
    words = ["--sizes", "8", "--distractors", str(more), "--pipeline", "lexical", "--json"]
    assert run("eval", *own, *words) == 0
    (point,) = json.loads(capsys.readouterr().out)
    assert point["size"] == 8


def test_compare_takes_runs_and_pipelines(own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.jsonl"
    run("eval", *own, "--out", str(out))
    assert run("compare", str(out), str(out)) == 0
    assert run("compare", "lexical", "bm25@none", *own) == 0
    shown = capsys.readouterr().out
    assert "### From lexical to bm25@none" in shown


def test_compare_runs_a_pipeline_on_the_cases_of_a_run(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl"
    run("eval", *own, "--out", str(out))
    capsys.readouterr()
    assert run("compare", str(out), "lexical", *own, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["queries"] == 3


def test_compare_finds_the_named_set_of_a_saved_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.jsonl"
    run("eval", "golden:validation", "--embedder", "none", "--pipeline", "lexical", "--out", str(out))
    assert run("compare", str(out), "bm25", "--embedder", "none") == 0
    assert "| golden:validation | 145 |" in capsys.readouterr().out


def test_ablate_shows_every_part_per_segment(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ablate", *own, "--verbose") == 0
    shown = capsys.readouterr().out
    assert "### mine, all: 3 queries" in shown
    assert "### mine, power: 2 queries" in shown
    assert "### Queries that move" in shown


def test_ablate_can_be_cut_to_a_segment(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ablate", *own, "--segment", "new", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["queries"] for row in rows} == {1}


def test_sweep_shows_every_value(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sweep", *own, "--values", "0,0.5,1") == 0
    shown = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in shown.splitlines()[4:7]] == ["0", "0.5", "1"]


def test_a_sweep_of_nothing_in_particular_chooses_on_the_golden_sets_validation_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("sweep", "--values", "1") == 0
    assert "golden:validation by alpha" in capsys.readouterr().out


def test_doctor_examines_a_catalog(own: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lint", *own[:2], *own[4:], "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tools"], found["tested"]) == (3, 3)
    assert {cost["server"] for cost in found["costs"]} == {"m", "f", "w"}


def test_doctor_examines_the_demo_catalog_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lint", "--embedder", "none") == 0
    assert "### Tokens of full definitions" in capsys.readouterr().out


def test_rank_writes_one_line_for_each_query(own: list[str], tmp_path: Path) -> None:
    out = tmp_path / "ranked.jsonl"
    queries = write(tmp_path / "queries.jsonl.gz", [*CASES, {"id": "blank", "query": " "}])
    words = ["--queries", str(queries), "--limit", "2", "--out", str(out)]
    assert run("rank", *own[:2], *own[4:], *words) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["q1", "q2", "q3", "blank"]
    assert lines[0]["ranked"][0] == "m/send"
    assert all(len(line["ranked"]) <= 2 for line in lines)
    assert lines[0].keys() == {"id", "ranked", "confidence", "probability", "milliseconds"}
    assert (lines[3]["ranked"], lines[3]["confidence"]) == ([], "none")


def test_rank_says_when_it_cannot_write(own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = write(tmp_path / "queries.jsonl", CASES)
    words = ["--queries", str(queries), "--out", str(tmp_path / "no" / "where.jsonl")]
    with pytest.raises(SystemExit) as stop:
        run("rank", *own[:2], *own[4:], *words)
    assert stop.value.code == 2
    assert "create it first" in capsys.readouterr().err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("eval", "compare", "ablate", "sweep", "lint", "rank"):
        with pytest.raises(SystemExit) as stop:
            run(command, "--help")
        assert stop.value.code == 0
        assert capsys.readouterr().out.startswith("usage:")
