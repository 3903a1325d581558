"""Haystack's `SearchableToolset`: BM25 in its in-memory document store."""

from typing import Any

from benchmarks.baselines.documents import description_of, ids_of, schema_of, wire_names
from benchmarks.baselines.protocol import Baseline, Embed, Tools, package


class Haystack:
    """The toolset's own `search_tools`; what it discovered is read back in the order found."""

    name = "haystack"

    def __init__(self, tools: Tools) -> None:
        haystack = package("haystack.tools")
        names = wire_names(tools)
        self._ids = dict(zip(names, ids_of(tools), strict=True))
        self._toolset = haystack.SearchableToolset(
            [
                haystack.Tool(name=name, description=description_of(tool), parameters=schema_of(tool), function=_unused)
                for name, tool in zip(names, tools, strict=True)
            ],
            search_threshold=1,
        )
        self._toolset.warm_up()
        self._search = next(iter(self._toolset))

    def rank(self, query: str, limit: int) -> list[str]:
        self._toolset.clear()
        self._search.invoke(tool_keywords=query, k=limit)
        return [self._ids[name] for name in self._toolset._discovered_tools]


def haystack(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return Haystack(tools)


def _unused(**_arguments: Any) -> None:
    """Stand where a tool's function would: only its text is searched."""
