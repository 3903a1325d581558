"""Embedders behind HTTP: OpenAI and compatible servers, Azure, Voyage, Cohere, Gemini."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from shortlist.errors import InvalidInput
from shortlist.index.embedders import Progress, Vectors
from shortlist.remote import PATIENT, PROMPT, Patience, ProviderEndpoint, ProviderUnavailable, Remote, find_key
from shortlist.text.word_vectors import MAX_TEXT_CHARS

Purpose: TypeAlias = Literal["document", "query"]
PROBE = "ping"
MAX_DIMENSIONS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """What one request is about."""

    model: str
    texts: Sequence[str]
    purpose: Purpose
    dimensions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderWire:
    """The request format of one provider."""

    provider: str
    url: str
    model: str
    key_variables: tuple[str, ...]
    batch: int
    """The most texts that it takes in one request."""
    path: Callable[[str], str]
    body: Callable[[EmbeddingRequest], Mapping[str, Any]]
    vectors: Callable[[Any], Sequence[Any]]
    header: Callable[[str], Mapping[str, str]]


def _openai_body(asked: EmbeddingRequest) -> Mapping[str, Any]:
    body: dict[str, Any] = {"model": asked.model, "input": list(asked.texts), "encoding_format": "float"}
    return {**body, "dimensions": asked.dimensions} if asked.dimensions else body


def _voyage_body(asked: EmbeddingRequest) -> Mapping[str, Any]:
    body = {"model": asked.model, "input": list(asked.texts), "input_type": asked.purpose, "truncation": True}
    return {**body, "output_dimension": asked.dimensions} if asked.dimensions else body


def _cohere_body(asked: EmbeddingRequest) -> Mapping[str, Any]:
    body = {
        "model": asked.model,
        "texts": list(asked.texts),
        "input_type": f"search_{asked.purpose}",
        "embedding_types": ["float"],
        "truncate": "END",
    }
    return {**body, "output_dimension": asked.dimensions} if asked.dimensions else body


def _gemini_body(asked: EmbeddingRequest) -> Mapping[str, Any]:
    shared: dict[str, Any] = {"model": f"models/{asked.model}", "taskType": f"RETRIEVAL_{asked.purpose.upper()}"}
    if asked.dimensions:
        shared["outputDimensionality"] = asked.dimensions
    return {"requests": [{**shared, "content": {"parts": [{"text": text}]}} for text in asked.texts]}


def _indexed(answer: Any) -> Sequence[Any]:
    return [item["embedding"] for item in sorted(answer["data"], key=lambda item: item["index"])]


def _bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


WIRES: Mapping[str, ProviderWire] = {
    "openai": ProviderWire(
        provider="openai",
        url="https://api.openai.com/v1",
        model="text-embedding-3-small",
        key_variables=("OPENAI_API_KEY",),
        batch=256,
        path=lambda _: "/embeddings",
        body=_openai_body,
        vectors=_indexed,
        header=_bearer,
    ),
    "azure": ProviderWire(
        provider="azure",
        url="",
        model="text-embedding-3-small",
        key_variables=("AZURE_OPENAI_API_KEY",),
        batch=256,
        path=lambda model: f"/openai/deployments/{model}/embeddings",
        body=_openai_body,
        vectors=_indexed,
        header=lambda key: {"api-key": key},
    ),
    "ollama": ProviderWire(
        provider="ollama",
        url="http://localhost:11434/v1",
        model="nomic-embed-text",
        key_variables=(),
        batch=32,
        path=lambda _: "/embeddings",
        body=_openai_body,
        vectors=_indexed,
        header=_bearer,
    ),
    "voyage": ProviderWire(
        provider="voyage",
        url="https://api.voyageai.com/v1",
        model="voyage-4-lite",
        key_variables=("VOYAGE_API_KEY",),
        batch=128,
        path=lambda _: "/embeddings",
        body=_voyage_body,
        vectors=_indexed,
        header=_bearer,
    ),
    "cohere": ProviderWire(
        provider="cohere",
        url="https://api.cohere.com",
        model="embed-v4.0",
        key_variables=("COHERE_API_KEY", "CO_API_KEY"),
        batch=96,
        path=lambda _: "/v2/embed",
        body=_cohere_body,
        vectors=lambda answer: answer["embeddings"]["float"],
        header=_bearer,
    ),
    "gemini": ProviderWire(
        provider="gemini",
        url="https://generativelanguage.googleapis.com/v1beta",
        model="gemini-embedding-001",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        batch=100,
        path=lambda model: f"/models/{model}:batchEmbedContents",
        body=_gemini_body,
        vectors=lambda answer: [item["values"] for item in answer["embeddings"]],
        header=lambda key: {"x-goog-api-key": key},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much is asked of a provider at once, and how long it may take."""

    concurrency: int = 4
    batch: int | None = None
    """Texts in one request; None is the provider's own most."""
    documents: Patience = PATIENT
    query: Patience = PROMPT
    sleep: Callable[[float], object] | None = field(default=None, repr=False)


