"""Tools that lie in a file as lines of JSON, and are parsed when somebody asks for them."""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple, Protocol

from shortlist.models import Annotations, Server, Tool, ToolId

MAX_PARSED = 2_000
"""How many parsed tools are remembered: searches find the same ones again and again."""

_FIELDS = tuple(each.name for each in fields(Tool))


class ToolLines(Protocol):
    """A text that has the lines of some tools."""

    def line(self, tool_id: ToolId) -> bytes:
        """Return the line of a tool; separators may follow it."""
        ...


class ListedLines(NamedTuple):
    """The lines of a saved tool list, in the order of their ids. A value for all of its tools: places are computed."""

    ids: Sequence[ToolId]
    ends: Sequence[int]
    text: memoryview

    def line(self, tool_id: ToolId) -> bytes:
        number = bisect_left(self.ids, tool_id)
        return bytes(self.text[self.ends[number - 1] if number else 0 : self.ends[number]])


class StoredTools(Mapping[ToolId, Tool]):
    """Tools by id, in the order of `lines`."""

    def __init__(self, lines: Mapping[ToolId, ToolLines]) -> None:
        self._lines = lines
        self._parsed: dict[ToolId, Tool] = {}

    def __getitem__(self, tool_id: ToolId) -> Tool:
        found = self._parsed.get(tool_id)
        if found is None:
            line = self._lines[tool_id].line(tool_id)
            if len(self._parsed) >= MAX_PARSED:
                self._parsed.clear()
            found = self._parsed[tool_id] = tool_of(json.loads(line.rstrip(b",\n")))
        return found

    def __contains__(self, tool_id: object) -> bool:
        return tool_id in self._lines

    def __iter__(self) -> Iterator[ToolId]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def line_of(tool: Tool) -> bytes:
    """Return a tool as one line of JSON, which `tool_of` reads."""
    raw = {name: getattr(tool, name) for name in _FIELDS}
    raw["annotations"] = asdict(tool.annotations)  # `asdict` of the whole tool takes as long as writing it
    return json.dumps(raw, ensure_ascii=False).encode()


def tool_of(raw: Mapping[str, Any]) -> Tool:
    lists = {key: tuple(raw[key]) for key in ("tags", "keywords")}
    return Tool(**{**raw, **lists, "annotations": Annotations(**raw["annotations"])})


def server_of(raw: Mapping[str, Any]) -> Server:
    return Server(**{**raw, "categories": tuple(raw["categories"]), "tags": tuple(raw["tags"])})
