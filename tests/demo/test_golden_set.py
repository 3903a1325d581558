import unicodedata
from collections import Counter

import pytest

from tests.demo.bundle import cases, tools

CASES = cases()
TOOL_IDS = set(tools())
SMALLEST_SEGMENTS = {
    "new_user": 70,
    "experienced": 70,
    "power_user": 70,
    "typos": 45,
    "abbreviations": 45,
    "languages": 45,
    "multi_tool": 45,
    "no_match": 45,
}
SPLIT_SHARES = {"train": 0.4, "validation": 0.2, "test": 0.4}
FIELDS = {"id", "query", "gold", "gold_groups", "segment", "split"}


def same_words(query: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


def test_there_are_at_least_450_cases_with_unique_ids_and_known_fields() -> None:
    assert len(CASES) >= 450
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert {field for case in CASES for field in case} == FIELDS


def test_no_query_is_asked_twice() -> None:
    counts = Counter(same_words(case["query"]) for case in CASES)
    assert [query for query, count in counts.items() if count > 1 or not query] == []


@pytest.mark.parametrize("segment", SMALLEST_SEGMENTS)
def test_each_segment_is_large_enough(segment: str) -> None:
    assert sum(case["segment"] == segment for case in CASES) >= SMALLEST_SEGMENTS[segment]


def test_there_are_no_other_segments() -> None:
    assert {case["segment"] for case in CASES} == set(SMALLEST_SEGMENTS)


@pytest.mark.parametrize("split", SPLIT_SHARES)
@pytest.mark.parametrize("segment", SMALLEST_SEGMENTS)
def test_each_segment_is_split_forty_twenty_forty(segment: str, split: str) -> None:
    splits = [case["split"] for case in CASES if case["segment"] == segment]
    assert splits.count(split) / len(splits) == pytest.approx(SPLIT_SHARES[split], abs=0.02)


def test_every_gold_tool_and_every_alternative_exists() -> None:
    groups = [group for case in CASES for group in [case["gold"], *case.get("gold_groups", [])]]
    assert {tool_id for group in groups for tool_id in group} - TOOL_IDS == set()


def test_every_tool_of_the_catalog_is_the_answer_to_some_case() -> None:
    assert TOOL_IDS - {tool_id for case in CASES for tool_id in case["gold"]} == set()


def test_each_group_of_alternatives_contains_exactly_its_gold_tool() -> None:
    for case in CASES:
        groups = case.get("gold_groups")
        if groups is None:
            continue
        assert len(groups) == len(case["gold"]), case["id"]
        for tool_id, group in zip(case["gold"], groups, strict=True):
            assert set(group) & set(case["gold"]) == {tool_id}, case["id"]
            assert len(group) == len(set(group)), case["id"]


def test_groups_are_written_only_where_there_is_a_choice() -> None:
    grouped = [case for case in CASES if "gold_groups" in case]
    assert [case["id"] for case in grouped if all(len(group) == 1 for group in case["gold_groups"])] == []


def test_no_match_cases_and_only_they_have_no_gold() -> None:
    assert {case["id"] for case in CASES if not case["gold"]} == {
        case["id"] for case in CASES if case["segment"] == "no_match"
    }
    assert [case["id"] for case in CASES if case["segment"] == "no_match" and "gold_groups" in case] == []


def test_multi_tool_cases_need_two_to_four_tools_and_others_need_one() -> None:
    wanted = {"multi_tool": {2, 3, 4}, "no_match": {0}}
    wrong = [case["id"] for case in CASES if len(set(case["gold"])) not in wanted.get(case["segment"], {1})]
    assert wrong == []


def test_new_users_never_write_the_name_of_a_tool() -> None:
    names = {tool_id.split("/")[1].lower() for tool_id in TOOL_IDS}
    telling = {name for name in names if any(mark in name for mark in "_-.")}
    asked = [case for case in CASES if case["segment"] == "new_user"]
    assert [case["id"] for case in asked if any(name in case["query"].lower() for name in telling)] == []


def test_other_languages_include_at_least_five_scripts() -> None:
    letters = {letter for case in CASES if case["segment"] == "languages" for letter in case["query"]}
    scripts = {unicodedata.name(letter, "?").split()[0] for letter in letters if letter.isalpha()}
    assert scripts >= {"LATIN", "CJK", "HIRAGANA", "HANGUL", "DEVANAGARI", "CYRILLIC", "ARABIC"}


def test_a_crm_request_is_a_no_match() -> None:
    assert [case["gold"] for case in CASES if case["query"] == "connect to Salesforce"] == [[]]
