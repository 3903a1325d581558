"""One function as every framework wraps it, and what must be read of it."""

from typing import Any

from shortlist.library.sources import read_source
from shortlist.models import Tool


def search_docs(query: str, limit: int = 5) -> str:
    """Search the documents.

    Args:
        query: What to look for.
        limit: How many results to return.
    """
    return f"{query} {limit}"


def read_one(item: Any) -> Tool:
    """Read a tool object, or a group of one; its object comes back with it."""
    reading = read_source([item])
    assert reading.problems == ()
    (tool,) = reading.catalog.tools.values()
    assert reading.originals[tool.id] is not None
    return tool


def check(tool: Tool, *, default: bool = True, name: str = "search_docs") -> None:
    """Check that the name, the words, the arguments, what is required and the default were kept."""
    schema = tool.input_schema
    assert tool.name == name
    assert tool.description == "Search the documents."
    assert list(schema["properties"]) == ["query", "limit"]
    assert schema["properties"]["query"]["type"] == "string"
    assert schema["properties"]["query"]["description"] == "What to look for."
    assert schema["required"] == ["query"]
    assert ("default" in schema["properties"]["limit"]) is default
