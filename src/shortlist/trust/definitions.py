"""Every text of a definition that a model may read, with its place, bounded in number and length."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

MAX_FIELDS = 4_000
MAX_CHARACTERS = 200_000
"""What is longer is read up to here and held as oversized: four times the longest definition of 45,000 real ones."""
MAX_DEPTH = 64
MAX_SENTENCE = 400
WINDOW_SENTENCES = 3
MAX_PASSAGE, PASSAGE_SENTENCES = 280, 4
SHORTEST_PASSAGE, SHORTEST_UNSPACED = 4, 8
"""Words, or characters where words are not parted by spaces, below which a passage is no sentence."""
SHORT = 6
"""A text of fewer words is also read together with other short ones; if it has lines of one word each, it is a list."""
LONG_NAME = 6
"""Shorter names of tools are ordinary words, and mentioning them means nothing."""
LONG_NAME_WORDS = 4
"""A name of this many words is read as a sentence, and so is a value without spaces of this many words of letters."""
LONGEST_VALUE, SHORTEST_WORDS = 200, 3
"""The characters of a value that may be a sentence, and of its words on average: keys and hashes have shorter parts."""
_REFERENCES = frozenset(("$ref", "$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor"))
"""Keys of a schema whose values point to schemas."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；])|(?<!\s)[^\S\n]*+\n\s*")
_LINE = re.compile(r"[^\n]+")
_PLAIN_WORDS = re.compile(r"(?<![\w'’./~:-])[A-Za-z][\w'’./~:-]*+,?+(?: [\w'’./~:-]++,?+){3,}+")
_NAME_PART = re.compile(r"[a-z0-9]+|[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[^\W\d_]+")
_JOINING = frozenset(
    [
        "the",
        "a",
        "an",
        "and",
        "or",
        "to",
        "of",
        "with",
        "not",
        "this",
        "that",
        "you",
        "your",
        "it",
        "its",
        "do",
        "as",
        "me",
        "is",
        "are",
        "be",
        "them",
        "then",
    ]
)
JOINING_NAMES = 3
_NAMED = frozenset(("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"))
_LISTED = frozenset(("enum", "examples", "required", "tags", "keywords"))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What one `scan` line holds: a tool as its server lists it, and what the server says of itself."""

    id: str
    server: str
    tool: Mapping[str, Any]
    server_instructions: str = ""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What is known of the set a definition belongs to: names that would be foreign in it."""

    own: frozenset[str] = frozenset()
    foreign_tools: frozenset[str] = frozenset()
    foreign_servers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, server: str, names: Mapping[str, Collection[str]]) -> "Neighbours":
        """Return what surrounds a server, from the names of the tools of all servers."""
        own = frozenset(names.get(server, ()))
        others = (name for other, each in names.items() if other != server for name in each if len(name) >= LONG_NAME)
        return cls(own=own, foreign_tools=frozenset(others) - own)


NO_SURROUNDINGS = Neighbours()


@dataclass(frozen=True, slots=True)
class TextField:
    """One text and its place, such as `inputSchema.properties.path.description`."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A part of a field; `start` and `end` are offsets in its text."""

    text: str
    start: int
    end: int


def surroundings(definitions: Iterable[ToolDefinition]) -> dict[str, Neighbours]:
    """Return what surrounds each server in a set of definitions."""
    names: dict[str, set[str]] = {}
    for definition in definitions:
        names.setdefault(definition.server, set()).add(str(definition.tool.get("name", "")))
    everywhere = frozenset(name for each in names.values() for name in each if len(name) >= LONG_NAME)
    return {server: Neighbours(own=frozenset(own), foreign_tools=everywhere) for server, own in names.items()}


class _TooDeep(Exception):
    """A definition is nested deeper than any real one."""


def fields_of(definition: ToolDefinition) -> tuple[tuple[TextField, ...], bool]:
    """Return the texts of a definition, and whether something was left unread because it is too large."""
    found: list[TextField] = []
    left = MAX_CHARACTERS
    instructions = [TextField("server_instructions", definition.server_instructions)]
    try:
        texts = (*instructions, *islice(_texts(definition.tool, "", 0), MAX_FIELDS + 1))
    except _TooDeep:
        return (TextField("description", _whole(str(definition.tool.get("description", ""))[:MAX_CHARACTERS])),), True
    for field in texts:
        if field.text:
            found.append(TextField(_whole(field.path), _whole(field.text[:left])))
            left -= len(field.text)
        if left < 0 or len(found) > MAX_FIELDS:
            return tuple(found[:MAX_FIELDS]), True
    return tuple(found), False


