"""CrewAI's tools, from the real package."""

import pytest

from tests.objects.support import check, read_one, search_docs

pytest.importorskip("crewai")


def test_a_crewai_tool_is_read() -> None:
    from crewai.tools import tool

    check(read_one(tool("search_docs")(search_docs)))


def test_a_crewai_tool_keeps_the_descriptions_of_its_fields() -> None:
    from crewai.tools import BaseTool
    from pydantic import BaseModel, Field

    class Arguments(BaseModel):
        query: str = Field(description="What to look for.")
        limit: int = 5

    class SearchDocs(BaseTool):  # type: ignore[misc, unused-ignore]
        name: str = "search_docs"
        description: str = "Search the documents."
        args_schema: type[BaseModel] = Arguments

        def _run(self, query: str, limit: int = 5) -> str:
            return f"{query} {limit}"

    check(read_one(SearchDocs()))
