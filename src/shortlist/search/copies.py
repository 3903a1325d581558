"""Finds copies of tools: offers of a tool that a server known for longer already has.

A copy cannot buy a place. While its original may answer, it is left out of the candidates, of the document frequencies
and of the words that spelling is corrected to, so its text changes nothing about the ranking of other tools.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from shortlist.index.index import Index
from shortlist.index.saved import FoundCopy, SavedCopies
from shortlist.models import ToolId
from shortlist.search.families import NO_COPIES, Copies, OfferedTool, ServerOrder, said_once
from shortlist.text.documents import server_words
from shortlist.text.tokens import terms

MOST_COMPARED = 64
"""Tools that are compared with one another where many share a name or a sentence."""


def without_copies(index: Index, copies: Copies) -> Index:
    """Return the index for searching as if the copies had no words."""
    return replace(index, lexical=index.lexical.uncounted(copies.rows.tolist()))


class CopyFinder:
    """Finds copies among the tools of an index; what was read of a tool is kept for the next version of the index."""

    def __init__(self, order: ServerOrder, saved: SavedCopies | None = None) -> None:
        self._order = order
        self._saved = saved
        self._offers: dict[ToolId, tuple[str, OfferedTool]] = {}

    def find(self, index: Index) -> Copies:
        """Compare the tools that share a name or a sentence with one of a server known for longer."""
        if not self._order.places or len(index.catalog.servers) < 2:
            return NO_COPIES
        found = self._saved.load(index.catalog, self._key()) if self._saved is not None else None
        if found is None:
            found = self._compared(index)
            if self._saved is not None:
                self._saved.keep(index.catalog, self._key(), found)
        names: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for place, (_, _, words) in enumerate(found):
            names[frozenset(words)].append(place)
        rows = np.array([index.rows[copy] for copy, _, _ in found], np.int64)
        originals = np.array([index.rows[original] for _, original, _ in found], np.int64)
        return Copies(rows, originals, {name: np.array(places) for name, places in names.items() if name})

    def _key(self) -> tuple[object, ...]:
        groups = self._order.groups
        return sorted(self._order.places.items()), None if groups is None else sorted(groups.items())

    def _compared(self, index: Index) -> list[FoundCopy]:
        """Compare all tools; the copies on servers known for longer come first."""
        offers, ids = self._read(index), {row: tool_id for tool_id, row in index.rows.items()}
        originals: dict[int, int] = {}
        for rows in _alike(offers):
            for copy, original in self._among(rows, offers):
                originals.setdefault(copy, original)
        found = sorted(originals, key=lambda row: (self._order.precedence(offers[row].server), row))
        roots = [_root(row, originals) for row in found]
        return [
            (ids[row], ids[root], sorted(_apart(index, offers[row].server, offers[root])))
            for row, root in zip(found, roots, strict=True)
        ]

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
