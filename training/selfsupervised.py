"""Training pairs that real tools give by themselves, without labels."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from shortlist.models import Tool
from shortlist.schema import parameters_of
from shortlist.text.documents import embedding_text, server_words
from shortlist.text.tokens import words
from training.paraphrase import (
    clause,
    everyday,
    first_sentence,
    framed,
    imperative,
    keywords,
    placeholder_tail,
    rest_of,
    typo,
)
from training.texts import digest

SHORTEST_PART = 25
TYPO_SHARE = 0.08
OWNER = re.compile(r"^@[^_/]+[_/]")


@dataclass(frozen=True, slots=True)
class TextPair:
    """A query-like text and the document text that answers it."""

    query: str
    document: str
    kind: str


def pairs_of(tool: Tool, seed: int) -> Iterator[TextPair]:
    """Return every self-supervised pair of one tool; the same tool and seed give the same pairs."""
    random = Random(f"{seed}:{digest(tool.id + tool.description)}")
    for query, document, kind in _raw_pairs(tool, random):
        text = " ".join(query.split())
        if len(text) > 3:
            yield TextPair(typo(text, random) if random.random() < TYPO_SHARE else text, document, kind)


def _raw_pairs(tool: Tool, random: Random) -> Iterator[tuple[str, str, str]]:
    full = embedding_text(tool)
    name = words(tool.name)
    server = spoken_server(tool.server)
    yield f"{server} {everyday(name, random)}", full, "server_act"
    if not tool.description.strip():
        return
    act = clause(imperative(first_sentence(tool.description)))
    yield random.choice((name, f"{server} {name}")), _without_name(tool), "name_to_description"
    yield framed(everyday(act, random), random), full, "everyday"
    yield keywords(f"{tool.name} {tool.description[:300]}", random.randint(3, 6), random), full, "keywords"
    yield from _split_description(tool, act, random)
    yield from _parameter_phrases(tool, act, name, random)


def spoken_server(server: str) -> str:
    """Name a server as users do, without its owner: `@jane_mcp-discord` is discord."""
    return server_words(OWNER.sub("", server).rsplit("/", 1)[-1])


def _without_name(tool: Tool) -> str:
    return embedding_text(replace(tool, name="", title="")).replace(" : ", ": ", 1).removeprefix(": ")


def _split_description(tool: Tool, act: str, random: Random) -> Iterator[tuple[str, str, str]]:
    rest = rest_of(tool.description)
    if len(rest) >= SHORTEST_PART:
        yield everyday(act, random), embedding_text(replace(tool, description=rest)), "summary_to_body"
        yield first_sentence(rest)[:160], embedding_text(replace(tool, description=act)), "body_to_summary"
    else:
        yield act, embedding_text(replace(tool, description="")), "description_to_name"


def _parameter_phrases(tool: Tool, act: str, name: str, random: Random) -> Iterator[tuple[str, str, str]]:
    names = tuple(parameter.name for parameter in parameters_of(tool))
    if not names:
        return
    chosen = [words(each) for each in random.sample(names, min(3, len(names)))]
    bare = embedding_text(replace(tool, definition="{}"))
    yield f"{everyday(name, random)} by {' and '.join(chosen)}", bare, "parameters"
    yield act.split(",", maxsplit=1)[0] + placeholder_tail(names, random), embedding_text(tool), "placeholders"
