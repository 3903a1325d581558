import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.text.tokens import clean_text, fold, one_line, typed_text

hostile = st.text(st.one_of(st.characters(), st.sampled_from("\x1b[]m\x07\r\n\t\x9b\u200b\u202e\U000e0041\ud800")))

VISIBLE_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Unicode calls them format characters, yet they are drawn: signs around numbers."""


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("a\x00b\x08c\x7f", "abc"),
        ("pay\u200bload \u2066hidden\u2069", "payload hidden"),
        ("\u202egnp.exe", "gnp.exe"),
        ("safe\U000e0069\U000e0067", "safe"),
        ("soft\u00adhyphen", "softhyphen"),
        ("half\ud83d", "half"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Windows\r\nlines", "Windows\nlines"),
    ],
)
def test_what_cannot_be_seen_or_would_steer_a_terminal_is_dropped(raw: str, shown: str) -> None:
    assert clean_text(raw) == shown


def test_a_carriage_return_cannot_overwrite_the_line_before_it() -> None:
    assert "\r" not in clean_text("delete everything\rread a file      ")


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_every_kind_of_line_break_keeps_words_apart(separator: str) -> None:
    assert clean_text(f"one{separator}two") == "one\ntwo"


@given(hostile)
def test_nothing_invisible_survives_cleaning(text: str) -> None:
    for character in clean_text(text):
        category = unicodedata.category(character)
        assert character in "\n\t" or category not in {"Cc", "Cs", "Zl", "Zp"}, repr(character)
        assert category != "Cf" or character in VISIBLE_FORMATS, repr(character)


@given(hostile)
def test_cleaned_text_can_be_encoded(text: str) -> None:
    clean_text(text).encode()


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_passes_unchanged(text: str) -> None:
    assert clean_text(text) == text


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (unicodedata.normalize("NFD", "gönder 이메일 gửi"), "gönder 이메일 gửi"),
        ("ｓｅｎｄ　ｍａｉｌ　２", "send　mail　2"),
        ("ﾌｧｲﾙを削除して", "ファイルを削除して"),
        ("天气怎么样？", "天气怎么样？"),
        ("10 m² … ½", "10 m² … ½"),
    ],
)
def test_what_is_typed_on_another_machine_reads_the_same(typed: str, read: str) -> None:
    assert typed_text(typed) == read


@given(hostile, st.integers(2, 60))
def test_one_line_is_one_line_within_its_length(text: str, length: int) -> None:
    line = one_line(text, length)
    assert len(line) <= length
    assert len(line.splitlines()) <= 1


def test_a_long_line_is_cut_at_a_word_with_an_ellipsis() -> None:
    assert one_line("Create a calendar event with attendees", 20) == "Create a calendar…"


@given(hostile)
def test_spellings_meet_after_folding_twice_as_after_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize(
    ("one", "other"), [("Café", "cafe"), ("ＡＰＩ", "api"), ("STRASSE", "straße"), ("é", "e\u0301")]
)
def test_case_width_and_accents_do_not_tell_spellings_apart(one: str, other: str) -> None:
    assert fold(one) == fold(other)
