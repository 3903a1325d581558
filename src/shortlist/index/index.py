"""The index of a catalog: rows shared by words and vectors, updated by difference, never changed in place."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shortlist.catalog.catalog import Catalog, Layered
from shortlist.index.columns import Grouped, Growing
from shortlist.index.embedders import Embedder, Progress, Vectors
from shortlist.index.embedding import VectorCache, embed_cached
from shortlist.index.facets import Facets
from shortlist.index.lexical import ExactLexicalIndex
from shortlist.index.ports import Among, Mask, Rows
from shortlist.index.postings import FieldWeight
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import Filters, Tool, ToolId
from shortlist.text.documents import (
    FIELDS,
    Document,
    Field,
    document,
    embedding_text,
    repeated,
    repeats_needed,
    sentence_counts,
    shared_sentences,
)
from shortlist.text.tokens import compact

MAX_REMEMBERED_MASKS = 64
"""Callers use the same few filters again and again."""
NO_WORDS: Document = dict.fromkeys(FIELDS, ())


MIN_GONE = 1_000
"""Rows of removed tools are cleared away once there are this many and more than are in use."""
COUNTED_TOOLS = 500
"""Servers with fewer tools are read again as a whole when one of them changes."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """How many tools an update added, changed and removed."""

    added: int
    changed: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Index:
    """Everything search needs to know about one catalog.

    An update returns a new index. It shares with the older one what only grows (ids, names, facets, vocabulary,
    vectors) and copies the rest. Only the newest index of such a line may be updated, by one thread at a
    time; all of them may be searched by any number of threads.
    """

    catalog: Catalog
    ids: list[ToolId] | Growing[ToolId]
    rows: Mapping[ToolId, int]
    """The rows in use; others belong to removed tools."""
    facets: Facets
    lexical: ExactLexicalIndex
    dense: ExactVectorIndex | None
    names: Grouped
    """The rows of each name, compact."""
    shared: Mapping[str, frozenset[str]]
    """Sentences that the tools of a server have in common."""
    counts: Mapping[str, Counter[str]]
    """In how many tools of a large server each sentence stands, so that a change of one need not read the others."""
    _masks: dict[Filters, Among] = field(default_factory=dict)

    @classmethod
    def build(cls, catalog: Catalog) -> "Index":
        """Index the words of a catalog; vectors come with `with_vectors`."""
        shared, counts = _repeated(catalog)
        tools = list(catalog.tools.values())
        lexical = ExactLexicalIndex.build(_document(tool, catalog, shared) for tool in tools)
        index = cls(
            catalog=catalog,
            ids=[],
            rows={},
            facets=Facets(),
            lexical=lexical,
            dense=None,
            names=Grouped(),
            shared=shared,
            counts=counts,
        )
        return replace(index, rows=index._registered(tools))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """How many rows there are, those of removed tools included."""
        return self.lexical.size

    def tool(self, row: int) -> Tool:
        return self.catalog.tools[self.ids[row]]

    def among(self, filters: Filters) -> Among:
        """Return which rows may answer."""
        masks = self._masks
        found = masks.get(filters)
        if found is None:
            if len(masks) >= MAX_REMEMBERED_MASKS:
                masks.clear()
            found = masks[filters] = Among(filters, self.size, self._mask(filters))
        return found

    def _mask(self, filters: Filters) -> Mask | None:
        passing = self.facets.mask(filters, self.ids, self.rows, self.size)
        if passing is None:
            return None if len(self.rows) == self.size else self.lexical.alive
        return passing & self.lexical.alive

    def updated(self, newer: Catalog) -> tuple["Index", IndexChange]:
        """Return the index of another catalog, and what changed; only what differs is read again."""
        diff = self.catalog.diff(newer)
        shared, counts, reworded = self._reworded(newer, diff.added | diff.changed | diff.removed)
        stale = diff.changed | reworded
        gone = [self.rows[i] for i in diff.removed | stale if i in self.rows]
        added = [newer.tools[i] for i in sorted(diff.added | stale)]
        documents = [_document(tool, newer, shared) for tool in added]
        index = replace(
            self,
            catalog=newer,
            rows=_moved(self.rows, self._registered(added), diff.removed),
            lexical=self.lexical.changed(gone, documents),
            dense=self.dense.grown(self.size + len(added)) if self.dense is not None else None,
            shared=shared,
            counts=counts,
            _masks={},
        )
        crowded = index.size - len(index.rows) > max(MIN_GONE, len(index.rows))
        change = IndexChange(len(diff.added), len(diff.changed), len(diff.removed))
        return (index.compacted() if crowded else index), change

    @property
    def waiting(self) -> int:
        """How many tools have no vector yet."""
        return len(self._waiting_rows(self.dense)) if self.dense is not None else len(self.rows)

    def zero_vectors(self, among: Among) -> list[ToolId]:
        """Return those of some tools whose vector is zero, which says nothing about them."""
        if self.dense is None or not self.dense.zeros:
            return []
        rows, may_answer = self.dense.rows_with_zeros(), self.lexical.alive if among.rows is None else among.rows
        return [self.ids[row] for row in rows[may_answer[rows]].tolist()]

    def reindexed(self, weights: Mapping[Field, FieldWeight]) -> ExactLexicalIndex:
        """Index the same rows with other field weights, for comparison."""
        alive = self.lexical.alive
        built = ExactLexicalIndex.build(
            (
                _document(self.tool(row), self.catalog, self.shared) if alive[row] else NO_WORDS
                for row in range(self.size)
            ),
            weights,
        )
        return built.changed(np.flatnonzero(~alive).tolist(), ())

    def embedded(
        self, embedder: Embedder, *, cache: VectorCache | None = None, progress: Progress | None = None
    ) -> "Index":
        """Return the index with a vector for every row; vectors of another model are dropped."""
        texts = self.texts_without_vector(embedder)
        vectors = embed_cached(embedder, list(texts.values()), cache, progress)
        return self.with_vectors(embedder, np.array(list(texts), np.int64), vectors)

    def texts_without_vector(self, embedder: Embedder) -> dict[int, str]:
        """Return the rows that this model has yet to embed, with the text to embed for each."""
        return {row: embedding_text(self.tool(row)) for row in self._waiting_rows(self._dense_of(embedder))}

    def with_vectors(self, embedder: Embedder, rows: Rows, vectors: Vectors) -> "Index":
        """Return the index with these vectors; vectors of another model are dropped."""
        dense = self._dense_of(embedder)
        return replace(self, dense=dense.with_vectors(rows, vectors) if len(rows) else dense, _masks=self._masks)

    def _dense_of(self, embedder: Embedder) -> ExactVectorIndex:
        if self.dense is not None and self.dense.model_id == embedder.model_id:
            return self.dense
        return ExactVectorIndex.empty(embedder.dimensions, embedder.model_id, self.size)

    def _waiting_rows(self, dense: ExactVectorIndex) -> list[int]:
        if not dense.missing:
            return []
        rows = dense.rows_without_vector()
        waiting: list[int] = rows[self.lexical.alive[rows]].tolist()
        return waiting

    def _registered(self, tools: Iterable[Tool]) -> dict[ToolId, int]:
        """Assign the next row to each tool."""
        rows: dict[ToolId, int] = {}
        for tool in tools:
            row = rows[tool.id] = len(self.ids)
            self.ids.append(tool.id)
            self.names.add(compact(tool.name), row)
            self.facets.add(tool)
        return rows

    def compacted(self) -> "Index":
        """Drop the rows of removed tools, so that servers may come and go for ever."""
        kept = np.flatnonzero(self.lexical.alive)
        rows: list[int] = kept.tolist()
        ids = [self.ids[row] for row in rows]
        moved = dict(zip(rows, range(len(rows)), strict=True))
        names: Grouped = Grouped()
        for name, old in self.names.items():
            for row in old:
                if row in moved:
                    names.add(name, moved[row])
        return replace(
            self,
            ids=ids,
            rows={tool_id: row for row, tool_id in enumerate(ids)},
            facets=self.facets.compacted(kept),
            lexical=self.lexical.compacted(),
            dense=self.dense.compacted(kept) if self.dense is not None else None,
            names=names,
            _masks={},
        )

    def _reworded(
        self, newer: Catalog, touched: Collection[ToolId]
    ) -> tuple[Mapping[str, frozenset[str]], Mapping[str, Counter[str]], frozenset[ToolId]]:
        """Find tools whose words changed because their server's did: its description, or the sentences it repeats."""
        older, stale = self.catalog, set[ToolId]()
        gone = [older.tools[i] for i in touched if i in older.hashes]
        come = [newer.tools[i] for i in touched if i in newer.hashes]
        redescribed = {
            name
            for name, server in newer.servers.items()
            if (known := older.servers.get(name)) is not server and known != server  # nearly all are the same object
        }
        shared = {name: found for name, found in self.shared.items() if name in newer.servers}
        counts = {name: found for name, found in self.counts.items() if name in newer.servers}
        for name in ({tool.server for tool in (*gone, *come)} | redescribed) & newer.servers.keys():
            size = len(newer.members.get(name, ()))
            if size < COUNTED_TOOLS:
                counts.pop(name, None)
                repeats = shared_sentences(newer.of_server(name))
            elif (known_counts := counts.get(name)) is None:
                counts[name] = sentence_counts(newer.of_server(name))
                repeats = repeated(counts[name], size)
            else:
                left, joined = (sentence_counts(t for t in part if t.server == name) for part in (gone, come))
                counts[name] = recounted = known_counts.copy()
                recounted.subtract(left)
                recounted.update(joined)
                moved = left.keys() | joined.keys()
                as_before = repeats_needed(size) == repeats_needed(len(older.members[name]))
                looked_at = {s: recounted[s] for s in moved} if as_before else recounted
                repeats = repeated(looked_at, size) | (shared[name] - looked_at.keys())
            if repeats != shared.get(name) or name in redescribed:
                stale |= set(newer.members.get(name, ())) & older.hashes.keys()
            shared[name] = repeats
        return shared, counts, frozenset(stale)


