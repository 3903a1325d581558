"""Finds copies of tools: offers of a tool that a server known for longer already has.

A copy cannot buy a place. While its original may answer, it is left out of the candidates, of the document frequencies
and of the words that spelling is corrected to, so its text changes nothing about the ranking of other tools.

The original of a tool is the first one that it copies, by the order of servers, then by id. That does not depend on
the order in which tools arrived, so comparing what changed with the rest has the same result as comparing everything.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.index.index import Index
from shortlist.index.saved import SavedCopies
from shortlist.models import Tool, ToolId
from shortlist.search.families import (
    COPIED_SHARE,
    NO_COPIES,
    OWN_FIELDS,
    RENAMED_SHARE,
    RENAMED_WORDS,
    Copies,
    OfferedTool,
    ServerOrder,
    sentences_of,
)
from shortlist.text.documents import server_words
from shortlist.text.tokens import compact, said_once, spelling, terms

Originals: TypeAlias = dict[ToolId, ToolId]
"""The original of each copy; it may be a copy itself."""
CHANGED_SHARE = 0.02
"""Above this share of changed tools, all are compared: one that changed takes as long as 50 do then."""
MIN_CHANGED = 50


def without_copies(index: Index, copies: Copies) -> Index:
    """Return the index for searching as if the copies had no words."""
    return replace(index, lexical=index.lexical.uncounted(copies.rows))


@dataclass(frozen=True, slots=True)
class _Compared:
    """What was found among the first rows of an index; later versions of it share the list of ids."""

    ids: Sequence[ToolId]
    size: int
    catalog: Catalog | None
    originals: Originals


class CopyFinder:
    """Finds copies among the tools of an index; of a changed index, only what changed is compared with the rest."""

    def __init__(self, order: ServerOrder, saved: SavedCopies | None = None) -> None:
        self._order, self._saved = order, saved
        self._compared: _Compared | None = None
        self._lookalikes: _Lookalikes | None = None
        self._apart: dict[tuple[str, ToolId], frozenset[str]] = {}

    def find(self, index: Index) -> Copies:
        if not self._order.places:
            return NO_COPIES
        before = self._compared or self._restored(index)
        if len(index.catalog.servers) < 2:
            originals: Originals = {}
        elif before is None or before.ids is not index.ids:
            originals = self._all(index)
        else:
            originals = self._updated(index, before)
        self._compared = _Compared(index.ids, index.size, index.catalog, originals)
        if before is None:
            self.keep(index)  # of a saved index, at once: the next start should not compare all tools again
        return self._copies(index, originals)

    def keep(self, index: Index) -> None:
        """Save what was found in an index that was saved."""
        found = self._compared
        if self._saved is not None and found is not None and found.catalog is index.catalog:
            self._saved.keep(index.catalog, self._key(), found.originals)

    def _restored(self, index: Index) -> _Compared | None:
        found = self._saved.load(self._key()) if self._saved is not None else None
        return _Compared(index.ids, found[0], None, found[1]) if found is not None else None

    def _key(self) -> list[object]:
        groups = self._order.groups
        return [[*map(list, sorted(self._order.places.items()))], groups and [*map(list, sorted(groups.items()))]]

    def _copies(self, index: Index, originals: Originals) -> Copies:
        """Describe the copies by row; those on servers known for longer come first."""
        roots = {tool_id: _root(tool_id, originals) for tool_id in originals}
        rows = {tool_id: index.rows[tool_id] for tool_id in {*roots, *roots.values()}}  # each is looked up once
        found = sorted(originals, key=lambda tool_id: self._place(index, rows[tool_id]))
        names: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for place, copy in enumerate(found):
            server, root = index.facets.servers[rows[copy]], roots[copy]
            names[self._words_apart(index, server, root, rows[root])].append(place)
        return Copies(
            np.array([rows[copy] for copy in found], np.int64),
            np.array([rows[roots[copy]] for copy in found], np.int64),
            {name: np.array(places) for name, places in names.items() if name},
        )

    def _words_apart(self, index: Index, server: str, root: ToolId, row: int) -> frozenset[str]:
        """Return the words of a server's name that the original does not have: the words that ask for this server."""
        known = self._apart.get((server, root))
        if known is None:
            vocabulary, every = index.lexical.vocabulary, set(index.lexical.terms_of(row).tolist())
            apart = frozenset(word for word in terms(server_words(server)) if vocabulary.get(word) not in every)
            known = self._apart[server, root] = apart
        return known

    def _place(self, index: Index, row: int) -> tuple[int, ToolId]:
        return self._order.precedence(index.facets.servers[row]), index.ids[row]

    def _may_copy(self, copy: str, original: str) -> bool:
        """Return whether a server's tools can be copies of another's."""
        order = self._order
        return order.precedence(original) < order.precedence(copy) and not order.interchangeable(original, copy)

    # All tools

    def _all(self, index: Index) -> Originals:
        """Compare all tools that share a name or a first sentence."""
        self._apart.clear()
        self._lookalikes = None
        offers: dict[int, OfferedTool] = {}
        found: dict[int, int] = {}

        def offer(row: int) -> OfferedTool:
            known = offers.get(row)
            if known is None:
                known = offers[row] = OfferedTool.of(index, row)
            return known

        for originals, copies in _alike(index):
            ordered = sorted(originals, key=lambda row: self._place(index, row))
            for copy in copies:
                for original in ordered:
                    if copy in found and self._place(index, found[copy]) <= self._place(index, original):
                        break
                    if not self._may_copy(index.facets.servers[copy], index.facets.servers[original]):
                        continue
                    if offer(copy).copies(offer(original)):
                        found[copy] = original
                        break
        return {index.ids[copy]: index.ids[original] for copy, original in found.items()}

    # Changed tools

    def _updated(self, index: Index, before: _Compared) -> Originals:
        """Compare the tools that changed with all others."""
        rows = [row for row in range(before.size, index.size) if index.rows.get(index.ids[row]) == row]
        came = {index.ids[row] for row in rows}
        originals = {c: o for c, o in before.originals.items() if c in index.rows and c not in came}
        lost = [copy for copy, original in originals.items() if not self._stays(index, copy, original, came)]
        if len(rows) + len(lost) > max(MIN_CHANGED, CHANGED_SHARE * len(index)):
            return self._all(index)
        if not rows and not lost:
            return originals
        self._apart = {key: words for key, words in self._apart.items() if key[1] not in came}
        alike = self._alike_in(index)
        for tool_id in (*came, *lost):
            originals.pop(tool_id, None)
            original = self._original(index, index.rows[tool_id], alike)
            if original is not None:
                originals[tool_id] = index.ids[original]
        for row in rows:
            for copy in self._copies_of(index, row, alike):
                known = originals.get(index.ids[copy])
                if known is None or self._place(index, row) < self._place(index, index.rows[known]):
                    originals[index.ids[copy]] = index.ids[row]
        return originals

    def _alike_in(self, index: Index) -> "_Lookalikes":
        if self._lookalikes is None:
            self._lookalikes = _Lookalikes(index)
        else:
            self._lookalikes.follow(index)
        return self._lookalikes

    def _stays(self, index: Index, copy: ToolId, original: ToolId, came: set[ToolId]) -> bool:
        if original not in came:
            return original in index.rows
        offer, other = (OfferedTool.of(index, index.rows[tool_id]) for tool_id in (copy, original))
        return offer.copies(other)

    def _original(self, index: Index, row: int, alike: "_Lookalikes") -> int | None:
        """Return the first tool that a tool copies."""
        servers, offer = index.facets.servers, OfferedTool.of(index, row)
        perhaps = [other for other in alike.originals(offer) if self._may_copy(servers[row], servers[other])]
        perhaps.sort(key=lambda other: self._place(index, other))
        return next((other for other in perhaps if offer.copies(OfferedTool.of(index, other))), None)

    def _copies_of(self, index: Index, row: int, alike: "_Lookalikes") -> Iterator[int]:
        servers, offer = index.facets.servers, OfferedTool.of(index, row)
        for other in alike.copies(offer):
            if self._may_copy(servers[other], servers[row]) and OfferedTool.of(index, other).copies(offer):
                yield other


