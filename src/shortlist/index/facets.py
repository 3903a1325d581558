"""The filterable attributes of each row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.index.columns import Coded, Grouped
from shortlist.index.ports import Mask, Rows
from shortlist.models import Filters, Tool, ToolId
from shortlist.text.deprecation import successor_of

_CLAIMS = {None: 0, False: 1, True: 2}
_COLUMNS = ("categories", "claims", "deprecated", "servers")
LOOKUP_COST = 10
"""Looking a tool up in a mapped file takes as long as passing over this many of them."""


class Facets:
    """Server, category, tags and annotations of every row, and what it says of its deprecation.

    Rows are only ever added, so all versions of an index share one of these until its rows are compacted; each version
    looks at the rows it has.
    """

    def __init__(self, columns: Mapping[str, Coded] | None = None) -> None:
        known = columns or {name: Coded() for name in _COLUMNS}
        self.categories, self.claims, self.servers = known["categories"], known["claims"], known["servers"]
        self.deprecated = known["deprecated"]
        """The successor that a deprecated tool names, or "" where it names none; None for a tool in use."""
        self.tagged: Grouped = Grouped()
        """The rows of each tag."""

    def add(self, tool: Tool) -> None:
        row = len(self.servers)
        for tag in tool.tags:
            self.tagged.add(tag, row)
        self.categories.append(tool.category)
        claimed = tool.annotations
        self.claims.append(len(_CLAIMS) * _CLAIMS[claimed.read_only] + _CLAIMS[claimed.destructive])
        self.deprecated.append(successor_of(tool))
        self.servers.append(tool.server)  # last: it counts the rows that are complete

    def compacted(self, rows: Rows) -> "Facets":
        """Return the facets of these rows alone; they move up."""
        kept = Facets({name: getattr(self, name).only(rows) for name in _COLUMNS})
        moved = np.full(len(self.servers), -1)
        moved[rows] = np.arange(len(rows))
        for tag, old in self.tagged.items():
            for row in moved[old].tolist():
                if row >= 0:
                    kept.tagged.add(tag, row)
        return kept

    def mask(self, filters: Filters, ids: Sequence[ToolId], rows: Mapping[ToolId, int], size: int) -> Mask | None:
        """Return which of the first `size` rows pass, or None where all do."""
        passing: Mask | None = None
        for part in self._parts(filters, ids, rows, size):
            passing = part if passing is None else passing & part
        return passing

    def _parts(self, filters: Filters, ids: Sequence[ToolId], rows: Mapping[ToolId, int], size: int) -> Iterator[Mask]:
        if filters.servers is not None:
            yield self.servers.holding(filters.servers, size)
        if filters.categories is not None:
            yield self.categories.holding(filters.categories, size)
        if filters.tags is not None:
            yield _mask_of(chain.from_iterable(map(self.tagged.get, filters.tags)), size)
        for place, claim in enumerate((filters.read_only, filters.destructive)):
            if claim is not None:
                yield self.claims.holding([c for c in range(9) if divmod(c, 3)[place] == _CLAIMS[claim]], size)
        if filters.among is not None:
            yield _rows_of(filters.among, ids, rows, size)
        if filters.exclude:
            yield ~_rows_of(filters.exclude, ids, rows, size)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what to save: the distinct values, and the arrays that name them by number."""
        tagged = dict(sorted(self.tagged.items()))
        columns = {name: getattr(self, name) for name in _COLUMNS}
        values: dict[str, Any] = {name: list(column.values) for name, column in columns.items()}
        arrays = {name: column.codes() for name, column in columns.items()}
        tags = {f"tags_{name}": array for name, array in Grouped.state(tagged).items()}
        return {**values, "tags": list(tagged)}, {**arrays, **tags}

    @classmethod
    def restore(cls, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Facets":
        """Return saved facets; their arrays are used as they are and may lie in mapped files."""
        facets = cls({name: Coded(values[name], arrays[name]) for name in _COLUMNS})
        known = {tag: number for number, tag in enumerate(values["tags"])}
        facets.tagged = Grouped(known, {name: arrays[f"tags_{name}"] for name in ("starts", "rows")})
        return facets


def _rows_of(wanted: frozenset[ToolId], ids: Sequence[ToolId], rows: Mapping[ToolId, int], size: int) -> Mask:
    """Mark the rows of some tools: looked up one by one where they are few, else found by a pass over all ids."""
    if isinstance(rows, dict) or len(wanted) * LOOKUP_COST < size:
        return _mask_of((rows[i] for i in wanted if i in rows), size)
    # A row that its tool has left is marked too: who asks leaves such rows out.
    return np.fromiter((tool_id in wanted for tool_id in islice(ids, size)), np.bool_, size)


def _mask_of(rows: Iterable[int], size: int) -> Mask:
    mask = np.zeros(size, np.bool_)
    found = np.fromiter(rows, np.int64)
    mask[found[found < size]] = True
    return mask
