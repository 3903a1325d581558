"""Reads catalogs in common formats: an invalid tool is reported and skipped, the rest is loaded."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.openapi import is_openapi, read_openapi
from shortlist.errors import InvalidCatalog
from shortlist.models import Annotations, Server, Tool, ToolId
from shortlist.schema import text_of
from shortlist.text.tokens import clean_text, one_line

Raw: TypeAlias = Mapping[str, Any]

CATALOG_FILES = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz", "*.yaml", "*.yml")
"""What is read of a folder."""
MAX_NAME_LENGTH = 512
MAX_NESTING = 200
"""Deeper than any real schema, and far below the recursion limit of other readers."""
MAX_DEFINITION_CHARACTERS = 1_000_000
MAX_DEFINITION_VALUES = 100_000
"""A longer definition would take seconds to scan, compare and index, and no model could read it."""
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_NO_HINTS = Annotations()
_HINTS = (
    ("read_only", ("readOnlyHint", "readOnly")),
    ("destructive", ("destructiveHint", "destructive")),
    ("idempotent", ("idempotentHint", "idempotent")),
    ("open_world", ("openWorldHint", "openWorld")),
)


@dataclass(frozen=True, slots=True)
class ReadingProblem:
    """Something that was skipped or repaired while reading, and where it stood."""

    place: str
    message: str
    duplicate_of: ToolId | None = None
    """The id of the tool that was kept, where this one had the same id."""

    def __str__(self) -> str:
        return one_line(f"{self.place}: {self.message}")


@dataclass(frozen=True, slots=True)
class CatalogReading:
    """A catalog and what was wrong with its source."""

    catalog: Catalog
    problems: tuple[ReadingProblem, ...] = ()


class BadTool(ValueError):
    """One tool that cannot be used; the reader reports it and goes on."""


def read_catalog(source: str | Path | Any) -> CatalogReading:
    """Read a file (JSON or JSON lines, gzipped or not), a folder of them, or parsed JSON."""
    if isinstance(source, (str, Path)):
        return _read_path(Path(source))
    return read_entries(_entries(source, ""))


def tool_from_mcp(raw: Raw, server: str = "", *, tool_id: str | None = None) -> Tool:
    """Make a tool of its MCP definition; raises `BadTool` when it has no usable name."""
    name = raw.get("name")
    if not isinstance(name, str) or not clean_text(name).strip():
        raise BadTool(f"a tool needs a name, this one has {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise BadTool(f"the name is {len(name)} characters long; the limit is {MAX_NAME_LENGTH}")
    hints, meta = _mapping(raw, "annotations"), _mapping(raw, "_meta")
    definition = _compact_json(raw)
    category, tags = text_of(_label(raw, meta, "category")), _texts(_label(raw, meta, "tags"))
    identity = tool_id or (f"{server}/{name}" if server else name)
    if _encodable(identity) != identity:
        raise BadTool(f"its id {identity!r} cannot be written as UTF-8")
    return Tool(
        id=identity,
        name=name,
        server=server,
        title=text_of(raw.get("title")) or text_of(hints.get("title")),
        description=text_of(raw.get("description")),
        category=category,
        tags=tags,
        keywords=(*_texts(_label(raw, meta, "keywords")), *tags, *((category,) if category else ())),
        annotations=Annotations(**{key: _hint(hints, names) for key, names in _HINTS}) if hints else _NO_HINTS,
        definition=definition,
        content_hash=hashlib.blake2b(f"{server}\0{definition}".encode(), digest_size=12).hexdigest(),
    )


def _compact_json(raw: Raw) -> str:
    _check_extent(raw)
    try:
        text = _COMPACT.encode(raw)
        text.encode()
    except RecursionError:
        raise BadTool("it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise BadTool(f"it is not JSON ({error})") from None
    if text.count("{") + text.count("[") > MAX_NESTING and _nesting(raw) > MAX_NESTING:
        raise BadTool(f"it is nested too deeply; the limit is {MAX_NESTING} levels")
    if len(text) > MAX_DEFINITION_CHARACTERS:
        most = MAX_DEFINITION_CHARACTERS
        raise BadTool(f"its definition is {len(text):,} characters long; the limit is {most:,}")
    return text


def _check_extent(raw: Raw) -> None:
    """Raise BadTool for a definition that is far too long, before it takes a second to encode."""
    characters = values = 0
    waiting: list[Any] = [raw]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, dict):
            values += len(item)
            waiting += item.values()
            waiting += item
        elif isinstance(item, (list, tuple)):
            values += len(item)
            waiting += item
        if characters > MAX_DEFINITION_CHARACTERS or values > MAX_DEFINITION_VALUES:
            most = f"{MAX_DEFINITION_CHARACTERS:,} characters and {MAX_DEFINITION_VALUES:,} values"
            raise BadTool(f"its definition is too long; the limit is {most}")


def _nesting(raw: Any) -> int:
    deepest, level = 0, [raw]
    while level:
        deepest += 1
        inside = (item for each in level for item in (each.values() if isinstance(each, dict) else each))
        level = [item for item in inside if isinstance(item, (dict, list, tuple))]
    return deepest


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _mapping(raw: Raw, key: str) -> Raw:
    value = raw.get(key)
    return value if _is_mapping(value) else {}


def _is_mapping(value: Any) -> TypeGuard[Raw]:
    # Asked many times of every tool: None and dict are known at once, the abstract class takes ten times as long.
    return value is not None and isinstance(value, (dict, Mapping))


def _label(raw: Raw, meta: Raw, key: str) -> Any:
    return raw.get(key) if raw.get(key) is not None else meta.get(key)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(text for item in value if (text := text_of(item))) if isinstance(value, (list, tuple)) else ()


def _hint(hints: Raw, names: tuple[str, ...]) -> bool | None:
    for name in names:
        value = hints.get(name)
        if isinstance(value, Mapping):
            value = value.get("value")
        if isinstance(value, bool):
            return value
    return None


ToolEntry: TypeAlias = tuple[str, Callable[[], tuple[Tool, Server | None]]]
"""A place in the source and how to read the tool there."""


def read_entries(entries: Iterable[ToolEntry]) -> CatalogReading:
    """Read the tools of a source one by one."""
    tools: dict[str, Tool] = {}
    servers: dict[str, Server] = {}
    found: list[ReadingProblem] = []
    for place, read in entries:
        try:
            tool, server = read()
        except BadTool as error:
            found.append(ReadingProblem(place, f"skipped: {error}"))
            continue
        if tool.id in tools:
            found.append(ReadingProblem(place, f"skipped: the id {tool.id!r} is there already", duplicate_of=tool.id))
            continue
        tools[tool.id] = tool
        if server is not None and server.name not in servers:
            servers[server.name] = server
    return CatalogReading(Catalog.of(tools.values(), servers.values()), tuple(found))


def _read_path(path: Path) -> CatalogReading:
    if path.is_dir():
        files = sorted(file for pattern in CATALOG_FILES for file in path.glob(pattern))
        if not files:
            raise InvalidCatalog(f"No catalog in {str(path)!r}: put *.json, *.jsonl or *.yaml files with tools there.")
        return read_entries(entry for file in files for entry in _file_entries(file, _server_name(file)))
    return read_entries(_file_entries(path, ""))


def _file_entries(path: Path, name: str) -> Iterator[ToolEntry]:
    source = _parsed(path)
    try:
        yield from _entries(source, name)
    except InvalidCatalog as error:
        raise InvalidCatalog(f"{str(path)!r}: {error}") from None


def _server_name(file: Path) -> str:
    return file.name.removesuffix(".gz").rpartition(".")[0]


def _parsed(path: Path) -> Any:
    text = _text_of_file(path)
    if not text.strip():
        raise InvalidCatalog(f"{str(path)!r} is empty; a catalog is a JSON document or one JSON object a line.")
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return _Lines(path, text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, text)
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidCatalog(f"{str(path)!r} is nested too deeply to be a catalog.") from None
    except json.JSONDecodeError as error:
        if _is_object(text.lstrip().partition("\n")[0]):
            return _Lines(path, text)
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidCatalog(
            f"{str(path)!r} is not JSON at {place}: {error.msg}. Is it cut off? Write it again."
        ) from None
    except ValueError as error:
        raise InvalidCatalog(f"{str(path)!r} cannot be read as JSON: {error}.") from None


def _yaml(path: Path, text: str) -> Any:
    """Read YAML, in which OpenAPI documents are often written, where a reader of it is installed."""
    if find_spec("yaml") is None:
        raise InvalidCatalog(f"{str(path)!r} is YAML: install PyYAML (pip install pyyaml), or convert it to JSON.")
    yaml = import_module("yaml")
    try:
        return yaml.load(text, _dates_as_written(yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidCatalog(f"{str(path)!r} is not valid YAML: {one_line(str(error), 200)}") from None


def _dates_as_written(loader: Any) -> Any:
    """Return a loader that leaves dates as they are written: JSON, which definitions are, has none."""
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    return type("DatesAsWritten", (loader,), {"yaml_implicit_resolvers": resolvers})


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _text_of_file(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidCatalog(f"There is no file {str(path)!r}.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InvalidCatalog(f"{str(path)!r} is a truncated or damaged gzip file; fetch it again.") from None
    except UnicodeDecodeError as error:
        raise InvalidCatalog(f"{str(path)!r} is not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise InvalidCatalog(f"{str(path)!r} cannot be read: {error.strerror}.") from None


@dataclass(frozen=True, slots=True)
class _Lines:
    path: Path
    text: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(self.text.split("\n"), 1):
            if line.strip():
                yield f"{self.path.name} line {number}", line


def _entries(source: Any, name: str) -> Iterator[ToolEntry]:
    if isinstance(source, _Lines):
        return ((place, _line_reader(line)) for place, line in source)
    if isinstance(source, Mapping):
        return _object_entries(source, name)
    if isinstance(source, (list, tuple)):
        return _array_entries(source, name)
    raise InvalidCatalog(f"A catalog is a JSON object or array with tools; this is {type(source).__name__}.")


def _line_reader(line: str) -> Callable[[], tuple[Tool, Server | None]]:
    def read() -> tuple[Tool, Server | None]:
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadTool(f"not JSON ({error})") from None
        return read_tool(raw, "")

    return read


def _object_entries(source: Raw, name: str) -> Iterator[ToolEntry]:
    if is_openapi(source):
        return _openapi_entries(source, name)
    if "tools" in source and isinstance(source["tools"], list):
        server = _server_of(source.get("server") if isinstance(source.get("server"), Mapping) else source, name)
        return _tool_entries(source["tools"], server, f"{server.name or 'tools'}")
    if isinstance(source.get("result"), Mapping) and "result" not in source["result"]:
        return _object_entries(source["result"], name)
    if isinstance(source.get("servers"), (list, tuple)):
        return _array_entries(source["servers"], name)
    if "name" in source or "function" in source:
        return iter([("tool", lambda: read_tool(source, name))])
    raise InvalidCatalog(
        "Found no tools: expected a tools/list result, an array of tools or servers, or one tool a line; "
        f"the keys here are {sorted(map(str, source))[:8]}."
    )


def _openapi_entries(document: Raw, name: str) -> Iterator[ToolEntry]:
    reading = read_openapi(document)
    left_out = ((f"{reading.server['name']} {place}", refused(reason)) for place, reason in reading.left_out)
    return chain(_object_entries(reading.server, name), left_out)


def _array_entries(source: Iterable[Any], name: str) -> Iterator[ToolEntry]:
    for position, item in enumerate(source):
        yield from item_entries(item, f"[{position}]", name)


def item_entries(item: Any, place: str, name: str = "") -> Iterator[ToolEntry]:
    """Yield what an item of a list holds: a tool, or the tools of a server or of an OpenAPI document."""
    if _is_mapping(item) and isinstance(item.get("tools"), (list, tuple)):
        server = _server_of(item, name)
        yield from _tool_entries(item["tools"], server, server.name or place)
    elif _is_mapping(item) and is_openapi(item):
        try:
            yield from _openapi_entries(item, name)
        except InvalidCatalog as error:
            yield place, refused(str(error))
    else:
        yield place, partial(read_tool, item, name)


def refused(reason: str) -> Callable[[], tuple[Tool, Server | None]]:
    """Return the reader of what is known to be no tool."""

    def read() -> tuple[Tool, Server | None]:
        raise BadTool(reason)

    return read


def _tool_entries(tools: Iterable[Any], server: Server, place: str) -> Iterator[ToolEntry]:
    for position, raw in enumerate(tools):

        def read(raw: Any = raw) -> tuple[Tool, Server | None]:
            tool, _ = read_tool(raw, server.name)
            return tool, server if server.name else None

        yield f"{place}.tools[{position}]", read


def _server_of(raw: Any, name: str) -> Server:
    data: Raw = raw if isinstance(raw, Mapping) else {}
    wire_id = _text(data, "id") or _text(data, "name") or name
    title = _text(data, "title") or (_text(data, "name") if data.get("id") else "")
    return Server(
        name=wire_id,
        title=title if title != wire_id else "",
        description=_text(data, "description"),
        categories=tuple(map(_encodable, _texts(data.get("categories")))),
        tags=tuple(map(_encodable, _texts(data.get("tags")))),
    )


def _text(raw: Raw, key: str) -> str:
    return _encodable(text_of(raw.get(key)))


def read_tool(raw: Any, server: str = "") -> tuple[Tool, Server | None]:
    """Read one tool: MCP, OpenAI (both shapes), Anthropic, or a line of the benchmark data."""
    if not _is_mapping(raw):
        raise BadTool(f"a tool is a JSON object, this is {type(raw).__name__}")
    raw = _mapping(raw, "function") or raw
    if isinstance(raw.get("server"), str):
        server = _text(raw, "server")
    described = Server(name=server, description=_text(raw, "server_description")) if server else None
    tool_id = raw.get("id") if isinstance(raw.get("id"), str) and raw.get("id") else None
    try:
        return tool_from_mcp(_as_mcp(raw), server, tool_id=tool_id), described
    except BadTool as error:
        raise BadTool(f"{_shown_name(raw)}{error}") from None


def _shown_name(raw: Raw) -> str:
    name = raw.get("name")
    return f"{one_line(name, 80)!r}: " if isinstance(name, str) and clean_text(name).strip() else ""


_SCHEMA_KEYS = ("inputSchema", "input_schema", "parameters", "inputs")
_NOT_MCP = frozenset(
    ("id", "server", "server_description", "input_schema", "parameters", "inputs", "output_schema", "strict")
)


def _as_mcp(raw: Raw) -> dict[str, Any]:
    """Rename the keys of other formats; unknown keys are kept."""
    if "inputSchema" in raw and _NOT_MCP.isdisjoint(raw):
        return dict(raw)
    schema = next((raw[key] for key in _SCHEMA_KEYS if _is_mapping(raw.get(key))), None)
    rest = {key: value for key, value in raw.items() if key not in _NOT_MCP and key != "type"}
    if schema is not None:
        rest["inputSchema"] = schema
    if _is_mapping(raw.get("output_schema")):
        rest["outputSchema"] = raw["output_schema"]
    return rest
