"""LangChain and LangGraph, by their own packages."""

from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langgraph")

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from pydantic import Field

from shortlist.integrations.langchain import langchain_tools, tools_for
from shortlist.library.filter import ToolFilter
from tests.fakes import WORKPLACE, catalog
from tests.library.snippets import DOCS, run_page


class FirstTool(BaseChatModel):  # type: ignore[misc, unused-ignore]
    """Calls the first tool that is bound to it, and then says what came of it."""

    bound: list[Any] = Field(default_factory=list)
    seen: list[list[str]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "first-tool"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.seen.append([getattr(found, "name", None) or found["function"]["name"] for found in tools])
        return FirstTool(bound=list(tools), seen=self.seen)

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(f"Done: {last.content}")
        else:
            arguments = dict.fromkeys(self.bound[0].args, "x")
            answer = AIMessage("", tool_calls=[{"name": self.bound[0].name, "args": arguments, "id": "1"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool  # type: ignore[untyped-decorator, unused-ignore]
def merge_pull_request(number: str) -> str:
    """Merge a pull request once its checks pass."""
    return f"merged {number}"


@tool  # type: ignore[untyped-decorator, unused-ignore]
def send_email(to: str) -> str:
    """Send an email to a person."""
    return f"sent to {to}"


def test_langchain_tools_go_in_and_come_back_as_they_were() -> None:
    made = ToolFilter([merge_pull_request, send_email], embedding=None)
    (first,) = tools_for(made, "merge it", limit=1)
    assert first is merge_pull_request
    definition = made.tool("send_email")
    assert definition.description == "Send an email to a person."
    assert definition.input_schema["properties"]["to"]["type"] == "string"


def test_langchain_messages_are_read() -> None:
    made = ToolFilter(catalog(WORKPLACE), embedding=None)
    calls = [{"name": "github__list_commits", "args": {}, "id": "1"}]
    found = made.filter(
        [HumanMessage("show commits"), AIMessage("", tool_calls=calls), HumanMessage("merge the pull request")]
    )
    assert found.tools[0].id == "github/merge_pull_request"
    assert found.query.recent_tools == ("github/list_commits",)


def test_tools_of_a_catalog_end_in_the_callers_own_call() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = ToolFilter([{"name": "merge", "description": "Merge.", "inputSchema": schema}], embedding=None)
    found = made.filter("merge")
    (plain,) = langchain_tools(found.tools, lambda called, arguments: f"{called.name} {arguments}")
    assert plain.invoke({"n": 3}) == "merge {'n': 3}"
    with pytest.raises(TypeError, match="pass call="):
        langchain_tools(found.tools)


@pytest.mark.anyio
async def test_a_call_may_be_async() -> None:
    async def call(called: Any, arguments: dict[str, Any]) -> str:
        return f"{called.name} {arguments}"

    made = ToolFilter([{"name": "merge", "description": "Merge.", "inputSchema": {"type": "object"}}], embedding=None)
    (found,) = langchain_tools(made.filter("merge").tools, call)
    assert await found.ainvoke({}) == "merge {}"


@pytest.mark.parametrize("page", ["langchain.md", "langgraph.md"])
def test_the_page_runs_as_printed(page: str) -> None:
    assert run_page(DOCS / "frameworks" / page, model=FirstTool()) >= 2
