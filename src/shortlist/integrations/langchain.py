"""LangChain and LangGraph: chosen tools as LangChain tools, ready for `bind_tools` and `ToolNode`."""

import inspect
from collections.abc import Iterable
from typing import Any, Unpack

from langchain_core.tools import BaseTool, StructuredTool  # type: ignore[import-not-found, unused-ignore]

from shortlist.disclosure.formats import described, object_schema
from shortlist.integrations.calling import Call, finished
from shortlist.integrations.programs import code_functions
from shortlist.library.filter import Chat, ToolFilter
from shortlist.library.options import Choices
from shortlist.library.results import ScoredTool
from shortlist.models import Tool


def langchain_tools(tools: Iterable[ScoredTool], call: Call | None = None) -> list[BaseTool]:
    """Return LangChain tools: the original objects, and wrappers around `call` for tools of other kinds."""
    return [_tool(scored, call) for scored in tools]


def tools_for(
    source: ToolFilter, messages: Chat, call: Call | None = None, **choices: Unpack[Choices]
) -> list[BaseTool]:
    """Return the tools to bind for this turn of a graph, from the messages of its state."""
    return langchain_tools(source.filter(messages, **choices).tools, call)


def code_tools(source: ToolFilter, call: Call | None = None, **budget: Any) -> list[BaseTool]:
    """Return the tools of code mode: one that finds functions, and one that runs a program which calls them."""
    return [StructuredTool.from_function(coroutine=each) for each in code_functions(source, call, **budget)]


def _tool(scored: ScoredTool, call: Call | None) -> BaseTool:
    if isinstance(scored.original, BaseTool):
        return scored.original
    if callable(scored.original):
        return StructuredTool.from_function(
            _plain(scored.original), coroutine=_async(scored.original), name=scored.name
        )
    if call is None:
        raise TypeError(
            f"{scored.name!r} has no function of its own: pass call=, which gets the tool and its arguments."
        )
    return _around(scored.tool, scored.name, call)


def _around(tool: Tool, name: str, call: Call) -> BaseTool:
    async def run(**arguments: Any) -> Any:
        return await finished(call, tool, arguments)

    def run_now(**arguments: Any) -> Any:
        return call(tool, arguments)

    return StructuredTool(
        name=name,
        description=described(tool),
        args_schema=object_schema(tool),
        func=None if inspect.iscoroutinefunction(call) else run_now,
        coroutine=run,
    )


def _plain(function: Any) -> Any:
    return None if inspect.iscoroutinefunction(function) else function


def _async(function: Any) -> Any:
    return function if inspect.iscoroutinefunction(function) else None
