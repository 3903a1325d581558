"""A tool as weighted fields for lexical search, and as one passage for an embedder."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from shortlist.models import Server, Tool
from shortlist.schema import nested_properties, parameters_of, texts_of
from shortlist.text.languages.reading import GlossedText, read
from shortlist.text.tokens import (
    SENTENCE_END,
    compact,
    folded_line,
    one_line,
    plain_letters,
    sentences,
    split_identifier,
    terms,
    words,
)

Field: TypeAlias = Literal[
    "name",
    "title",
    "labels",
    "description",
    "parameters",
    "parameter_text",
    "server",
    "server_text",
    "boilerplate",
]
FIELDS: tuple[Field, ...] = get_args(Field)
Document: TypeAlias = Mapping[Field, Sequence[str]]

MAX_DESCRIPTION_CHARS = 4_000
MAX_PARAMETER_CHARS = 3_000
BOILERPLATE_TOOLS = 3
BOILERPLATE_SHARE = 0.3
"""A sentence in three tools and a third of a server's tools says what the server is, not what the tool does."""
STUFFED_REPEATS = 5
"""How often a text uses each of its words on average; of 30,000 real descriptions four reach this."""

PASSAGE_DESCRIPTION_CHARS = 480
PASSAGE_LABEL_CHARS = 120
PASSAGE_PARAMETER_CHARS = 160

_EVERY_SERVER = frozenset({"mcp", "server", "servers"})
_BEYOND_ASCII = re.compile(r"[^\W\d_\x00-\x7f]")
# `(?<=[.!?。！？])\s+|\n+` with the white space first, which the engine can skip to: half the time.


def document(tool: Tool, server: Server, boilerplate: frozenset[str] = frozenset()) -> Document:
    """Return the terms of every field of a tool."""
    tool = _as_it_looks(tool)
    own, shared = _split_boilerplate(tool.description[:MAX_DESCRIPTION_CHARS], boilerplate)
    properties = nested_properties(tool.input_schema)
    spoken = " ".join([text for _, schema in properties for text in texts_of(schema)])
    server_name, server_text = _server_terms(server)
    return {
        "name": [*_name_terms(tool.name), *_english_terms(tool.name)],
        "title": [*terms(tool.title), *_english_terms(tool.title)],
        "labels": terms(" ".join(tool.keywords)),
        "description": _unstuffed([*terms(own), *_english_terms(own)]),
        "parameters": terms(" ".join([name for name, _ in properties])),
        "parameter_text": [*terms(spoken[:MAX_PARAMETER_CHARS]), *_english_terms(spoken[:MAX_PARAMETER_CHARS])],
        "server": server_name,
        "server_text": server_text,
        "boilerplate": terms(shared),
    }


def embedding_text(tool: Tool) -> str:
    """Write a tool as one short passage, the most telling words first."""
    tool = _as_it_looks(tool)
    labels = " ".join(dict.fromkeys(tool.keywords))
    parameters = ", ".join(words(p.name) for p in parameters_of(tool))
    server, name = server_words(tool.server), words(tool.name)
    return " ".join(
        part
        for part in (
            f"{server} {name}:" if server else f"{name}:",
            _in_english(tool.name, 80),
            _told(tool.title, 80) if split_identifier(tool.title) != split_identifier(tool.name) else "",
            _told(tool.description, PASSAGE_DESCRIPTION_CHARS),
            one_line(labels, PASSAGE_LABEL_CHARS),
            f"({one_line(parameters, PASSAGE_PARAMETER_CHARS)})" if parameters else "",
        )
        if part
    )


def _as_it_looks(tool: Tool) -> Tool:
    """Return a tool whose texts have no letters of other alphabets in Latin words."""
    texts = tool.name, tool.title, tool.description
    if all(map(str.isascii, texts)):
        return tool
    name, title, description = map(plain_letters, texts)
    return replace(tool, name=name, title=title, description=description)


def _told(text: str, length: int) -> str:
    """Write a text for a model: word by word in English where it is in another language."""
    return _in_english(text, length) or one_line(text, length)


def _in_english(text: str, length: int) -> str:
    reading = _foreign(text)
    return one_line(reading.text, length) if reading else ""


def _english_terms(text: str) -> list[str]:
    """Return the English terms of a text in another language, likeliest senses only."""
    reading = _foreign(text)
    units = [unit for unit in reading.units if unit.senses and not unit.function] if reading else []
    return [term for unit in units for term in terms(unit.senses[0].english)]


def _foreign(text: str) -> GlossedText | None:
    """Read what has letters beyond ASCII; tool texts in plain ASCII are taken for English."""
    if text.isascii() or not _BEYOND_ASCII.search(text):
        return None
    reading = read(text[:MAX_DESCRIPTION_CHARS])
    return reading if reading is not None and reading.languages else None


def server_words(server: str) -> str:
    """Write a server's name as plain words, each once, without those that every server has."""
    return " ".join(dict.fromkeys(word for word in split_identifier(server) if word not in _EVERY_SERVER))


def shared_sentences(tools: Iterable[Tool]) -> frozenset[str]:
    """Find the sentences that a server repeats over its tools."""
    every = list(tools)
    return repeated(sentence_counts(every), len(every)) if len(every) >= BOILERPLATE_TOOLS else frozenset()


def sentence_counts(tools: Iterable[Tool]) -> Counter[str]:
    """Count in how many tools each sentence stands."""
    return Counter(sentence for tool in tools for sentence in set(sentences(tool.description[:MAX_DESCRIPTION_CHARS])))


def repeated(counts: Mapping[str, int], tools: int) -> frozenset[str]:
    """Return the sentences that enough of a server's tools have."""
    needed = repeats_needed(tools)
    return frozenset(sentence for sentence, count in counts.items() if count >= needed)


def repeats_needed(tools: int) -> int:
    """Return how many of a server's tools must have a sentence for it to be one of the server's."""
    return math.ceil(max(BOILERPLATE_TOOLS, BOILERPLATE_SHARE * tools))


@lru_cache(maxsize=1_024)
def _server_terms(server: Server) -> tuple[tuple[str, ...], tuple[str, ...]]:
    about = " ".join((server.description, *server.categories, *server.tags))
    return tuple(terms(f"{server_words(server.name)} {server.title}")), tuple(terms(about))


def _name_terms(name: str) -> list[str]:
    found = terms(name)
    whole = compact(name)
    return found if not whole or whole in found else [*found, whole]


def _unstuffed(found: list[str]) -> list[str]:
    """Count each word once if a text repeats itself excessively (keyword stuffing)."""
    stuffed = len(found) >= STUFFED_REPEATS * len(set(found))
    return list(dict.fromkeys(found)) if stuffed else found


def _split_boilerplate(description: str, boilerplate: frozenset[str]) -> tuple[str, str]:
    if not boilerplate:
        return description, ""
    own: list[str] = []
    shared: list[str] = []
    for sentence in SENTENCE_END.split(description):
        (shared if folded_line(sentence) in boilerplate else own).append(sentence)
    return (" ".join(own), " ".join(shared)) if own else (description, "")
