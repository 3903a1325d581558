"""How a filter is made: what is fixed once it is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from shortlist.index.index import VectorCache
from shortlist.library.vectors import CAPACITY
from shortlist.search.rerank import RERANKED, Reranker


class SetupChoices(TypedDict, total=False):
    """The settings of a filter that are fixed once it is made."""

    include_server_description: bool
    expansions: Sequence[Path]
    reranker: Reranker | None
    rerank_top: int
    vector_cache: VectorCache | Literal["default"] | None
    cache_capacity: int
    save_index: bool
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a filter is made."""

    include_server_description: bool = True
    """Whether a server's own words help to find each of its tools."""
    expansions: Sequence[Path] = ()
    """Files of what your own words mean, beside the shipped one."""
    reranker: Reranker | None = None
    rerank_top: int = RERANKED
    vector_cache: VectorCache | Literal["default"] | None = "default"
    """Where documents' vectors are kept between starts; None keeps none."""
    cache_capacity: int = CAPACITY
    save_index: bool = True
    wait: bool = True
    """False answers at once by words, and by vectors as soon as they are made."""
