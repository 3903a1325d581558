"""Local servers that speak the providers' wire formats, their errors included, on 127.0.0.1."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import HashingEmbedder

KEY = "sk-right"
_MODEL = HashingEmbedder()


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came in."""

    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]


@dataclass(slots=True)
class Provider:
    """What a test says to the server, and what the server saw; `replies` come before anything is done."""

    url: str = ""
    replies: list[Response | None] = field(default_factory=list)
    """None hangs until the client gives up."""
    seen: list[Seen] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event | None = None
    """While it is there and not set, requests wait."""
    under_way: int = 0
    most_under_way: int = 0
    said: str = "[]"
    """What a chat model answers."""

    def texts(self) -> list[str]:
        return [text for seen in self.seen for text in _texts_of(seen.body)]


def vector(text: str, dimensions: int | None = None) -> list[float]:
    values: list[float] = _MODEL.embed_query(text).tolist()
    return [3.0 * value + 0.1 for value in values[: dimensions or len(values)]]  # not of unit length


def _texts_of(body: dict[str, Any]) -> list[str]:
    if "requests" in body:
        return [part["text"] for request in body["requests"] for part in request["content"]["parts"]]
    return list(body.get("input") or body.get("texts") or [])


def _bearer(seen: Seen) -> bool:
    return seen.headers.get("authorization") == f"Bearer {KEY}"


def _openai(seen: Seen) -> Any:
    texts, dimensions = seen.body["input"], seen.body.get("dimensions")
    assert seen.body["encoding_format"] == "float"
    data = [
        {"object": "embedding", "index": position, "embedding": vector(text, dimensions)}
        for position, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return {"object": "list", "data": data[::-1], "model": seen.body["model"], "usage": usage}


def _voyage(seen: Seen) -> Any:
    assert seen.body["input_type"] in ("query", "document")
    dimensions = seen.body.get("output_dimension")
    data = [
        {"object": "embedding", "embedding": vector(text, dimensions), "index": position}
        for position, text in enumerate(seen.body["input"])
    ]
    return {"object": "list", "data": data, "model": seen.body["model"], "usage": {"total_tokens": 1}}


def _cohere(seen: Seen) -> Any:
    assert seen.body["input_type"] in ("search_query", "search_document")
    assert seen.body["embedding_types"] == ["float"]
    texts, dimensions = seen.body["texts"], seen.body.get("output_dimension")
    embeddings = {"float": [vector(text, dimensions) for text in texts]}
    return {"id": "1", "embeddings": embeddings, "texts": texts, "meta": {"api_version": {"version": "2"}}}


def _gemini(seen: Seen) -> Any:
    answers = []
    for request in seen.body["requests"]:
        assert request["model"].startswith("models/")
        assert request["taskType"] in ("RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT")
        text = request["content"]["parts"][0]["text"]
        answers.append({"values": vector(text, request.get("outputDimensionality"))})
    return {"embeddings": answers}


def _relevance(seen: Seen) -> list[dict[str, Any]]:
    """Score by words in common, best first, as the providers answer."""
    asked = set(seen.body["query"].lower().split())
    given = [
        {"index": position, "relevance_score": len(asked & set(text.lower().replace(".", "").split())) / len(asked)}
        for position, text in enumerate(seen.body["documents"])
    ]
    return sorted(given, key=lambda item: -item["relevance_score"])


def _cohere_rerank(seen: Seen) -> Any:
    return {"id": "1", "results": _relevance(seen), "meta": {"api_version": {"version": "2"}}}


def _voyage_rerank(seen: Seen) -> Any:
    return {"object": "list", "data": _relevance(seen), "model": seen.body["model"], "usage": {"total_tokens": 1}}


def _jina_rerank(seen: Seen) -> Any:
    return {"model": seen.body["model"], "usage": {"total_tokens": 1}, "results": _relevance(seen)}


def _azure_error(message: str) -> Any:
    return {"error": {"code": "401", "message": message}}


def _openai_error(message: str) -> Any:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}


