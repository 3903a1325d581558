import gzip
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import DatasetMissing, InvalidInput, ShortlistError
from shortlist.evals.cases import Case, find_problems, read_cases
from shortlist.evals.datasets import DATA_VARIABLE, load_dataset, own_dataset
from shortlist.models import Json

LINE = {"id": "q1", "query": "list files", "gold": ["a"], "split": "new_user", "source": "x"}


def write_lines(path: Path, *lines: Json) -> Path:
    text = "\n".join(json.dumps(line) for line in lines)
    data = gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def case(identifier: str, query: str = "q", gold: tuple[str, ...] = ("a",)) -> Case:
    return Case(id=identifier, query=query, gold=gold)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("eval/small", "train/authored"):
        write_lines(tmp_path / name / "tools.jsonl.gz", {"id": "a", "name": "a"})
        other = LINE | {"id": "q2", "query": "other", "split": "hard"}
        write_lines(tmp_path / name / "queries.jsonl.gz", LINE, other)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.jsonl.gz"])
def test_cases_are_read_plain_and_gzipped(tmp_path: Path, name: str) -> None:
    (only,) = read_cases(write_lines(tmp_path / name, LINE))
    assert (only.id, only.query, only.gold, only.split) == ("q1", "list files", ("a",), "new_user")


def test_without_groups_each_gold_tool_is_its_own_group(tmp_path: Path) -> None:
    (only,) = read_cases(write_lines(tmp_path / "c.jsonl", LINE | {"gold": ["a", "b"]}))
    assert only.groups == (frozenset({"a"}), frozenset({"b"}))


def test_groups_carry_the_acceptable_alternatives(tmp_path: Path) -> None:
    (only,) = read_cases(write_lines(tmp_path / "c.jsonl", LINE | {"gold_groups": [["a", "fork"]]}))
    assert only.groups == (frozenset({"a", "fork"}),)


def test_the_segment_is_the_split_unless_it_is_given(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl", LINE, LINE | {"id": "q2", "segment": "typos", "split": "test"})
    assert [(each.split, each.segment) for each in read_cases(path)] == [
        ("new_user", "new_user"),
        ("test", "typos"),
    ]


def test_an_empty_gold_list_means_that_no_tool_answers(tmp_path: Path) -> None:
    (only,) = read_cases(write_lines(tmp_path / "c.jsonl", LINE | {"gold": []}))
    assert not only.answerable


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not an object", "line 1"),
        (LINE | {"gold": "a"}, "list of tool ids"),
        (LINE | {"gold": [1]}, "list of tool ids"),
        (LINE | {"query": None}, "'query'"),
        ({"query": "x", "gold": []}, "'id'"),
        (LINE | {"gold_groups": "ab"}, "list of lists"),
        ({"id": "x", "query": "x"}, "list of tool ids"),
    ],
)
def test_a_bad_case_is_refused_with_its_place(tmp_path: Path, line: Json, told: str) -> None:
    path = write_lines(tmp_path / "c.jsonl", line)
    with pytest.raises(InvalidInput, match=told):
        read_cases(path)


def test_a_line_that_is_not_json_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(LINE) + "\n{broken\n")
    with pytest.raises(InvalidInput, match="line 2"):
        read_cases(path)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "c.jsonl.gz", LINE)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InvalidInput, match=r"c\.jsonl\.gz"):
        read_cases(path)


def test_a_query_may_hold_any_line_separator_but_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(LINE | {"query": "one\u2028two"}, ensure_ascii=False), encoding="utf-8")
    assert read_cases(path)[0].query == "one\u2028two"


def test_a_case_id_used_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'q1' is used twice"):
        read_cases(write_lines(tmp_path / "c.jsonl", LINE, LINE))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_on_purpose(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "c.jsonl"
    path.write_bytes(data)
    with suppress(ShortlistError):
        assert all(isinstance(each, Case) for each in read_cases(path))


@pytest.mark.usefixtures("bench")
def test_a_named_set_is_found_under_the_data_root() -> None:
    dataset = load_dataset("small")
    assert dataset.name == "small"
    assert dataset.splits == ("new_user", "hard")
    assert [path.name for path in dataset.catalogs] == ["tools.jsonl.gz"]


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("asked", ["authored", "train/authored"])
def test_a_training_set_keeps_its_folder_in_its_name(asked: str) -> None:
    assert load_dataset(asked).name == "train/authored"


@pytest.mark.usefixtures("bench")
def test_a_split_is_a_set_of_its_own() -> None:
    dataset = load_dataset("small:hard")
    assert dataset.name == "small:hard"
    assert [each.id for each in dataset.cases] == ["q2"]


@pytest.mark.usefixtures("bench")
def test_an_unknown_split_names_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="There are: new_user, hard"):
        load_dataset("small:nope")


@pytest.mark.usefixtures("bench")
def test_a_missing_set_says_what_to_do() -> None:
    with pytest.raises(DatasetMissing, match=DATA_VARIABLE):
        load_dataset("nowhere")


def test_a_users_own_set_is_named_after_its_cases(tmp_path: Path) -> None:
    cases = write_lines(tmp_path / "mine.jsonl", LINE)
    dataset = own_dataset([tmp_path / "tools.json"], cases)
    assert (dataset.name, dataset.catalogs) == ("mine", (tmp_path / "tools.json",))


def test_a_missing_cases_file_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match="No file"):
        read_cases(tmp_path / "none.jsonl")


def test_gold_that_is_not_in_the_catalog_is_flagged() -> None:
    (problem,) = find_problems([case("q1", "x", ("gone",)), case("q2", "y")], {"a"})
    assert (problem.kind, problem.cases) == ("impossible label", ("q1",))
    assert "gone" in problem.message


def test_a_group_with_one_member_in_the_catalog_is_possible() -> None:
    alternative = Case(id="q", query="x", gold=("gone",), groups=(frozenset({"gone", "a"}),))
    assert find_problems([alternative], {"a"}) == ()


def test_the_same_query_twice_is_flagged_whatever_its_case_and_spaces() -> None:
    (problem,) = find_problems([case("q1", "List  files"), case("q2", "list files ")], {"a"})
    assert (problem.kind, problem.cases) == ("duplicate query", ("q1", "q2"))


def test_the_same_query_with_other_gold_is_a_conflict() -> None:
    (problem,) = find_problems([case("q1"), case("q2", gold=("b",))], {"a", "b"})
    assert problem.kind == "conflicting labels"
