"""What words mean: abbreviations are written out for a model, phrases stand in for terms, users add their own."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidInput
from shortlist.text.queries import parse_expansions, read_expansions, shipped_expansions, texts_to_embed


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("open a PR for my branch", "open a pull request for my branch"),
        ("restart the k8s pods, then dm ops.", "restart the kubernetes pods, then direct message ops."),
        ("which DB?", "which database?"),
    ],
)
def test_abbreviations_are_written_out_for_a_model(written: str, meant: str) -> None:
    assert shipped_expansions().spelled_out(written) == meant


@pytest.mark.parametrize(
    "text",
    [
        "write to Mr Li",
        "read the .env file",
        "tag it api:dev and repo=cli",
        "open https://pr.example.com/pr",
        "call get_pr or list-prs",
        "fill in <db>",
        "plan the sprint and remind me",
    ],
)
def test_names_arguments_and_other_words_stay_as_they_are(text: str) -> None:
    assert shipped_expansions().spelled_out(text) == text


def test_every_part_of_a_query_is_written_out() -> None:
    parts = texts_to_embed("Open a PR for it. Then send a DM to them.")
    assert len(parts) == 3
    assert all("PR" not in part and "DM" not in part for part in parts)


def test_what_a_user_says_an_abbreviation_is_short_for_holds(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("pr => press release\nsow => statement of work\n", "utf-8")
    assert read_expansions(mine).spelled_out("a PR about the SOW") == "a press release about the statement of work"


def test_an_abbreviation_of_two_things_stays_as_it_is() -> None:
    table = parse_expansions("cr => change request\ncr => credit risk\n", "mine.txt")
    assert table.spelled_out("a CR") == "a CR"
    assert len(table.phrases["cr"]) == 2


def test_what_a_user_gives_two_meanings_is_not_written_out_as_the_shipped_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("pr => press release, public relations\n", "utf-8")
    assert read_expansions(mine).spelled_out("a PR") == "a PR"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"absent\.txt cannot be read: No such file"):
        read_expansions(tmp_path / "absent.txt")


def test_users_add_expansions_of_their_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("# ours\nflurb => create invoice\nzap <=> delete\n", "utf-8")
    table = read_expansions(mine).phrases
    assert ("creat", "invoic") in table["flurb"]
    assert ("delet",) in table["zap"]
    assert ("zap",) in table["delet"]
    assert ("kubernet",) in table["k8s"], "the shipped ones stay"


@pytest.mark.parametrize("line", ["word phrase", "=> phrase", "word =>", "word => a phrase,,other"])
def test_a_broken_line_of_expansions_is_named(line: str) -> None:
    with pytest.raises(InvalidInput, match=r"mine\.txt line 2"):
        parse_expansions(f"ok => fine words\n{line}\n", "mine.txt")


@given(st.text(st.characters(exclude_characters="\r\n")))
def test_any_line_of_expansions_is_read_or_refused(line: str) -> None:
    try:
        table = parse_expansions(line, "mine.txt")
    except InvalidInput:
        return
    assert all(all(phrase) for phrases in table.phrases.values() for phrase in phrases)
