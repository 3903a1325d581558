"""Typing errors: words that neither English nor the catalog has, and the whole words they are likely to be."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from shortlist.index.index import Index
from shortlist.text.languages.lexicon import english_words, is_dictionary_word
from shortlist.text.languages.reading import read_query
from shortlist.text.queries import Expansions, shipped_expansions
from shortlist.text.tokens import ascii_words, stem, terms

MIN_LENGTH = 3
SHORT, LONG = 3, 6
"""In a word of three letters two may be swapped; one error is looked for in longer ones, two from six letters on."""
MAX_CORRECTIONS = 8
"""A text with more unknown words than this is in another language, or made of names."""
ROWS_FOR_SPELLING = 12
"""Tools whose text is looked at for a stem's whole words."""

_PLAIN_WORD = re.compile(r"(?<![\w./:=@#<{'\"`&+-])[A-Za-z][a-z]{2,24}(?![\w/:=@>}'\"`+-]|\.\w)")
"""A word that stands alone and is not spelled like a name: no part of a path, an address or a quotation."""


class Spelled(NamedTuple):
    """A text with its typing errors corrected, and what was corrected."""

    text: str
    corrected: Mapping[str, str]


class Respelling(NamedTuple):
    """A word that may have been meant; the least is the likeliest."""

    distance: int
    has_other_letters: bool
    """Letters were not only swapped."""
    is_elsewhere: bool
    """The catalog does not have it."""
    frequency: int
    """Below zero: the more tools have it, the less."""
    word: str


class Speller:
    """Corrects words of a query by the words of one catalog and of ordinary English."""

    def __init__(self, index: Index, expansions: Expansions | None = None) -> None:
        self._index = index
        self._expansions = expansions
        """Words that a team has given a meaning, and the shipped ones; None: the shipped ones."""
        self._lexical = index.lexical
        self.correction = lru_cache(maxsize=2_000)(self._correction)
        self.knows = lru_cache(maxsize=2_000)(self._is_known)
        """Remembered by word: queries are made of the same few words."""

    def __call__(self, text: str) -> Spelled:
        """Correct a text; words of the catalog and of ordinary English are never touched."""
        strange = self._strange(text) if text.isascii() else []
        if not strange or len(strange) > MAX_CORRECTIONS or read_query(text) is not None:
            return Spelled(text, {})
        corrected = {word: meant for word in strange if (meant := self.correction(word))}
        if not corrected:
            return Spelled(text, {})
        return Spelled(_PLAIN_WORD.sub(lambda found: _like(found[0], corrected.get(found[0].lower())), text), corrected)

    def _strange(self, text: str) -> list[str]:
        new = [word for word in ascii_words(text) if not self.knows(word)]
        if not new:
            return []
        found = dict.fromkeys(
            match[0].lower()
            for match in _PLAIN_WORD.finditer(text)
            if match[0].islower() or match.start() == 0  # a capital letter elsewhere makes a name
        )
        return [word for word in found if word in new]

    def _is_known(self, word: str) -> bool:
        shipped = shipped_expansions()
        given = self._expansions or shipped
        return (
            word in english_words()
            or not word.isalpha()
            or is_dictionary_word(word)
            or word in given.long_forms
            or (word in given.phrases and word not in shipped.phrases)  # stems of synonyms are shipped too
            or self._has(word)
        )

    def _has(self, word: str) -> bool:
        """Return whether the catalog has a word or another form of it: `merg` is not a form of `merge`."""
        found = terms(word)
        if len(found) != 1 or not self._lexical.frequency(found[0]):
            return not found
        whole = self._whole_word(found[0], word)
        return whole is None or word.startswith(whole) or DamerauLevenshtein.distance(word, whole) > 1

    def _correction(self, word: str) -> str | None:
        near = min(self._candidates(word), default=None)
        return near.word if near else None

    def _candidates(self, word: str) -> Iterator[Respelling]:
        reach = 1 if len(word) < LONG else 2
        typed = stem(word)
        firsts = dict.fromkeys((word[0], word[1]))
        alike = self._lexical.vocabulary.alike
        for first in firsts:
            known = [w for n in range(len(typed) - reach, len(typed) + reach + 1) for w in alike(first, n)]
            for term, distance in _within(typed, known, reach):
                if (count := self._lexical.frequency(term)) and (whole := self._whole_word(term, word)):
                    apart = DamerauLevenshtein.distance(word, whole)
                    yield Respelling(min(max(distance, 1), apart), sorted(word) != sorted(whole), False, -count, whole)
            english = [
                w for n in (len(word) - 1, len(word), len(word) + 1) for w in _english_alike().get((first, n), ())
            ]
            for whole, distance in _within(word, english, 1):
                count = self._lexical.frequency(stem(whole))
                yield Respelling(distance, sorted(word) != sorted(whole), not count, -count, whole)

    def _whole_word(self, term: str, typed: str) -> str | None:
        """Return the catalog's word for a stem that is nearest to what was typed."""
        found = {
            word
            for row in self._lexical.postings(term).rows[:ROWS_FOR_SPELLING].tolist()
            for word in ascii_words(self._text(row))
            if word.isalpha() and stem(word) == term
        }
        return min(found, key=lambda word: (DamerauLevenshtein.distance(typed, word), word), default=None)

    def _text(self, row: int) -> str:
        tool = self._index.catalog.tools[self._index.ids[row]]
        return f"{tool.server} {re.sub('(?<=[a-z])(?=[A-Z])', ' ', tool.name)} {tool.title} {tool.description}"


def _within(word: str, known: Sequence[str], reach: int) -> list[tuple[str, int]]:
    near = process.extract(word, known, scorer=DamerauLevenshtein.distance, score_cutoff=reach, limit=None)
    if len(word) > SHORT:
        return [(found, distance) for found, distance, _ in near]
    return [(found, distance) for found, distance, _ in near if sorted(found) == sorted(word)]


def _like(typed: str, meant: str | None) -> str:
    return typed if meant is None else meant.capitalize() if typed[0].isupper() else meant


@cache
def _english_alike() -> Mapping[tuple[str, int], list[str]]:
    found: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for word in sorted(english_words()):
        found[word[0], len(word)].append(word)
    return found
