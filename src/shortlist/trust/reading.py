"""A definition read: its fields, their sentences with the concepts in them, and the windows that are judged."""

from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from shortlist.text.languages.lexicon import Lexicon, lexicon, parse_lexicon
from shortlist.text.languages.reading import read as read_languages
from shortlist.text.languages.reading import read_query
from shortlist.trust.characters import unmasked
from shortlist.trust.concepts import concepts, readable
from shortlist.trust.definitions import (
    SHORTEST_PASSAGE,
    Neighbours,
    TextField,
    ToolDefinition,
    fields_of,
    sentences_of,
    windows_of,
)
from shortlist.trust.features import FEATURES, Marked, features_of

MAX_REMEMBERED_GLOSSES = 512
SHORT_TEXT = 80
KEPT_TEXTS = 50_000
"""Texts up to this length come again and again, in many tools: what was found out about so many of them is kept."""


@dataclass(frozen=True, slots=True)
class Window:
    """A run of sentences in one field; `start` and `end` are offsets in its text."""

    field: TextField
    text: str
    start: int
    end: int
    concepts: int


@dataclass(frozen=True, slots=True)
class DefinitionReading:
    """The windows of a definition that contain any concept, with their features."""

    fields: tuple[TextField, ...]
    windows: tuple[Window, ...]
    rows: NDArray[np.float32]
    oversized: bool


def read(definition: ToolDefinition, around: Neighbours) -> DefinitionReading:
    """Read a definition, field by field."""
    fields, oversized = fields_of(definition)
    windows: list[Window] = []
    rows: list[NDArray[np.float32]] = []
    for field in fields:
        for window, row in read_text(field, around):
            windows.append(window)
            rows.append(row)
    matrix = np.array(rows, np.float32) if rows else np.zeros((0, len(FEATURES)), np.float32)
    return DefinitionReading(fields, tuple(windows), matrix, oversized)


@lru_cache(maxsize=KEPT_TEXTS)
def _marked_short(text: str) -> tuple[str, list[Marked]]:
    return _marked(text)


def _marked(text: str) -> tuple[str, list[Marked]]:
    """Return a text as a reader sees it, and its sentences with their concepts."""
    known = concepts()
    seen = unmasked(text)
    reading = read_query(seen)
    languages = known.languages(readable(seen), reading.languages if reading else ())
    return seen, [Marked(s, known.found(readable(s.text), languages)) for s in sentences_of(seen)]


def read_text(field: TextField, around: Neighbours) -> list[tuple[Window, NDArray[np.float32]]]:
    """Return the windows of one field that contain any concept."""
    seen, marked = _marked_short(field.text) if len(field.text) <= SHORT_TEXT else _marked(field.text)
    found = []
    for run in windows_of(marked):
        spoken = 0
        for each in run:
            spoken |= each.concepts
        if spoken:
            start, end = run[0].sentence.start, run[-1].sentence.end
            window = Window(field, seen[start:end], start, end, spoken)
            found.append((window, features_of(run, around, field.path)))
    return found


@lru_cache(maxsize=MAX_REMEMBERED_GLOSSES)
def gloss_of(text: str) -> str:
    """Return what a passage in another language says word by word in English; empty if that is no sentence."""
    reading = read_languages(text, words_of)
    said = reading.readings[1] if reading is not None and reading.languages else ""
    return said if len(said.split()) >= SHORTEST_PASSAGE else ""


@cache
def words_of(language: str) -> Lexicon:
    """Return the words of a language with those of orders and secrets, which search drops or has otherwise."""
    file = resources.files("shortlist.trust").joinpath("data", "languages", f"{language}.tsv")
    return lexicon(language).with_words(parse_lexicon(language, file.read_text("utf-8")))
