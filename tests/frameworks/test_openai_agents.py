"""The OpenAI Agents SDK, by its own package, and the Responses API's own types."""

import json
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseToolSearchOutputItemParam,
)
from pydantic import TypeAdapter

from shortlist.integrations.deferred import OpenAITools
from shortlist.integrations.openai_agents import function_tools, shortlisted
from shortlist.library.filter import ToolFilter
from shortlist.library.options import FilterOptions
from tests.fakes import WORKPLACE, catalog
from tests.library.snippets import DOCS, run_page


class FirstTool(Model):  # type: ignore[misc, unused-ignore]
    """Calls the first tool it is shown, once, and notes what it was shown."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> ModelResponse:  # noqa: A002, ARG002
        tools = named.get("tools") or more[1]
        self.seen.append([tool.name for tool in tools])
        items = [] if isinstance(input, str) else input
        output: Any
        if any(item.get("type") == "function_call_output" for item in items):
            text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        else:
            name = next((name for name in self.seen[-1] if "merge" in name), self.seen[-1][0])
            output = ResponseFunctionToolCall(arguments="{}", call_id="1", name=name, type="function_call")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _no_tracing() -> None:
    set_tracing_disabled(True)


def tools() -> list[Any]:
    found = []
    for tool_id, description in WORKPLACE.items():

        def run() -> str:
            return "ok"

        found.append(function_tool(run, name_override=tool_id.replace("/", "_"), description_override=description))
    return found


@pytest.mark.anyio
async def test_each_turn_shows_the_best_and_what_was_called() -> None:
    model = FirstTool()
    agent = Agent(name="a", model=model, tools=shortlisted(tools(), options=FilterOptions(limit=3), embedding=None))
    result = await Runner.run(agent, "merge the pull request")
    assert result.final_output == "Done."
    assert len(model.seen[0]) == 3
    assert "github_merge_pull_request" in model.seen[0]
    assert "github_merge_pull_request" in model.seen[1]
    await Runner.run(agent, "send an email")
    assert "mail_send_email" in model.seen[2]


@pytest.mark.anyio
async def test_definitions_of_a_catalog_become_function_tools() -> None:
    made = ToolFilter(catalog(WORKPLACE), embedding=None)
    called: list[str] = []

    async def call(tool: Any, arguments: dict[str, Any]) -> str:
        called.append(f"{tool.id} {json.dumps(arguments)}")
        return "ok"

    found = function_tools(made.filter("merge a pull request", limit=2).tools, call)
    agent = Agent(name="a", model=FirstTool(), tools=list(found))
    await Runner.run(agent, "merge it")
    assert called == ["github/merge_pull_request {}"]


def test_a_search_output_is_one_that_the_api_types_accept() -> None:
    source = OpenAITools(ToolFilter(catalog(WORKPLACE), embedding=None))
    call = {"type": "tool_search_call", "execution": "client", "call_id": "1", "arguments": {"query": "send mail"}}
    TypeAdapter(ResponseToolSearchOutputItemParam).validate_python(source.answer(call))


@pytest.mark.parametrize("page", ["openai-agents.md"])
def test_the_page_runs_as_printed(page: str) -> None:
    assert run_page(DOCS / "frameworks" / page, model=FirstTool()) >= 1
