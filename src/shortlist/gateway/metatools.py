"""The gateway's own tools, as data: what is listed, what else is accepted, and the names known from elsewhere."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from shortlist.disclosure.render import Detail
from shortlist.errors import InvalidInput
from shortlist.models import Json, SearchMode
from shortlist.telemetry.experiments.plan import Variant
from shortlist.text.asks import read_ask

Menu: TypeAlias = Literal["search", "minimal", "dynamic"]
Format: TypeAlias = Literal["text", "toon", "json"]
Arguments: TypeAlias = Mapping[str, Json]

MAX_QUERIES = 7
MAX_NAMES = 10
MAX_LIMIT = 50
MAX_QUERY_CHARACTERS = 4_000
DEFAULT_LIMIT = 5
DEFAULT_SELECTED = 8

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_NUMBER = {"type": "integer"}
_OBJECT = {"type": "object"}


def _reads(tool: dict[str, Any]) -> dict[str, Any]:
    """Say that a tool changes nothing, so that clients need not ask their user before each search."""
    return {**tool, "annotations": {"readOnlyHint": True}}


def _tool(name: str, description: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {"name": name, "description": description, "inputSchema": schema}


SEARCH = _tool(
    "search_tools",
    "Find tools by what they do. Search before saying that something cannot be done, and rephrase once if "
    "nothing fits. Then use call_tool.",
    {
        "query": {**_TEXT, "description": "The action in plain words, e.g. 'create a GitHub issue'"},
        "queries": {**_TEXTS, "description": f"Several searches at once, at most {MAX_QUERIES}"},
        "limit": {**_NUMBER, "default": DEFAULT_LIMIT},
        "detail": {"enum": list(get_args(Detail)), "default": "compact"},
        "servers": {**_TEXTS, "description": "Only these servers"},
        "intent": {**_TEXT, "description": "e.g. web_research, data_analysis"},
        "max_tokens": _NUMBER,
    },
)
DESCRIBE = _tool(
    "describe_tools",
    "Full schemas of tools that were found.",
    {"names": {**_TEXTS, "maxItems": MAX_NAMES}},
    ("names",),
)
CALL = _tool(
    "call_tool",
    "Call a tool that was found, by its name. Arguments are checked before anything is sent.",
    {"name": _TEXT, "arguments": _OBJECT},
    ("name", "arguments"),
)
READ = _tool(
    "read_result",
    "Read on in a long result, or find passages in it.",
    {"handle": _TEXT, "offset": _NUMBER, "query": _TEXT},
    ("handle",),
)
MINIMAL_SEARCH = _tool(
    "search_tools",
    "Find tools by what they do; answers with signatures. Search before saying that something cannot be done.",
    {"query": {**_TEXT, "description": "The action in plain words"}, "limit": _NUMBER, "servers": _TEXTS},
    ("query",),
)
_SINCE = {**_TEXT, "description": "e.g. 24h, 7d, 2026-01-31"}
_WORKSPACE = {"workspace": {**_TEXT, "description": "Handle from an earlier load"}}
LIST_TOOLSETS = _tool("list_toolsets", "List groups of tools that can be loaded.", {})
LOAD_TOOLSET = _tool(
    "load_toolset",
    "Bind all tools of a toolset. Prefer load_tools.",
    {"toolset": _TEXT, **_WORKSPACE},
    ("toolset",),
)
LOAD_TOOLS = _tool(
    "load_tools", "Bind single tools, so that they can be called directly.", {"names": _TEXTS, **_WORKSPACE}, ("names",)
)
UNLOAD_TOOLSET = _tool("unload_toolset", "Remove a loaded toolset.", {"toolset": _TEXT, **_WORKSPACE}, ("toolset",))

MENUS: Mapping[Menu, tuple[dict[str, Any], ...]] = MappingProxyType(
    {
        "search": (_reads(SEARCH), _reads(DESCRIBE), CALL, _reads(READ)),
        "minimal": (_reads(MINIMAL_SEARCH), CALL),
        "dynamic": (
            *(_reads(SEARCH), _reads(DESCRIBE), CALL, _reads(READ)),
            *(_reads(LIST_TOOLSETS), LOAD_TOOLSET, LOAD_TOOLS, UNLOAD_TOOLSET),
        ),
    }
)
META_NAMES = frozenset(tool["name"] for menu in MENUS.values() for tool in menu)

REPORTS = (
    _reads(_tool("get_stats", "How tool discovery does here: figures and their meaning.", {"since": _SINCE})),
    _reads(_tool("get_ab_test_report", "The report of an experiment, by default the latest.", {"experiment": _TEXT})),
    _tool(
        "report_task",
        "Say how the user's task ended.",
        {"completed": {"type": "boolean"}, "task": {**_TEXT, "description": "What it was, in a few words"}},
        ("completed",),
    ),
)
"""Offered beside any menu where the configuration says so."""
REPORT_NAMES = frozenset(tool["name"] for tool in REPORTS)
SELECT = _reads(
    _tool(
        "smart_select_tools",
        "Let a small model read the whole catalog and pick the tools for a task; slower than search_tools.",
        {"request": {**_TEXT, "description": "The task in plain words"}, "limit": _NUMBER},
        ("request",),
    )
)
"""Offered where the configuration names who picks."""
OPTIONAL_NAMES = REPORT_NAMES | {SELECT["name"]}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a search gets that asks for nothing else."""

    limit: int = DEFAULT_LIMIT
    detail: Detail = "compact"


