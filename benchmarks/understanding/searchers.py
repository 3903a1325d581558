"""A searcher over a set's catalog, with vectors that are kept from run to run."""

from collections.abc import Sequence
from pathlib import Path

from shortlist.evals.datasets import read_catalogs
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import shipped
from shortlist.paths import cache_folder
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.sqlite_vectors import SqliteVectors


def searcher_over(embedding: str, catalogs: Sequence[Path]) -> Searcher:
    cache = StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))
    searcher = Searcher(read_catalogs(catalogs).catalog, shipped(embedding), options=SearchOptions(cache=cache))
    searcher.prepare()
    return searcher
