import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.text import tokens
from shortlist.text.tokens import MAX_TERM_LENGTH, STOPWORDS, compact, split_identifier, terms, words

name_parts = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("getHTTPResponseV2", ["get", "http", "response", "v2"]),
        ("create_pull_request", ["create", "pull", "request"]),
        ("list-all-buckets", ["list", "all", "buckets"]),
        ("mcp.tools.call", ["mcp", "tools", "call"]),
        ("parseXMLToJSON", ["parse", "xml", "to", "json"]),
        ("SCREAMING_SNAKE", ["screaming", "snake"]),
        ("k8s", ["k8s"]),
        ("oauth2Token", ["oauth2", "token"]),
        ("base64", ["base64"]),
        ("поискФайла", ["поискфайла"]),
        ("", []),
        ("___", []),
    ],
)
def test_an_identifier_splits_into_its_words(identifier: str, parts: list[str]) -> None:
    assert split_identifier(identifier) == parts


@given(name_parts)
def test_snake_kebab_dotted_and_camel_case_split_alike(parts: list[str]) -> None:
    camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
    for spelling in ("_".join(parts), "-".join(parts), ".".join(parts), camel):
        assert split_identifier(spelling) == parts


@given(name_parts)
def test_all_spellings_of_a_name_are_one_compact_name(parts: list[str]) -> None:
    camel = "".join(part.capitalize() for part in parts)
    assert {compact(s) for s in ("_".join(parts), "-".join(parts), camel, " ".join(parts))} == {"".join(parts)}


@given(st.text(st.characters(max_codepoint=127)))
def test_splitting_an_identifier_twice_changes_nothing(identifier: str) -> None:
    assert split_identifier(words(identifier)) == split_identifier(identifier)


@given(st.text())
def test_every_text_gives_clean_terms(text: str) -> None:
    for term in terms(text):
        assert term
        assert len(term) <= MAX_TERM_LENGTH
        assert not any(ch.isspace() for ch in term)
        assert term not in STOPWORDS


@given(st.text(), st.text())
def test_the_terms_of_two_lines_are_the_terms_of_each(one: str, other: str) -> None:
    assert terms(f"{one}\n{other}") == terms(one) + terms(other)


@given(st.text(st.characters(max_codepoint=127)))
def test_letter_case_of_plain_words_does_not_matter(text: str) -> None:
    assert terms(text.lower()) == terms(text.lower().capitalize())


def test_the_whole_identifier_is_kept_beside_its_parts() -> None:
    assert terms("getHTTPResponseV2") == ["get", "http", "respons", "v2", "gethttpresponsev2"]


def test_words_meet_in_their_stem() -> None:
    assert terms("searching") == terms("searches") == terms("Search")


def test_a_numbered_word_is_also_found_by_the_word() -> None:
    assert "oauth" in terms("oauth2")
    assert "base" in terms("base64")


def test_stop_words_are_left_out_and_verbs_of_tools_are_not() -> None:
    assert terms("please could you list all of the issues for me") == ["list", "issu"]


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert terms("日程表") == ["日程", "程表"]
    assert terms("日") == ["日"]


def test_a_script_without_spaces_does_not_swallow_its_neighbours() -> None:
    assert terms("GitHubの課題") == ["の課", "課題", "github"]


def test_accents_and_width_do_not_hide_a_word() -> None:
    assert terms("Ｃalendário") == terms("calendario")


def test_marks_inside_a_word_do_not_break_it() -> None:
    assert terms("हिन्दी कैलेंडर") == ["हिन्दी", "कैलेंडर"]
    assert len(terms("தமிழ்")) == 1
    assert terms("calenda\u0301rio") == terms("calendario")


def test_hashes_and_pasted_data_are_no_terms() -> None:
    assert terms("a" * 41) == []


def test_a_word_is_not_lost_in_ansi_or_invisible_characters() -> None:
    assert terms("\x1b[1mcal\u200bendar\x1b[0m") == terms("calendar")


def test_words_that_do_not_come_again_do_not_fill_memory() -> None:
    """A request may be one word of any length, and every request another one."""
    for number in range(tokens.MAX_REMEMBERED_WORDS + 10):
        terms(f"w{number}x")
    terms("y" * 100_000)
    assert len(tokens._remembered) <= tokens.MAX_REMEMBERED_WORDS
    assert max(map(len, tokens._remembered)) <= tokens.MAX_REMEMBERED_CHARACTERS