def _whole(text: str) -> str:
    """Replace halves of characters, which JSON may escape and no encoding can hold."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _texts(value: Any, path: str, depth: int) -> Iterator[TextField]:
    if depth > MAX_DEPTH:
        raise _TooDeep
    if isinstance(value, str):
        yield TextField(path, value)
    elif isinstance(value, Mapping):
        named = path.rpartition(".")[2] in _NAMED
        if named:
            yield TextField(f"{path} (names)", spoken_names(value))
        for key, inner in value.items():
            place = f"{path}.{key}" if path else str(key)
            if named and isinstance(key, str):
                yield from _long_name(key, place)
            if key in _LISTED and isinstance(inner, (list, tuple)):
                yield from _of_list([item for item in inner if isinstance(item, str)], key, place)
                yield from _texts([item for item in inner if not isinstance(item, str)], place, depth + 1)
            else:
                yield from _texts(inner, place, depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{number}]", depth + 1)


def _of_list(items: Sequence[str], key: str, place: str) -> Iterator[TextField]:
    """Yield the items of a list as one text; required parameters are names, and names in a row are no sentence."""
    are_names = key == "required" and not any(" " in item for item in items)
    yield TextField(place, spoken_names(items) if are_names else "\n".join(items))
    for item in items if key == "required" else ():
        yield from _long_name(item, place)


def is_listed(path: str) -> bool:
    """Return whether a field holds a list of values, such as those of an enum."""
    return path.rpartition(".")[2] in _LISTED


def _long_name(name: str, place: str) -> Iterator[TextField]:
    words = name_parts(name[: MAX_CHARACTERS + 1])
    if len(words) >= LONG_NAME_WORDS or not name.isascii():
        yield TextField(f"{place} (name)", " ".join(words) if name.isascii() else name)


def values_of(field: TextField) -> Iterator[Sentence]:
    """Yield what the values of a field may say by themselves, each in words and with its place.

    Values without spaces are spelled as words. The values of a list are also read one by one, since harmless ones
    beside it hide what one of them says. Of a regular expression the plain words are read.
    """
    kind = field.path.rpartition(".")[2]
    if kind in _REFERENCES:
        return
    lines = _LINE.finditer(field.text) if kind in _LISTED else ()
    values = [Sentence(line[0], *line.span()) for line in lines] or [Sentence(field.text, 0, len(field.text))]
    for value in values:
        words = spelled(value.text) or (value.text if len(values) > 1 else "")
        if words:
            yield Sentence(words, value.start, value.end)
    for run in _PLAIN_WORDS.finditer(field.text) if kind == "pattern" else ():
        yield Sentence(run[0], *run.span())


def spelled(value: str) -> str:
    """Spell a value without spaces, such as a tool's name or a default, as words if it may say something.

    Return an empty text for one of few words, and for keys and hashes.
    """
    if len(value) > LONGEST_VALUE or len(value.split()) != 1:
        return ""
    words = name_parts(value)
    are_words = sum(map(len, words)) >= SHORTEST_WORDS * len(words)
    return " ".join(words) if are_words and sum(map(str.isalpha, words)) >= LONG_NAME_WORDS else ""


def name_parts(name: str) -> list[str]:
    return _NAME_PART.findall(name)


def spoken_name(name: str) -> str:
    """Spell an identifier as words: `readAllFiles` and `read_all_files` as `read all files`."""
    return " ".join(part.lower() for part in name_parts(name))


def spoken_names(names: Iterable[object]) -> str:
    """Return the names of parameters as one text where they read like one: small words among them join the others."""
    words = " ".join(str(name) for name in names).split()
    return " ".join(words) if len(_JOINING.intersection(map(str.lower, words))) >= JOINING_NAMES else ""


def sentences_of(text: str) -> tuple[Sentence, ...]:
    """Split a text into sentences of bounded length."""
    found: list[Sentence] = []
    start = 0
    for end, following in (*((m.start(), m.end()) for m in _SENTENCE_END.finditer(text)), (len(text), len(text))):
        for cut in range(start, end, MAX_SENTENCE):
            part = text[cut : min(end, cut + MAX_SENTENCE)]
            if part.strip():
                found.append(Sentence(part, cut, cut + len(part)))
        start = following
    return tuple(found)


def windows_of(sentences: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield runs of up to three sentences; what belongs together often spans more than one."""
    last = max(1, len(sentences) - WINDOW_SENTENCES + 1)
    for start in range(last if sentences else 0):
        yield sentences[start : start + WINDOW_SENTENCES]


def passages_of(text: str) -> Iterator[Sentence]:
    """Yield runs of sentences that are classified together; each begins with the last sentence of the one before.

    Where a sentence is so long that it was cut, the text around the cut is a passage of its own.
    """
    sentences = sentences_of(text)
    start = 0
    while start < len(sentences):
        end = start + 1
        while (
            end < len(sentences)
            and end - start < PASSAGE_SENTENCES
            and sentences[end].end - sentences[start].start <= MAX_PASSAGE
        ):
            end += 1
        yield from _passage(text, sentences[start].start, sentences[end - 1].end)
        if end == len(sentences):
            return
        cut = sentences[end].start
        if cut == sentences[end - 1].end and cut - sentences[end - 1].start == MAX_SENTENCE:
            yield from _passage(text, cut - MAX_PASSAGE // 2, min(sentences[end].end, cut + MAX_PASSAGE // 2))
        start = end - 1 if end - start > 1 else end


def _passage(text: str, start: int, end: int) -> Iterator[Sentence]:
    passage = text[start:end]
    words = len(passage.split())
    is_list = words < SHORT and words < 2 * len(passage.splitlines())
    is_long = words >= SHORTEST_PASSAGE and not is_list
    if is_long or (not passage.isascii() and len(passage) >= SHORTEST_UNSPACED):
        yield Sentence(passage, start, end)