DEFAULTS = Defaults()


def defaults_of(variant: Variant) -> Defaults:
    """Give what a search gets in a variant of an experiment."""
    if variant.limit is None and variant.detail is None:
        return DEFAULTS
    return Defaults(variant.limit or DEFAULT_LIMIT, variant.detail or "compact")


def menu_definitions(menu: Menu, defaults: Defaults = DEFAULTS) -> list[dict[str, Any]]:
    """Give a menu's definitions as they are listed, in a fixed order."""
    copied: list[dict[str, Any]] = json.loads(json.dumps(MENUS[menu]))
    for name in ("limit", "detail"):
        stated = copied[0]["inputSchema"]["properties"].get(name, {})
        if "default" in stated:
            stated["default"] = getattr(defaults, name)
    return copied


def optional_definitions(*, reports: bool, select: bool) -> list[dict[str, Any]]:
    """Give the definitions of the tools that are offered where the configuration says so."""
    offered = (*(REPORTS if reports else ()), *((SELECT,) if select else ()))
    copied: list[dict[str, Any]] = json.loads(json.dumps(offered))
    return copied


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """What smart_select_tools was asked for."""

    request: str
    limit: int


def select_request(arguments: Arguments) -> SelectRequest:
    request = shortened(text_argument(arguments, "request"))
    return SelectRequest(request, _number(arguments, "limit", DEFAULT_SELECTED, 1, MAX_LIMIT))


@dataclass(frozen=True, slots=True)
class TaskReport:
    """How a task ended, by its caller's own word."""

    completed: bool
    task: str


