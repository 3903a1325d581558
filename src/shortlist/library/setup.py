"""The settings of a filter that are fixed when it is created."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from shortlist.index.embedding import VectorCache
from shortlist.index.vectors import CAPACITY
from shortlist.search.rerank import RERANKED, Reranker


class SetupChoices(TypedDict, total=False):
    """The settings of a filter that are fixed when it is created."""

    include_server_description: bool
    expansions: Sequence[Path]
    dimensions: int | None
    pipeline: str
    reranker: Reranker | Mapping[str, Any] | str | None
    rerank_top: int
    vector_cache: VectorCache | Literal["default"] | None
    cache_capacity: int
    index: str
    saved_index: bool | str
    save_index: bool
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a filter is made."""

    include_server_description: bool = True
    """Whether server descriptions are part of the searched text."""
    expansions: Sequence[Path] = ()
    """Files with your own abbreviations and synonyms, in addition to the shipped one."""
    dimensions: int | None = None
    """Keep only the first dimensions of the model's vectors."""
    pipeline: str = "default"
    reranker: Reranker | Mapping[str, Any] | str | None = None
    """`cohere`, `voyage:MODEL`, a mapping with provider, or an object of your own."""
    rerank_top: int = RERANKED
    vector_cache: VectorCache | Literal["default"] | None = "default"
    """Where documents' vectors are kept between starts; None keeps none."""
    cache_capacity: int = CAPACITY
    index: str = "exact"
    """How the nearest vectors are found: exact, approximate, or milvus:ADDRESS."""
    saved_index: bool | str = True
    """Save the index, so that the next start does not build it again: in the user's cache, or in a folder of your own,
    which several processes and machines can share. `save_index` is the older name."""
    save_index: bool = True
    wait: bool = True
    """False: answer at once with lexical search, and with vectors when they are ready."""
