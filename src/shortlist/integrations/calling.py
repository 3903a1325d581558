"""How an adapter reaches the tool behind a definition: one callable for all, plain or async."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from shortlist.models import Tool

Call: TypeAlias = Callable[[Tool, dict[str, Any]], Any | Awaitable[Any]]
"""Calls a tool with its arguments and returns the answer; for running servers, `UpstreamPool.call_tool`."""


async def finished(call: Call, tool: Tool, arguments: dict[str, Any]) -> Any:
    """Call, and wait where that is needed."""
    answer = call(tool, arguments)
    return await answer if inspect.isawaitable(answer) else answer
