"""What filters ask about, by row."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.models import Filters, Tool, ToolId

_CLAIMS = {None: 0, False: 1, True: 2}


class Facets:
    """Server, category, tags and annotations of every row, ready to be turned into a mask."""

    def __init__(self) -> None:
        self.servers: list[str] = []
        self.categories: list[str] = []
        self.tags: list[tuple[str, ...]] = []
        self.claims: list[tuple[int, int]] = []

    def add(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            self.servers.append(tool.server)
            self.categories.append(tool.category)
            self.tags.append(tool.tags)
            claimed = tool.annotations
            self.claims.append((_CLAIMS[claimed.read_only], _CLAIMS[claimed.destructive]))

    def mask(self, filters: Filters, rows: dict[ToolId, int]) -> NDArray[np.bool_] | None:
        """Give the rows that pass, or None where all do."""
        passing: NDArray[np.bool_] | None = None
        for part in self._parts(filters, rows):
            passing = part if passing is None else passing & part
        return passing

    def _parts(self, filters: Filters, rows: dict[ToolId, int]) -> Iterable[NDArray[np.bool_]]:
        if filters.servers is not None:
            yield _in(self.servers, filters.servers)
        if filters.categories is not None:
            yield _in(self.categories, filters.categories)
        if filters.tags is not None:
            yield np.array([not filters.tags.isdisjoint(tags) for tags in self.tags], np.bool_)
        if filters.read_only is not None:
            yield np.array([claim[0] == _CLAIMS[filters.read_only] for claim in self.claims], np.bool_)
        if filters.destructive is not None:
            yield np.array([claim[1] == _CLAIMS[filters.destructive] for claim in self.claims], np.bool_)
        if filters.among is not None:
            yield self._rows_of(filters.among, rows)
        if filters.exclude:
            yield ~self._rows_of(filters.exclude, rows)

    def _rows_of(self, ids: Collection[ToolId], rows: dict[ToolId, int]) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.servers), np.bool_)
        mask[[rows[i] for i in ids if i in rows]] = True
        return mask

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
        facets.tags = [tuple(tags) for tags in state["tags"]]
        facets.claims = [(claim[0], claim[1]) for claim in state["claims"]]
        return facets


def _in(values: list[str], wanted: frozenset[str]) -> NDArray[np.bool_]:
    return np.fromiter((value in wanted for value in values), np.bool_, len(values))
