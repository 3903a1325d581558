"""Reads catalogs from JSON, files, framework tools, plain callables and running servers."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import (
    BadTool,
    CatalogReading,
    ReadingProblem,
    ToolEntry,
    item_entries,
    read_catalog,
    read_entries,
    read_tool,
    refused,
)
from shortlist.config.documents import read_document
from shortlist.config.settings import Settings
from shortlist.errors import InvalidCatalog, InvalidConfig, InvalidInput
from shortlist.library.objects import definition_of, holds_objects, members, prefix_of
from shortlist.library.reading import SourceReading
from shortlist.models import Server, Tool, ToolId
from shortlist.text.tokens import one_line

Source: TypeAlias = Any
"""Catalog, Settings, a path, parsed JSON, or an iterable of tools, callables and framework objects."""

READABLE = (
    "You can pass MCP, OpenAI, Anthropic or Gemini definitions, an OpenAPI document, tools of a framework "
    "(docs/library.md lists them), or functions."
)
_LIVE = ("mcpServers", "mcp_servers")


def read_source(source: Source) -> SourceReading:
    """Read tools from any source; two tools of one server with one name are an error."""
    if isinstance(source, Catalog):
        return SourceReading(source)
    if isinstance(source, Settings) or _is_live(source):
        return _read_live(source)
    if isinstance(source, (str, Path, Mapping)) and not holds_objects(source):
        return _checked(read_catalog(source))
    return _read_items(list(source) if _is_list(source) else [source])


def _is_list(source: Source) -> bool:
    """Return whether a source lists tools itself; a tool or a group of tools may be iterable, too."""
    if callable(source) or not isinstance(source, Iterable):
        return False
    with suppress(Exception):  # a broken object is reported when it is read
        return definition_of(source) is None and members(source) is None
    return False


def _read_items(items: list[Any]) -> SourceReading:
    """Read a list of tools; what cannot be read is reported, unless it is all there is."""
    objects: dict[ToolId, Any] = {}
    entries = (entry for place, item in enumerate(items) for entry in _entries(item, f"[{place}]", objects))
    reading = read_entries(entries)
    if reading.problems and not reading.catalog and not any(isinstance(item, (Mapping, Tool)) for item in items):
        raise InvalidCatalog(f"{reading.problems[0].message.removeprefix('skipped: ')}. {READABLE}")
    return replace(_checked(reading), originals=objects)


def _entries(item: Any, place: str, objects: dict[ToolId, Any], prefix: str = "") -> Iterator[ToolEntry]:
    """Yield the tools of an item, those of toolkits and plugins each with its own place; `objects` keeps theirs."""
    if isinstance(item, Tool):
        yield place, partial(_made, item)
    elif isinstance(item, Mapping) and not holds_objects(item):
        yield from item_entries(item, place)
    else:
        try:
            definition = definition_of(item)
            inside = members(item) if definition is None else None
            prefix += prefix_of(item)
        except Exception as error:
            reason = str(error) if isinstance(error, BadTool) else f"{type(error).__name__}: {error}"
            yield place, refused(f"{_shown(item)} cannot be read: {reason}")
            return
        if definition is not None:
            named = {**definition, "name": f"{prefix}{definition['name']}"}
            yield place, partial(_kept, named, item, objects)
        elif inside is not None:
            for number, each in enumerate(inside):
                yield from _entries(each, f"{place}[{number}]", objects, prefix)
        else:
            yield place, refused(f"{_shown(item)} cannot be read as a tool")


def _made(tool: Tool) -> tuple[Tool, None]:
    return _ranked_by_labels(tool), None


def _kept(definition: Mapping[str, Any], item: Any, objects: dict[ToolId, Any]) -> tuple[Tool, Server | None]:
    """Read a definition and keep the object that it was made of."""
    tool, server = read_tool(definition)
    objects[tool.id] = item
    return tool, server


def _ranked_by_labels(tool: Tool) -> Tool:
    """Let a tool that was made in code rank by its category and tags, too, as one in a catalog file does."""
    if tool.content_hash or not (tool.category or tool.tags):  # it was read, which decided what it ranks by
        return tool
    labels = (*tool.keywords, *tool.tags, tool.category)
    return replace(tool, keywords=tuple(dict.fromkeys(filter(None, labels))))


def _shown(item: Any) -> str:
    try:
        return one_line(repr(item), 80)
    except Exception:
        return f"a {type(item).__name__}"


def _checked(reading: CatalogReading) -> SourceReading:
    for problem in reading.problems:
        if problem.duplicate_of is not None:
            raise _twins(reading.catalog.tools.get(problem.duplicate_of), problem.duplicate_of, problem)
    return SourceReading(reading.catalog, tuple(map(str, reading.problems)))


def _twins(first: Tool | None, tool_id: ToolId, second: ReadingProblem) -> InvalidCatalog:
    server = f"server {first.server!r}" if first and first.server else "the list"
    about = f" ({first.description[:60]!r})" if first and first.description else ""
    return InvalidCatalog(
        f"Two tools of {server} are called {tool_id!r}: the first{about} and {second.place}. "
        "Rename one, or give each a server of its own."
    )


def _is_live(source: Source) -> bool:
    if isinstance(source, Mapping):
        return any(key in source for key in _LIVE)
    if not isinstance(source, (str, Path)) or Path(source).suffix not in (".json", ".toml", ".yaml", ".yml"):
        return False
    path = Path(source)
    if not path.is_file():
        return False
    head = path.read_bytes()[:65_536].decode("utf-8", "replace")
    return any(key in head for key in _LIVE) and _is_live(_document(path))


def _document(path: Path) -> Mapping[str, Any]:
    try:
        return read_document(path)
    except InvalidConfig:
        return {}


def _read_live(source: Source) -> SourceReading:
    # The MCP client takes most of a second to import, few catalogs need it, and it is in a distribution of its own.
    try:
        live = import_module("shortlist.library.live")
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"Listing the tools of MCP servers needs the gateway ({error.name} is not installed): "
            "pip install shortlist-mcp"
        ) from error
    reading: SourceReading = live.read_live(source)
    return reading
