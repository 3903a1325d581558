"""Tool objects of frameworks that can be installed beside each other, from the real packages."""

from typing import Annotated

import anyio
import pytest
from pydantic import Field

from shortlist.errors import InvalidCatalog
from shortlist.library.sources import read_source
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
    check(read_one(tool(search_docs)))


def annotated(query: Annotated[str, Field(description="What to look for.", min_length=2)], limit: int = 5) -> str:
    """Search the documents."""
    return f"{query} {limit}"


def test_what_agno_leaves_out_is_read_of_the_function() -> None:
    from agno.tools import tool

    found = read_one(tool(annotated))
    check(found, name="annotated")
    assert found.input_schema["properties"]["query"]["minLength"] == 2


def test_what_dspy_leaves_out_is_read_of_the_function() -> None:
    import dspy

    found = read_one(dspy.Tool(annotated))
    check(found, name="annotated")
    assert found.input_schema["properties"]["query"]["minLength"] == 2


def test_containers_that_are_listed_asynchronously_say_what_to_pass() -> None:
    from autogen_core.tools import FunctionTool, StaticWorkbench
    from fastmcp import FastMCP

    server = FastMCP("docs")
    server.tool(search_docs)
    workbench = StaticWorkbench([FunctionTool(search_docs, description="Search the documents.")])
    for source in (server, workbench):
        with pytest.raises(InvalidCatalog, match=r"awaiting its list_tools\(\)"):
            read_source(source)
        assert read_source(anyio.run(source.list_tools)).catalog.tools.keys() == {"search_docs"}


def test_coroutines_of_an_agno_toolkit_are_read() -> None:
    from agno.tools import Toolkit

    async def ping(host: str) -> str:
        """Ping a host."""
        return host

    assert read_one(Toolkit(name="net", tools=[ping])).name == "ping"


def test_a_fastmcp_tool_is_read() -> None:
    from fastmcp.tools import Tool

    check(read_one(Tool.from_function(search_docs)))
