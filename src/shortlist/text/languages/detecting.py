"""Which language a clause is written in: by its script, else by its function words and the words that only one has."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import islice

from rapidfuzz.distance import OSA

from shortlist.text.languages.glossing import LATIN
from shortlist.text.languages.lexicon import (
    FUNCTION_WORD,
    LANGUAGES,
    english_ranks,
    english_words,
    is_dictionary_word,
    strange_words,
)
from shortlist.text.tokens import ACTIONS, STOPWORDS, fold, read_words

NAMES = {
    "ar": "Arabic", "de": "German", "es": "Spanish", "fr": "French", "hi": "Hindi", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "tr": "Turkish", "vi": "Vietnamese",
    "zh": "Chinese", "uk": "Ukrainian", "fa": "Persian or Urdu", "el": "Greek", "he": "Hebrew", "th": "Thai",
    "nl": "Dutch", "sv": "Swedish", "da": "Danish or Norwegian", "cs": "Czech or Slovak", "ro": "Romanian",
    "id": "Indonesian or Malay", "hu": "Hungarian", "fi": "Finnish", "ca": "Catalan",
    "hr": "Croatian, Bosnian or Serbian", "sl": "Slovenian", "lt": "Lithuanian", "lv": "Latvian", "et": "Estonian",
    "sw": "Swahili", "tl": "Filipino", "bn": "Bengali", "ta": "Tamil", "te": "Telugu", "ka": "Georgian",
    "hy": "Armenian", "am": "Amharic",
}  # fmt: skip
SUPPORTED = frozenset(LANGUAGES)
SPELLED_IN_LATIN = (*sorted(LATIN), "hi")

_SCRIPTS = (
    ("ja", "[\u3040-\u30ff]"),
    ("ko", "[\uac00-\ud7af\u1100-\u11ff]"),
    ("zh", "[\u3400-\u9fff\U00020000-\U0003ffff]"),
    ("uk", "[іїєґІЇЄҐ]"),
    ("ru", "[\u0400-\u04ff]"),
    ("fa", "[پچژگکیٹڈڑےہ]"),
    ("ar", "[\u0600-\u06ff\u0750-\u077f]"),
    ("hi", "[\u0900-\u097f]"),
    ("el", "[\u0370-\u03ff]"),
    ("he", "[\u0590-\u05ff]"),
    ("th", "[\u0e00-\u0e7f]"),
    ("bn", "[\u0980-\u09ff]"),
    ("ta", "[\u0b80-\u0bff]"),
    ("te", "[\u0c00-\u0c7f]"),
    ("ka", "[\u10a0-\u10ff]"),
    ("hy", "[\u0530-\u058f]"),
    ("am", "[\u1200-\u137f]"),
)
"""Patterns of the letters of each script; compiled for the first text that is not English."""
_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u036f\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uff00-\uffef\u2000-\u2bff]")
_LATIN_WORD = re.compile(
    r"(?<![\w@./])(?<!\s-)(?<!--)[A-Za-z\u00c0-\u024f\u1e00-\u1eff]{2,}(?![\w@/]|://)|(?<!\S)[A-Za-z\u00c0-\u024f](?!\S)"
)
"""A word that stands alone: no part of a code such as `k8s` nor an option like `-la`, and of one letter only between
spaces."""
_LONG_CAPITALS = re.compile("[A-Z]{5}")
"""What no abbreviation has: `AWS S3 IAM` are names."""
SHOUTED_CHARS, SHOUTED_SHARE = 200, 0.8
_TELLING_LETTERS = {
    "ca": "·",
    "cs": "ěůřďťňčšž",
    "da": "æøå",
    "de": "äöüß",
    "es": "ñ¿¡",
    "et": "äöüõ",
    "fi": "äöå",
    "fr": "œèêëîïùûç",
    "hr": "ćđčšž",
    "hu": "őűöü",
    "lt": "ėųįūčšž",
    "lv": "āēīūņļķģčšž",
    "pl": "ąęłńśźż",
    "pt": "ãõ",
    "ro": "șțşţăâî",
    "sl": "čšž",
    "sv": "åäö",
    "tr": "ğışİ",
    "vi": "đơưăạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}
_ACCENTS = {
    "ca": "àèéíòóú",
    "cs": "áéíóúý",
    "es": "áéíóú",
    "fr": "éàâô",
    "hu": "áéíóú",
    "it": "àèìòù",
    "pt": "áéíóúâêôçà",
}
CORE_ENGLISH = read_words("core_english.txt")
"""Words that hardly stand in a request of another language: one of them weighs as much as several foreign ones."""
_QUESTIONS = frozenset({"how", "what", "which", "who", "where", "when", "why", "how many", "how much"})
CORE_WEIGHT, WORD_WEIGHT, SLIP_WEIGHT = 3.0, 0.5, 1.0
COMMON_WORDS, SHORTEST_SLIP, MOST_SLIPS = 3_000, 4, 20
"""Of how many English words, and from which length on, a word of no language can be a mistyped one, and how many words
of a text are compared with them."""
MAX_REMEMBERED = 2_000
ENOUGH, ONLY_THERE = 1.7, 0.4
"""The votes that a language needs, and what it counts more that only this one has the first word, mostly a verb."""
UNSUPPORTED_ALONE, UNSUPPORTED_SHARE = 0.5, 0.2
"""What a word counts more that no supported language has, and the share of words to be told as unsupported by."""
IN_NAMES = frozenset(
    ("al", "da", "de", "del", "der", "des", "di", "du", "e", "el", "en", "la", "le", "van", "von", "y")
)
"""Small words inside of names."""
SHORTEST_NOUN, SHORTEST_TELLING = 3, 4
"""Letters of the shortest word that has a meaning of its own, and of the shortest that tells a language by itself."""
PLURAL_ENDS = frozenset("aeinosuy")
NOWHERE: frozenset[str] = frozenset()
GERMAN = frozenset(("de",))
WITHIN_ENGLISH = LATIN - {"vi"}
"""Languages whose function words are told from English ones with typing errors."""


def in_small_letters(text: str) -> str:
    """Return a text in small letters if nearly all of it is in capitals: `SUPPRIME LE FICHIER`, but not `AWS S3`."""
    if text[1:2].islower():
        return text  # most texts
    start = text[:SHOUTED_CHARS]
    if sum(map(str.isupper, start)) < SHOUTED_SHARE * sum(map(str.isalpha, start)):
        return text
    if start.isascii() and not _LONG_CAPITALS.search(start):
        return text
    return (text.replace("İ", "i").replace("I", "ı") if "İ" in text else text).lower()


def language_of(clause: str, *, kana: bool = False) -> str | None:
    """Return the language of a clause, also one that there is no lexicon for; None for English and for what is unclear.

    `kana` says that Japanese is written elsewhere in the text, so that a clause in Chinese characters is Japanese too.
    """
    if not clause.isascii() and _OTHER_SCRIPT.search(clause):
        return None if _asks_in_english(clause) else _language_of_script(clause, kana=kana)
    return _latin_language(clause)


def _language_of_script(clause: str, *, kana: bool) -> str | None:
    letters = {language: len(re.findall(script, clause)) for language, script in _SCRIPTS}
    if letters["ja"] or kana:
        letters["ja"] += letters.pop("zh")
    for special, usual in (("uk", "ru"), ("fa", "ar")):  # the letters that tell two languages of one script apart
        letters[usual] = 0 if letters[special] else letters[usual]
        letters[special] *= 100
    best = max(letters, key=letters.__getitem__)
    return best if letters[best] else None


def _asks_in_english(clause: str) -> bool:
    """Return whether words of another script are embedded in an English sentence: `translate 你好 to English`."""
    latin = [word for word in _LATIN_WORD.findall(clause) if not word.isupper()]
    return bool(_core(latin)) and 4 * sum(map(len, latin)) > len(clause)


def _core(words: list[str]) -> list[str]:
    """Return the core words of English; one with a capital letter inside a sentence is part of a name: `The Graph`."""
    return [
        word.lower()
        for place, word in enumerate(words)
        if word.lower() in CORE_ENGLISH and (not place or word.islower())
    ]


def _latin_language(clause: str) -> str | None:
    written = [word for word in _LATIN_WORD.findall(clause) if not (word.isupper() and len(word) > 1)]
    words = [word.lower() for word in written]
    english = english_words()
    strange = [word for word in words if word not in english]
    if not strange:
        return None
    votes = _votes(clause.lower(), words)
    if max(votes.values(), default=0) < ENOUGH and len(strange) * 2 < len(words):
        return None
    known = {word: _languages_with(word) for word in strange}
    _add_votes(votes, words, known)
    # Ties are broken by name: sets, whose order changes from process to process, gave the votes.
    best, found = min(votes.items(), key=lambda vote: (-vote[1], vote[0] not in SUPPORTED, vote[0]), default=("", 0.0))
    tables = _function_words()
    theirs = {word for word in words if best in tables.get(word, NOWHERE)}
    if all(word in english and word not in theirs for word in _outside_names(written)):
        return None
    if len(words) == 2 and not _is_told_by_two(words, known, best):
        return None
    named = any(best in known[word] and word not in theirs and len(word) >= SHORTEST_NOUN for word in known)
    told = not clause.isascii() or named or (not theirs.isdisjoint(strange) and not _is_by_one_word(words, theirs))
    against = CORE_WEIGHT * sum(word not in theirs for word in _core(written))
    against += WORD_WEIGHT * sum(word in english and word not in theirs for word in words)
    needed = ENOUGH if len(words) > 2 else 1.0
    # Words that are English too are not enough: in "delte the tab", `the` and `tab` are Hindi.
    seems = told and found >= needed and found > against
    return (
        best if seems and found > against + SLIP_WEIGHT * _slips(word for word in strange if not known[word]) else None
    )


def _votes(clause: str, words: Iterable[str]) -> defaultdict[str, float]:
    """Return how much the function words and the letters of a clause speak for each language."""
    tables, is_plain = _function_words(), clause.isascii()
    votes: defaultdict[str, float] = defaultdict(float)
    for word in words:
        for language in tables.get(word) or (NOWHERE if is_plain else tables.get(fold(word), NOWHERE)):
            votes[language] += 1.0 if word not in STOPWORDS else 0.4
    if not is_plain:
        for language, letters in _TELLING_LETTERS.items():
            votes[language] += min(2, sum(map(clause.count, letters)))
        for language, letters in _ACCENTS.items():
            votes[language] += 0.5 * min(2, sum(map(clause.count, letters)))
    return votes


def _add_votes(votes: defaultdict[str, float], words: list[str], known: Mapping[str, frozenset[str]]) -> None:
    """Add how much the words speak that are not English; an unsupported language has to have several of them."""
    tables = _function_words()
    only = words[0] if len(known.get(words[0], NOWHERE)) == 1 else ""
    for word in filter(known.__contains__, words):
        listed = tables.get(word, NOWHERE)
        for language in known[word]:
            votes[language] += (1.0 if language not in listed else 0.2) + ONLY_THERE * (word == only)
        for language in listed if not known[word] and SUPPORTED.isdisjoint(listed) else NOWHERE:
            votes[language] += UNSUPPORTED_ALONE
    for language in votes.keys() - SUPPORTED:
        if sum(language in tables.get(word, NOWHERE) for word in words) < UNSUPPORTED_SHARE * len(words):
            votes[language] = 0.0


def _outside_names(written: list[str]) -> Iterator[str]:
    """Yield the words in small letters, and the first: the others may be names, as in `play La Vie en Rose`."""
    capital = [word[0].isupper() for word in written]
    for at, word in enumerate(written):
        is_between = word in IN_NAMES and any(capital[max(at - 1, 1) : at]) and any(capital[at + 1 : at + 2])
        if not at or not (capital[at] or is_between):
            yield word.lower()


def _is_told_by_two(words: list[str], known: Mapping[str, frozenset[str]], language: str) -> bool:
    """Return whether two words tell a language: both are of it, or one of some length is; not `get ip` or `dns mx`.

    Beside an English word, a word has to be listed as it is: `kubernets pods` has a typing error.
    """
    listed = _one_word_forms() if len(known) < len(words) else known
    tables = _function_words()
    theirs = [word for word in words if language in tables.get(word, listed.get(fold(word), NOWHERE))]
    return len(theirs) == 2 or not all(map(str.isascii, words)) or any(len(word) >= SHORTEST_TELLING for word in theirs)


def language_within(clause: str) -> str | None:
    """Return the language that an English clause has words of: `bitte close the ticket und dann send a mail`.

    It takes two of them: function words, and nouns that only German has and writes with a capital letter.
    """
    tables, forms = _function_words(), _one_word_forms()
    if clause.isascii() and sum(word in tables or word in forms for word in strange_words(clause)) < 2:
        return None
    written = _LATIN_WORD.findall(clause)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for at, word in enumerate(written):
        if (lower := word.lower()) in english_words():
            continue
        if not at or word.islower():
            languages = tables.get(lower, NOWHERE) & WITHIN_ENGLISH
        else:
            languages = GERMAN if _is_german_noun(written, at) else NOWHERE
        for language in languages:
            found[language].add(lower)
    best = max(sorted(found), key=lambda language: len(found[language]), default="")
    theirs = found.get(best, set())
    return best if len(theirs) > 1 and any(map(is_foreign, theirs)) else None


def _is_german_noun(written: list[str], at: int) -> bool:
    """Return whether a word inside a clause is a noun of German alone, and no part of a name: `Deutsche Bahn`."""
    is_alone = not any(word[0].isupper() for word in (*written[max(at - 1, 1) : at], *written[at + 1 : at + 2]))
    return is_alone and written[at].istitle() and _one_word_forms().get(fold(written[at])) == GERMAN


def is_foreign(word: str) -> bool:
    """Return whether English lacks a word in small letters that is no code of one or two letters."""
    return len(word) >= SHORTEST_NOUN and not is_dictionary_word(word)


def _slips(unknown: Iterable[str]) -> int:
    """Count the common English words with a typing error among the first words that no lexicon has."""
    tables = _function_words()
    return sum(map(_is_slip, islice((word for word in unknown if word not in tables), MOST_SLIPS)))


def _is_by_one_word(words: list[str], theirs: set[str]) -> bool:
    """Return whether a clause is English but for one small word that another language has too: `delete a pod`."""
    if len(theirs - STOPWORDS) > 1:
        return False
    return words[0] in ACTIONS - theirs or sum(word in STOPWORDS for word in words) > 1


@lru_cache(maxsize=MAX_REMEMBERED)
def _is_slip(word: str) -> bool:
    """Return whether a word is a common English one with a typing error after its first letter."""
    return any(OSA.distance(word, common, score_cutoff=1) < 2 for common in _common_words().get(word[0], ()))


@cache
def _common_words() -> Mapping[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for word in islice(english_ranks(), COMMON_WORDS):
        if len(word) >= SHORTEST_SLIP:
            found[word[0]].append(word)
    return found


def _languages_with(word: str) -> frozenset[str]:
    """Return the languages that have a word, or the word that it seems to be the plural of."""
    known, plain = _one_word_forms(), fold(word)
    is_plural = len(plain) > 4 and plain[-1] in PLURAL_ENDS
    return known.get(plain) or (known.get(plain[:-1]) if is_plural else None) or NOWHERE


@cache
def _function_words() -> Mapping[str, frozenset[str]]:
    """Return the languages of each function word, with and without its accents."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for language in SPELLED_IN_LATIN:
        for english, form in _forms(language):
            if not (english.startswith(FUNCTION_WORD) or english in _QUESTIONS):
                break  # they come first
            for spelled in {form.lower(), fold(form)}:
                found[spelled].add(language)
    for line in _data("unsupported").splitlines():
        language, _, words = line.partition("\t")
        for word in words.split():
            for spelled in {word, *({fold(word)} - english_words())}:
                found[spelled].add(language)
    return {word: frozenset(languages) for word, languages in found.items() if word.isalpha()}


@cache
def _one_word_forms() -> Mapping[str, frozenset[str]]:
    """Return the languages of every form that is no English word; read when the function words do not decide."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for language in SPELLED_IN_LATIN:
        for english, form in _forms(language):
            plain = fold(form)
            is_loan = plain == english  # `pr` is `pr` everywhere
            names = not english.startswith(FUNCTION_WORD) and not is_loan
            if names and plain.isalpha() and (language != "hi" or plain.isascii()):
                found[plain].add(language)
    return {word: frozenset(languages) for word, languages in found.items() if word not in english_words()}


def _forms(language: str) -> Iterable[tuple[str, str]]:
    for line in _data(language).splitlines():
        english, _, listed = line.partition("\t")
        for form in listed.split("|"):
            yield english, form.partition("=")[0]


def _data(name: str) -> str:
    return resources.files("shortlist.text").joinpath("data", "languages", f"{name}.tsv").read_text("utf-8")
