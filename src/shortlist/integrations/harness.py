"""Progressive disclosure for a loop written by hand: a menu, the chosen schemas, a call checked before it is made."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from shortlist.disclosure.render import describe_text
from shortlist.errors import ToolNotFound
from shortlist.library.filter import Chat, ToolFilter
from shortlist.library.options import Choices
from shortlist.library.results import FilterResult
from shortlist.models import Json, Tool
from shortlist.text.tokens import one_line
from shortlist.validation import check_arguments

MENU_DESCRIPTION = 100


@dataclass(frozen=True, slots=True)
class Menu:
    """Stage 1: names with one line each, as text for a model."""

    text: str
    result: FilterResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """Stage 3: a call that may be made, or what is wrong with it in words that a model can act on."""

    tool: Tool
    arguments: Mapping[str, Json]
    output_schema: Mapping[str, Json] | None
    """What the answer will look like, where the server says."""
    problems: tuple[str, ...] = ()
    unchecked: str = ""
    """Why the schema could not be evaluated, where it could not."""

    @property
    def ready(self) -> bool:
        return not self.problems

    def text(self) -> str:
        """Describe what to correct."""
        return "\n".join((f"{self.tool.name} was not called:", *(f"- {problem}" for problem in self.problems)))


class Disclosure:
    """Progressive disclosure in three stages."""

    def __init__(self, source: ToolFilter) -> None:
        self._source = source

    def menu(self, query: Chat, **choices: Unpack[Choices]) -> Menu:
        """Stage 1: the tools for this turn, one line each."""
        result = self._source.filter(query, **choices)
        lines = [f"{found.name}: {_line(found.tool)}" for found in result.tools]
        return Menu("\n".join(lines), result)

    def schemas(self, names: Iterable[str]) -> str:
        """Stage 2: the complete definitions of the chosen tools; an unknown name gets a suggestion."""
        return "\n\n".join(map(self._described, names))

    def call(self, name: str, arguments: Mapping[str, Json] | str | None) -> PreparedCall:
        """Stage 3: check arguments, as a mapping or as the JSON that models write, against the schema."""
        tool = self._source.tool(name)
        given = _parsed(arguments)
        if isinstance(given, str):
            return PreparedCall(tool=tool, arguments={}, output_schema=tool.output_schema, problems=(given,))
        check = check_arguments(tool, given)
        return PreparedCall(
            tool=tool,
            arguments=given,
            output_schema=tool.output_schema,
            problems=tuple(map(str, check.violations)),
            unchecked=check.unchecked,
        )

    def _described(self, name: str) -> str:
        try:
            return describe_text(self._source.tool(name), name)
        except ToolNotFound as error:
            return str(error)


def _line(tool: Tool) -> str:
    return one_line(tool.description or tool.title or tool.name, MENU_DESCRIPTION)


def _parsed(arguments: Any) -> Mapping[str, Json] | str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            return f"the arguments are not JSON ({error}); write one object"
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        return f"the arguments are {type(arguments).__name__}; write one object"
    return arguments
