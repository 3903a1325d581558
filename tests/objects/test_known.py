"""Objects whose packages are there anyway: MCP's own, pydantic-ai's, google-genai's, and plain functions."""

from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from shortlist.errors import InvalidCatalog
from shortlist.library.sources import read_source
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
    assert properties["limit"] == {"type": "integer", "description": "How many.", "default": 5, "minimum": 1}


ANY: Any = Field(None, description="Any.")


def test_a_required_field_keeps_its_limits_and_one_without_a_schema_its_description() -> None:
    class Opaque: ...

    def search(n: int = Field(..., ge=1), thing: Opaque = ANY) -> None: ...

    schema = read_one(search).input_schema
    assert schema["properties"]["n"] == {"type": "integer", "minimum": 1}
    assert schema["properties"]["thing"]["description"] == "Any."
    assert schema["required"] == ["n"]


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


class Group:
    """Holds tools as the containers of frameworks do."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def named(name: str) -> Any:
    return Group(name=name, description="", parameters_json_schema={"type": "object"})


@pytest.mark.parametrize(
    "source",
    [
        Group(plugins={"docs": Group(functions={"a": named("a")}), "mail": Group(functions={"b": named("b")})}),
        {"docs": Group(functions={"a": named("a")}), "mail": Group(functions={"b": named("b")})},
        Group(tools=[named("a"), Group(function_declarations=[named("b")])]),
        Group(toolsets=[Group(tools={"a": named("a")}), Group(tool_defs=[named("b")])]),
        Group(get_tools=lambda: [named("a"), named("b")]),
    ],
    ids=["kernel", "plugins of a kernel", "configuration of google-genai", "combined toolset", "LangChain toolkit"],
)
def test_containers_are_read_alone_and_in_a_list(source: Any) -> None:
    assert read_source(source).catalog.tools.keys() == {"a", "b"}
    assert read_source([source, search_docs]).catalog.tools.keys() == {"a", "b", "search_docs"}


def test_prefixes_of_toolsets_are_put_before_the_names_and_the_objects_come_back() -> None:
    tool = named("a")
    inner = Group(wrapped=Group(tools=[tool]), prefix="docs")
    assert read_source(Group(wrapped=inner, prefix="team")).originals == {"team_docs_a": tool}


def test_a_container_that_is_listed_asynchronously_says_what_to_pass() -> None:
    class Server:
        async def list_tools(self) -> list[Any]:
            return []

    class Toolset:
        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            return {"a": ctx}

    for source, method in ((Server(), r"list_tools\(\)"), (Toolset(), r"get_tools\(ctx\)")):
        with pytest.raises(InvalidCatalog, match=rf"pass the result of awaiting its {method}"):
            read_source(source)
        assert "awaiting" in read_source([search_docs, source]).problems[0]


def test_containers_of_pydantic_ai_are_read() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    toolset = pydantic_ai.FunctionToolset([search_docs])
    check(read_one(pydantic_ai.CombinedToolset([toolset])))
    check(read_one(pydantic_ai.PrefixedToolset(toolset, "own")), name="own_search_docs")
    with pytest.raises(InvalidCatalog, match=r"awaiting its get_tools\(ctx\)"):
        read_source(toolset.filtered(lambda *_: True))


def test_a_configuration_of_google_genai_is_read() -> None:
    types = pytest.importorskip("google.genai.types")
    check(read_one(types.GenerateContentConfig(tools=[search_docs])))
    assert read_source(types.FunctionDeclaration(name="a", description="b")).catalog.tools.keys() == {"a"}
