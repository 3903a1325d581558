"""Tools as providers take them, and the providers' own deferred loading."""

import json
import re
from typing import Any

import pytest
from hypothesis import given

from shortlist.catalog.catalog import Catalog
from shortlist.disclosure.formats import FORMATS, OPENAI_DESCRIPTION, formatted, object_schema
from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.integrations.deferred import AnthropicTools, OpenAITools
from shortlist.integrations.harness import Disclosure
from shortlist.library.filter import ToolFilter
from shortlist.models import Server
from tests.fakes import WORKPLACE, catalog, catalogs, tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


def workplace() -> ToolFilter:
    return ToolFilter(catalog(WORKPLACE, Server(name="github", description="Code hosting.")), embedding=None)


def test_each_provider_gets_its_own_shape() -> None:
    one = [(tool("mail/send_email", "Send an email.", inputSchema=SCHEMA), "mail__send_email")]
    named = {"name": "mail__send_email", "description": "Send an email."}
    assert formatted("openai", one) == [{"type": "function", "function": {**named, "parameters": SCHEMA}}]
    assert formatted("openai-responses", one) == [{"type": "function", **named, "parameters": SCHEMA, "strict": False}]
    assert formatted("anthropic", one) == [{**named, "input_schema": SCHEMA}]
    assert formatted("gemini", one) == [{"functionDeclarations": [{**named, "parametersJsonSchema": SCHEMA}]}]
    assert formatted("mcp", one) == [{**named, "inputSchema": SCHEMA}]
    assert formatted("gemini", []) == []


def test_a_format_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="There are openai, openai-responses, anthropic, gemini, mcp;"):
        workplace().filter("send an email").to("xml")  # type: ignore[arg-type]


@given(catalogs)
def test_every_name_is_one_that_every_provider_takes(any_catalog: Catalog) -> None:
    made = ToolFilter(any_catalog, embedding=None, save_index=False)
    names = [made.names.by_id[tool_id] for tool_id in any_catalog.tools]
    assert all(NAME.fullmatch(name) for name in names)
    assert len(set(names)) == len(names)


def test_alternatives_at_the_top_of_a_schema_become_optional_properties() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "anyOf": [{"properties": {"id": {"type": "string"}}, "required": ["id"]}, {"properties": {"name": {}}}],
        "properties": {"force": {"type": "boolean"}},
        "required": ["force", "gone"],
        "$defs": {"x": {}},
    }
    found = object_schema(tool("a/b", inputSchema=schema))
    assert found.keys() == {"type", "properties", "required", "$defs"}
    assert found["properties"].keys() == {"id", "name", "force"}
    assert found["required"] == ["force"]


@pytest.mark.parametrize("schema", [None, [], "x", {"type": "string"}, {"properties": []}])
def test_a_schema_that_is_none_becomes_an_empty_object(schema: Any) -> None:
    for format_ in FORMATS:
        json.dumps(formatted(format_, [(tool("a/b", inputSchema=schema), "b")]))
    assert object_schema(tool("a/b", inputSchema=schema)) == {"type": "object", "properties": {}}


def test_a_description_openai_would_refuse_is_shortened() -> None:
    (definition,) = formatted("openai", [(tool("a/b", "word " * 500), "b")])
    assert len(definition["function"]["description"]) <= OPENAI_DESCRIPTION


def test_unseen_characters_do_not_reach_a_model() -> None:
    (definition,) = formatted("anthropic", [(tool("a/b", "Read\u200b it\x1b[31m.\U000e0041"), "b")])
    assert definition["description"] == "Read it."


def test_anthropic_gets_every_tool_deferred_but_the_search_and_the_loaded() -> None:
    source = AnthropicTools(workplace(), loaded=["send_message"])
    search, *tools = source.tools()
    assert search["name"] == "search_tools"
    assert "defer_loading" not in search
    assert len(tools) == len(WORKPLACE)
    assert [found["name"] for found in tools if not found.get("defer_loading")] == ["slack__send_message"]
    assert source.tools() == source.tools(), "the same on every request, for the prompt cache"


