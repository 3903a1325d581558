"""Tools that lie in a file as lines of JSON, and are parsed when somebody asks for them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from shortlist.models import Annotations, Server, Tool, ToolId

LinePlace: TypeAlias = tuple[memoryview, int, int]
"""A text, and where in it the line of one tool begins and ends; separators may follow it."""

MAX_PARSED = 2_000
"""How many parsed tools are remembered: searches find the same ones again and again."""

_FIELDS = tuple(each.name for each in fields(Tool))


class StoredTools(Mapping[ToolId, Tool]):
    """Tools by id, in the order of `places`."""

    def __init__(self, places: Mapping[ToolId, LinePlace]) -> None:
        self._places = places
        self._parsed: dict[ToolId, Tool] = {}

    def __getitem__(self, tool_id: ToolId) -> Tool:
        found = self._parsed.get(tool_id)
        if found is None:
            text, start, end = self._places[tool_id]
            if len(self._parsed) >= MAX_PARSED:
                self._parsed.clear()
            found = self._parsed[tool_id] = tool_of(json.loads(bytes(text[start:end]).rstrip(b",\n")))
        return found

    def __contains__(self, tool_id: object) -> bool:
        return tool_id in self._places

    def __iter__(self) -> Iterator[ToolId]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


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