class RemoteEmbedder:
    """Vectors from a provider; how many dimensions they have is asked once, unless it is given."""

    def __init__(self, wire: ProviderWire, remote: Remote, model: str, dimensions: int | None, pace: Pace) -> None:
        self._wire, self._remote, self._model = wire, remote, model
        self._given, self._pace = dimensions, pace
        self._found = dimensions
        self._lock = threading.Lock()

    @property
    def model_id(self) -> str:
        """Name the model, its length of vectors and, where it is not the provider's own, the address."""
        address = self._remote.endpoint.url
        own = "" if address == self._wire.url else f"-{hashlib.blake2b(address.encode(), digest_size=4).hexdigest()}"
        name = f"{self._wire.provider}-{self._model}{own}".replace("/", "_")
        return f"{name}@{self._given or 'full'}"

    @property
    def dimensions(self) -> int:
        with self._lock:
            if self._found is None:
                self._ask([PROBE], "query", self._pace.query)
            return self._width()

    def check(self) -> None:
        """Ask for one vector: a wrong key or model is an error before anything depends on it."""
        self._ask([PROBE], "query", self._pace.query)

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Embed in batches, several at once."""
        width, done = self.dimensions, 0
        parts: list[Vectors] = []
        with ThreadPoolExecutor(self._pace.concurrency, thread_name_prefix="shortlist-embed") as pool:
            for part in pool.map(
                lambda batch: self._ask(batch, "document", self._pace.documents), self._batches(texts)
            ):
                parts.append(part)
                done += len(part)
                if progress:
                    progress(done, len(texts))
        return np.concatenate(parts) if parts else np.zeros((0, width), np.float32)

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self._ask([text], "query", self._pace.query)[0]
        return vector

    def close(self) -> None:
        self._remote.close()

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        size = min(self._pace.batch or self._wire.batch, self._wire.batch)
        return (texts[start : start + size] for start in range(0, len(texts), size))

    def _ask(self, texts: Sequence[str], purpose: Purpose, patience: Patience) -> Vectors:
        short = [text[:MAX_TEXT_CHARS] or " " for text in texts]
        asked = EmbeddingRequest(model=self._model, texts=short, purpose=purpose, dimensions=self._given)
        answer = self._remote.post(self._wire.path(self._model), self._wire.body(asked), patience)
        return self._read(answer, len(texts))

    def _read(self, answer: Any, wanted: int) -> Vectors:
        try:
            vectors = np.array(self._wire.vectors(answer), np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(f"its answer holds no vectors ({type(error).__name__})") from None
        if vectors.ndim != 2 or len(vectors) != wanted or not 1 <= vectors.shape[1] <= MAX_DIMENSIONS:
            raise self._nonsense(f"it gave vectors of shape {vectors.shape} for {wanted} texts")
        if self._found is None:
            self._found = int(vectors.shape[1])
        if vectors.shape[1] != self._found:
            raise self._nonsense(f"it gave {vectors.shape[1]} dimensions, not {self._found}")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise self._nonsense("the provider returned NaN or infinity in an embedding")
        unit: Vectors = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        return unit

    def _width(self) -> int:
        if self._found is None:
            raise self._nonsense("it gave no vector")
        return self._found

    def _nonsense(self, reason: str) -> ProviderUnavailable:
        return ProviderUnavailable(self._wire.provider, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The URL and credentials of a provider."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)


NOBODY = Account()
AZURE_VERSION = "2024-10-21"


def embedder_of(
    provider: str,
    model: str | None = None,
    *,
    dimensions: int | None = None,
    account: Account = NOBODY,
    pace: Pace = Pace(),  # noqa: B008
) -> RemoteEmbedder:
    """Make an embedder of a provider by name; its key comes from the environment unless the account has one."""
    if provider not in WIRES:
        raise InvalidInput(f"No provider {provider!r}: there are {', '.join(WIRES)}.")
    if dimensions is not None and not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InvalidInput(f"dimensions is {dimensions}; it goes from 1 to {MAX_DIMENSIONS}.")
    wire = WIRES[provider]
    address = _address(wire, account)
    key = find_key(provider, wire.key_variables, account.api_key, account.base_url)
    endpoint = ProviderEndpoint(
        provider=provider,
        url=address,
        headers={**(wire.header(key) if key else {}), **account.headers},
        query=account.query,
        key_variable=next(iter(wire.key_variables), ""),
    )
    sleeping = {} if pace.sleep is None else {"sleep": pace.sleep}
    remote = Remote(endpoint, concurrency=pace.concurrency, **sleeping)
    return RemoteEmbedder(wire, remote, model or wire.model, dimensions, pace)


def openai_embedder(
    model: str = "text-embedding-3-small",
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    dimensions: int | None = None,
    pace: Pace = Pace(),  # noqa: B008
) -> RemoteEmbedder:
    """Return an embedder for OpenAI or a compatible server: Ollama, vLLM, LM Studio, TEI, a proxy."""
    account = Account(base_url=base_url, api_key=api_key)
    return embedder_of("openai", model, dimensions=dimensions, account=account, pace=pace)


def azure_embedder(
    deployment: str,
    *,
    endpoint: str | None = None,
    api_key: str | None = None,
    api_version: str = AZURE_VERSION,
    dimensions: int | None = None,
    pace: Pace = Pace(),  # noqa: B008
) -> RemoteEmbedder:
    """Make an embedder of an Azure OpenAI deployment; `endpoint` is `https://NAME.openai.azure.com`."""
    account = Account(base_url=endpoint, api_key=api_key, query={"api-version": api_version})
    return embedder_of("azure", deployment, dimensions=dimensions, account=account, pace=pace)


def _address(wire: ProviderWire, account: Account) -> str:
    address = account.base_url or wire.url or os.environ.get("AZURE_OPENAI_ENDPOINT", "")
    if not address.startswith(("http://", "https://")):
        raise InvalidInput(f"{wire.provider} needs an address that begins with https://; found {address!r}.")
    return address.rstrip("/")
