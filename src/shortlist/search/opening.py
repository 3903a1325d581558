"""One way to set a searcher up, for the gateway, the commands and the library: the words of the `search` section."""

from dataclasses import replace
from typing import Protocol

from shortlist.catalog.catalog import Catalog
from shortlist.index.bucket import open_saved
from shortlist.index.choosing import choose_index
from shortlist.index.embedders import Embedder
from shortlist.index.saved import SavedCopies
from shortlist.search.families import ANY_ORDER
from shortlist.search.searcher import Searcher, SearchOptions


class SearchChoices(Protocol):
    """What the `search` section of the settings and `ToolFilter` both say."""

    @property
    def pipeline(self) -> str: ...

    @property
    def index(self) -> str:
        """How the nearest vectors are found: exact, approximate, or milvus:ADDRESS."""
        ...

    @property
    def saved_index(self) -> bool | str:
        """Whether the index is saved, or the folder or bucket for it."""
        ...


def open_searcher(
    catalog: Catalog,
    embedder: Embedder | None,
    choices: SearchChoices,
    options: SearchOptions,
    *,
    fallback: Embedder | None = None,
) -> Searcher:
    """Open the saved index of a catalog, or build it, and make the searcher that these choices describe."""
    chosen = replace(options, pipeline=choices.pipeline, arrange=choose_index(choices.index))
    if not choices.saved_index:
        return Searcher(catalog, embedder, fallback=fallback, options=chosen)
    saved = open_saved(choices.saved_index, embedder.model_id if embedder is not None else None)
    copies = SavedCopies(saved) if options.order is not ANY_ORDER else None
    kept = replace(chosen, keep=saved.keep, copies=copies)
    return Searcher(saved.open(catalog), embedder, fallback=fallback, options=kept)
