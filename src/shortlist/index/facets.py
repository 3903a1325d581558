"""What filters ask about, by row."""

from array import array
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.models import Filters, Tool, ToolId

Mask: TypeAlias = NDArray[np.bool_]

_CLAIMS = {None: 0, False: 1, True: 2}


class Facets:
    """Server, category, tags and annotations of every row, ready to be turned into a mask."""

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
        self.servers.append(tool.server)
        self.categories.append(tool.category)
        claimed = tool.annotations
        self.claims.append(len(_CLAIMS) * _CLAIMS[claimed.read_only] + _CLAIMS[claimed.destructive])

    def compact(self, rows: list[int]) -> None:
        """Keep only these rows; they move up."""
        self.tags = {place: self.tags[row] for place, row in enumerate(rows) if row in self.tags}
        self.servers = [self.servers[row] for row in rows]
        self.categories = [self.categories[row] for row in rows]
        self.claims = [self.claims[row] for row in rows]
        self._rows, self._filled = {}, 0

    def mask(self, filters: Filters, rows: dict[ToolId, int]) -> Mask | None:
        """Give the rows that pass, or None where all do."""
        passing: Mask | None = None
        for part in self._parts(filters, rows):
            passing = part if passing is None else passing & part
        return passing

    def _parts(self, filters: Filters, rows: dict[ToolId, int]) -> Iterator[Mask]:
        if filters.servers is not None:
            yield self._having("server", filters.servers)
        if filters.categories is not None:
            yield self._having("category", filters.categories)
        if filters.tags is not None:
            yield self._having("tag", filters.tags)
        if filters.read_only is not None:
            yield self._having("read_only", (_CLAIMS[filters.read_only],))
        if filters.destructive is not None:
            yield self._having("destructive", (_CLAIMS[filters.destructive],))
        if filters.among is not None:
            yield self._of(rows[i] for i in filters.among if i in rows)
        if filters.exclude:
            yield ~self._of(rows[i] for i in filters.exclude if i in rows)

    def _having(self, facet: str, values: Collection[object]) -> Mask:
        self._fill()
        return self._of(chain.from_iterable(self._rows.get((facet, value), ()) for value in values))

    def _of(self, rows: Iterable[int]) -> Mask:
        mask = np.zeros(len(self.servers), np.bool_)
        mask[np.fromiter(rows, np.int64)] = True
        return mask

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
