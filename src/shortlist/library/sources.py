"""Reads catalogs from JSON, files, framework tools, plain callables and running servers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import CatalogReading, ReadingProblem, read_catalog
from shortlist.config.documents import read_document
from shortlist.config.settings import Settings
from shortlist.errors import InvalidCatalog, InvalidConfig, InvalidInput
from shortlist.library.objects import definition_of, members
from shortlist.library.reading import SourceReading
from shortlist.models import Tool, ToolId

Source: TypeAlias = Any
"""Catalog, Settings, a path, parsed JSON, or an iterable of tools, callables and framework objects."""

READABLE = (
    "Pass MCP, OpenAI, Anthropic or Gemini definitions, an OpenAPI document, tools of a framework (docs/library.md "
    "lists them), or functions."
)
_LIVE = ("mcpServers", "mcp_servers")


def read_source(source: Source) -> SourceReading:
    """Read tools from any source; two tools of one server with one name are an error."""
    if isinstance(source, Catalog):
        return SourceReading(source)
    if isinstance(source, Settings) or _is_live(source):
        return _read_live(source)
    if isinstance(source, (str, Path, Mapping)):
        return _checked(read_catalog(source))
    if callable(source) or not isinstance(source, Iterable) or members(source) is not None:
        source = [source]
    return _read_items(list(source))


def _read_items(items: list[Any]) -> SourceReading:
    """Read a list of tools; what cannot be read is reported, unless it is all there is."""
    made = [_ranked_by_labels(item) for item in items if isinstance(item, Tool)]
    raw: list[Mapping[str, Any]] = []
    objects: dict[str, Any] = {}
    unread: list[str] = []
    for position, item in _flat(items):
        if isinstance(item, Mapping):
            raw.append(item)
        elif (definition := definition_of(item)) is None:
            unread.append(f"[{position}]: skipped: {_shown(item)} cannot be read as a tool")
        else:
            raw.append(definition)
            objects[_identity(definition)] = item
    if unread and not raw and not made:
        raise InvalidCatalog(f"{unread[0].partition('skipped: ')[2]}. {READABLE}")
    reading = _checked(read_catalog(raw))
    tools = (*reading.catalog.tools.values(), *made)
    _refuse_twins(tools)
    catalog = Catalog.of(tools, reading.catalog.servers.values()) if made else reading.catalog
    return SourceReading(catalog, (*reading.problems, *unread), objects)


def _ranked_by_labels(tool: Tool) -> Tool:
    """Let a tool that was made in code rank by its category and tags, too, as one in a catalog file does."""
    if tool.content_hash or not (tool.category or tool.tags):  # it was read, which decided what it ranks by
        return tool
    labels = (*tool.keywords, *tool.tags, tool.category)
    return replace(tool, keywords=tuple(dict.fromkeys(filter(None, labels))))


def _flat(items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the tools of a list, those of toolkits and plugins in their place."""
    for position, item in enumerate(items):
        if isinstance(item, Tool):
            continue
        inside = members(item)
        for each in [item] if inside is None else inside:
            yield position, each


def _identity(definition: Mapping[str, Any]) -> ToolId:
    server = definition.get("server")
    return f"{server}/{definition['name']}" if server else definition["name"]


def _shown(item: Any) -> str:
    shown = repr(item)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def _checked(reading: CatalogReading) -> SourceReading:
    for problem in reading.problems:
        if problem.duplicate_of is not None:
            raise _twins(reading.catalog.tools.get(problem.duplicate_of), problem.duplicate_of, problem)
    return SourceReading(reading.catalog, tuple(map(str, reading.problems)))


def _refuse_twins(tools: Iterable[Tool]) -> None:
    seen: dict[ToolId, Tool] = {}
    for position, tool in enumerate(tools):
        if tool.id in seen:
            raise _twins(seen[tool.id], tool.id, ReadingProblem(f"[{position}]", tool.description))
        seen[tool.id] = tool


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
