"""Tells whether a tool is another one in other words, by what its name, title and sentences say."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from shortlist.index.index import Index
from shortlist.index.lexical import FieldFilter
from shortlist.models import Tool
from shortlist.schema import nested_properties, texts_of
from shortlist.text.documents import FIELDS, server_words
from shortlist.text.languages.lexicon import RAREST, word_weights
from shortlist.text.tokens import SENTENCE_END, STOPWORDS, plain_letters, read_words, split_identifier, stem, terms

MOSTLY_COVERED, LITTLE_ADDED = 0.6, 0.25
"""A lookalike has a sentence with the whole gist of its original, or with most of it and little else, by the weight of
the words: with 0.7 a copy that leaves out every fourth word gets past, with 0.2 one with an adverb more."""
MIN_GIST, MIN_SHORT_GIST = 600, 200
"""A gist of less weight than two rare words is found only in sentences that add little."""
MIN_PARAMETERS = 2
"""A tool with fewer parameters is not recognised by them."""
FEW_SPOKEN = 4
"""If the parameters of a lookalike have more words that its original lacks, none of them speaks for it: with 8, ten
everyday words as the values of a parameter buy as many first places as if all counted."""
COMPARED_CHARS = 600
"""The length of a description whose sentences are compared with gists."""
SHORT_WORDS = 4
"""Sentences of fewer words are read together with those around them, too: `Send. a. mail.`"""
PRAISE = frozenset(map(stem, read_words("praise.txt")))
"""Words by which tools recommend themselves: they say nothing about what a tool does."""
_PARAMETERS, _TOLD, _SPOKEN = (
    FieldFilter(some=np.uint16(sum(1 << FIELDS.index(field) for field in fields)), none=np.uint16(0))
    for fields in (
        ("parameters",),
        ("name", "title", "labels", "description", "boilerplate"),
        ("parameters", "parameter_text"),
    )
)


@dataclass(frozen=True, slots=True)
class ToldTool:
    """What a row says, for telling lookalikes."""

    place: int
    server: str
    words: frozenset[int]
    """Everything that the tool or its server says."""
    tells: frozenset[int]
    """The words of its name, title and description, and of its server's name."""
    spoken: frozenset[int]
    """The words of its parameters and of what is said about them."""
    head: frozenset[int]
    """The words of its name and title."""
    said: tuple[Mapping[int, int], ...]
    """The words of each of its first sentences, with their weights."""
    does: frozenset[int]
    """The actions in its name and first sentences."""
    first: frozenset[int]
    """The words of its name, first sentence and server's name."""
    gist: Mapping[int, int]
    """The same less those of the server's name and praise, with their weights."""
    size: int
    """The weight of the gist."""
    name: frozenset[int]
    """The words of its name less those of the server's name, or all; empty where these are too common to tell it by."""
    parameters: frozenset[int]

    def says(self, original: "ToldTool") -> bool:
        """Return whether this is an original in other words.

        It has the name and the parameters, a sentence with the gist, or one with most of the gist or the name and
        little else.
        """
        size, named = original.size, bool(original.name) and original.name <= self.words
        anywhere = sum(map(original.gist.__getitem__, original.gist.keys() & self.words))
        if size < MIN_SHORT_GIST or (anywhere < MOSTLY_COVERED * size and not named):
            return False  # most tools: no need to read the sentences
        if named and original.name <= self.head and self._has_parameters_of(original):
            return True
        for said in self.said:
            covered = sum(weight for word, weight in original.gist.items() if word in said or word in self.head)
            if covered == size and size >= MIN_GIST:
                return True
            has_name = named and original.name <= said.keys() | self.head
            if (has_name or covered >= MOSTLY_COVERED * size) and self._adds_little(said, original):
                return True
        return False

    def words_beside(self, original: "ToldTool") -> frozenset[int]:
        """Return the words that may speak for this before an original: those of its parameters only if few are new."""
        return self.tells | self.spoken if len(self.spoken - original.words) <= FEW_SPOKEN else self.tells

    def _adds_little(self, said: Mapping[int, int], original: "ToldTool") -> bool:
        added = sum(weight for word, weight in said.items() if word not in original.first)
        does_more = not ((said.keys() | self.head) & self.does <= original.first)
        return added <= LITTLE_ADDED * sum(said.values()) and not does_more

    def _has_parameters_of(self, original: "ToldTool") -> bool:
        return len(original.parameters) >= MIN_PARAMETERS and original.parameters <= self.parameters


def told(index: Index, row: int, place: int, actions: frozenset[int]) -> ToldTool:
    """Read what a row says; `actions` are the numbers of words that are actions."""
    tool, vocabulary, weights = index.tool(row), index.lexical.vocabulary, word_weights()
    every, fields = index.lexical.fields_of(row)

    def weighed(words: Iterable[str]) -> dict[int, int]:
        return {vocabulary[word]: weights.get(word, RAREST) for word in words if word in vocabulary}

    sentences = SENTENCE_END.split(plain_letters(tool.description[:COMPARED_CHARS]).lstrip())
    named = [stem(part) for part in split_identifier(plain_letters(tool.name)) if part not in STOPWORDS]
    server = frozenset(terms(server_words(tool.server)))
    first = {*named, *terms(sentences[0])}
    names = (weighed(set(named) - server), weighed(named))
    read = [terms(sentence) for sentence in sentences]
    if sum(map(len, read)) < SHORT_WORDS:
        read += map(terms, _in_parameters(tool))
    gist = weighed(first - server - PRAISE)
    said = [weighed(set(words) - PRAISE) for words in _read_together(read)]
    head = frozenset(weighed((*named, *terms(tool.name), *terms(tool.title))))
    return ToldTool(
        place=place,
        server=tool.server,
        words=frozenset(every.tolist()),
        tells=frozenset((*every[_TOLD.passing(fields)].tolist(), *weighed(server))),
        spoken=frozenset(every[_SPOKEN.passing(fields)].tolist()),
        head=head,
        said=tuple(said),
        does=actions.intersection(head.union(*said)),
        first=frozenset(weighed(first | server)),
        gist=gist,
        size=sum(gist.values()),
        name=next((frozenset(name) for name in names if sum(name.values()) >= MIN_SHORT_GIST), frozenset()),
        parameters=frozenset(every[_PARAMETERS.passing(fields)].tolist()),
    )


def _in_parameters(tool: Tool) -> list[str]:
    """Return the sentences about a tool's parameters: one that hardly describes itself may say there what it does."""
    texts = [text for _, schema in nested_properties(tool.input_schema) for text in texts_of(schema)]
    return SENTENCE_END.split(plain_letters("\n".join(texts)[:COMPARED_CHARS]))


def _read_together(sentences: list[list[str]]) -> Iterator[list[str]]:
    """Yield the words of each sentence, and of each row of short ones."""
    short: list[str] = []
    for words in sentences:
        yield words
        if len(words) < SHORT_WORDS:
            short += words
        elif short:
            yield short
            short = []
    if short:
        yield short