class _Lookalikes:
    """Finds the few rows that may be copies or originals of a tool, by counting the words that they have in common."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._own_sizes = index.lexical.term_counts(OWN_FIELDS)
        self._spelled = [""] * index.size
        for name, rows in index.names.items():
            for row in rows:
                self._spelled[row] = name

    def follow(self, index: Index) -> None:
        """Switch to a newer version of the index, which has the same rows and more."""
        fresh = range(len(self._spelled), index.size)
        words = [np.count_nonzero(OWN_FIELDS.passing(index.lexical.fields_of(row)[1])) for row in fresh]
        self._own_sizes = np.concatenate([self._own_sizes, np.array(words, np.int64)])
        self._spelled += [compact(index.tool(row).name) for row in fresh]
        self._index = index

    def originals(self, offer: OfferedTool) -> list[int]:
        """Return the rows of which enough words are in this tool."""
        common = self._index.lexical.rows_holding(offer.every, OWN_FIELDS)
        return self._rows(offer, common, self._own_sizes)

    def copies(self, offer: OfferedTool) -> list[int]:
        """Return the rows that have enough words of this tool."""
        common = self._index.lexical.rows_holding(offer.own)
        return self._rows(offer, common, np.full(self._index.size, len(offer.own)))

    def _rows(self, offer: OfferedTool, common: NDArray[np.int64], words: NDArray[np.int64]) -> list[int]:
        endings = tuple(filter(None, _names(offer.spelled, offer.parts)))  # the same name, one word before it aside
        renamed = (words >= RENAMED_WORDS) & (common >= RENAMED_SHARE * words)
        (rows,) = (self._index.lexical.alive & (common >= COPIED_SHARE * words)).nonzero()
        alike = zip(rows.tolist(), renamed[rows].tolist(), strict=True)
        return [row for row, other_name in alike if other_name or self._spelled[row].endswith(endings)]


def _root(tool_id: ToolId, originals: Mapping[ToolId, ToolId]) -> ToolId:
    while tool_id in originals:
        tool_id = originals[tool_id]
    return tool_id


def _names(spelled: str, parts: tuple[str, ...]) -> tuple[str, str]:
    return said_once(spelled), said_once("".join(parts[1:]))


def _alike(index: Index) -> Iterator[tuple[Iterable[int], Iterable[int]]]:
    """Yield the rows that may be originals and the rows that may be copies of these: they share a name or a sentence.

    A renamed copy has the first sentence of its original anywhere.
    """
    named: defaultdict[str, list[int]] = defaultdict(list)
    firsts: defaultdict[str, list[int]] = defaultdict(list)
    saying: defaultdict[str, list[int]] = defaultdict(list)
    said: list[tuple[int, tuple[str, ...]]] = []
    for tool_id, row in index.rows.items():
        tool: Tool = index.catalog.tools[tool_id]
        for name in set(_names(*spelling(tool.name))):
            named[name].append(row)
        told = sentences_of(tool)
        if told:
            firsts[told[0]].append(row)
            said.append((row, told))
    for row, told in said:
        for sentence in firsts.keys() & set(told):
            saying[sentence].append(row)
    named.pop("", None)
    servers = index.facets.servers
    for originals, copies in (*((rows, rows) for rows in named.values()), *((firsts[s], r) for s, r in saying.items())):
        if len({servers[row] for row in copies}) > 1:
            yield originals, copies
