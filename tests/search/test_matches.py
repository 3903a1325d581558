"""What a word is worth to a tool does not depend on how many rows the index has."""

import numpy as np

from shortlist.index.index import NO_WORDS
from shortlist.index.lexical import FEW_ROWS, ExactLexicalIndex, Matches
from shortlist.text.documents import Document
from shortlist.text.queries import QueryTerm

DOCUMENTS: list[Document] = [
    {**NO_WORDS, "name": ["send", "message"], "server": ["slack"], "description": ["post", "text"]},
    {**NO_WORDS, "name": ["list", "channel"], "server": ["slack"], "description": ["message"]},
    {**NO_WORDS, "name": ["send", "email"], "server": ["mail"], "description": ["write", "letter"]},
]
ASKED = (
    QueryTerm("send", 1.0, (("post", 0.45), ("write", 0.45))),
    QueryTerm("message", 1.0),
    QueryTerm("slack", 0.35),
    QueryTerm("zebra", 1.0),
)


def matches(index: ExactLexicalIndex) -> Matches:
    def stand_ins(asked: QueryTerm) -> list[tuple[str, float]]:
        return [(t, w) for t, w in ((asked.term, asked.weight), *asked.instead) if index.frequency(t)]

    return index.match(ASKED, stand_ins)


def padded() -> ExactLexicalIndex:
    """The same documents in an index of many rows, all others of which are gone."""
    index = ExactLexicalIndex.build([*DOCUMENTS, *[NO_WORDS] * FEW_ROWS])
    return index.changed(range(len(DOCUMENTS), index.size), ())


def test_a_small_index_and_a_large_one_give_a_tool_the_same() -> None:
    small, large = ExactLexicalIndex.build(DOCUMENTS), padded()
    few, many = matches(small), matches(large)
    assert few.rows is None
    assert many.rows is not None
    assert np.allclose(few.scores, many.scores[: small.size])
    rows = np.array([0, 2])
    assert np.allclose(few.gains(rows, small.size), many.gains(rows, large.size))
    assert few[2:4] == many[2:4]


def test_a_tool_gains_by_what_stands_in_its_name_and_in_its_servers() -> None:
    index = ExactLexicalIndex.build(DOCUMENTS)
    anywhere, in_name, part_of_name, in_server = matches(index).gains(np.arange(index.size), index.size)
    assert part_of_name.tolist() == [1.0, 0.0, 0.5]
    assert anywhere[0] > in_name[0] > in_server[0] > 0
    assert in_name[1] == 0
    assert in_server[2] == 0


def test_what_nothing_answers_is_a_share_of_what_was_asked() -> None:
    unknown = matches(ExactLexicalIndex.build(DOCUMENTS)).unknown
    assert np.isclose(unknown, 1.0 / (1.0 + 1.0 + 0.35 + 1.0))
