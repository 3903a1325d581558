"""A text of any language as English words, clause by clause; None for English, which is left alone."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from shortlist.text.languages.detecting import (
    NAMES,
    SUPPORTED,
    in_small_letters,
    is_foreign,
    language_of,
    language_within,
)
from shortlist.text.languages.glossing import Gloss, gloss, gloss_within, written_out
from shortlist.text.languages.lexicon import QUOTED, Lexicon, lexicon, strange_words, unquoted

MAX_CHARS = 4_000
MAX_REMEMBERED = 512

_CLAUSE = re.compile(r"(?:[^.!?;\n。！？；।؟]|[.!?;](?!\s))+(?:[.!?;]\s+|[\n。！？；।؟]\s*|$)|[.!?;\s。！？；।؟]+")
_LETTERS = re.compile(r"[^\W\d_]")
_KANA = re.compile("[\u3040-\u30ff]")


class GlossedText(NamedTuple):
    """What a text says in English, word by word."""

    units: tuple[Gloss, ...]
    text: str
    """The gloss as one line, for a model."""
    languages: tuple[str, ...]
    unknown: tuple[str, ...]
    """The languages that there is no lexicon for; their words stand as they are."""

    @property
    def readings(self) -> tuple[str, str]:
        """The gloss with more and fewer of the senses: no single choice of words is right for a model."""
        return self.text, written_out(self.units, 1)

    @property
    def note(self) -> str:
        """Describe the recognised language, for the notes of an answer."""
        found = " and ".join(NAMES[language] for language in self.languages)
        missing = " and ".join(NAMES[language] for language in self.unknown)
        said = written_out(self.units, joint="/")
        notes = [f"Read word by word from {found}: {said}." if found else ""]
        if missing:
            notes.append(f"{missing} is not among the supported languages: its words were searched unchanged.")
        return " ".join(filter(None, notes))


@lru_cache(maxsize=MAX_REMEMBERED)
def read_query(text: str) -> GlossedText | None:
    """Read a query; each is read more than once."""
    return read(text)


@lru_cache(maxsize=MAX_REMEMBERED)
def glossed(text: str) -> str:
    """Return what a text of another language says, with one English word for each of its own; empty for English."""
    reading = read_query(text)
    return reading.readings[1] if reading is not None and reading.languages else ""


def read(text: str, words: Callable[[str], Lexicon] = lexicon) -> GlossedText | None:
    """Read a text with the lexicons of its languages; None where all of it is English or has no words."""
    text = in_small_letters(text)
    if text.isascii() and (not any(map(str.isalpha, strange_words(text))) or _is_english(unquoted(text))):
        return None  # most texts, in a few microseconds
    units: list[Gloss] = []
    said: list[str] = []
    found: dict[str, None] = {}
    kana = bool(_KANA.search(text))
    for clause, language in _clauses(text[:MAX_CHARS], kana=kana):
        if language is None and (language := language_within(unquoted(clause))):
            glossed = tuple(_gloss_within(clause, words(language)))
        elif language in SUPPORTED:
            glossed = gloss(clause, language, words(language))
        else:
            glossed = ()
        if glossed:
            units += glossed
            said.append(written_out(glossed))
        else:
            units.append(Gloss(clause))
            said.append(clause.strip())
        if language:
            found[language] = None
    if not found:
        return None
    supported = tuple(language for language in found if language in SUPPORTED)
    unknown = tuple(language for language in found if language not in SUPPORTED)
    return GlossedText(tuple(units), " ".join(filter(None, said)), supported, unknown)


def _is_english(text: str) -> bool:
    return language_of(text) is None and language_within(text) is None


def _gloss_within(clause: str, words: Lexicon) -> Iterator[Gloss]:
    """Read the words of another language in an English clause, but for what it quotes."""
    place = 0
    for quoted in QUOTED.finditer(clause):
        yield from gloss_within(clause[place : quoted.start()], words, is_foreign)
        yield Gloss(quoted[0])
        place = quoted.end()
    yield from gloss_within(clause[place:], words, is_foreign)


def _clauses(text: str, *, kana: bool) -> Iterator[tuple[str, str | None]]:
    """Yield clauses with their languages; one too short to tell goes with the clause before it."""
    before: str | None = None
    for found in _CLAUSE.finditer(text):
        clause = found[0]
        asked = unquoted(clause)
        language = language_of(asked if _LETTERS.search(asked) else clause, kana=kana)
        if language is None and before is not None and len(clause.split()) < 3:
            language = before
        yield clause, language
        before = language