def task_report(arguments: Arguments) -> TaskReport:
    completed = _flag(arguments, "completed")
    if completed is None:
        raise InvalidInput("'completed' is missing: say true or false.")
    return TaskReport(completed, _text(arguments, "task") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What search_tools was asked for, checked."""

    queries: tuple[str, ...]
    limit: int = DEFAULT_LIMIT
    offset: int = 0
    detail: Detail = "compact"
    servers: frozenset[str] | None = None
    toolsets: frozenset[str] | None = None
    category: str | None = None
    intent: str | None = None
    read_only: bool | None = None
    mode: SearchMode = "hybrid"
    explain: bool = False
    max_tokens: int | None = None
    format: Format | None = None


def search_request(arguments: Arguments, defaults: Defaults = DEFAULTS) -> SearchRequest:
    """Read the arguments of search_tools; says what is wrong with the first that is."""
    return SearchRequest(
        queries=_queries(arguments),
        limit=_number(arguments, "limit", defaults.limit, 1, MAX_LIMIT),
        offset=_number(arguments, "offset", 0, 0, 10_000),
        detail=_choice(arguments, "detail", get_args(Detail), defaults.detail),
        servers=_names(arguments, "servers"),
        toolsets=_names(arguments, "toolsets"),
        category=_text(arguments, "category"),
        intent=_text(arguments, "intent"),
        read_only=_flag(arguments, "read_only"),
        mode=_choice(arguments, "mode", get_args(SearchMode), "hybrid"),
        explain=bool(_flag(arguments, "explain")),
        max_tokens=_number(arguments, "max_tokens", 0, 0, 1_000_000) or None,
        format=_choice(arguments, "format", get_args(Format), None),
    )


def names_argument(arguments: Arguments, key: str = "names", most: int = MAX_NAMES) -> tuple[str, ...]:
    """Read a list of tool names; a single text is taken as a list of one."""
    names = _names_in_order(arguments, key) or _names_in_order(arguments, "name")
    if not names:
        raise InvalidInput(f"{key!r} must be a list of tool names, at least one.")
    if len(names) > most:
        raise InvalidInput(f"{key!r} takes at most {most} names, {len(names)} were given. Ask in parts.")
    return names


def text_argument(arguments: Arguments, key: str) -> str:
    """Read a text that must be there."""
    found = _text(arguments, key)
    if not found:
        raise InvalidInput(f"{key!r} is missing: it must be a text.")
    return found


def object_argument(arguments: Arguments, key: str) -> dict[str, Json]:
    """Read an object; JSON in a text is what some models send, and means the same."""
    value = arguments.get(key)
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidInput(f"{key!r} must be an object; the text that was sent is no JSON: {error}.") from None
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{key!r} must be an object, not {type(value).__name__}.")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What read_result was asked for."""

    handle: str
    offset: int = 0
    query: str | None = None


def read_request(arguments: Arguments) -> ReadRequest:
    return ReadRequest(
        handle=text_argument(arguments, "handle"),
        offset=_number(arguments, "offset", 0, 0, 2**31),
        query=_text(arguments, "query"),
    )


def _execute(arguments: Arguments) -> Arguments:
    return {"name": arguments.get("tool_name"), "arguments": arguments.get("arguments")}


def _call_loaded(arguments: Arguments) -> Arguments:
    return {"name": arguments.get("tool"), "arguments": arguments.get("args")}


def _discover(arguments: Arguments) -> Arguments:
    compact = arguments.get("compact")
    kept = {key: arguments[key] for key in ("query", "intent", "category", "limit") if key in arguments}
    return kept if compact in (None, True) else {**kept, "detail": "standard"}


def _same(arguments: Arguments) -> Arguments:
    return arguments


ALIASES: Mapping[str, tuple[str, Callable[[Arguments], Arguments]]] = MappingProxyType(
    {
        "execute_tool": ("call_tool", _execute),
        "call_loaded_tool": ("call_tool", _call_loaded),
        "discover_tools": ("search_tools", _discover),
        "list_available_toolsets": ("list_toolsets", _same),
    }
)
"""Names from elsewhere, in their own shapes: accepted, never listed."""


def _queries(arguments: Arguments) -> tuple[str, ...]:
    single = _text(arguments, "query")
    several = _names_in_order(arguments, "queries")
    queries = tuple(dict.fromkeys((*((single,) if single else ()), *several)))
    if not queries:
        raise InvalidInput("'query' is missing: say in plain words what the tool should do.")
    if len(queries) > MAX_QUERIES:
        raise InvalidInput(f"'queries' takes at most {MAX_QUERIES}, {len(queries)} were given.")
    return tuple(shortened(query) for query in queries)


def shortened(query: str) -> str:
    """Reduce a query that is too long to what it asks for; a paste never pushes the ask out."""
    return query if len(query) <= MAX_QUERY_CHARACTERS else read_ask(query).query


def _text(arguments: Arguments, key: str) -> str | None:
    value = arguments.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{key!r} must be a text, not {type(value).__name__}.")
    return value.strip() or None


def _number(arguments: Arguments, key: str, default: int, least: int, most: int) -> int:
    value = arguments.get(key)
    if value is None:
        return default
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise InvalidInput(f"{key!r} must be a whole number, not {value!r}.")
    return min(max(int(value), least), most)


def _flag(arguments: Arguments, key: str) -> bool | None:
    value = arguments.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise InvalidInput(f"{key!r} must be true or false, not {value!r}.")


def _choice(arguments: Arguments, key: str, choices: tuple[Any, ...], default: Any) -> Any:
    value = arguments.get(key)
    if value is None:
        return default
    if value not in choices:
        raise InvalidInput(f"{key!r} must be one of {', '.join(choices)}, not {value!r}.")
    return value


def _names(arguments: Arguments, key: str) -> frozenset[str] | None:
    found = _names_in_order(arguments, key)
    return frozenset(found) if found else None


def _names_in_order(arguments: Arguments, key: str) -> tuple[str, ...]:
    value = arguments.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidInput(f"{key!r} must be a list of texts.")
    return tuple(dict.fromkeys(item.strip() for item in value if item.strip()))
