"""The pages of the model providers, through their own SDKs, against local servers of their wire formats."""

from typing import Any

import pytest

from tests.library.snippets import DOCS, run_page
from tests.providers.wires import Dialect, Provider, Seen, serving


def _chat(seen: Seen) -> Any:
    name = seen.body["tools"][0]["function"]["name"]
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def _responses(seen: Seen) -> Any:
    """Search first, then call the first tool found, then be done."""
    assert seen.body["tools"][0]["type"] == "tool_search"
    last = seen.body["input"][-1]
    if last.get("type") == "tool_search_output":
        space = last["tools"][0]
        item = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_2",
            "namespace": space["name"],
            "name": space["tools"][0]["name"],
            "arguments": "{}",
            "status": "completed",
        }
    elif last.get("type") == "function_call_output":
        content = [{"type": "output_text", "text": "Done.", "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    else:
        item = {
            "type": "tool_search_call",
            "id": "tsc_1",
            "call_id": "call_1",
            "execution": "client",
            "status": "completed",
            "arguments": {"query": last["content"]},
        }
    base = {"id": "r", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
    return {**base, "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def _messages(seen: Seen) -> Any:
    """Search first, then use the first tool referred to, then be done."""
    search, *tools = seen.body["tools"]
    assert all(tool["defer_loading"] for tool in tools)
    last = seen.body["messages"][-1]["content"]
    content: dict[str, Any]
    if isinstance(last, str):
        content = {"type": "tool_use", "id": "toolu_1", "name": search["name"], "input": {"query": last}}
    elif last[0]["content"] != "merged":
        referred = last[0]["content"][0]
        assert referred["type"] == "tool_reference"
        assert referred["tool_name"] in {tool["name"] for tool in tools}
        content = {"type": "tool_use", "id": "toolu_2", "name": referred["tool_name"], "input": {}}
    else:
        content = {"type": "text", "text": "Done."}
    base = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": None, "stop_sequence": None}
    return {**base, "content": [content], "usage": {"input_tokens": 1, "output_tokens": 1}}


def _generate(seen: Seen) -> Any:
    declared = seen.body["tools"][0]["functionDeclarations"][0]
    schema = declared.get("parametersJsonSchema") or declared["parameters_json_schema"]  # the API takes both
    assert schema["type"] == "object"
    part = {"functionCall": {"name": declared["name"], "args": {}}}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}


def _anyone(_: Seen) -> bool:
    return True


def test_the_openai_page_runs_as_printed() -> None:
    openai = pytest.importorskip("openai")
    chat, responses = Provider(), Provider()
    with (
        serving(chat, Dialect("/v1/chat/completions", _chat, _anyone, base="/v1")),
        serving(responses, Dialect("/v1/responses", _responses, _anyone, base="/v1")),
    ):
        client = openai.OpenAI(base_url=chat.url, api_key="k")
        client.responses = openai.OpenAI(base_url=responses.url, api_key="k").responses
        assert run_page(DOCS / "frameworks" / "openai.md", client=client) == 2
    assert len(responses.seen) == 3


def test_the_anthropic_page_runs_as_printed() -> None:
    anthropic = pytest.importorskip("anthropic")
    with serving(Provider(), Dialect("/v1/messages", _messages, _anyone)) as provider:
        client = anthropic.Anthropic(base_url=provider.url, api_key="k")
        assert run_page(DOCS / "frameworks" / "anthropic.md", client=client) == 2


def test_the_gemini_page_runs_as_printed() -> None:
    genai = pytest.importorskip("google.genai")
    dialect = Dialect("/{version}/models/{model}:generateContent", _generate, _anyone)
    with serving(Provider(), dialect) as provider:
        client = genai.Client(api_key="k", http_options={"base_url": provider.url})
        assert run_page(DOCS / "frameworks" / "gemini.md", client=client) == 1