def _gemini_error(message: str) -> Any:
    return {"error": {"code": 401, "message": message, "status": "UNAUTHENTICATED"}}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One provider's path, how it knows callers, what it answers, and how it words an error."""

    path: str
    answer: Callable[[Seen], Any]
    knows: Callable[[Seen], bool] = _bearer
    error: Callable[[str], Any] = lambda message: {"message": message}
    base: str = ""
    """What a client's base URL ends with."""


def _azure_knows(seen: Seen) -> bool:
    return seen.headers.get("api-key") == KEY and "api-version" in seen.query


def _google_knows(seen: Seen) -> bool:
    return seen.headers.get("x-goog-api-key") == KEY


EMBEDDERS: Mapping[str, Dialect] = {
    "openai": Dialect("/v1/embeddings", _openai, error=_openai_error, base="/v1"),
    "azure": Dialect("/openai/deployments/{model}/embeddings", _openai, _azure_knows, _azure_error),
    "voyage": Dialect("/v1/embeddings", _voyage, error=lambda message: {"detail": message}, base="/v1"),
    "cohere": Dialect("/v2/embed", _cohere),
    "gemini": Dialect("/v1beta/models/{model}:batchEmbedContents", _gemini, _google_knows, _gemini_error, "/v1beta"),
}
RERANKERS: Mapping[str, Dialect] = {
    "cohere": Dialect("/v2/rerank", _cohere_rerank),
    "voyage": Dialect("/v1/rerank", _voyage_rerank, error=lambda message: {"detail": message}, base="/v1"),
    "jina": Dialect("/v1/rerank", _jina_rerank, error=lambda message: {"detail": message}, base="/v1"),
}


def chat_dialects(provider: Provider) -> Mapping[str, Dialect]:
    """Return chat models that say what the test wants."""

    def openai(seen: Seen) -> Any:
        assert [message["role"] for message in seen.body["messages"]] == ["system", "user"]
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": provider.said}}]}

    def anthropic(seen: Seen) -> Any:
        assert {"max_tokens", "system"} <= seen.body.keys()
        assert "anthropic-version" in seen.headers
        return {"role": "assistant", "content": [{"type": "text", "text": provider.said}], "stop_reason": "end_turn"}

    def gemini(seen: Seen) -> Any:
        assert seen.body["contents"][0]["role"] == "user"
        assert seen.body["systemInstruction"]["parts"]
        return {"candidates": [{"content": {"role": "model", "parts": [{"text": provider.said}]}}]}

    path = "/v1beta/models/{model}:generateContent"
    return {
        "gemini": Dialect(path, gemini, _google_knows, _gemini_error, "/v1beta"),
        "openai": Dialect("/v1/chat/completions", openai, error=_openai_error, base="/v1"),
        "anthropic": Dialect("/v1/messages", anthropic, lambda seen: seen.headers.get("x-api-key") == KEY, base="/v1"),
    }


@contextmanager
def serving(provider: Provider, dialect: Dialect) -> Iterator[Provider]:
    """Run a provider on a free port until the block ends."""
    app = Starlette(routes=[Route(dialect.path, _endpoint(provider, dialect), methods=["POST"])])
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    provider.url = f"http://127.0.0.1:{listening.getsockname()[1]}{dialect.base}"
    try:
        yield provider
    finally:
        provider.released.set()
        server.should_exit = True
        thread.join()
        listening.close()


def _endpoint(provider: Provider, dialect: Dialect) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        body = json.loads(await request.body())
        seen = Seen(request.url.path, dict(request.headers), dict(request.query_params), body)
        provider.seen.append(seen)
        provider.under_way += 1
        provider.most_under_way = max(provider.most_under_way, provider.under_way)
        try:
            return await _answered(provider, dialect, seen)
        finally:
            provider.under_way -= 1

    return answer


async def _answered(provider: Provider, dialect: Dialect, seen: Seen) -> Response:
    if provider.replies:
        reply = provider.replies.pop(0)
        if reply is not None:
            return reply
        await anyio.to_thread.run_sync(provider.released.wait, abandon_on_cancel=True)
    if provider.gate is not None:
        await anyio.to_thread.run_sync(provider.gate.wait, abandon_on_cancel=True)
    if not dialect.knows(seen):
        return JSONResponse(dialect.error("the key is not known"), 401)
    return JSONResponse(dialect.answer(seen))
