"""The filterable attributes of each row."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from shortlist.index.ports import Mask
from shortlist.models import Filters, Tool, ToolId

_CLAIMS = {None: 0, False: 1, True: 2}


class Facets:
    """Server, category, tags and annotations of every row.

    Rows are only ever added, so all versions of an index share one of these until its rows are compacted; each version
    looks at the rows it has.
    """

    def __init__(self) -> None:
        self.servers: list[str] = []
        self.categories: list[str] = []
        self.tags: dict[int, tuple[str, ...]] = {}
        """Only of the rows that have any."""
        self.claims: list[int] = []
        self._rows: dict[tuple[str, object], array[int]] = {}
        """The rows of each facet's value, filled up when a filter is first asked for."""
        self._filled = 0

    def add(self, tool: Tool) -> None:
        if tool.tags:
            self.tags[len(self.servers)] = tool.tags
        self.categories.append(tool.category)
        claimed = tool.annotations
        self.claims.append(len(_CLAIMS) * _CLAIMS[claimed.read_only] + _CLAIMS[claimed.destructive])
        self.servers.append(tool.server)  # last: it counts the rows that are complete

    def compacted(self, rows: list[int]) -> "Facets":
        """Return the facets of these rows alone; they move up."""
        kept = Facets()
        kept.tags = {place: self.tags[row] for place, row in enumerate(rows) if row in self.tags}
        kept.servers = [self.servers[row] for row in rows]
        kept.categories = [self.categories[row] for row in rows]
        kept.claims = [self.claims[row] for row in rows]
        return kept

    def mask(self, filters: Filters, rows: Mapping[ToolId, int], size: int) -> Mask | None:
        """Return which of the first `size` rows pass, or None where all do."""
        passing: Mask | None = None
        for part in self._parts(filters, rows, size):
            passing = part if passing is None else passing & part
        return passing

    def _parts(self, filters: Filters, rows: Mapping[ToolId, int], size: int) -> Iterator[Mask]:
        if filters.servers is not None:
            yield self._having("server", filters.servers, size)
        if filters.categories is not None:
            yield self._having("category", filters.categories, size)
        if filters.tags is not None:
            yield self._having("tag", filters.tags, size)
        if filters.read_only is not None:
            yield self._having("read_only", (_CLAIMS[filters.read_only],), size)
        if filters.destructive is not None:
            yield self._having("destructive", (_CLAIMS[filters.destructive],), size)
        if filters.among is not None:
            yield _mask_of((rows[i] for i in filters.among if i in rows), size)
        if filters.exclude:
            yield ~_mask_of((rows[i] for i in filters.exclude if i in rows), size)

    def _having(self, facet: str, values: Collection[object], size: int) -> Mask:
        self._fill()
        return _mask_of(chain.from_iterable(self._rows.get((facet, value), ()) for value in values), size)

    def _fill(self) -> None:
        for row in range(self._filled, len(self.servers)):
            for key in self._values(row):
                self._rows.setdefault(key, array("i")).append(row)
        self._filled = len(self.servers)

    def _values(self, row: int) -> Iterator[tuple[str, object]]:
        read_only, destructive = divmod(self.claims[row], len(_CLAIMS))
        yield "server", self.servers[row]
        yield "category", self.categories[row]
        yield from (("tag", tag) for tag in self.tags.get(row, ()))
        yield "read_only", read_only
        yield "destructive", destructive

    def state(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "categories": self.categories,
            "tags": self.tags,
            "claims": self.claims,
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> "Facets":
        facets = cls()
        facets.servers, facets.categories = state["servers"], state["categories"]
        facets.tags = {int(row): tuple(tags) for row, tags in state["tags"].items()}
        facets.claims = state["claims"]
        return facets


def _mask_of(rows: Iterable[int], size: int) -> Mask:
    mask = np.zeros(size, np.bool_)
    found = np.fromiter(rows, np.int64)
    mask[found[found < size]] = True
    return mask
