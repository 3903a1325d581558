"""Copies of tools: offers of a tool that a server known for longer already has.

A copy cannot buy a place. While its original may answer, it is left out of the candidates, of the document frequencies
and of the words that spelling is corrected to, so its text changes nothing about the ranking of other tools.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.index import Index
from shortlist.index.ports import Among
from shortlist.models import Query, Ranking, ToolId
from shortlist.search.families import Interchangeable, OfferedTool, always_interchangeable, said_once
from shortlist.search.pipeline import Request
from shortlist.text.documents import server_words
from shortlist.text.tokens import terms

MOST_COMPARED = 64
"""Tools that are compared with one another where many share a name or a sentence."""
Precedence: TypeAlias = Callable[[str], int]
"""A number for each server: of equal tools, the one of the server with the lower number is the original."""


def no_precedence(_: str) -> int:
    """Return the same number for every server: no tool is the copy of another."""
    return 0


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """Which servers were known first, and which are configured to be interchangeable."""

    precedence: Precedence = no_precedence
    interchangeable: Interchangeable = always_interchangeable


ANY_ORDER = ServerOrder()


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Which rows are copies, and of which rows; ordered by the copies' servers, those known for longer first."""

    rows: NDArray[np.int64]
    originals: NDArray[np.int64]
    names: Mapping[frozenset[str], NDArray[np.int64]]
    """Places of copies by what sets their server's name apart from the original."""

    def __len__(self) -> int:
        return len(self.rows)

    def left_out(self, query: Query, among: Among, index: Index) -> tuple[Among, bool]:
        """Return what may answer without the copies of what may answer, and whether that left out every copy.

        The copies on a server that the query names, or that the caller prefers, stay.
        """
        allowed = np.ones(among.size, np.bool_) if among.rows is None else among.rows
        hidden = allowed[self.originals]
        asked = frozenset(terms(query.text))
        for name, places in self.names.items():
            if name <= asked:
                hidden[places] = False
        for hint in query.preferred:
            if hint.servers is not None and (preferred := index.among(hint).rows) is not None:
                hidden &= ~preferred[self.rows]
        mask = allowed.copy()
        mask[self.rows[hidden]] = False
        return among._replace(rows=mask), not mask[self.rows].any()


NO_COPIES = Copies(np.empty(0, np.int64), np.empty(0, np.int64), {})


def without_copies(index: Index, copies: Copies) -> Index:
    """Return the index for searching as if the copies had no words."""
    return replace(index, lexical=index.lexical.uncounted(copies.rows.tolist()))


class CopyOfFirst:
    """Shows one copy of the first hit behind it, so that others fall by one rank at most."""

    def __init__(self, index: Index, copies: Copies) -> None:
        self._index = index
        self._copies = copies

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        if not len(self._copies) or not len(ranking):
            return ranking
        allowed = self._index.among(request.query.filters).rows
        first = int(ranking.rows[0])
        (places,) = np.isin(self._copies.originals, [first, *ranking.families.get(first, ())]).nonzero()
        found = [row for row in self._copies.rows[places].tolist() if allowed is None or allowed[row]]
        if not found or found[0] in ranking.rows:
            return ranking
        rows, scores = np.insert(ranking.rows, 1, found[0]), np.insert(ranking.scores, 1, ranking.scores[0])
        families = {**ranking.families, found[0]: ()} if ranking.families else ranking.families
        return Ranking(rows, scores, families)


class CopyFinder:
    """Finds copies among the tools of an index; what was read of a tool is kept for the next version of the index."""

    def __init__(self, order: ServerOrder) -> None:
        self._order = order
        self._offers: dict[ToolId, tuple[str, OfferedTool]] = {}

    def find(self, index: Index) -> Copies:
        """Compare the tools that share a name or a sentence with one of a server known for longer."""
        if self._order.precedence is no_precedence or len(index.catalog.servers) < 2:
            return NO_COPIES
        offers = self._read(index)
        originals: dict[int, int] = {}
        for rows in _alike(offers):
            for copy, original in self._among(rows, offers):
                originals.setdefault(copy, original)
        found = sorted(originals, key=lambda row: (self._order.precedence(offers[row].server), row))
        roots = [_root(row, originals) for row in found]
        names: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for place, (row, root) in enumerate(zip(found, roots, strict=True)):
            names[_apart(index, offers[row].server, offers[root])].append(place)
        apart = {name: np.array(places) for name, places in names.items() if name}
        return Copies(np.array(found, np.int64), np.array(roots, np.int64), apart)

    def _read(self, index: Index) -> dict[int, OfferedTool]:
        """Read the tools, by row; unchanged tools are not read again."""
        hashes, known, fresh = index.catalog.hashes, self._offers, dict[ToolId, tuple[str, OfferedTool]]()
        for tool_id, row in index.rows.items():
            content, before = hashes[tool_id], known.get(tool_id)
            same = before is not None and content and before[0] == content  # a saved tool is not parsed for this
            fresh[tool_id] = before if before is not None and same else (content, OfferedTool.of(index, row))
        self._offers = fresh
        return {row: fresh[tool_id][1] for tool_id, row in index.rows.items()}

    def _among(self, rows: Iterable[int], offers: Mapping[int, OfferedTool]) -> Iterator[tuple[int, int]]:
        """Yield each copy with its original; servers known for longer come first."""
        order, precedence = self._order, self._order.precedence
        heads: list[tuple[int, int, OfferedTool]] = []
        for place, row in sorted((precedence(offers[row].server), row) for row in rows):
            offer = offers[row]
            original = next(
                (
                    head
                    for known, head, shown in heads
                    if known < place and not order.interchangeable(shown.server, offer.server) and offer.copies(shown)
                ),
                None,
            )
            if original is not None:
                yield row, original
            elif len(heads) < MOST_COMPARED:
                heads.append((place, row, offer))


def _root(row: int, originals: Mapping[int, int]) -> int:
    while row in originals:
        row = originals[row]
    return row


def _apart(index: Index, server: str, original: OfferedTool) -> frozenset[str]:
    """Return the words of a server's name that the original does not have: the words that ask for this server."""
    vocabulary = index.lexical.vocabulary
    return frozenset(word for word in terms(server_words(server)) if vocabulary.get(word) not in original.every)


def _alike(offers: Mapping[int, OfferedTool]) -> Iterator[list[int]]:
    """Yield the rows of several servers that share a name or a first sentence."""
    alike: defaultdict[str, list[int]] = defaultdict(list)
    firsts = {offer.said[0] for offer in offers.values() if offer.said}
    for row, offer in offers.items():
        names = {said_once(offer.spelled), said_once("".join(offer.parts[1:])), *firsts.intersection(offer.said)}
        for name in names:
            alike[name].append(row)
    alike.pop("", None)
    for rows in alike.values():
        if len({offers[row].server for row in rows}) > 1:
            yield rows
