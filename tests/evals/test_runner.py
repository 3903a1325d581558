from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import DatasetMissing, InvalidInput, TunedOnReportedSplit
from shortlist.evals.runfile import load_runs, save_runs
from shortlist.evals.runner import Record, Run
from tests.evals.fakes import case, contender, dataset, runner, tool

TOOLS = (
    tool("mail/send", server="mail"),
    tool("mail/read", server="mail"),
    tool("disk/read", server="disk", category="files"),
)
CASES = (
    case("q1", "send it", "mail/send", split="test"),
    case("q2", "read it", "disk/read", split="test"),
    case("q3", "sing", split="hard"),
)
ANSWERS = {"send it": ["mail/read", "mail/send"], "read it": ["mail/read"]}


@pytest.fixture
def run() -> Run:
    return runner(*TOOLS).run(dataset(*CASES), contender(ANSWERS))


def test_every_query_gets_a_record_with_its_metrics(run: Run) -> None:
    assert [record.id for record in run.records] == ["q1", "q2", "q3"]
    assert run.values("top1").tolist() == [0, 0]
    assert run.values("mrr").tolist() == [0.5, 0]


def test_a_query_that_no_tool_answers_has_no_metrics_but_a_record(run: Run) -> None:
    assert run.records[2].metrics == {}
    assert run.records[2].level == "none"
    assert run.correct().tolist() == [0, 0, 0]


def test_the_toolset_of_the_first_hit_is_its_category_or_else_its_server(run: Run) -> None:
    assert run.values("toolset").tolist() == [1, 0]


def test_tokens_count_the_definitions_of_the_tools_shown(run: Run) -> None:
    one = estimate_tokens(TOOLS[0].definition)
    assert run.tokens().tolist() == [2 * one, one, 0]


def test_a_run_can_be_cut_to_a_split(run: Run) -> None:
    assert [record.id for record in run.only(split="hard").records] == ["q3"]
    assert run.splits == ("test", "hard")


def test_progress_is_told_after_every_query() -> None:
    told: list[tuple[int, int]] = []
    watched = replace(runner(*TOOLS), progress=lambda done, total: told.append((done, total)))
    watched.run(dataset(*CASES), contender(ANSWERS))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("fitted", ["fake", "fake:test", "eval/fake"])
def test_a_contender_fitted_on_the_reported_split_is_refused(fitted: str) -> None:
    with pytest.raises(TunedOnReportedSplit, match="fitted on fake"):
        runner(*TOOLS).run(dataset(*CASES), contender(ANSWERS, fitted_on=[fitted]))


@pytest.mark.parametrize("fitted", ["train/authored", "fake:train", "test", "fake:tes"])
def test_a_contender_fitted_on_anything_else_is_welcome(fitted: str) -> None:
    run = runner(*TOOLS).run(dataset(*CASES), contender(ANSWERS, fitted_on=[fitted]))
    assert run.fitted_on == (fitted,)


def test_a_split_that_was_not_fitted_on_can_be_reported_alone() -> None:
    only_hard = dataset(*CASES).only(split="hard")
    fitted = contender(ANSWERS, fitted_on=["fake:test"])
    assert len(runner(*TOOLS).run(only_hard, fitted).records) == 1


def test_a_saved_run_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    other = replace(run, dataset="other", records=run.records[:1])
    save_runs([run, other], tmp_path / "run.jsonl")
    assert load_runs(tmp_path / "run.jsonl") == (run, other)


def test_the_header_says_what_was_run(run: Run) -> None:
    assert (run.dataset, run.pipeline, run.fingerprint, run.tools, run.limit) == (
        "fake",
        "fake",
        "f00d",
        3,
        10,
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "does not begin with a header"),
        ('{"id": "q"}', "does not begin with a header"),
        ("[1]", "not a line of a run"),
        ("{", "not JSON"),
        ('{"format_version": 99}', "format version 99"),
        ('{"format_version": 1}', "missing or invalid field"),
    ],
)
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=told):
        load_runs(path)


def test_a_missing_run_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match="--out"):
        load_runs(tmp_path / "none.jsonl")


texts = st.text(max_size=8)
records = st.builds(
    Record,
    id=texts,
    split=texts,
    segment=texts,
    answerable=st.booleans(),
    ranked=st.lists(texts, max_size=3).map(tuple),
    level=st.sampled_from(["high", "none"]),
    probability=st.floats(0, 1),
    match_probability=st.floats(0, 1),
    milliseconds=st.floats(0, 1e6),
    tokens=st.integers(0, 10**6),
    metrics=st.dictionaries(texts, st.floats(0, 1), max_size=2),
)


@given(st.lists(records, max_size=4).map(tuple))
def test_any_records_survive_saving(tmp_path_factory: pytest.TempPathFactory, found: tuple[Record, ...]) -> None:
    path = tmp_path_factory.mktemp("runs") / "run.jsonl"
    run = Run(dataset="d", pipeline="p", embedder="", fingerprint="", tools=0, limit=10, fitted_on=(), records=found)
    save_runs([run], path)
    assert load_runs(path) == (run,)
