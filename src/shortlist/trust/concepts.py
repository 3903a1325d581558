"""Finds the concepts in a text (secrecy, consent, secrets, other tools) in sixteen languages, in linear time."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import re2

from shortlist.text.tokens import fold

_SECTION = re.compile(r"\[([a-z]+)\]")
_WORD = re.compile(r"[^\W_]+")
_SPACE = re.compile(r"\s+")
MAX_GAP = 3
"""How many words `_` stands for at most."""
SHORT_STEM = 3
"""A Russian term of up to three letters is a whole word; longer ones are stems."""
MAX_KEPT = 50_000
"""How many words are remembered per language."""
_INFLECTED = {"ru"}
_UNSPACED = {"ar", "hi", "zh", "ja", "ko"}
"""Matched anywhere: words are not parted by spaces, or carry prefixes."""
_TELLTALE: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "es": "el los las una del para esta este estas que con por sin "
        "lo su al antes cada todos todas y nunca siempre de usuario en se",
        "fr": "le les une des pour cette cet ce que avec par sans est dans "
        "du aux vous et votre avant chaque tous toutes tu ton ne pas au",
        "de": "der das den dem ein eine fur dieses diese und mit ohne ist "
        "nicht von zu im auf alle vor jeder bei wenn wird du es aus",
        "pt": "os uma para esta este que com por sem se seu ao do "
        "da dos das e antes cada todos todas nao sempre em usuario voce",
        "it": "il gli una per questo questa che con senza di del della dei "
        "e non prima ogni tutti lo alla nella sempre all usi fallo questi",
        "nl": "het een voor deze dit en met zonder van niet naar voordat alle je op altijd gebruiker",
        "pl": "do na z i nie ze tego tej jest przed kazdym oraz przez bez dla wszystkie sie to tym o po uzytkownikowi",
        "tr": "bu ve bir icin ile olmadan tum her once bunu sonra kullanici ya kullaniciya yap sen",
        "vi": "va cua cho khong nay duoc nguoi dung cong cu truoc khi cac voi mot la",
    }.items()
}
"""Small words that tell a language; its terms count where at least two different ones stand."""
TELLTALE_WORDS = 2
_ANY_TELLTALE = frozenset(word for words in _TELLTALE.values() for word in words)
_ENGLISH = frozenset(
    [
        "the",
        "to",
        "and",
        "of",
        "in",
        "for",
        "is",
        "you",
        "this",
        "with",
        "it",
        "be",
        "from",
        "by",
        "on",
        "not",
        "all",
        "any",
    ]
)
ENGLISH_WORDS = 8
"""How many words a text has at least that is read as English although it is foreign too."""
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_OTHER_SCRIPT = re.compile("[\u0400-\u06ff\u0900-\u097f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
OTHER_LETTERS, OTHER_WORDS, OTHER_SHARE = 6, 3, 0.15
"""Letters of other scripts, or small words of one language and their share of all words, that make a text foreign."""


@dataclass(slots=True)
class _Lexicon:
    """The terms of one language, by their first word."""

    words: dict[str, int] = field(default_factory=dict)
    stems: dict[str, int] = field(default_factory=dict)
    phrases: dict[str, list[tuple[tuple[str, ...], int]]] = field(default_factory=dict)
    stem_phrases: dict[str, list[tuple[tuple[str, ...], int]]] = field(default_factory=dict)
    stem_lengths: tuple[int, ...] = ()
    _looked_up: dict[str, tuple[int, tuple[tuple[tuple[str, ...], int], ...]]] = field(default_factory=dict)

    def add(self, term: str, mask: int) -> None:
        first, *rest = term.split()
        if rest:
            table = self.stem_phrases if first.endswith("*") else self.phrases
            table.setdefault(first.rstrip("*"), []).append((tuple(rest), mask))
        else:
            single = self.stems if first.endswith("*") else self.words
            single[first.rstrip("*")] = single.get(first.rstrip("*"), 0) | mask
        self.stem_lengths = tuple(sorted({len(stem) for stem in (*self.stems, *self.stem_phrases)}))

    def found(self, words: Sequence[str]) -> int:
        mask = 0
        for place, word in enumerate(words):
            alone, phrases = self._looked_up.get(word) or self._look_up(word)
            mask |= alone
            for tail, bit in phrases:
                if bit & ~mask and _continues(words, place + 1, tail):
                    mask |= bit
        return mask

    def _look_up(self, word: str) -> tuple[int, tuple[tuple[tuple[str, ...], int], ...]]:
        """Return what a word means by itself, and the phrases that it begins; the answer is kept."""
        mask, phrases = self.words.get(word, 0), list(self.phrases.get(word, ()))
        for length in self.stem_lengths:
            if length <= len(word):
                mask |= self.stems.get(word[:length], 0)
                phrases += self.stem_phrases.get(word[:length], ())
        if len(self._looked_up) >= MAX_KEPT:
            self._looked_up.clear()
        self._looked_up[word] = found = (mask, tuple(phrases))
        return found


class Concepts:
    """The lexicon; the concepts of a text are a bit mask over `names`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.bit = {name: 1 << number for number, name in enumerate(self.names)}
        self._spaced: dict[str, _Lexicon] = {}
        self._unspaced: list[tuple[str, int]] = []
        self._patterns: list[tuple[str, int]] = []
        self._set: Any = None

    def add(self, name: str, language: str, terms: Sequence[str]) -> None:
        """Add the terms of one line of the lexicon."""
        mask = self.bit[name]
        if language == "re":
            self._patterns.append(("|".join(f"(?:{term})" for term in terms), mask))
        elif language in _UNSPACED:
            self._unspaced += [(fold(term), mask) for term in terms]
        else:
            lexicon = self._spaced.setdefault(language, _Lexicon())
            for term in terms:
                lexicon.add(_normal_term(term, language), mask)

    def compile(self) -> None:
        """Make one automaton of all regular expressions."""
        self._set = re2.Set.SearchSet()
        for pattern, _ in self._patterns:
            self._set.Add(pattern)
        self._set.Compile()

    def languages(self, text: str, read_as: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the languages whose terms count in a folded text: English, those it was read as or hints at."""
        small_words = _ANY_TELLTALE.intersection(_WORD.findall(text))
        spoken: list[str] = []
        if len(small_words) >= TELLTALE_WORDS:
            spoken = [name for name, small in _TELLTALE.items() if len(small_words & small) >= TELLTALE_WORDS]
        if not text.isascii() and _CYRILLIC.search(text):
            spoken.append("ru")
        return ("en", *dict.fromkeys((*spoken, *(each for each in read_as if each in self._spaced))))

    def is_foreign(self, text: str) -> bool:
        """Return whether a folded text is in another language than English."""
        if not text.isascii() and len(_OTHER_SCRIPT.findall(text)) >= OTHER_LETTERS:
            return True
        words = _WORD.findall(text)
        small = _ANY_TELLTALE.intersection(words)
        if len(small) < OTHER_WORDS:
            return False
        return any(
            len(small & each) >= OTHER_WORDS and sum(word in each for word in words) >= OTHER_SHARE * len(words)
            for each in _TELLTALE.values()
        )

    def has_english(self, text: str) -> bool:
        """Return whether a folded text has English in it, whatever else it has."""
        words = _WORD.findall(text)
        return len(words) >= ENGLISH_WORDS and sum(word in _ENGLISH for word in words) >= OTHER_WORDS

    def found(self, text: str, languages: Sequence[str] = ("en",)) -> int:
        """Return the concepts of a folded text."""
        words = _WORD.findall(text)
        mask = 0
        for language in languages:
            mask |= self._spaced[language].found(words)
        for number in self._set.Match(text) or ():
            mask |= self._patterns[number][1]
        if not text.isascii():
            for term, bit in self._unspaced:
                if bit & ~mask and term in text:
                    mask |= bit
        return mask

    def named(self, mask: int) -> frozenset[str]:
        return frozenset(name for name, bit in self.bit.items() if mask & bit)


def readable(text: str) -> str:
    """Fold case, accents and white space, so that one spelling of a term is enough."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.lower()
    return _SPACE.sub(" ", fold(text).replace("’", "'").replace("ı", "i"))


@functools.cache
def concepts() -> Concepts:
    """Load the lexicon once."""
    lines = resources.files("shortlist.trust").joinpath("data/concepts.txt").read_text("utf-8").splitlines()
    found = Concepts(section[1] for line in lines if (section := _SECTION.fullmatch(line)))
    for name, language, terms in _entries(lines):
        found.add(name, language, terms)
    found.compile()
    return found


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    name = ""
    for line in lines:
        if section := _SECTION.fullmatch(line):
            name = section[1]
        elif line and not line.startswith("#"):
            language, _, rest = line.partition(":")
            yield name, language, [term.strip() for term in rest.split(" | ")]


def _normal_term(term: str, language: str) -> str:
    """Spell a term as words of a folded text; `*` and `_` keep their meaning."""
    parts = []
    for word in term.split():
        if word == "_":
            parts.append("_")
            continue
        pieces = _WORD.findall(readable(word)) or [readable(word)]
        stem = word.endswith("*") or (language in _INFLECTED and len(pieces[-1]) > SHORT_STEM)
        parts += [*pieces[:-1], pieces[-1] + ("*" if stem else "")]
    return " ".join(parts)


def _continues(words: Sequence[str], place: int, tail: Sequence[str]) -> bool:
    if not tail:
        return True
    head, rest = tail[0], tail[1:]
    if head == "_":
        return any(_continues(words, place + gap, rest) for gap in range(MAX_GAP + 1))
    if place >= len(words):
        return False
    same = words[place].startswith(head[:-1]) if head.endswith("*") else words[place] == head
    return same and _continues(words, place + 1, rest)
