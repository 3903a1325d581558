"""Reranking: a model that reads query and tool together scores the best hits again. Off by default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import numpy as np

from shortlist.errors import InvalidInput, ModelError
from shortlist.models import Hit, Scores, SearchResult, Step
from shortlist.remote import PROMPT, Patience, ProviderEndpoint, ProviderUnavailable, Remote, find_key
from shortlist.text.documents import embedding_text

RERANKED = 20
"""How many of the best hits are reranked; beyond them the right tool is rare, and each one costs time."""
WEIGHT = 2.0
"""What the reranker's best gains over its worst, in the fused scores' log-odds: mixed in, not put in their place.
A cross-encoder alone ranks worse than the fused list."""


@runtime_checkable
class Reranker(Protocol):
    """Scores texts against a query; only their order and distances matter."""

    @property
    def model_id(self) -> str: ...

    def scores(self, query: str, texts: Sequence[str]) -> Scores: ...


def reranked(result: SearchResult, reranker: Reranker, top: int = RERANKED) -> SearchResult:
    """Rerank the best hits of an answer; if the reranker fails, the answer stays as it was, with a note."""
    best, rest = result.hits[:top], result.hits[top:]
    if len(best) < 2:
        return result
    started = perf_counter()
    try:
        given = reranker.scores(result.query.text, [embedding_text(hit.tool) for hit in best])
        hits = _reordered(best, mix(np.array([hit.score for hit in best], np.float32), given))
        notes = result.notes
    except ModelError as error:
        hits, notes = best, (*result.notes, f"Not reranked: {error}")
    step = Step("rerank", (perf_counter() - started) * 1000, len(best))
    return replace(result, hits=(*hits, *rest), steps=(*result.steps, step), notes=notes)


def mix(fused: Scores, given: Scores) -> Scores:
    """Add a reranker's scores, scaled to their full weight, to fused scores.

    Nothing is taken away, so what was not looked at again stays behind.
    """
    low, high = float(given.min()), float(given.max())
    mixed: Scores = fused + np.float32(WEIGHT) * (given - low) / max(high - low, 1e-9)
    return mixed.astype(np.float32)


def _reordered(hits: Sequence[Hit], scores: Scores) -> tuple[Hit, ...]:
    order = np.lexsort((np.arange(len(hits)), -scores))
    return tuple(
        hits[old]._replace(score=float(scores[old]), rank=rank) for rank, old in enumerate(order.tolist(), hits[0].rank)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankWire:
    """The request format of one provider's endpoint; the responses differ in one key only."""

    provider: str
    url: str
    path: str
    model: str
    key_variables: tuple[str, ...]
    results: str
    extra: Mapping[str, Any]

    def body(self, model: str, query: str, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": model, "query": query, "documents": list(texts), **self.extra}


WIRES: Mapping[str, RerankWire] = {
    "cohere": RerankWire(
        provider="cohere",
        url="https://api.cohere.com",
        path="/v2/rerank",
        model="rerank-v3.5",
        key_variables=("COHERE_API_KEY", "CO_API_KEY"),
        results="results",
        extra={},
    ),
    "voyage": RerankWire(
        provider="voyage",
        url="https://api.voyageai.com/v1",
        path="/rerank",
        model="rerank-2.5-lite",
        key_variables=("VOYAGE_API_KEY",),
        results="data",
        extra={"truncation": True},
    ),
    "jina": RerankWire(
        provider="jina",
        url="https://api.jina.ai/v1",
        path="/rerank",
        model="jina-reranker-v2-base-multilingual",
        key_variables=("JINA_API_KEY",),
        results="results",
        extra={"return_documents": False},
    ),
}


class RemoteReranker:
    """A reranker behind an HTTP endpoint of one of the known formats."""

    def __init__(self, wire: RerankWire, remote: Remote, model: str, patience: Patience = PROMPT) -> None:
        self._wire, self._remote, self._model, self._patience = wire, remote, model, patience

    @property
    def model_id(self) -> str:
        return f"{self._wire.provider}:{self._model}"

    def scores(self, query: str, texts: Sequence[str]) -> Scores:
        answer = self._remote.post(self._wire.path, self._wire.body(self._model, query, texts), self._patience)
        try:
            given = {int(item["index"]): float(item["relevance_score"]) for item in answer[self._wire.results]}
            return np.array([given[position] for position in range(len(texts))], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise ProviderUnavailable(
                self._wire.provider, f"its answer has no score for every text ({error})"
            ) from None

    def close(self) -> None:
        self._remote.close()


def reranker_of(
    provider: str,
    model: str | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    sleep: Callable[[float], object] | None = None,
) -> RemoteReranker:
    """Return a reranker: `cohere`, `voyage` or `jina`, or a compatible server."""
    if provider not in WIRES:
        raise InvalidInput(f"No reranker {provider!r}: there are {', '.join(WIRES)}.")
    wire = WIRES[provider]
    key = find_key(provider, wire.key_variables, api_key, base_url)
    endpoint = ProviderEndpoint(
        provider=provider,
        url=base_url or wire.url,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        key_variable=wire.key_variables[0],
    )
    remote = Remote(endpoint) if sleep is None else Remote(endpoint, sleep=sleep)
    return RemoteReranker(wire, remote, model or wire.model)


def choose_reranker(choice: Reranker | Mapping[str, Any] | str | None) -> Reranker | None:
    """Return the reranker of a choice: `cohere`, `voyage:MODEL`, a mapping with provider, or an object of your own."""
    if choice is None or choice == "none":
        return None
    if isinstance(choice, str):
        provider, _, model = choice.partition(":")
        return reranker_of(provider, model or None)
    if isinstance(choice, Mapping):
        unknown = sorted(choice.keys() - {"provider", "model", "base_url", "api_key"})
        if unknown or "provider" not in choice:
            problem = f"has an unknown key {unknown[0]!r}" if unknown else "needs a provider"
            raise InvalidInput(f"The reranker {problem}. It takes provider, model, base_url, api_key.")
        place = {"base_url": choice.get("base_url"), "api_key": choice.get("api_key")}
        return reranker_of(str(choice["provider"]), choice.get("model"), **place)
    if not callable(getattr(choice, "scores", None)):
        raise InvalidInput(f"{choice!r} is not a reranker: it needs model_id and scores(query, texts).")
    return choice
