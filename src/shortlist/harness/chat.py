"""A model behind any endpoint that speaks OpenAI's Chat Completions: messages and tools in, a message or calls out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.catalog.readers import tool_from_mcp
from shortlist.disclosure.budget import estimate_tokens
from shortlist.disclosure.formats import openai_function
from shortlist.disclosure.render import compact_json
from shortlist.models import Json
from shortlist.remote import Patience, ProviderEndpoint, ProviderUnavailable, Remote

PATIENCE = Patience(seconds=120.0, attempts=4, wait_seconds=30.0)
PATH = "/chat/completions"
KEY_VARIABLE = "OPENAI_API_KEY"

_SENT_BACK = frozenset({"role", "content", "tool_calls"})
"""The fields of a message that every endpoint accepts back; some add others, which others refuse."""

ChatMessage = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToolCall:
    """A tool call of the model; `problem` is set if its arguments cannot be parsed."""

    id: str
    name: str
    arguments: Mapping[str, Json]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One turn of the model."""

    message: ChatMessage
    text: str
    calls: tuple[ModelToolCall, ...]
    prompt_tokens: int
    completion_tokens: int


class ChatModel:
    """Asks one model for one turn after another."""

    def __init__(self, remote: Remote, model: str, patience: Patience = PATIENCE) -> None:
        self._remote, self._model, self._patience = remote, model, patience

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Ask for the next turn; raises ProviderRefused or ProviderUnavailable."""
        functions = [openai_function(tool_from_mcp(tool), tool["name"]) for tool in tools]
        body = {"model": self._model, "messages": list(messages), **({"tools": functions} if functions else {})}
        answer = self._remote.post(PATH, body, self._patience)
        try:
            message = {key: value for key, value in answer["choices"][0]["message"].items() if key in _SENT_BACK}
            calls = tuple(_call(each) for each in message.get("tool_calls") or ())
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            provider = self._remote.endpoint.provider
            raise ProviderUnavailable(provider, f"its answer has no message ({type(error).__name__})") from None
        usage = answer.get("usage") or {}
        return Reply(
            message=message,
            text=str(message.get("content") or ""),
            calls=calls,
            prompt_tokens=usage.get("prompt_tokens") or _estimate(body),
            completion_tokens=usage.get("completion_tokens") or _estimate(message),
        )

    def close(self) -> None:
        self._remote.close()


def chat_model(url: str, model: str, key: str | None, patience: Patience = PATIENCE) -> ChatModel:
    """Return a model at an endpoint's base URL; the key is sent in the header only."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    endpoint = ProviderEndpoint(provider="The endpoint", url=url, headers=headers, key_variable=KEY_VARIABLE)
    return ChatModel(Remote(endpoint), model, patience)


def _call(raw: Mapping[str, Any]) -> ModelToolCall:
    function = raw["function"]
    name, written = function["name"], function.get("arguments") or "{}"
    try:
        arguments = json.loads(written)
    except ValueError as error:
        return ModelToolCall(
            id=raw["id"], name=name, arguments={}, problem=f"The arguments are not valid JSON: {error}."
        )
    if not isinstance(arguments, dict):
        return ModelToolCall(id=raw["id"], name=name, arguments={}, problem="The arguments must be a JSON object.")
    return ModelToolCall(id=raw["id"], name=name, arguments=arguments)


def _estimate(value: Any) -> int:
    """Estimate tokens that the endpoint did not report."""
    return estimate_tokens(compact_json(value))
