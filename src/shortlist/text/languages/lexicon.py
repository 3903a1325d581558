"""The words of one language and the English ones they stand for, read when the language is first met."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import groupby
from typing import NamedTuple

from shortlist.text.languages import arabic, korean
from shortlist.text.languages.hindi import latin_key
from shortlist.text.languages.spelling import normal, stems
from shortlist.text.tokens import MAX_REMEMBERED_TEXTS, distinct_words, fold, read_words, stem

LANGUAGES = ("ar", "de", "es", "fr", "hi", "it", "ja", "ko", "pl", "pt", "ru", "tr", "vi", "zh")
UNSPACED = frozenset({"ja", "zh"})
MOST_SENSES = 4
LISTED_BY = 3
"""First letters by which the rarer English words are looked up."""
FUNCTION_WORD = "-"
"""What the English side of words begins with that ask, point or join, and name nothing: `-my` for `meine`."""
COMMON_RANK, RARE_RANK = 50, 2_000
"""A word of the first rank weighs little; from the second on, words are equally rare."""
RAREST = round(100 * math.log1p(RARE_RANK / COMMON_RANK))
QUOTED = re.compile(
    r"\"[^\"\n]*\"|(?<![A-Za-z0-9\u00c0-\u024f])'[^'\n]*'(?![A-Za-z0-9\u00c0-\u024f])|`[^`\n]*`"
    r"|\{[^{}\n]*+(?:\{[^{}\n]*+\}[^{}\n]*+)*+\}|“[^“”\n]*”|«[^«»\n]*»|「[^「」\n]*」|『[^『』\n]*』"
)
"""What is quoted, or code in braces: neither its language nor its spelling is that of the request."""
LIGHT_VERBS = {
    "hi": frozenset({"करो", "करना", "करें", "कर", "करिए", "कीजिए", "दो", "देना", "लगाओ", "लगाना", "दिखाओ", "होना", "हुआ"})
    | {"karo", "karna", "kar", "do", "dena", "lagao", "hona"},
    "tr": frozenset({"et", "etme", "etmek", "ol", "olma", "olmak", "yap", "yapmak", "ver"}),
    "ko": frozenset({"하다", "하기", "해줘", "되다", "해주세요"}),
}
"""Verbs that only make a verb of the word before them: `hesap et`, `गणना करो`."""


class Sense(NamedTuple):
    """An English word that a form may stand for, and how likely beside the likeliest."""

    english: str
    weight: float


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Forms and stems to senses, the likeliest first; phrases have a space between their words."""

    language: str
    forms: Mapping[str, tuple[Sense, ...]]
    stems: Mapping[str, tuple[Sense, ...]]
    function_words: Mapping[str, tuple[Sense, ...]]
    """Words that are not searched for, with the English word that a model reads for them, where there is one."""
    prefixes: Mapping[str, tuple[str, ...]]
    """One-word forms and stems by their first letters, for inflections that no stemmer knows."""
    longest: int
    """Most words of a phrase, or letters of a form where there are no spaces."""

    def of(self, key: str) -> tuple[Sense, ...]:
        """Return the senses of a form or a stem; none where it is unknown."""
        return self.forms.get(key) or self.stems.get(key) or ()

    def with_words(self, other: "Lexicon") -> "Lexicon":
        """Return a lexicon that also has the words of another, which mean there what they mean to the other."""
        dropped = {key: said for key, said in self.function_words.items() if key not in other.forms}
        prefixes = dict(self.prefixes)
        for start, keys in other.prefixes.items():
            prefixes[start] = (*prefixes.get(start, ()), *keys)
        return Lexicon(
            self.language,
            {**self.forms, **other.forms},
            {**other.stems, **self.stems},
            {**dropped, **other.function_words},
            prefixes,
            max(self.longest, other.longest),
        )


@cache
def english_words() -> frozenset[str]:
    """Return the ordinary words of English requests and tool texts."""
    return read_words("english.txt")


def unquoted(text: str) -> str:
    """Return a text with a space for each quote."""
    may_quote = "'" in text or '"' in text or "`" in text or "{" in text or not text.isascii()
    return QUOTED.sub(" ", text) if may_quote else text


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def strange_words(text: str) -> frozenset[str]:
    """Return the unquoted words of plain ASCII that are not ordinary English, numbers and codes among them."""
    return distinct_words(unquoted(text)) - english_words()


@cache
def english_ranks() -> Mapping[str, int]:
    """Return the ordinary words by how common they are: 0 is the commonest, which the file has first."""
    text = resources.files("shortlist.text").joinpath("data", "english.txt").read_text("utf-8")
    return {word: rank for rank, word in enumerate(text.split())}


def is_dictionary_word(word: str) -> bool:
    """Return whether a word is English, however rare: comparatives and inflections included."""
    return word in english_words() or f"\n{word}\n" in _dictionary().get(word[:LISTED_BY], "")


