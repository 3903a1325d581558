"""How a word of each language is spelled for comparison: one normal form, and the stems it may be known by."""

import re
import unicodedata
from functools import cache, lru_cache

import Stemmer

from shortlist.text.languages.hindi import latin_key
from shortlist.text.languages.korean import bare_forms
from shortlist.text.tokens import fold

MAX_REMEMBERED_WORDS = 20_000

SNOWBALL = {
    "ar": "arabic",
    "de": "german",
    "es": "spanish",
    "fr": "french",
    "hi": "hindi",
    "it": "italian",
    "pl": "polish",
    "pt": "portuguese",
    "ru": "russian",
    "tr": "turkish",
}
_PLAIN_LETTERS = {
    "ar": str.maketrans({"أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي", "ة": "ه", "ؤ": "و", "ئ": "ي", "ـ": ""}),
    "ru": str.maketrans({"ё": "е"}),
    "hi": str.maketrans({"ँ": "ं", "़": "", "\u200d": "", "\u200c": ""}),
    "pl": str.maketrans({"ł": "l"}),
    "tr": str.maketrans({"ı": "i"}),
    "vi": str.maketrans({"đ": "d"}),
}
_ARABIC_MARKS = re.compile("[\u0610-\u061a\u064b-\u065f\u0670]")
_ARABIC_PREFIX = re.compile("^(?:[وفبكل]{0,2}ال|[وف]?لل|[وفبكل])(?=..)")
_ENCLITICS = {
    "es": re.compile("(?<=...[aeiourn])(?:me|te|se|nos|lo|la|le|los|las|les){1,2}$"),
    "it": re.compile("(?<=...[aeiour])(?:mi|ti|ci|vi|si|lo|la|li|le|gli|ne|melo|mela|meli|mele)$"),
}
ACCENTED = frozenset({"de", "es", "fr", "it", "pl", "pt", "tr"})
"""Accents are often left out in these languages, and hardly ever tell two tool words apart."""


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def normal(word: str, language: str) -> str:
    """Return a word in the one spelling that the lexicon is keyed by."""
    lower = unicodedata.normalize("NFKC", word).replace("İ", "i").casefold()
    if language == "ar":
        lower = _ARABIC_MARKS.sub("", lower)
    if language == "hi" and lower.isascii():
        return latin_key(lower)
    if language in ACCENTED:
        lower = fold(lower)
    return lower.translate(_PLAIN_LETTERS.get(language, {}))


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def stems(word: str, language: str) -> tuple[str, ...]:
    """Return the stems a word may be known by, the surest first."""
    if language == "ko":
        return bare_forms(word)
    stem = _stemmer(language)
    if stem is None or (language == "hi" and word.isascii()):
        return ()
    lower = unicodedata.normalize("NFKC", word).replace("İ", "i").casefold()
    readings = [lower, *_bare(lower, language)]
    found = (
        normal(stem.stemWord(each), language) for reading in readings for each in (reading, normal(reading, language))
    )
    return tuple(dict.fromkeys(each for each in found if len(each) > 1))


def _bare(word: str, language: str) -> list[str]:
    """Return a word without what is written onto it: Arabic prefixes, pronouns after a verb."""
    if language == "ar":
        plain = normal(word, "ar")
        return [_ARABIC_PREFIX.sub("", plain)]
    if language in _ENCLITICS:
        shorter = _ENCLITICS[language].sub("", fold(word))
        return [shorter] if shorter != fold(word) else []
    return []


@cache
def _stemmer(language: str) -> "Stemmer.Stemmer | None":
    return Stemmer.Stemmer(SNOWBALL[language], 0) if language in SNOWBALL else None
