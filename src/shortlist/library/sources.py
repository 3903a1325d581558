"""Catalogs from whatever a program has: JSON, files, framework tools, plain callables, live servers."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import CatalogReading, Problem, read_catalog
from shortlist.config.documents import read_document
from shortlist.config.settings import Settings
from shortlist.errors import InvalidCatalog, InvalidConfig, InvalidInput
from shortlist.library.reading import SourceReading
from shortlist.models import Json, Tool, ToolId

Source: TypeAlias = Any
"""Catalog, Settings, a path, parsed JSON, or an iterable of tools, callables and framework objects."""

_LIVE = ("mcpServers", "mcp_servers")
_SCHEMAS = ("parameters_json_schema", "params_json_schema")
"""What pydantic-ai and the OpenAI Agents SDK call a tool's schema."""
_ARGUMENT = re.compile(r"^\s*(?::param\s+)?(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>\S.*)$")
_SKIPPED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def read_source(source: Source) -> SourceReading:
    """Read tools from any source; two tools of one server with one name are an error."""
    if isinstance(source, Catalog):
        return SourceReading(source)
    if isinstance(source, Settings) or _is_live(source):
        return _read_live(source)
    if isinstance(source, (str, Path, Mapping)):
        return _checked(read_catalog(source))
    if callable(source) or not isinstance(source, Iterable):
        source = [source]
    return _read_items(list(source))


def mcp_of(item: Any) -> dict[str, Json]:
    """Write a framework's tool or a plain callable as an MCP definition."""
    for kind, convert in _OBJECTS:
        if kind(item):
            return convert(item)
    raise InvalidCatalog(
        f"{item!r} is no tool: pass MCP, OpenAI or Anthropic definitions, LangChain tools, or callables."
    )


def _read_items(items: list[Any]) -> SourceReading:
    made = [item for item in items if isinstance(item, Tool)]
    raw = [item if isinstance(item, Mapping) else mcp_of(item) for item in items if not isinstance(item, Tool)]
    reading = _checked(read_catalog(raw))
    objects = {
        definition["name"]: item
        for item, definition in zip((i for i in items if not isinstance(i, Tool)), raw, strict=True)
        if not isinstance(item, Mapping)
    }
    tools = (*reading.catalog.tools.values(), *made)
    _refuse_twins(tools)
    catalog = Catalog.of(tools, reading.catalog.servers.values()) if made else reading.catalog
    return SourceReading(catalog, reading.problems, objects)


def _checked(reading: CatalogReading) -> SourceReading:
    for problem in reading.problems:
        if problem.duplicate_of is not None:
            raise _twins(reading.catalog.tools.get(problem.duplicate_of), problem.duplicate_of, problem)
    return SourceReading(reading.catalog, tuple(map(str, reading.problems)))


def _refuse_twins(tools: Iterable[Tool]) -> None:
    seen: dict[ToolId, Tool] = {}
    for position, tool in enumerate(tools):
        if tool.id in seen:
            raise _twins(seen[tool.id], tool.id, Problem(f"[{position}]", tool.description))
        seen[tool.id] = tool


def _twins(first: Tool | None, tool_id: ToolId, second: Problem) -> InvalidCatalog:
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


def _is_langchain(item: Any) -> bool:
    return hasattr(item, "tool_call_schema") and isinstance(getattr(item, "name", None), str)


def _from_langchain(item: Any) -> dict[str, Json]:
    schema = item.tool_call_schema
    return _definition(item.name, item.description, schema if isinstance(schema, dict) else schema.model_json_schema())


def _has_schema(item: Any) -> bool:
    return isinstance(getattr(item, "name", None), str) and any(hasattr(item, key) for key in _SCHEMAS)


def _from_attributes(item: Any) -> dict[str, Json]:
    schema = next(getattr(item, key) for key in _SCHEMAS if hasattr(item, key))
    return _definition(item.name, getattr(item, "description", None), schema)


def _is_model(item: Any) -> bool:
    return hasattr(item, "model_dump") and isinstance(getattr(item, "name", None), str)


def _from_model(item: Any) -> dict[str, Json]:
    dumped: dict[str, Json] = item.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _from_callable(item: Callable[..., Any]) -> dict[str, Json]:
    name = getattr(item, "__name__", None) or type(item).__name__
    described = inspect.getdoc(item) or ""
    about, notes = _docstring(described)
    return _definition(name, about, _signature_schema(item, notes))


def _signature_schema(item: Callable[..., Any], notes: Mapping[str, str]) -> dict[str, Json]:
    from pydantic import TypeAdapter  # noqa: PLC0415
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError  # noqa: PLC0415

    properties: dict[str, Json] = {}
    required: list[str] = []
    definitions: dict[str, Json] = {}
    for name, parameter, annotation in _parameters(item):
        try:
            schema = TypeAdapter(annotation).json_schema(ref_template="#/$defs/{model}")
        except (PydanticSchemaGenerationError, PydanticUserError, NameError):
            schema = {}
        definitions.update(schema.pop("$defs", {}))
        properties[name] = {**schema, **({"description": notes[name]} if name in notes else {})}
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    found: dict[str, Json] = {"type": "object", "properties": properties, "required": required}
    return {**found, "$defs": definitions} if definitions else found


def _parameters(item: Callable[..., Any]) -> Iterator[tuple[str, inspect.Parameter, Any]]:
    try:
        signature = inspect.signature(item, eval_str=True)
    except (NameError, TypeError, ValueError):
        signature = inspect.Signature() if not inspect.isroutine(item) else inspect.signature(item)
    for name, parameter in signature.parameters.items():
        if parameter.kind not in _SKIPPED:
            annotation = parameter.annotation
            yield name, parameter, Any if annotation is inspect.Parameter.empty else annotation


def _docstring(text: str) -> tuple[str, Mapping[str, str]]:
    """Split a docstring into what the callable does and what its arguments are (Google and Sphinx styles)."""
    about, arguments = text, ""
    for mark in ("\nArgs:", "\nArguments:", "\nParameters:", "\n:param "):
        head, found, tail = text.partition(mark)
        if found:
            about, arguments = head, f"{mark.lstrip() if mark.startswith(chr(10) + ':') else ''}{tail}"
            break
    notes = {m["name"]: m["text"] for line in arguments.splitlines() if (m := _ARGUMENT.match(line))}
    return about.strip(), notes


def _definition(name: str, description: str | None, schema: Mapping[str, Json]) -> dict[str, Json]:
    return {"name": name, "description": description or "", "inputSchema": dict(schema)}


_OBJECTS: tuple[tuple[Callable[[Any], bool], Callable[[Any], dict[str, Json]]], ...] = (
    (_is_langchain, _from_langchain),
    (_has_schema, _from_attributes),
    (_is_model, _from_model),
    (callable, _from_callable),
)
