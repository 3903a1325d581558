"""The index of a catalog: rows shared by the lexical and the dense arm, brought up to date by difference."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shortlist.catalog.catalog import Catalog
from shortlist.index.dense import DenseIndex
from shortlist.index.embedders import Embedder, Progress, Vectors
from shortlist.index.facets import Facets, Mask
from shortlist.index.lexical import FieldWeight, LexicalIndex
from shortlist.models import Filters, Tool, ToolId
from shortlist.text.documents import FIELDS, Document, Field, document, embedding_text, shared_sentences
from shortlist.text.tokens import compact

MAX_REMEMBERED_MASKS = 64
"""Callers ask with the same few filters over and over."""
NO_WORDS: Document = dict.fromkeys(FIELDS, ())


MIN_GONE = 1_000
"""So many rows of tools that left, and more than are in use, are cleared away at an update."""
KEPT_AT_ONCE = 1_024
"""How many vectors are made before they are kept: what an interruption loses at most."""


class VectorCache(Protocol):
    """Keeps vectors by what was embedded, so that nothing is embedded twice."""

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]: ...

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None: ...


@dataclass(frozen=True, slots=True)
class Change:
    """What an update did."""

    added: int
    changed: int
    removed: int


class Index:
    """Everything search needs to know of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ids: list[ToolId] = []
        self.rows: dict[ToolId, int] = {}
        self.facets = Facets()
        self.lexical = LexicalIndex()
        self.dense: DenseIndex | None = None
        self.names: dict[str, list[int]] = {}
        self.shared: dict[str, frozenset[str]] = {}
        self._masks: dict[Filters, Mask | None] = {}
        self._lent = False
        """Somebody embeds the texts of some rows: until the vectors come, no row may move."""

    @classmethod
    def build(cls, catalog: Catalog) -> "Index":
        """Index the words of a catalog; vectors come with `embed`."""
        index = cls(catalog)
        index.shared = {name: shared_sentences(catalog.of_server(name)) for name in catalog.servers}
        tools = list(catalog.tools.values())
        index.lexical = LexicalIndex.build(map(index._document, tools))
        index._register(tools, range(len(tools)))
        return index

    def __len__(self) -> int:
        return len(self.rows)

    def tool(self, row: int) -> Tool:
        return self.catalog.tools[self.ids[row]]

    def mask(self, filters: Filters) -> Mask | None:
        """Give the rows that may answer; None where all may."""
        masks = self._masks
        if filters in masks:
            return masks[filters]
        if len(masks) >= MAX_REMEMBERED_MASKS:
            masks = self._masks = {}  # never cleared: another thread may be reading
        masks[filters] = found = self._mask(filters)
        return found

    def _mask(self, filters: Filters) -> Mask | None:
        passing = self.facets.mask(filters, self.rows)
        if passing is None:
            return None if len(self.rows) == len(self.ids) else self.lexical.alive
        return passing & self.lexical.alive

    def update(self, newer: Catalog) -> Change:
        """Become the index of another catalog by touching only what differs."""
        older, diff = self.catalog, self.catalog.diff(newer)
        self.catalog = newer
        stale = set(diff.changed) | self._reworded(older, newer, diff.added | diff.changed | diff.removed)
        self._remove(diff.removed | stale)
        added = [newer.tools[i] for i in sorted(diff.added | stale)]
        rows = self.lexical.add([self._document(tool) for tool in added])
        self._register(added, rows)
        if self.dense is not None:
            self.dense.grow(len(self.ids))
        if not self._lent and len(self.ids) - len(self.rows) > max(MIN_GONE, len(self.rows)):
            self._compact()
        self._masks = {}
        return Change(len(diff.added), len(diff.changed), len(diff.removed))

    @property
    def waiting(self) -> int:
        """How many tools have no vector yet."""
        return len(self._waiting_rows(self.dense)) if self.dense is not None else len(self.rows)

    def reindexed(self, weights: Mapping[Field, FieldWeight]) -> LexicalIndex:
        """Index the same rows with other field weights, for comparison."""
        rows, alive = range(len(self.ids)), self.lexical.alive
        built = LexicalIndex.build(
            (self._document(self.tool(row)) if alive[row] else NO_WORDS for row in rows), weights
        )
        built.remove(row for row in rows if not alive[row])
        return built

    def embed(
        self,
        embedder: Embedder,
        *,
        cache: VectorCache | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Give a vector to every row that has none; another model's vectors are thrown away."""
        texts = self.texts_without_vector(embedder)
        self.put_vectors(embedder, texts, embed_cached(embedder, list(texts.values()), cache, progress))

    def texts_without_vector(self, embedder: Embedder) -> dict[int, str]:
        """Give the rows that this model has yet to embed, with what it should read."""
        texts = {row: embedding_text(self.tool(row)) for row in self._waiting_rows(self._dense_of(embedder))}
        self._lent = bool(texts)
        return texts

    def put_vectors(self, embedder: Embedder, rows: Iterable[int], vectors: Vectors) -> None:
        """Take up vectors; those of a new model replace the old one's."""
        dense = self._dense_of(embedder)
        if len(vectors):
            dense.put(np.array(list(rows)), vectors)
        self.dense = dense
        self._lent = False

    def _dense_of(self, embedder: Embedder) -> DenseIndex:
        if self.dense is not None and self.dense.model_id == embedder.model_id:
            return self.dense
        dense = DenseIndex(embedder.dimensions, embedder.model_id)
        dense.grow(len(self.ids))
        return dense

    def _waiting_rows(self, dense: DenseIndex) -> list[int]:
        return [row for row in dense.rows_without_vector() if self.lexical.alive[row]] if dense.missing else []

    def _document(self, tool: Tool) -> Document:
        shared = self.shared.get(tool.server, frozenset())
        return document(tool, self.catalog.servers[tool.server], shared)

    def _register(self, tools: Iterable[Tool], rows: Iterable[int]) -> None:
        for tool, row in zip(tools, rows, strict=True):
            self.ids.append(tool.id)
            self.rows[tool.id] = row
            self.names.setdefault(compact(tool.name), []).append(row)
            self.facets.add(tool)

    def _remove(self, ids: Iterable[ToolId]) -> None:
        gone = [self.rows.pop(i) for i in ids if i in self.rows]
        self.lexical.remove(gone)

    def _compact(self) -> None:
        """Give the rows of what left to what is there, so that servers may come and go for ever."""
        kept = np.flatnonzero(self.lexical.alive)
        rows: list[int] = kept.tolist()
        self.lexical.compact()
        self.facets.compact(rows)
        if self.dense is not None:
            self.dense.compact(kept)
        self.ids[:] = [self.ids[row] for row in rows]  # in place: rankings break their ties by this list
        self.rows = {tool_id: row for row, tool_id in enumerate(self.ids)}
        moved = dict(zip(rows, range(len(rows)), strict=True))
        found = {name: [moved[row] for row in old if row in moved] for name, old in self.names.items()}
        self.names = {name: rows for name, rows in found.items() if rows}

    def _reworded(self, older: Catalog, newer: Catalog, touched: Iterable[ToolId]) -> set[ToolId]:
        """Find tools whose words changed because their server's did: its description, or what it repeats."""
        stale: set[ToolId] = set()
        servers = {at.tools[i].server for i in touched for at in (older, newer) if i in at.hashes}
        redescribed = {
            name
            for name, server in newer.servers.items()
            if (known := older.servers.get(name)) is not server and known != server  # nearly all are the same object
        }
        for name in (servers | redescribed) & newer.servers.keys():
            shared = shared_sentences(newer.of_server(name))
            if shared != self.shared.get(name) or name in redescribed:
                stale |= set(newer.members.get(name, ())) & older.hashes.keys()
            self.shared[name] = shared
        return stale


def _from(start: int, total: int, progress: Progress | None) -> Progress | None:
    """Tell of a part as what it is of the whole."""
    return (lambda done, _: progress(start + done, total)) if progress else None


def embed_cached(embedder: Embedder, texts: list[str], cache: VectorCache | None, progress: Progress | None) -> Vectors:
    """Embed each distinct text once, and not at all if the cache has it; what is done is kept as it is done."""
    distinct = list(dict.fromkeys(texts))
    known = cache.get(embedder.model_id, distinct) if cache is not None else {}
    missing = sorted((text for text in distinct if text not in known), key=len)
    for start in range(0, len(missing), KEPT_AT_ONCE):
        part = missing[start : start + KEPT_AT_ONCE]
        fresh = dict(zip(part, embedder.embed_documents(part, _from(start, len(missing), progress)), strict=True))
        if cache is not None:
            cache.put(embedder.model_id, fresh)
        known.update(fresh)
        if progress:
            progress(start + len(part), len(missing))
    return np.stack([known[text] for text in texts]) if texts else np.zeros((0, embedder.dimensions), np.float32)
