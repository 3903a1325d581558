"""Chats as queries, in the shapes of every provider."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import InvalidQuery
from shortlist.library.messages import clip, read_context, read_turns
from shortlist.text.queries import analyse


def context(messages: Any, count: int = 3, tokens: int = 500) -> Any:
    return read_context(messages, messages=count, tokens=tokens)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


LONG = "Here is the log of the build, line after line. " * 400


def test_the_latest_user_turn_survives_a_long_chat_whole() -> None:
    found = context([user(LONG), assistant(LONG), user("Now merge the pull request.")])
    assert found.text.startswith("Now merge the pull request.")
    assert estimate_tokens(found.text) <= 500


def test_the_latest_user_turn_survives_many_tool_messages_after_it() -> None:
    chatter = [assistant("Working on it."), {"role": "tool", "content": LONG}] * 20
    found = context([user("Merge the pull request."), *chatter])
    assert found.text.startswith("Merge the pull request.")


def test_a_turn_over_the_whole_budget_keeps_both_its_ends() -> None:
    found = context([user(f"Translate this: {LONG} Then mail it to Bob.")], tokens=60)
    assert found.text.startswith("Translate this:")
    assert found.text.endswith("mail it to Bob.")
    assert estimate_tokens(found.text) <= 60


def test_words_of_earlier_turns_weigh_less_than_those_that_ask() -> None:
    found = context([user("list the pods in production"), assistant("There are three."), user("scale the deployment")])
    weights = {term.term: term.weight for term in analyse(found.text).terms}
    asked, earlier = weights["deploy"], weights["pod"]
    assert earlier < asked / 2


def test_only_so_many_messages_are_read() -> None:
    turns = [user(f"word{number}") for number in range(9)]
    assert context(turns, 1).text == "word8"
    assert "word7" in context(turns, 2).text
    assert "word6" not in context(turns, 2).text


def test_what_the_assistant_said_after_the_question_counts_too() -> None:
    found = context([user("Plan my trip."), assistant("First I look up the weather forecast.")])
    assert found.text.startswith("Plan my trip.")
    assert "weather forecast" in found.text


SHAPES: dict[str, list[Any]] = {
    "openai": [
        user("list the pods"),
        assistant(
            None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "k8s__list", "arguments": ""}}]
        ),
        {"role": "tool", "tool_call_id": "1", "content": "secret result"},
        user([{"type": "text", "text": "read the logs"}, {"type": "image_url", "image_url": {"url": "data:x"}}]),
    ],
    "responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list the pods"}]},
        {"type": "function_call", "name": "k8s__list", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "secret result"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:x"},
                {"type": "input_text", "text": "read the logs"},
            ],
        },
    ],
    "anthropic": [
        user("list the pods"),
        assistant(
            [{"type": "text", "text": "One moment."}, {"type": "tool_use", "id": "1", "name": "k8s__list", "input": {}}]
        ),
        user([{"type": "tool_result", "tool_use_id": "1", "content": "secret result"}]),
        user([{"type": "image", "source": {"type": "base64", "data": "x"}}, {"type": "text", "text": "read the logs"}]),
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "list the pods"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "k8s__list", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "k8s__list", "response": {"text": "secret result"}}}]},
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "x"}}, {"text": "read the logs"}]},
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_question_the_history_and_the_tools_called(shape: str) -> None:
    found = context(SHAPES[shape], 5)
    assert found.text.startswith("read the logs")
    assert '"the pods"' in found.text
    assert "secret" not in found.text
    assert "data:x" not in found.text
    assert found.called == ("k8s__list",)


def test_the_tool_called_last_comes_first() -> None:
    calls = [{"type": "function_call", "name": name} for name in ("first", "second", "first")]
    assert context([*calls, user("go on")]).called == ("first", "second")


def test_what_an_agent_says_before_its_calls_pushes_no_request_out_of_reach() -> None:
    chat = [
        user("what is on my calendar on Friday?"),
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Let me look."}, {"type": "tool_use", "name": "list"}],
        },
        {"role": "user", "content": [{"type": "tool_result", "content": "standup, dentist"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "One more."}, {"type": "tool_use", "name": "get"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "at 11"}]},
        assistant("Standup at 9 and the dentist at 11."),
        user("cancel it"),
    ]
    found = context(chat)
    assert (found.asked.relation, found.asked.taken) == ("continues", "what is on my calendar on Friday?")
    assert found.called == ("get", "list")


def test_an_offer_is_what_the_assistant_said_last_and_not_what_it_said_before_a_call() -> None:
    chat = [
        user("show pull request 4"),
        assistant("I can look it up.", tool_calls=[{"type": "function", "function": {"name": "get_pull_request"}}]),
        {"role": "tool", "content": "open"},
        assistant("It is open. Shall I merge it?"),
        user("yes"),
    ]
    assert context(chat).asked.taken == 'merge it\n"It is open"'


@pytest.mark.parametrize(
    "called",
    [
        assistant(None, function_call={"name": "get_pull_request", "arguments": "{}"}),  # OpenAI, before tool_calls
        assistant([{"toolUse": {"toolUseId": "1", "name": "get_pull_request", "input": {}}}]),  # Bedrock
        {"role": "Assistant", "tool_calls": [{"type": "function", "function": {"name": "get_pull_request"}}]},
    ],
)
def test_older_and_rarer_shapes_of_calls_are_read(called: dict[str, Any]) -> None:
    found = context([("human", "show pull request 4"), called, ("user", "merge it")])
    assert found.called == ("get_pull_request",)
    assert found.asked.taken == "pull request 4"


def test_messages_may_be_objects() -> None:
    class Message:
        type = "human"
        content = "read the logs"

    assert context([Message()]).text == "read the logs"


def test_one_message_does_for_a_chat() -> None:
    assert context(user("read the logs")).text == "read the logs"


def test_the_system_prompt_is_not_a_query() -> None:
    found = context([{"role": "system", "content": "You are a pirate."}, user("read the logs")])
    assert "pirate" not in found.text


@pytest.mark.parametrize(
    "empty",
    [
        "",
        "  \n",
        "\u200b",
        [],
        [user("")],
        [user([{"type": "image_url", "image_url": {}}])],
        [{"role": "system", "content": "x"}],
    ],
)
def test_a_query_without_words_is_refused_with_a_remedy(empty: Any) -> None:
    with pytest.raises(InvalidQuery, match="words"):
        context(empty)


@pytest.mark.parametrize("wrong", [7, None, [7], [{"content": "no role"}]])
def test_what_is_no_chat_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidQuery):
        context(wrong)


@given(st.text(max_size=400), st.integers(1, 80))
def test_a_clipped_text_is_within_its_budget_and_made_of_its_ends(text: str, tokens: int) -> None:
    short = clip(text, tokens)
    assert estimate_tokens(short) <= tokens or len(short) <= 1
    assert len(short) <= max(len(text), 1)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=300)), max_size=6))
def test_any_chat_with_words_of_a_user_keeps_within_the_budget(chat: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in chat]
    spoken = [turn for turn in read_turns(messages) if turn.role == "user" and turn.text]
    if not spoken:
        return
    found = context(messages, tokens=40)
    assert estimate_tokens(found.text) <= 45
    assert found.text.startswith(clip(spoken[-1].text, 40)[:1])


def test_a_megabyte_is_read_without_counting_all_of_it() -> None:
    found = context("merge the pull request " + "x " * 500_000)
    assert found.text.startswith("merge the pull request")
    assert len(found.text) < 5_000


def test_an_unspoken_follow_up_of_a_long_chat_is_read_at_once() -> None:
    turns = [turn for n in range(250) for turn in (user(f"list the users of tenant {n}"), assistant("Here they are."))]
    found = context([*turns, user("delete them")])
    assert found.asked.relation == "continues"
    assert "tenant 249" in found.text


def test_content_may_be_one_part_instead_of_a_list() -> None:
    assert context([{"role": "user", "content": {"type": "text", "text": "read the logs"}}]).text == "read the logs"


def test_a_chat_in_which_nobody_known_speaks_names_the_unknown_roles() -> None:
    chat = [{"role": "bot", "content": "Hello."}, {"role": "customer", "content": "send it"}]
    with pytest.raises(InvalidQuery, match=r"the roles 'bot', 'customer' are unknown\. Use 'user'"):
        context(chat)
    with pytest.raises(InvalidQuery, match="pass one with words"):
        context([{"role": "system", "content": "You are a pirate."}])
