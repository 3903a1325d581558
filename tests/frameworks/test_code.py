"""Code mode in the frameworks: a model that writes a program over callables."""

import json
from typing import Any

import pytest

pytest.importorskip("pydantic_monty")

from shortlist import ToolFilter
from shortlist.integrations.programs import code_functions

CODE = "import asyncio\nsum(await asyncio.gather(*[tools.local.add(a=n, b=n) for n in range(4)]))"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def tools() -> Any:
    with ToolFilter([add], embedder="none") as found:
        yield found


@pytest.mark.anyio
async def test_any_framework_can_use_the_two_functions(tools: ToolFilter) -> None:
    search, run = code_functions(tools, calls=10)
    assert await search("add numbers") == "tools.local.add(a: int, b: int)\n  Add two numbers."
    assert await search("") != ""
    assert await run(CODE) == "12\nCalls: 4 done."
    assert "not started" in await run("await tools.local.add(a=1)\nawait tools.local.add(a=1, b=2)")
    assert "20,000 are allowed" in await run("x = 1\n" * 9_000)


@pytest.mark.anyio
async def test_langchain_gets_two_tools(tools: ToolFilter) -> None:
    pytest.importorskip("langchain_core")
    from shortlist.integrations.langchain import code_tools

    made = {tool.name: tool for tool in code_tools(tools)}
    assert set(made) == {"search_functions", "run_code"}
    assert await made["run_code"].ainvoke({"code": CODE}) == "12\nCalls: 4 done."


@pytest.mark.anyio
async def test_the_openai_agents_sdk_gets_two_tools(tools: ToolFilter) -> None:
    pytest.importorskip("agents")
    from agents.tool_context import ToolContext

    from shortlist.integrations.openai_agents import code_tools

    made = {tool.name: tool for tool in code_tools(tools)}
    arguments = json.dumps({"code": CODE})
    context = ToolContext(context=None, tool_name="run_code", tool_call_id="1", tool_arguments=arguments)
    assert await made["run_code"].on_invoke_tool(context, arguments) == "12\nCalls: 4 done."
    assert made["search_functions"].params_json_schema["required"] == ["query"]


@pytest.mark.anyio
async def test_pydantic_ai_runs_the_program_that_its_model_writes(tools: ToolFilter) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from shortlist.integrations.pydantic_ai import code_toolset

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert {tool.name for tool in info.function_tools} == {"search_functions", "run_code"}
        returned = [part.content for m in messages for part in m.parts if part.part_kind == "tool-return"]
        return ModelResponse([TextPart(str(returned[0])) if returned else ToolCallPart("run_code", {"code": CODE})])

    agent = Agent(FunctionModel(model), toolsets=[code_toolset(tools)])
    assert (await agent.run("add up")).output == "12\nCalls: 4 done."
