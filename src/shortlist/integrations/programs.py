"""Code mode for agent frameworks: one function that finds tools and one that runs a program over them.

The adapters of the frameworks wrap these two; any framework that takes plain async functions can use them as they are.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from shortlist.errors import ShortlistError
from shortlist.integrations.calling import Call
from shortlist.library.filter import ToolFilter
from shortlist.library.programs import described_functions

FOUND = 5
TextFunction: TypeAlias = Callable[[str], Awaitable[str]]


class CodeFunctions(NamedTuple):
    """What a model gets in place of all tools."""

    search_functions: TextFunction
    run_code: TextFunction


def code_functions(source: ToolFilter, call: Call | None = None, **budget: Any) -> CodeFunctions:
    """Return the two functions over a filter's tools; `call` and `budget` are those of `ToolFilter.run`."""

    async def search_functions(query: str) -> str:
        """Find functions that a program can call, by what they do, e.g. 'create a GitHub issue'."""
        try:
            found = source.search(query, limit=FOUND)
        except ShortlistError as error:
            return str(error)
        return described_functions(source.catalog, found)

    async def run_code(code: str) -> str:
        """Run a Python program that calls functions as search_functions shows them: `await tools.server.tool(a=1)`.

        Use `await asyncio.gather(...)` for calls in parallel. Only what the program prints and its last value come
        back. It has no files and no network.
        """
        try:
            return (await source.run(code, call, **budget)).text()
        except ShortlistError as error:
            return str(error)

    return CodeFunctions(search_functions, run_code)
