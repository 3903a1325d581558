"""Which model embeds, and what finds the nearest vectors.

A model is a bundled one, a provider's, one in a folder, or an object of the caller's.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TypeAlias

from shortlist.errors import InvalidInput, ModelError
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.index import Index
from shortlist.index.nearest import (
    FEW_PASSING,
    FEWEST_DIMENSIONS,
    ApproximateVectorIndex,
    CompressedVectors,
    is_available,
)
from shortlist.index.vectors import CAPACITY, ExactVectorIndex, QueryVectors

EmbedderChoice: TypeAlias = Embedder | Mapping[str, Any] | str | None
"""`auto`, `small`, `small:256`, `static`, `none`, a model folder, `provider:model`, an object of your own, or a
mapping: `{"path": FOLDER}` or `{"provider": NAME, "model": …, "base_url": …, "api_key": …, "dimensions": …}`.

Filters that share one `QueryVectors` object share its cache.
"""

TIERS = ("small", "static")
"""The bundled models, the better one first."""
INDEXES = "exact, approximate, or milvus:ADDRESS"
MILVUS_TOKEN = "MILVUS_TOKEN"  # noqa: S105
"""The variable that holds the password of a Milvus server, as `user:password` or as an API key."""
logger = logging.getLogger(__name__)
_KEYS = ("provider", "model", "base_url", "api_key", "path", "dimensions")


def choose_embedder(
    choice: EmbedderChoice, *, dimensions: int | None = None, capacity: int = CAPACITY
) -> tuple[QueryVectors | None, str]:
    """Return the chosen model with a cache for query vectors, and why there is none where that is unexpected."""
    if choice is None or choice == "none":
        return None, ""
    if isinstance(choice, QueryVectors):
        return choice, ""
    if isinstance(choice, str | Mapping):
        found, trouble = _auto(dimensions) if choice == "auto" else (_named(choice, dimensions), "")
        return (QueryVectors(found, capacity) if found is not None else None), trouble
    # Not by isinstance: on Python 3.11 it would read `dimensions`, for which a provider has to be asked.
    if not all(callable(getattr(choice, name, None)) for name in ("embed_documents", "embed_query")):
        raise InvalidInput(f"{choice!r} is not an embedder: it needs model_id, dimensions and the two embed methods.")
    return QueryVectors(choice, capacity), ""


def _auto(dimensions: int | None) -> tuple[Embedder | None, str]:
    """Return the best bundled model that can run here."""
    reason = ""
    for tier in TIERS:
        try:
            return shipped(f"{tier}:{dimensions}" if dimensions and tier == "small" else tier), ""
        except ModelError as error:
            reason = reason or str(error)
    return None, f"Using lexical search only: {reason}"


def _named(choice: str | Mapping[str, Any], dimensions: int | None) -> Embedder | None:
    if isinstance(choice, Mapping):
        return _described(choice, dimensions)
    provider, colon, model = choice.partition(":")
    if not colon or len(provider) == 1 or model.isdigit():  # a drive letter is not a provider, a width is not a model
        return shipped(choice if dimensions is None or colon else f"{choice}:{dimensions}")
    return _described({"provider": provider, "model": model}, dimensions)


def _described(choice: Mapping[str, Any], dimensions: int | None) -> Embedder | None:
    unknown = sorted(choice.keys() - set(_KEYS))
    if unknown or ("path" in choice) == ("provider" in choice):
        problem = f"has an unknown key {unknown[0]!r}" if unknown else "needs either a path or a provider"
        raise InvalidInput(f"The embedder {problem}. It takes {', '.join(_KEYS)}.")
    width = choice.get("dimensions") or dimensions
    if "path" in choice:
        return shipped(f"{choice['path']}:{width}" if width else str(choice["path"]))
    from shortlist.index.providers import Account, embedder_of  # noqa: PLC0415

    account = Account(base_url=choice.get("base_url"), api_key=choice.get("api_key"))
    return embedder_of(str(choice["provider"]), choice.get("model"), dimensions=width, account=account)


def static_model() -> Embedder | None:
    """Return the model that needs no runtime, if its weights are there."""
    try:
        return shipped("static")
    except ModelError:
        return None


def choose_index(choice: str) -> Callable[[Index], Index]:
    """Return what prepares an index whose vectors are complete for searching them."""
    kind, colon, address = choice.partition(":")
    if choice == "exact":
        return _exactly
    if choice == "approximate":
        if not is_available():
            raise InvalidInput("search.index 'approximate' needs the extra 'ann': pip install 'shortlist-mcp[ann]'.")
        return _compressed
    if kind == "milvus" and colon and address:
        if find_spec("pymilvus") is None:
            raise InvalidInput(
                f"search.index {choice!r} needs the extra 'milvus': pip install 'shortlist-mcp[milvus]'."
            )
        return lambda index: _by_milvus(index, address)
    raise InvalidInput(f"No index {choice!r}: use {INDEXES}.")


def _exactly(index: Index) -> Index:
    """Return the index with exact search, also where it was saved by a process that chose approximate search."""
    dense = index.dense
    return replace(index, dense=dense.exact()) if isinstance(dense, ApproximateVectorIndex) else index


def _compressed(index: Index) -> Index:
    dense = index.dense
    if dense is None or len(index) <= FEW_PASSING or dense.dimensions < FEWEST_DIMENSIONS:
        return index
    if _has_finder(dense, CompressedVectors):
        return index
    return replace(index, dense=ApproximateVectorIndex.over(dense))


def _has_finder(dense: ExactVectorIndex, kind: type) -> bool:
    return isinstance(dense, ApproximateVectorIndex) and isinstance(dense.finder, kind) and not dense.is_outdated


def _by_milvus(index: Index, address: str) -> Index:
    from shortlist.index.milvus import Collection, by_milvus  # noqa: PLC0415

    dense = index.dense
    if dense is None or _has_finder(dense, Collection):
        return index
    whole = index if index.size == len(index) else index.compacted()
    try:
        return replace(whole, dense=by_milvus(whole, Collection.open(address, whole, os.environ.get(MILVUS_TOKEN, ""))))
    except ModelError as error:
        logger.warning("Searching every vector in this process: %s", error)
        return index
