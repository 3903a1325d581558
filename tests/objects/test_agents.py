"""Tool objects of frameworks that can be installed beside each other, from the real packages."""

import pytest

from tests.objects.support import check, read_one, search_docs

pytest.importorskip("llama_index.core")


def test_a_llama_index_tool_is_read() -> None:
    from llama_index.core.tools import FunctionTool

    check(read_one(FunctionTool.from_defaults(search_docs)))


def test_a_llama_index_query_tool_of_one_argument_is_read() -> None:
    from llama_index.core.tools import FunctionTool, ToolMetadata

    made = FunctionTool(search_docs, ToolMetadata(name="ask", description="Answer a question."))
    tool = read_one(made)
    assert list(tool.input_schema["properties"]) == ["input"]
    assert tool.input_schema["required"] == ["input"]


def test_a_haystack_tool_and_its_toolset_are_read() -> None:
    from haystack.tools import Toolset, create_tool_from_function

    check(read_one(create_tool_from_function(search_docs)))
    check(read_one(Toolset([create_tool_from_function(search_docs)])))


def test_a_smolagents_tool_is_read() -> None:
    from smolagents import tool

    check(read_one(tool(search_docs)), default=False)


def test_a_dspy_tool_is_read() -> None:
    import dspy

    check(read_one(dspy.Tool(search_docs)))


def test_an_autogen_tool_is_read() -> None:
    from autogen_core.tools import FunctionTool

    check(read_one(FunctionTool(search_docs, description=search_docs.__doc__ or "")))


def test_an_agno_function_and_toolkit_are_read() -> None:
    from agno.tools import Toolkit, tool

    check(read_one(Toolkit(name="docs", tools=[search_docs])))
    check(read_one(tool(search_docs)), default=False)


def test_coroutines_of_an_agno_toolkit_are_read() -> None:
    from agno.tools import Toolkit

    async def ping(host: str) -> str:
        """Ping a host."""
        return host

    assert read_one(Toolkit(name="net", tools=[ping])).name == "ping"


def test_a_fastmcp_tool_is_read() -> None:
    from fastmcp.tools import Tool

    check(read_one(Tool.from_function(search_docs)))