def test_anthropic_searches_are_answered_with_references() -> None:
    source = AnthropicTools(workplace())
    block = {"type": "tool_use", "id": "toolu_1", "name": "search_tools", "input": {"query": "merge a pull request"}}
    assert source.is_search(block)
    answer = source.answer(block)
    assert answer["tool_use_id"] == "toolu_1"
    assert answer["content"][0] == {"type": "tool_reference", "tool_name": "github__merge_pull_request"}
    assert len(answer["content"]) == 5
    assert len(source.answer({**block, "input": {"query": "merge", "limit": 2}})["content"]) == 2
    sent = {found["name"] for found in source.tools()}
    assert {found["tool_name"] for found in answer["content"]} <= sent
    called = {"type": "tool_use", "id": "2", "name": "github__merge_pull_request", "input": {}}
    assert not source.is_search(called)
    assert source.resolve(called).id == "github/merge_pull_request"


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": 7}, None, "{", []])
def test_a_search_without_a_query_is_an_answer_that_a_model_can_act_on(arguments: Any) -> None:
    block = {"type": "tool_use", "id": "1", "name": "search_tools", "input": arguments}
    answer = AnthropicTools(workplace()).answer(block)
    assert answer["is_error"] is True
    assert answer["content"][0]["type"] == "text"
    call = {"type": "tool_search_call", "execution": "client", "call_id": "c", "arguments": arguments}
    assert OpenAITools(workplace()).answer(call)["tools"] == []


def test_anthropic_refuses_more_tools_than_a_request_may_hold() -> None:
    crowd = catalog({f"s/t{n}": "" for n in range(10_001)})
    with pytest.raises(InvalidInput, match=r"10,000 deferred tools, the catalog has 10,001"):
        AnthropicTools(ToolFilter(crowd, embedding=None, save_index=False))


def test_an_unknown_tool_to_be_loaded_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ToolNotFound, match="slack/send_message"):
        AnthropicTools(workplace(), loaded=["slack/send_mesage"])


def test_openai_gets_a_client_search_and_loads_found_tools_in_namespaces() -> None:
    source = OpenAITools(workplace(), loaded=["send_message"])
    search, loaded = source.tools()
    assert (search["type"], search["execution"]) == ("tool_search", "client")
    assert search["parameters"]["required"] == ["query"]
    assert (loaded["type"], loaded["name"], len(loaded["tools"])) == ("namespace", "slack", 1)
    call = {
        "type": "tool_search_call",
        "execution": "client",
        "call_id": "call_1",
        "arguments": {"query": "merge a pull request", "limit": 3},
    }
    assert source.is_search(call)
    assert not source.is_search({**call, "execution": "server"})
    answer = source.answer(call)
    assert (answer["type"], answer["execution"], answer["call_id"]) == ("tool_search_output", "client", "call_1")
    first = answer["tools"][0]
    assert (first["type"], first["name"], first["description"]) == ("namespace", "github", "Code hosting.")
    assert first["tools"][0]["name"] == "merge_pull_request"
    assert all(function["defer_loading"] for space in answer["tools"] for function in space["tools"])
    called = {"type": "function_call", "namespace": "github", "name": "merge_pull_request", "arguments": "{}"}
    assert source.resolve(called).id == "github/merge_pull_request"
    with pytest.raises(ToolNotFound, match="nope"):
        source.resolve({"namespace": "github", "name": "nope"})


def test_openai_gets_tools_without_a_server_as_plain_functions() -> None:
    source = OpenAITools(ToolFilter([{"name": "send_email", "description": "Send an email."}], embedding=None))
    call = {"type": "tool_search_call", "execution": "client", "call_id": "1", "arguments": '{"query": "email"}'}
    (function,) = source.answer(call)["tools"]
    assert (function["type"], function["name"]) == ("function", "send_email")
    assert source.resolve({"name": "send_email"}).name == "send_email"


def test_servers_with_odd_names_get_namespaces_of_their_own() -> None:
    source = OpenAITools(ToolFilter(catalog({"a b/x.y": "Find x.", "a_b/x_y": "Find x."}), embedding=None))
    call = {"type": "tool_search_call", "execution": "client", "call_id": "1", "arguments": {"query": "find x"}}
    spaces = source.answer(call)["tools"]
    assert len({space["name"] for space in spaces}) == 2
    found = {source.resolve({"namespace": s["name"], "name": s["tools"][0]["name"]}).id for s in spaces}
    assert found == {"a b/x.y", "a_b/x_y"}


def test_a_menu_names_the_tools_in_a_line_each() -> None:
    menu = Disclosure(workplace()).menu("merge a pull request", limit=2)
    first, *_ = lines = menu.text.splitlines()
    assert len(lines) == 2
    assert first == "github__merge_pull_request: Merge a pull request once its checks pass."


def test_schemas_show_the_chosen_whole_and_say_which_do_not_exist() -> None:
    text = Disclosure(workplace()).schemas(["slack__send_message", "slack__send_mesage"])
    assert "input schema:" in text
    assert "No tool 'slack__send_mesage'" in text


def test_a_call_is_checked_before_it_is_made() -> None:
    output = {"type": "object", "properties": {"id": {"type": "string"}}}
    definition = {"name": "send", "inputSchema": SCHEMA, "outputSchema": output}
    harness = Disclosure(ToolFilter([definition], embedding=None))
    ready = harness.call("send", '{"to": "bob"}')
    assert ready.ready
    assert (ready.arguments, ready.output_schema) == ({"to": "bob"}, output)
    wrong = harness.call("send", {"to": 7})
    assert not wrong.ready
    assert "to" in wrong.text()
    assert not harness.call("send", None).ready
    assert "not JSON" in harness.call("send", "{to").text()
    assert "one object" in harness.call("send", "[1]").text()
    with pytest.raises(ToolNotFound, match="'send'"):
        harness.call("sent", {})
