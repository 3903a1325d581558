"""pydantic-ai, by its own package."""

from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ImageUrl, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from shortlist.integrations.pydantic_ai import ShortlistToolset
from shortlist.library.options import FilterOptions
from tests.fakes import WORKPLACE
from tests.library.snippets import DOCS, run_page


class FirstTool:
    """A model that calls the first tool it is shown, once, and notes what it was shown."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append([tool.name for tool in info.function_tools])
        if any(part.part_kind == "tool-return" for message in messages for part in message.parts):
            return ModelResponse([TextPart("Done.")])
        name = next((name for name in self.seen[-1] if "merge" in name), self.seen[-1][0])
        return ModelResponse([ToolCallPart(name, {})])


def toolset() -> Any:
    found = FunctionToolset()
    for tool_id, description in WORKPLACE.items():
        name = tool_id.replace("/", "_")

        def run(name: str = name) -> str:
            return name

        run.__name__ = name
        found.add_function(run, name=name, description=description)
    return found


def test_only_the_best_are_shown_and_what_was_called_stays() -> None:
    model = FirstTool()
    limited = ShortlistToolset(toolset(), options=FilterOptions(limit=3), embedding=None)
    agent = Agent(FunctionModel(model), toolsets=[limited])
    assert agent.run_sync("merge the pull request").output == "Done."
    assert len(model.seen[0]) == 3
    assert "github_merge_pull_request" in model.seen[0]
    assert "github_merge_pull_request" in model.seen[1]
    before = limited.indexed.source
    agent.run_sync("send an email")
    assert "mail_send_email" in model.seen[2]
    assert limited.indexed.source is before, "indexed once"


def test_a_run_without_words_shows_everything() -> None:
    model = FirstTool()
    limited = ShortlistToolset(toolset(), options=FilterOptions(limit=3), embedding=None)
    Agent(FunctionModel(model), toolsets=[limited]).run_sync([ImageUrl("https://example.com/x.png")])
    assert len(model.seen[0]) == len(WORKPLACE)


def test_the_page_runs_as_printed() -> None:
    assert run_page(DOCS / "frameworks" / "pydantic-ai.md", model=FunctionModel(FirstTool())) >= 1
