"""OpenAI Agents SDK: function tools that are enabled only on the turns they fit."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper, Tool, function_tool  # type: ignore[import-not-found, unused-ignore]

from shortlist.disclosure.formats import described, object_schema
from shortlist.errors import InvalidQuery
from shortlist.integrations.calling import Call, finished
from shortlist.integrations.programs import code_functions
from shortlist.library.filter import ToolFilter
from shortlist.library.options import FilterOptions
from shortlist.library.results import ScoredTool
from shortlist.models import Tool as OurTool

SHOWN = 10
LIMITED = FilterOptions(limit=SHOWN)


def shortlisted(tools: Sequence[Tool], *, options: FilterOptions = LIMITED, embedding: Any = "auto") -> list[Tool]:
    """Return an agent's tools so that each turn shows the model the best of them; hosted tools always stay."""
    functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
    turn = _Turn(ToolFilter(functions, embedding=embedding, defaults=options))
    return [_limited(tool, turn) if isinstance(tool, FunctionTool) else tool for tool in tools]


def function_tools(tools: Iterable[ScoredTool], call: Call) -> list[FunctionTool]:
    """Return function tools for definitions from a catalog, each of which ends in `call`."""
    return [_function(scored.tool, scored.name, call) for scored in tools]


def code_tools(source: ToolFilter, call: Call | None = None, **budget: Any) -> list[FunctionTool]:
    """Return the tools of code mode: one that finds functions, and one that runs a program which calls them."""
    return [function_tool(each) for each in code_functions(source, call, **budget)]


class _Turn:
    """What a filter picked for the input of a turn, asked for once and not by each tool."""

    def __init__(self, source: ToolFilter) -> None:
        self._source = source
        self._seen: tuple[Any, frozenset[str]] | None = None

    async def shows(self, name: str, context: RunContextWrapper[Any]) -> bool:
        items = context.turn_input
        if self._seen is None or self._seen[0] is not items:
            self._seen = (items, await self._picked(items))
        return name in self._seen[1]

    async def _picked(self, items: Any) -> frozenset[str]:
        every = frozenset(tool.name for tool in self._source.catalog.tools.values())
        try:
            found = await self._source.afilter(items)
        except InvalidQuery:  # a turn without words of a user
            return every
        called = {item["name"] for item in items if isinstance(item, dict) and item.get("type") == "function_call"}
        return frozenset(scored.tool.name for scored in found.tools) | (called & every)


def _limited(tool: FunctionTool, turn: _Turn) -> FunctionTool:
    before = tool.is_enabled

    async def enabled(context: RunContextWrapper[Any], agent: Agent[Any]) -> bool:
        if callable(before):
            answer = before(context, agent)
            allowed = await answer if hasattr(answer, "__await__") else answer
        else:
            allowed = before
        return bool(allowed) and await turn.shows(tool.name, context)

    return replace(tool, is_enabled=enabled)


def _function(tool: OurTool, name: str, call: Call) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> Any:
        return await finished(call, tool, json.loads(arguments or "{}"))

    return FunctionTool(
        name=name,
        description=described(tool),
        params_json_schema=object_schema(tool),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
