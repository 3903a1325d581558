"""Which language a clause is written in: by its script, else by its function words and the words that only one has."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import islice

from rapidfuzz.distance import OSA

from shortlist.text.languages.glossing import LATIN
from shortlist.text.languages.lexicon import FUNCTION_WORD, LANGUAGES, english_ranks, english_words
from shortlist.text.tokens import ACTIONS, STOPWORDS, fold, read_words

NAMES = {
    "ar": "Arabic", "de": "German", "es": "Spanish", "fr": "French", "hi": "Hindi", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "tr": "Turkish", "vi": "Vietnamese",
    "zh": "Chinese", "uk": "Ukrainian", "fa": "Persian or Urdu", "el": "Greek", "he": "Hebrew", "th": "Thai",
    "nl": "Dutch", "sv": "Swedish", "cs": "Czech", "ro": "Romanian", "id": "Indonesian", "hu": "Hungarian",
    "fi": "Finnish", "bn": "Bengali", "ta": "Tamil", "te": "Telugu", "ka": "Georgian", "hy": "Armenian",
    "am": "Amharic",
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
    r"(?<![\w@./])[A-Za-z\u00c0-\u024f\u1e00-\u1eff]{2,}(?![\w@/]|://)|(?<!\S)[A-Za-z\u00c0-\u024f](?!\S)"
)
"""A word that stands alone: no part of a code such as `k8s`, and of one letter only between spaces."""
_TELLING_LETTERS = {
    "de": "äöüß",
    "es": "ñ¿¡",
    "fr": "œèêëîïùûç",
    "pl": "ąęłńśźż",
    "pt": "ãõ",
    "tr": "ğışİ",
    "vi": "đơưăạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}
_ACCENTS = {
    "es": "áéíóú",
    "fr": "éàâô",
    "it": "àèìòù",
    "pt": "áéíóúâêôçà",
}
_UNSUPPORTED_WORDS = {
    "nl": "het een van voor niet naar mijn met zijn wat welke maak zoek toon stuur alle",
    "sv": "och att för med inte mina mitt vilka hur är på skapa visa hitta",
    "cs": "je se že pro jak jsou který vytvoř ukaž najdi všechny mi",
    "ro": "și în pentru este care cum toate arată găsește creează trimite",
    "id": "yang dan untuk dengan saya dari semua buat cari tampilkan kirim apa",
    "hu": "és egy hogy nem az meg melyik mutasd keresd összes",
    "fi": "ja on että kaikki miten mikä näytä etsi luo lähetä",
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
PLURAL_ENDS = frozenset("aeinosuy")
NOWHERE: frozenset[str] = frozenset()


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
    tables = _function_words()
    votes: defaultdict[str, float] = defaultdict(float)
    is_plain = clause.isascii()
    for word in words:
        for language in tables.get(word) or (NOWHERE if is_plain else tables.get(fold(word), NOWHERE)):
            votes[language] += 1.0 if word not in STOPWORDS else 0.4
    if not is_plain:
        lower = clause.lower()
        for language, letters in _TELLING_LETTERS.items():
            votes[language] += min(2, sum(map(lower.count, letters)))
        for language, letters in _ACCENTS.items():
            votes[language] += 0.5 * min(2, sum(map(lower.count, letters)))
    if max(votes.values(), default=0) < ENOUGH and len(strange) * 2 < len(words):
        return None
    known = {word: _languages_with(word) for word in strange}
    only = words[0] if len(known.get(words[0], NOWHERE)) == 1 else ""
    for word in strange:
        for language in known[word]:
            votes[language] += (1.0 if language not in tables.get(word, NOWHERE) else 0.2) + ONLY_THERE * (word == only)
    asked = _core(written)
    # Ties are broken by name: sets, whose order changes from process to process, gave the votes.
    best, found = min(votes.items(), key=lambda vote: (-vote[1], vote[0]), default=("", 0.0))
    theirs = {word for word in words if best in tables.get(word, NOWHERE)}
    named = any(best in languages and word not in theirs for word, languages in known.items())
    told = not is_plain or named or (not theirs.isdisjoint(strange) and not _is_by_one_word(words, theirs))
    against = CORE_WEIGHT * sum(best not in tables.get(word, NOWHERE) for word in asked)
    against += WORD_WEIGHT * sum(word in english and best not in tables.get(word, NOWHERE) for word in words)
    needed = ENOUGH if len(words) > 2 else 1.0
    # Words that are English too are not enough: in "delte the tab", `the` and `tab` are Hindi.
    seems = told and found >= needed and found > against
    return (
        best if seems and found > against + SLIP_WEIGHT * _slips(word for word in strange if not known[word]) else None
    )


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
    for language, words in _UNSUPPORTED_WORDS.items():
        for word in words.split():
            found[word].add(language)
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
    text = resources.files("shortlist.text").joinpath("data", "languages", f"{language}.tsv").read_text("utf-8")
    for line in text.splitlines():
        english, _, listed = line.partition("\t")
        for form in listed.split("|"):
            yield english, form.partition("=")[0]
