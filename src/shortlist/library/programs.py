"""Programs over a filter's tools: plain callables, or whatever `call` reaches. Needs the extra `code`."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.code.naming import NamedMembers, PythonNames
from shortlist.code.report import ProgramReport
from shortlist.code.runner import CallWork, Sandbox
from shortlist.code.sandbox import Budget, Script, Wanted
from shortlist.code.stubs import bound_arguments, python_description, python_signature, python_stub
from shortlist.errors import InvalidInput
from shortlist.models import Json, SearchResult, Tool, ToolId
from shortlist.text.tokens import one_line
from shortlist.validation import check_call

CallTool: TypeAlias = Callable[[Tool, dict[str, Any]], Any | Awaitable[Any]]
"""Calls a tool with its arguments; plain or async."""
DEFAULT_HITS = 5
DESCRIPTION = 120


async def run_code(
    source: str, catalog: Catalog, call: CallTool, search: Callable[..., SearchResult], budget: Budget
) -> ProgramReport:
    """Run a program over the tools of a catalog, in a worker of its own."""
    sandbox = Sandbox()
    try:
        return await sandbox.run(Script(source=source), _Functions(catalog, call, search), budget)
    finally:
        await sandbox.close()


def described_functions(catalog: Catalog, found: SearchResult) -> str:
    """Return hits as the signatures that a program calls, each with one line of its description."""
    names = PythonNames(NamedMembers(catalog.members))
    return "\n".join(python_stub(hit.tool, names.path(hit.tool.id)) for hit in found.hits) or "Nothing fits."


def calling(originals: Mapping[ToolId, Any]) -> CallTool:
    """Return what calls the objects that the tools were made of, where these are callables."""

    def call(tool: Tool, arguments: dict[str, Any]) -> Any:
        original = originals.get(tool.id)
        if not callable(original):
            raise InvalidInput(f"{tool.id} is not a callable: pass `call`, which calls a tool with its arguments.")
        return original(**arguments)

    return call


class _Functions:
    """What a program over a filter can reach."""

    def __init__(self, catalog: Catalog, call: CallTool, search: Callable[..., SearchResult]) -> None:
        self._catalog = catalog
        self._names = PythonNames(NamedMembers(catalog.members))
        self._call = call
        self._search = search

    async def prepare(self, calls: Sequence[Wanted]) -> Sequence[CallWork | Exception]:
        return [await self._prepared(wanted) for wanted in calls]

    async def _prepared(self, wanted: Wanted) -> CallWork | Exception:
        if wanted.name in ("search", "describe"):
            return partial(self._discover, wanted)
        tool = self._tool(wanted.name)
        if tool is None:
            return AttributeError(f'No function tools.{one_line(wanted.name, 100)}. Find one with search("...").')
        signature = python_signature(tool, self._names.path(tool.id))
        try:
            arguments = bound_arguments(tool, wanted.positional, wanted.named)
            wrong = "; ".join(map(str, (await check_call(tool, arguments)).violations))
        except InvalidInput as error:
            wrong = str(error)
        if wrong:
            return TypeError(f"{wanted.name} was NOT invoked: {wrong}. Signature: {signature}")
        return partial(self._made, tool, arguments)

    def _tool(self, path: str) -> Tool | None:
        tool_id = self._names.find(path)
        return None if tool_id is None else self._catalog.tools[tool_id]

    async def _made(self, tool: Tool, arguments: dict[str, Any]) -> Json:
        answer = self._call(tool, arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def _discover(self, wanted: Wanted) -> Json:
        text = str(next(iter((*wanted.positional, *wanted.named.values())), ""))
        if wanted.name == "describe":
            tool = self._tool(text)
            if tool is None:
                raise LookupError(f"No function {one_line(text, 100)!r}.")
            return python_description(tool, self._names.path(tool.id))
        found = self._search(text, limit=int(wanted.named.get("limit", DEFAULT_HITS)))
        paths = [(self._names.path(hit.tool.id), hit.tool) for hit in found.hits]
        return [
            {"name": p, "signature": python_signature(t, p), "description": one_line(t.description, DESCRIPTION)}
            for p, t in paths
        ]
