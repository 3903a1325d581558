"""The searcher that serves: imported when the first search or catalog comes, since it takes half of a start."""

from shortlist.catalog.catalog import Catalog
from shortlist.cli.stack import say
from shortlist.errors import ModelError
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.shipped import open_vectors
from shortlist.search.exemplars import Memory
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.local import local_vectors
from shortlist.text.expansions import Expansions

MODELS = ("small", "static")
"""The shipped models, the better one first."""


def make_searcher(
    catalog: Catalog, *, models: bool, expansions: Expansions | None = None, memory: Memory | None = None
) -> Searcher:
    """Make a searcher with the best model that is there; the static one answers until its vectors are made."""
    if not models:
        return Searcher(catalog, options=SearchOptions(expansions=expansions))
    options = SearchOptions(cache=open_vectors(local_vectors()), expansions=expansions, memory=memory)
    return Searcher(catalog, _embedder(), fallback=shipped("static"), options=options)


def make_memory() -> Memory:
    """Make an empty place for what is learned from use."""
    return Memory(open_vectors(local_vectors()))


def _embedder() -> Embedder | None:
    for tier in MODELS:
        try:
            return shipped(tier)
        except ModelError as error:
            reason = error
    say(f"searching by words alone: {reason}")
    return None
