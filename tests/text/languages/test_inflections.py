"""Inflected words are read by the form that the lexicon lists."""

import pytest

from shortlist.text.languages.glossing import gloss


@pytest.mark.parametrize(
    ("language", "word", "english"),
    [
        ("tr", "arıyorum", "search"),
        ("tr", "gönderdiği", "send"),
        ("tr", "seçebilirim", "select"),
        ("tr", "eklentimi", "plugin"),
        ("ko", "쓴", "write"),
        ("ko", "찾고", "find"),
        ("ko", "만들었고", "create"),
        ("ar", "يكتب", "write"),
        ("ar", "أشاهدها", "watch"),
        ("ar", "نلخصها", "summarize"),
    ],
)
def test_an_inflected_verb_or_noun_is_read_as_the_listed_form(language: str, word: str, english: str) -> None:
    (unit,) = gloss(word, language)
    assert english in [sense.english for sense in unit.senses]


@pytest.mark.parametrize(("language", "word"), [("tr", "xyzzyler" * 40), ("ko", "쀍뷁쀍"), ("ar", "ضظغخ")])
def test_a_word_that_no_root_explains_stays_as_it_is(language: str, word: str) -> None:
    (unit,) = gloss(word, language)
    assert unit.text == word
    assert not unit.senses
