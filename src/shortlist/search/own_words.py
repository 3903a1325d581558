"""The words of tools themselves, apart from what their servers say about all of their tools."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import DamerauLevenshtein

from shortlist.index.index import Index
from shortlist.index.ports import Rows
from shortlist.index.postings import NAME_BIT, OWN_BITS, SERVER_BIT, Postings
from shortlist.text.documents import server_words
from shortlist.text.tokens import ascii_words, stem, terms

Tools: TypeAlias = Callable[[str], int]
"""How many tools have a term."""
ROWS_FOR_SPELLING = 12
"""Tools whose text is looked at for a stem's whole words."""
MAX_REMEMBERED_COUNTS = 50_000


class OwnWords:
    """Counts the tools that have a term in their own words or in their server's name, which its user chooses.

    The title, the description and the labels of a server do not count, nor do sentences that it repeats in its tools.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lexical = index.lexical
        self._counts: dict[str, int] = {}

    def tools(self, term: str) -> int:
        """Return how many tools have a term; copies are left out where the index does not count them."""
        found = self._counts.get(term)
        if found is None:
            if not self._lexical.frequency(term):
                return 0
            if len(self._counts) >= MAX_REMEMBERED_COUNTS:
                self._counts.clear()
            found = self._counts[term] = self._count(term)
        return found

    def only_said(self, term: str) -> bool:
        """Return whether servers say a term and no tool has it."""
        return self._lexical.frequency(term) > 0 and not self.tools(term)

    def is_name(self, term: str) -> bool:
        """Return whether a tool or a server is named so, whatever the server's title says."""
        postings = self._lexical.postings(term)
        return bool((postings.fields & NAME_BIT).any() or self._in_server_name(term, postings).any())

    def whole(self, term: str, typed: str) -> str | None:
        """Return the word for a stem that is nearest to what was typed, of tools that have it if there are any."""
        postings = self._lexical.postings(term)
        rows = postings.rows[self._lexical.alive[postings.rows]]
        if self.tools(term):
            rows = postings.rows[self._lexical.alive[postings.rows] & self._is_own(term, postings)]
        found = {
            word
            for row in rows[:ROWS_FOR_SPELLING].tolist()
            for word in ascii_words(self._text(row))
            if word.isalpha() and stem(word) == term
        }
        return min(found, key=lambda word: (DamerauLevenshtein.distance(typed, word), word), default=None)

    def _count(self, term: str) -> int:
        postings = self._lexical.postings(term)
        alive, counted = (mask[postings.rows] for mask in (self._lexical.alive, self._lexical.counted))
        named = self._in_server_name(term, postings)
        return int(np.count_nonzero((named & alive) | (((postings.fields & OWN_BITS) > 0) & counted)))

    def _is_own(self, term: str, postings: Postings) -> NDArray[np.bool_]:
        own: NDArray[np.bool_] = ((postings.fields & OWN_BITS) > 0) | self._in_server_name(term, postings)
        return own

    def _in_server_name(self, term: str, postings: Postings) -> NDArray[np.bool_]:
        """Mark the rows whose server has a term in its name; the field has the words of its title as well."""
        served: NDArray[np.bool_] = (postings.fields & SERVER_BIT) > 0
        if served.any():
            served[served] = self._named(term, postings.rows[served])
        return served

    def _named(self, term: str, rows: Rows) -> NDArray[np.bool_]:
        servers = self._index.facets.servers
        codes = servers.codes(self._index.size)[rows]
        named = [code for code in np.unique(codes).tolist() if term in _name_terms(servers.values[code])]
        return np.isin(codes, named)

    def _text(self, row: int) -> str:
        tool = self._index.tool(row)
        return f"{tool.server} {re.sub('(?<=[a-z])(?=[A-Z])', ' ', tool.name)} {tool.title} {tool.description}"


@lru_cache(maxsize=4_096)
def _name_terms(server: str) -> frozenset[str]:
    return frozenset(terms(server_words(server)))
