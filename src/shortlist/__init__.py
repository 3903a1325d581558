"""Find the right tool out of thousands: the public names, loaded when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist.catalog.catalog import Catalog
    from shortlist.catalog.readers import read_catalog
    from shortlist.index.embedders import Embedder, shipped
    from shortlist.library.filter import ToolFilter
    from shortlist.library.options import FilterOptions
    from shortlist.library.results import FilterResult, ScoredTool
    from shortlist.models import Filters, Query, SearchResult, Tool
    from shortlist.search.searcher import Searcher

_HOMES = {
    "Catalog": "catalog.catalog",
    "Embedder": "index.embedders",
    "FilterOptions": "library.options",
    "FilterResult": "library.results",
    "Filters": "models",
    "Query": "models",
    "ScoredTool": "library.results",
    "SearchResult": "models",
    "Searcher": "search.searcher",
    "Tool": "models",
    "ToolFilter": "library.filter",
    "read_catalog": "catalog.readers",
    "shipped": "index.embedders",
}

__all__ = [
    "Catalog",
    "Embedder",
    "FilterOptions",
    "FilterResult",
    "Filters",
    "Query",
    "ScoredTool",
    "SearchResult",
    "Searcher",
    "Tool",
    "ToolFilter",
    "read_catalog",
    "shipped",
]


_GATEWAY = frozenset({"cli", "front", "gateway", "harness", "observability", "telemetry", "upstream", "web"})
"""Packages of the distribution shortlist-mcp, which the library does without."""


def __getattr__(name: str) -> Any:
    """Load a public name from the module that has it."""
    from importlib.util import find_spec  # noqa: PLC0415 - a light command does without it

    if name in _GATEWAY and find_spec(f"shortlist.{name}") is None:
        raise ImportError(f"shortlist.{name} is part of the gateway: pip install shortlist-mcp", name=name)
    if name not in _HOMES:
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}")
    return getattr(import_module(f"shortlist.{_HOMES[name]}"), name)
