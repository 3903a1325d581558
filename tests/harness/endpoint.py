"""A local endpoint that speaks OpenAI's Chat Completions strictly, and answers as a scripted agent would."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.providers.wires import Dialect, Provider, Seen, serving

Messages = Sequence[dict[str, Any]]
Script = Callable[[Messages, set[str]], dict[str, Any]]
"""From the conversation and the names of the tools to the assistant's message."""

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def call(name: str, arguments: dict[str, Any] | str, number: int = 1) -> dict[str, Any]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": written}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), "refusal": None}


def saying(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "refusal": None}


@contextmanager
def scripted(script: Script, *replies: Any) -> Iterator[Provider]:
    """Serve a script; `replies` come before it, None of them hangs."""
    provider = Provider(replies=list(replies))

    def answer(seen: Seen) -> dict[str, Any]:
        check(seen.body)
        tools = {tool["function"]["name"] for tool in seen.body.get("tools", [])}
        message = script(seen.body["messages"], tools)
        size = len(json.dumps(seen.body))
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": seen.body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                }
            ],
            "usage": {"prompt_tokens": size // 4, "completion_tokens": 7, "total_tokens": size // 4 + 7},
        }

    dialect = Dialect("/v1/chat/completions", answer, error=refusal, base="/v1")
    with serving(provider, dialect):
        yield provider


def refusal(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}


def check(body: dict[str, Any]) -> None:
    """Hold a request to what OpenAI accepts: every call answered once, in order, before anybody speaks again."""
    messages = body["messages"]
    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    waiting: list[str] = []
    for message in messages:
        assert "refusal" not in message
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
        else:
            assert not waiting
            waiting = [each["id"] for each in message.get("tool_calls") or ()]
    assert not waiting
    for tool in body.get("tools", []):
        assert tool["type"] == "function"
        assert NAME.match(tool["function"]["name"])
        assert tool["function"]["parameters"]["type"] == "object"
