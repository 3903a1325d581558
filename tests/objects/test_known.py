"""Objects whose packages are there anyway: MCP's own, pydantic-ai's, google-genai's, and plain functions."""

from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from tests.objects.support import check, read_one, search_docs


def test_a_function_keeps_its_default_and_what_its_docstring_says() -> None:
    check(read_one(search_docs))


def test_a_function_keeps_its_fields() -> None:
    def search(
        query: Annotated[str, Field(description="What to look for.", min_length=2)],
        limit: int = Field(5, description="How many.", ge=1),
    ) -> str:
        return f"{query} {limit}"

    properties = read_one(search).input_schema["properties"]
    assert properties["query"] == {"type": "string", "description": "What to look for.", "minLength": 2}
    assert properties["limit"] == {"type": "integer", "description": "How many.", "default": 5}


def test_a_function_of_one_model_keeps_its_one_argument() -> None:
    class Ticket(BaseModel):
        title: str

    def create_ticket(ticket: Ticket) -> str:
        return ticket.title

    schema = read_one(create_ticket).input_schema
    assert list(schema["properties"]) == ["ticket"]
    assert schema["required"] == ["ticket"]


def test_mcp_tools_and_listings_are_read() -> None:
    import mcp_types as types

    schema: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = types.Tool(name="search_docs", description="Search the documents.", input_schema=schema)
    assert read_one(tool).input_schema == schema
    assert read_one(types.ListToolsResult(tools=[tool])).input_schema == schema


def test_pydantic_ai_tools_and_toolsets_are_read() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    check(read_one(pydantic_ai.Tool(search_docs)))
    check(read_one(pydantic_ai.FunctionToolset([search_docs])))


def test_google_genai_declarations_are_read() -> None:
    types = pytest.importorskip("google.genai.types")
    own = types.Schema(
        type="OBJECT",
        properties={"query": types.Schema(type="STRING", description="What to look for.")},
        required=["query"],
    )
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    for made in (
        types.FunctionDeclaration(name="search_docs", description="Search.", parameters=own),
        types.FunctionDeclaration(name="search_docs", description="Search.", parameters_json_schema=schema),
    ):
        tool = read_one(types.Tool(function_declarations=[made]))
        assert tool.input_schema["properties"]["query"]["type"] == "string"
        assert tool.input_schema["required"] == ["query"]
        assert read_one(made).name == "search_docs"


def test_a_partial_is_called_and_described_as_its_function() -> None:
    check(read_one(partial(search_docs, limit=3)))


def test_a_callable_object_is_described_by_what_calling_it_does() -> None:
    class Atlas:
        def __call__(self, city: str) -> str:
            """Look up a city."""
            return city

    assert read_one(Atlas()).description == "Look up a city."


def test_a_langchain_tool_of_one_text_has_one_argument() -> None:
    tools = pytest.importorskip("langchain_core.tools")
    tool = read_one(tools.Tool(name="shout", func=str.upper, description="Shout a text."))
    assert tool.input_schema["properties"] == {"__arg1": {"type": "string"}}
    assert "$defs" not in tool.input_schema