def as_it_is(index: Index) -> Index:
    """Return the index itself, whose exact search looks at every vector."""
    return index


def _moved(rows: Mapping[ToolId, int], fresh: dict[ToolId, int], removed: frozenset[ToolId]) -> Mapping[ToolId, int]:
    """Return the rows after an update; those of a mapped index are not copied."""
    if not isinstance(rows, dict):
        return Layered.over(rows, fresh, removed)
    moved = {**rows, **fresh}
    for tool_id in removed:
        moved.pop(tool_id, None)
    return moved


def _repeated(catalog: Catalog) -> tuple[dict[str, frozenset[str]], dict[str, Counter[str]]]:
    """Return the sentences that each server repeats, and the counts behind them for large servers."""
    shared, counts = dict[str, frozenset[str]](), dict[str, Counter[str]]()
    for name in catalog.servers:
        size = len(catalog.members.get(name, ()))
        if size < COUNTED_TOOLS:
            shared[name] = shared_sentences(catalog.of_server(name))
        else:
            counts[name] = sentence_counts(catalog.of_server(name))
            shared[name] = repeated(counts[name], size)
    return shared, counts


def _document(tool: Tool, catalog: Catalog, shared: Mapping[str, frozenset[str]]) -> Document:
    return document(tool, catalog.servers[tool.server], shared.get(tool.server, frozenset()))