@cache
def _dictionary() -> Mapping[str, str]:
    """Return the rarer words by their first letters, a line each: texts take a fifth of the memory of a set."""
    words = resources.files("shortlist.text").joinpath("data", "dictionary.txt").read_text("utf-8").split()
    alike = groupby(words, key=lambda word: word[:LISTED_BY])
    return {start: "\n".join(("", *listed, "")) for start, listed in alike}


@cache
def lexicon(language: str) -> Lexicon:
    """Read the lexicon of a language from the package."""
    file = resources.files("shortlist.text").joinpath("data", "languages", f"{language}.tsv")
    return parse_lexicon(language, file.read_text("utf-8"))


def parse_lexicon(language: str, text: str) -> Lexicon:
    """Read lines of `english TAB form|form=weight`, function words first."""
    forms: dict[str, dict[str, float]] = defaultdict(dict)
    stemmed: dict[str, dict[str, float]] = defaultdict(dict)
    function_words: dict[str, tuple[Sense, ...]] = {}
    for english, form, weight in _entries(text):
        keys = _keys(form, language)
        if english.startswith(FUNCTION_WORD):
            said = (Sense(english[1:], 1.0),) if len(english) > 1 else ()
            function_words |= dict.fromkeys((keys.exact, *([unaccented(keys.exact)] if language == "vi" else ())), said)
            continue
        _keep(forms, (keys.exact,), english, weight)
        _keep(stemmed, keys.stems, english, weight)
    known = {key for table in (forms, stemmed) for key in table if " " not in key and len(key) >= PREFIX_LETTERS}
    return Lexicon(
        language,
        {key: _senses(found) for key, found in forms.items()},
        {key: _senses(found) for key, found in stemmed.items()},
        function_words,
        _by_prefix(known) if language not in UNSPACED else {},
        max(map(len, forms)) if language in UNSPACED else 1 + max(key.count(" ") for key in forms),
    )


PREFIX_LETTERS = 4


def _by_prefix(keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in sorted(keys):
        found[key[:PREFIX_LETTERS]].append(key)
    return {prefix: tuple(each) for prefix, each in found.items()}


class _Keys(NamedTuple):
    exact: str
    stems: tuple[str, ...]


def _entries(text: str) -> Iterator[tuple[str, str, float]]:
    for line in text.splitlines():
        english, _, listed = line.partition("\t")
        for form in listed.split("|"):
            word, _, weight = form.partition("=")
            yield english, word, float(weight or 1)


def _keys(form: str, language: str) -> _Keys:
    if language in UNSPACED:
        exact = normal(form, language)
        return _Keys(exact, _kana_stems(exact) if language == "ja" else ())
    words = form.split()
    exact = " ".join(normal(word, language) for word in words)
    last = words[-1]
    shorter = [" ".join(normal(word, language) for word in words[:-1])] if _ends_light(words, language) else []
    first = " ".join(next(iter(stems(word, language)), normal(word, language)) for word in words)
    found = [first, *shorter, *(stems(last, language) if len(words) == 1 else ())]
    if language == "hi" and not form.isascii():
        found.append(" ".join(latin_key(word) for word in words))
    if language == "vi":
        found.append(unaccented(exact))
    if language == "ko":
        found.append(korean.verb_key(exact))
    if language == "ar" and len(words) == 1:
        found.append(arabic.verb_key(exact))
    return _Keys(exact, tuple(dict.fromkeys(each for each in found if len(each) > 1)))


def _ends_light(words: list[str], language: str) -> bool:
    return len(words) > 1 and words[-1] in LIGHT_VERBS.get(language, ())


def unaccented(text: str) -> str:
    """Write Vietnamese as people type it without its marks."""
    return fold(text).replace("đ", "d")


def _kana_stems(form: str) -> tuple[str, ...]:
    """Return what stays of a Japanese verb or adjective whatever its ending: 送 of 送る, 作成 of 作成する."""
    if form.endswith("する"):
        return (form[:-2],)
    kept = form.rstrip("うくぐすつぬぶむるいえけげせてねべめれしりきみちびぎ")
    if kept != form and kept and not _is_kana(kept[-1]):
        return (kept,)
    return (form[:-1],) if len(form) > 2 and form[-1] in "るいう" else ()


def _is_kana(letter: str) -> bool:
    return "\u3040" <= letter <= "\u30ff"


def _keep(table: dict[str, dict[str, float]], keys: Iterable[str], english: str, weight: float) -> None:
    for key in keys:
        table[key][english] = max(weight, table[key].get(english, 0.0))


def _senses(found: Mapping[str, float]) -> tuple[Sense, ...]:
    best = max(found.values())
    likeliest = sorted(found.items(), key=lambda each: -each[1])[:MOST_SENSES]
    return tuple(Sense(english, round(weight / best, 2)) for english, weight in likeliest)


@cache
def word_weights() -> Mapping[str, int]:
    """Return the weights of ordinary words, by stem: rare words tell tools apart, `get` and `details` do not."""
    found: dict[str, int] = {}
    for word, rank in english_ranks().items():
        found.setdefault(stem(word), _weight(rank))  # the commonest form comes first
    return found


def _weight(rank: int) -> int:
    return round(100 * math.log1p(min(rank, RARE_RANK) / COMMON_RANK))
