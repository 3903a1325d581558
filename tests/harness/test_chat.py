"""The wire format of Chat Completions, against a local endpoint that holds requests to it."""

from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from shortlist.harness.chat import ChatModel, chat_model
from shortlist.remote import Patience, ProviderRefused, ProviderUnavailable
from tests.harness.endpoint import Messages, call, calling, refusal, saying, scripted
from tests.providers.wires import KEY, Provider

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add 1 and 2."}]
ADD = {
    "name": "sums__add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}


def hello(_: Messages, __: set[str]) -> dict[str, Any]:
    return saying("Hello.")


def model_at(provider: Provider, **patience: Any) -> ChatModel:
    return chat_model(provider.url, "scripted-1", KEY, Patience(**{"attempts": 2, "wait_seconds": 1.0, **patience}))


def test_tools_go_out_as_functions_and_calls_come_back_with_their_arguments() -> None:
    with scripted(lambda _, tools: calling(call(min(tools), {"a": 1, "b": 2}))) as provider:
        reply = model_at(provider).reply(MESSAGES, [ADD])
    sent = provider.seen[0].body
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "sums__add",
                "description": "Add two numbers.",
                "parameters": ADD["inputSchema"],
            },
        }
    ]
    assert sent["model"] == "scripted-1"
    assert [(each.name, each.arguments, each.problem) for each in reply.calls] == [("sums__add", {"a": 1, "b": 2}, "")]


def test_a_conversation_can_be_continued_with_what_came_back() -> None:
    def script(messages: Messages, _: set[str]) -> dict[str, Any]:
        return calling(call("sums__add", {})) if len(messages) == 2 else saying(messages[-1]["content"])

    with scripted(script) as provider:
        model = model_at(provider)
        first = model.reply(MESSAGES, [ADD])
        answer = {"role": "tool", "tool_call_id": first.calls[0].id, "content": "3"}
        second = model.reply([*MESSAGES, first.message, answer], [ADD])
    assert (second.text, second.calls) == ("3", ())


def test_without_tools_none_are_sent() -> None:
    with scripted(hello) as provider:
        model_at(provider).reply(MESSAGES, [])
    assert "tools" not in provider.seen[0].body


def test_the_endpoints_own_counts_are_taken_and_estimated_where_it_has_none() -> None:
    uncounted = JSONResponse({"choices": [{"index": 0, "message": saying("Hello.")}]})
    with scripted(hello, uncounted) as provider:
        model = model_at(provider)
        estimated, counted = model.reply(MESSAGES, [ADD]), model.reply(MESSAGES, [ADD])
    assert counted.completion_tokens == 7
    assert 30 < estimated.prompt_tokens < 200
    assert estimated.completion_tokens > 0


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(status: int) -> None:
    busy = JSONResponse(refusal("try again"), status, headers={"retry-after": "0"})
    with scripted(hello, busy) as provider:
        assert model_at(provider).reply(MESSAGES, []).text == "Hello."
    assert len(provider.seen) == 2


@pytest.mark.parametrize(
    ("replies", "said"),
    [
        ([JSONResponse(refusal("slow down"), 429, headers={"retry-after": "60"})], "429 slow down"),
        ([JSONResponse(refusal("oops"), 500)] * 2, "500 oops"),
        ([Response("<html>")] * 2, "not JSON"),
        ([JSONResponse({"choices": []})], "has no message"),
        ([JSONResponse({"choices": [{"message": {"tool_calls": [{}]}}]})], "has no message"),
    ],
)
def test_a_failure_that_stays_is_told(replies: list[Response], said: str) -> None:
    with scripted(hello, *replies) as provider, pytest.raises(ProviderUnavailable, match=said):
        model_at(provider).reply(MESSAGES, [])


def test_an_endpoint_that_hangs_is_not_waited_for_without_end() -> None:
    with scripted(hello, None) as provider, pytest.raises(ProviderUnavailable, match=r"no answer within 0\.2 seconds"):
        model_at(provider, seconds=0.2, attempts=1).reply(MESSAGES, [])


def test_a_request_that_is_refused_says_why_without_the_key() -> None:
    with scripted(hello) as provider, pytest.raises(ProviderRefused, match="OPENAI_API_KEY") as refused:
        chat_model(provider.url, "scripted-1", "sk-wrong-and-secret").reply(MESSAGES, [])
    assert refused.value.status == 401
    assert "sk-wrong-and-secret" not in str(refused.value)
