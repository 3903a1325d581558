"""Which model embeds: a shipped one, a provider's, or one of the caller's own."""

from typing import TypeAlias

from shortlist.errors import InvalidInput, ModelError
from shortlist.index.embedders import Embedder, shipped
from shortlist.library.vectors import QueryVectors

Embedding: TypeAlias = Embedder | str | None
"""`auto`, `small`, `small:256`, `static`, `none`, a model folder, `provider:model`, or an object of your own.

Filters that are given the same `QueryVectors` share what it remembers.
"""

TIERS = ("small", "static")
"""The shipped models, the better one first."""


def query_vectors(embedding: Embedding, capacity: int) -> tuple[QueryVectors | None, str]:
    """Give the model that was asked for, and why there is none where that is a surprise."""
    if embedding is None or embedding == "none":
        return None, ""
    if isinstance(embedding, QueryVectors):
        return embedding, ""
    if isinstance(embedding, str):
        found, trouble = _auto() if embedding == "auto" else (_named(embedding), "")
        return (QueryVectors(found, capacity) if found is not None else None), trouble
    # Not by isinstance: on Python 3.11 it would read `dimensions`, for which a provider has to be asked.
    if not all(callable(getattr(embedding, name, None)) for name in ("embed_documents", "embed_query")):
        raise InvalidInput(f"{embedding!r} is no embedder: it needs model_id, dimensions and the two embed methods.")
    return QueryVectors(embedding, capacity), ""


def _auto() -> tuple[Embedder | None, str]:
    """Take the best shipped model that can run here."""
    reason = ""
    for tier in TIERS:
        try:
            return shipped(tier), ""
        except ModelError as error:
            reason = reason or str(error)
    return None, f"Searching by words alone: {reason}"


def _named(embedding: str) -> Embedder | None:
    provider, colon, model = embedding.partition(":")
    if not colon or len(provider) == 1 or model.isdigit():  # a drive letter is no provider, a width no model
        return shipped(embedding)
    from shortlist.index.providers import embedder_of  # noqa: PLC0415

    return embedder_of(provider, model)


def static_model() -> Embedder | None:
    """Give the model that needs no runtime, where its weights are there."""
    try:
        return shipped("static")
    except ModelError:
        return None
