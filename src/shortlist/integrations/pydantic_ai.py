"""pydantic-ai: a toolset that shows a model only the tools for this step of a run."""

from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from pydantic_ai import RunContext  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.toolsets.abstract import ToolsetTool  # type: ignore[import-not-found, unused-ignore]

from shortlist.errors import InvalidQuery
from shortlist.integrations.calling import Call
from shortlist.integrations.programs import code_functions
from shortlist.library.filter import ToolFilter
from shortlist.library.options import FilterOptions

SHOWN = 10


@dataclass(slots=True)
class _Indexed:
    """The filter over the wrapped tools, made once and brought up to date by difference."""

    definitions: list[Any] = field(default_factory=list)
    source: ToolFilter | None = None

    def of(self, definitions: list[Any], toolset: "ShortlistToolset") -> ToolFilter:
        if self.source is None:
            self.source = ToolFilter(definitions, embedding=toolset.embedding, defaults=toolset.options)
        elif definitions != self.definitions:
            self.source.update(definitions)
        self.definitions = definitions
        return self.source


@dataclass
class ShortlistToolset(WrapperToolset[Any]):  # type: ignore[misc, unused-ignore]
    """Any toolset, filtered before each request by prompt and messages; tools that were called stay visible."""

    options: FilterOptions = field(default_factory=lambda: FilterOptions(limit=SHOWN))
    embedding: Any = "auto"
    indexed: _Indexed = field(default_factory=_Indexed, repr=False)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools: dict[str, ToolsetTool[Any]] = await super().get_tools(ctx)
        if len(tools) <= self.options.limit:
            return tools
        chat = [*_history(ctx.messages), *_prompt(ctx)]
        definitions = [tool.tool_def for tool in tools.values()]
        source = await anyio.to_thread.run_sync(self.indexed.of, definitions, self)
        try:
            found = await source.afilter(chat)
        except InvalidQuery:  # a run without words: a picture alone
            return tools
        shown = {scored.tool.name for scored in found.tools} | {name for turn in chat for name in _called(turn)}
        return {name: tool for name, tool in tools.items() if name in shown}


def code_toolset(source: ToolFilter, call: Call | None = None, **budget: Any) -> FunctionToolset[Any]:
    """Return the tools of code mode: one that finds functions, and one that runs a program which calls them."""
    return FunctionToolset(list(code_functions(source, call, **budget)))


def _prompt(ctx: RunContext[Any]) -> list[dict[str, Any]]:
    """Return the prompt of a run where it is not among its messages yet."""
    if not ctx.prompt or any(
        part.part_kind == "user-prompt" for m in ctx.messages for part in m.parts if m.kind == "request"
    ):
        return []
    return [{"role": "user", "content": _words(ctx.prompt)}]


def _history(messages: list[Any]) -> list[dict[str, Any]]:
    return [turn for message in messages for part in message.parts if (turn := _turn(part)) is not None]


def _turn(part: Any) -> dict[str, Any] | None:
    if part.part_kind == "user-prompt":
        return {"role": "user", "content": _words(part.content)}
    if part.part_kind == "text":
        return {"role": "assistant", "content": part.content}
    if part.part_kind == "tool-call":
        return {"type": "function_call", "name": part.tool_name}
    return None


def _called(turn: dict[str, Any]) -> list[str]:
    return [turn["name"]] if turn.get("type") == "function_call" else []


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part for part in content if isinstance(part, str))
