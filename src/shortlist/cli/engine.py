"""The searcher that serves, set up from the `search` section of the settings; importing it takes half of a start."""

import logging
from dataclasses import dataclass

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import SearchSettings, Settings
from shortlist.errors import InvalidInput
from shortlist.index.choosing import choose_embedder, choose_index, static_model
from shortlist.index.shipped import open_vectors
from shortlist.index.vectors import QueryVectors
from shortlist.observability.logs import NOTICES
from shortlist.search.engine import Engine
from shortlist.search.exemplars import Memory
from shortlist.search.families import ANY_ORDER, ServerOrder
from shortlist.search.opening import open_searcher
from shortlist.search.pipeline import Together
from shortlist.search.presets import PIPELINES, nothing_together
from shortlist.search.rerank import choose_reranker
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.local import local_vectors
from shortlist.storage.port import VectorStore
from shortlist.text.queries import Expansions

MOST_EMBEDDED = 500
"""Prompts and resources that the chosen model embeds while a first search for them waits: a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a searcher uses in addition to the catalog."""

    expansions: Expansions | None = None
    memory: Memory | None = None
    together: Together = nothing_together
    order: ServerOrder = ANY_ORDER
    vectors: VectorStore | None = None
    """None: those of this machine."""


NOTHING_KNOWN = Known()


def open_model(settings: SearchSettings) -> QueryVectors | None:
    """Return the chosen model, which is loaded with the first text; say why there is none where that is unexpected."""
    embedder, trouble = choose_embedder(settings.embedder, dimensions=settings.dimensions)
    if trouble:
        logging.getLogger(NOTICES).info(trouble)
    if embedder is not None:
        embedder.share()
    return embedder


def make_searcher(
    catalog: Catalog, settings: SearchSettings, embedder: QueryVectors | None, known: Known = NOTHING_KNOWN
) -> Searcher:
    """Make a searcher; a small static model answers until the chosen one has made its vectors."""
    vectors = known.vectors if known.vectors is not None else local_vectors()
    options = SearchOptions(
        cache=open_vectors(vectors) if embedder is not None else None,
        expansions=known.expansions,
        memory=known.memory,
        together=known.together,
        order=known.order,
        reranker=choose_reranker(settings.reranker),
    )
    fallback = static_model() if embedder is not None else None
    return open_searcher(catalog, embedder, settings, options, fallback=fallback)


def search_others(embedder: QueryVectors | None, catalog: Catalog) -> Engine:
    """Make the search over prompts, resources or servers to install; many of them are left to the static model."""
    chosen = embedder if len(catalog) <= MOST_EMBEDDED else static_model()
    cache = open_vectors(local_vectors()) if chosen is not None else None
    searcher = Searcher(catalog, chosen, options=SearchOptions(cache=cache))
    searcher.prepare()
    return Engine.over(searcher)


def server_order(settings: Settings) -> ServerOrder:
    """Return which servers come first, and which are configured to offer the same tools."""
    return ServerOrder(
        {name: number for number, name in enumerate(settings.servers)},
        {name: server.same_as or name for name, server in settings.servers.items()},
    )


def check_search(settings: SearchSettings) -> None:
    """Raise for a model, reranker or pipeline that does not exist, before anything is served."""
    choose_embedder(settings.embedder, dimensions=settings.dimensions)
    choose_reranker(settings.reranker)
    choose_index(settings.index)
    if settings.pipeline not in PIPELINES:
        raise InvalidInput(f"No pipeline {settings.pipeline!r}: there are {', '.join(PIPELINES)}.")


def words_alone(catalog: Catalog, known: Known = NOTHING_KNOWN) -> Searcher:
    """Make a searcher without a model, for commands that look at the servers."""
    return Searcher(catalog, options=SearchOptions(expansions=known.expansions, order=known.order))


def make_memory() -> Memory:
    """Return an empty set of exemplars."""
    return Memory(open_vectors(local_vectors()))
