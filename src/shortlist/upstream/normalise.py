"""Turns a server's raw tool list into tools of the catalog; a bad tool is left out and reported."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

from shortlist.catalog.readers import BadTool, tool_from_mcp
from shortlist.config.settings import ServerSettings, ToolOverride
from shortlist.large import MOST_LEVELS
from shortlist.models import Json, Tool
from shortlist.upstream.events import Era
from shortlist.upstream.framing import NESTED_TOO_DEEPLY
from shortlist.upstream.wire import HeaderMap

REPORTED_PROBLEMS = 50
"""How many bad tools of a server are reported one by one."""

MAX_LISTED_CHARACTERS = 200_000_000
"""What the definitions of one server's tools may take together."""

LABELS_FILTER = "own labels filter"
"""Part of the hash of labelled tools: an index in which labels of servers rank has other hashes, and is updated."""


@dataclass(slots=True)
class Listing:
    """Tools as they are read, page by page, after the user's own choices."""

    settings: ServerSettings
    era: Era
    known: Mapping[str, Tool] = field(default_factory=dict)
    """The tools listed before, by name: those that are listed again unchanged stay the same objects."""
    tools: dict[str, Tool] = field(default_factory=dict)
    header_maps: dict[str, HeaderMap] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _characters: int = 0
    _problems: list[str] = field(default_factory=list)

    def extend(self, page: Iterable[Json]) -> None:
        """Add the tools of one page; the first of equal names is kept."""
        for raw in page:
            try:
                self._add(raw)
            except BadTool as error:
                self._problems.append(f"tool {_name(raw)!r} is left out: {error}")

    @property
    def problems(self) -> tuple[str, ...]:
        more = len(self._problems) - REPORTED_PROBLEMS
        rest = (f"and {more} more",) if more > 0 else ()
        return (*self._problems[:REPORTED_PROBLEMS], *rest)

    def note(self, problem: str) -> None:
        self._problems.append(problem)

    def _add(self, raw: Json) -> None:
        if not isinstance(raw, Mapping):
            raise BadTool(f"a tool is a JSON object, this is {type(raw).__name__}")
        if raw.get(NESTED_TOO_DEEPLY) is True:
            raise BadTool(f"it is nested too deeply; a message has {MOST_LEVELS} levels at most")
        _check_schemas(raw)
        override = self.settings.tools.get(_name(raw), ToolOverride())
        if override.description is not None:
            raw = {**raw, "description": override.description}
        tool = tool_from_mcp(raw, self.settings.name)
        if tool.name in self._seen:
            raise BadTool("the server lists this name twice; the first is kept")
        self._seen.add(tool.name)
        self._characters += len(tool.definition)
        if self._characters > MAX_LISTED_CHARACTERS:
            raise BadTool(f"the definitions of this server are longer than {MAX_LISTED_CHARACTERS:,} characters in all")
        if self.era == "modern":
            self._map_headers(tool.name, raw)
        if is_wanted(tool.name, self.settings):
            tool, known = _labelled(tool, self.settings.tags, override.keywords), self.known.get(tool.name)
            self.tools[tool.name] = known if known is not None and known == tool else tool

    def _map_headers(self, name: str, raw: Mapping[str, Json]) -> None:
        reason = find_invalid_x_mcp_header(raw["inputSchema"])
        if reason is not None:
            raise BadTool(f"its x-mcp-header is invalid ({reason})")
        if mapped := x_mcp_header_map(raw["inputSchema"]):
            self.header_maps[name] = mapped


def is_wanted(name: str, settings: ServerSettings) -> bool:
    """Return whether the include and exclude globs of the server let a tool through."""
    included = any(fnmatchcase(name, glob) for glob in settings.include)
    return included and not any(fnmatchcase(name, glob) for glob in settings.exclude)


def _check_schemas(raw: Mapping[str, Json]) -> None:
    """Drop definitions that would make a typed client reject the whole list."""
    schema = raw.get("inputSchema")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise BadTool("its inputSchema is not an object schema ('type': 'object')")
    output = raw.get("outputSchema")
    if output is not None and not isinstance(output, Mapping):
        raise BadTool(f"its outputSchema is not an object but {type(output).__name__}")


def _labelled(tool: Tool, tags: tuple[str, ...], keywords: tuple[str, ...]) -> Tool:
    """Return a tool that ranks by the labels of the configuration; those of its own server remain to filter by."""
    if not (tags or keywords or tool.tags or tool.keywords):
        return tool
    label = "\0".join((tool.content_hash, LABELS_FILTER, *tags, "", *keywords))
    return replace(
        tool,
        tags=(*tool.tags, *(tag for tag in tags if tag not in tool.tags)),
        keywords=(*keywords, *tags),
        content_hash=hashlib.blake2b(label.encode(), digest_size=12).hexdigest(),
    )


def _name(raw: Json) -> str:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    return name[:100] if isinstance(name, str) else "?"
