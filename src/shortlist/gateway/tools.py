"""What one of the gateway's own tools is, and how what clients send to it is checked and turned into values."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

import anyio.to_thread

from shortlist.config.settings import Settings
from shortlist.errors import InvalidInput
from shortlist.gateway.callers import Exchange, Round
from shortlist.gateway.state import CallerView, GatewayState
from shortlist.gateway.view import MenuName
from shortlist.models import Json, SearchMode, Tool
from shortlist.text.asks import read_ask
from shortlist.text.queries import query_of

ShownDetail: TypeAlias = Literal["compact", "standard", "full", "python"]
"""How hits are shown: at a level of detail, or as the signatures that a program calls."""
FoundKind: TypeAlias = Literal["tools", "prompts", "resources", "templates", "servers"]
"""What a search finds; `servers` are those that could be installed."""
AnswerFormat: TypeAlias = Literal["text", "toon", "json"]
ToolArguments: TypeAlias = Mapping[str, Json]
McpResult: TypeAlias = dict[str, Any]
"""A result as it goes over the wire."""

MAX_QUERIES = 7
MAX_NAMES = 10
MAX_LIMIT = 50
MAX_QUERY_CHARACTERS = 4_000
MAX_LOADED_AT_ONCE = 50
DEFAULT_LIMIT = 5
DEFAULT_SELECTED = 8
DEFAULT_RUN_TOKENS = 2_000
MAX_RUN_TOKENS = 50_000
INLINE_CHARACTERS = 50_000
"""Definitions up to this length are rendered on the event loop."""
AskedT = TypeVar("AskedT")
Rendering = TypeVar("Rendering")
Translate: TypeAlias = Callable[[ToolArguments], ToolArguments]

STRING = {"type": "string"}
STRINGS = {"type": "array", "items": {"type": "string"}}
INTEGER = {"type": "integer"}


def text_result(text: str, *, is_error: bool = False) -> McpResult:
    """Return a tools/call result that holds one text."""
    result: McpResult = {"content": [{"type": "text", "text": text}]}
    return {**result, "isError": True} if is_error else result


async def rendered(tools: Iterable[Tool], render: Callable[[], Rendering]) -> Rendering:
    """Render something about tools; in a thread where their definitions are so long that the event loop would wait."""
    if sum(len(tool.definition) for tool in tools) <= INLINE_CHARACTERS:
        return render()
    return await anyio.to_thread.run_sync(render)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a search uses where its arguments say nothing."""

    limit: int = DEFAULT_LIMIT
    detail: ShownDetail = "compact"


DEFAULTS = Defaults()


CODE_DEFAULTS = Defaults(detail="python")


def defaults_of(seen: CallerView) -> Defaults:
    """Return the defaults of a caller's menu and of its variant in an experiment."""
    variant, defaults = seen.variant, CODE_DEFAULTS if seen.menu == "code" else DEFAULTS
    if variant.limit is None and variant.detail is None:
        return defaults
    return Defaults(variant.limit or defaults.limit, variant.detail or defaults.detail)


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """The checked arguments of smart_select_tools."""

    request: str
    limit: int


def select_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> SelectRequest:
    request = shortened(text_argument(arguments, "request"))
    return SelectRequest(request, _number(arguments, "limit", DEFAULT_SELECTED, 1, MAX_LIMIT))


@dataclass(frozen=True, slots=True)
class TaskReport:
    """How a task ended, as its caller reports it."""

    completed: bool
    task: str


def task_report(arguments: ToolArguments, _: Defaults = DEFAULTS) -> TaskReport:
    completed = _flag(arguments, "completed")
    if completed is None:
        raise InvalidInput("'completed' is missing: set it to true or false.")
    return TaskReport(completed, _text(arguments, "task") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The checked arguments of search_tools."""

    queries: tuple[str, ...]
    limit: int = DEFAULT_LIMIT
    offset: int = 0
    detail: ShownDetail = "compact"
    servers: frozenset[str] | None = None
    toolsets: frozenset[str] | None = None
    category: str | None = None
    tags: frozenset[str] | None = None
    intent: str | None = None
    only: bool = False
    """Search nothing but what servers, category, tags and intent name; else they are hints."""
    read_only: bool | None = None
    mode: SearchMode = "hybrid"
    explain: bool = False
    max_tokens: int | None = None
    format: AnswerFormat | None = None
    kinds: tuple[FoundKind, ...] = ("tools",)


def search_request(arguments: ToolArguments, defaults: Defaults = DEFAULTS) -> SearchRequest:
    """Read the arguments of search_tools; raise InvalidInput for the first one that is wrong."""
    return SearchRequest(
        queries=_queries(arguments),
        limit=_number(arguments, "limit", defaults.limit, 1, MAX_LIMIT),
        offset=_number(arguments, "offset", 0, 0, 10_000),
        detail=_choice(arguments, "detail", get_args(ShownDetail), defaults.detail),
        servers=_names(arguments, "servers"),
        toolsets=_names(arguments, "toolsets"),
        category=_text(arguments, "category"),
        tags=_names(arguments, "tags"),
        intent=_text(arguments, "intent"),
        only=bool(_flag(arguments, "only")),
        read_only=_flag(arguments, "read_only"),
        mode=_choice(arguments, "mode", get_args(SearchMode), "hybrid"),
        explain=bool(_flag(arguments, "explain")),
        max_tokens=_number(arguments, "max_tokens", 0, 0, 1_000_000) or None,
        format=_choice(arguments, "format", get_args(AnswerFormat), None),
        kinds=_kinds(arguments),
    )


def names_argument(arguments: ToolArguments, key: str = "names", most: int = MAX_NAMES) -> tuple[str, ...]:
    """Read a list of tool names; a single string counts as a list of one."""
    names = _names_in_order(arguments, key) or _names_in_order(arguments, "name")
    if not names:
        raise InvalidInput(f"{key!r} must be a list of tool names, at least one.")
    if len(names) > most:
        raise InvalidInput(f"{key!r} takes at most {most} names, but {len(names)} were given. Split the request.")
    return names


def text_argument(arguments: ToolArguments, key: str) -> str:
    """Read a required string."""
    found = _text(arguments, key)
    if not found:
        raise InvalidInput(f"{key!r} is missing: it must be a string.")
    return found


def object_argument(arguments: ToolArguments, key: str) -> dict[str, Json]:
    """Read an object. Some models send it as a string of JSON, which means the same."""
    value = arguments.get(key)
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidInput(
                f"{key!r} must be an object; the string that was sent is not valid JSON: {error}."
            ) from None
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{key!r} must be an object, not {type(value).__name__}.")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The checked arguments of call_tool."""

    name: str
    arguments: Mapping[str, Json]


def call_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> CallRequest:
    return CallRequest(name=text_argument(arguments, "name"), arguments=object_argument(arguments, "arguments"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """The checked arguments of the tools that load and unload: names of tools, or one toolset."""

    names: tuple[str, ...] = ()
    toolset: str = ""
    workspace: str | None = None


def load_tools_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> LoadRequest:
    names = names_argument(arguments, most=MAX_LOADED_AT_ONCE)
    return LoadRequest(names=names, workspace=_text(arguments, "workspace"))


def toolset_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> LoadRequest:
    return LoadRequest(toolset=text_argument(arguments, "toolset"), workspace=_text(arguments, "workspace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeRequest:
    """The checked arguments of describe_tools."""

    names: tuple[str, ...]
    detail: ShownDetail = "full"


def describe_request(arguments: ToolArguments, defaults: Defaults = DEFAULTS) -> DescribeRequest:
    usual = "python" if defaults.detail == "python" else "full"
    detail = _choice(arguments, "detail", ("full", "python"), usual)
    return DescribeRequest(names=names_argument(arguments), detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The checked arguments of run_code."""

    code: str
    max_tokens: int


def run_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> RunRequest:
    code = arguments.get("code")
    if not isinstance(code, str) or not code.strip():
        raise InvalidInput("'code' is missing: it must be the source of a Python program.")
    return RunRequest(code=code, max_tokens=_number(arguments, "max_tokens", DEFAULT_RUN_TOKENS, 50, MAX_RUN_TOKENS))


def raw_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> ToolArguments:
    """Pass arguments on unchecked, for a tool that needs none or checks them itself."""
    return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The checked arguments of read_result."""

    handle: str
    offset: int = 0
    query: str | None = None


def read_request(arguments: ToolArguments, _: Defaults = DEFAULTS) -> ReadRequest:
    return ReadRequest(
        handle=text_argument(arguments, "handle"),
        offset=_number(arguments, "offset", 0, 0, 2**31),
        query=_text(arguments, "query"),
    )


def _queries(arguments: ToolArguments) -> tuple[str, ...]:
    single = _text(arguments, "query")
    several = _names_in_order(arguments, "queries")
    queries = tuple(dict.fromkeys((*((single,) if single else ()), *several)))
    if not queries:
        raise InvalidInput("'query' is missing: say in plain words what the tool should do.")
    if len(queries) > MAX_QUERIES:
        raise InvalidInput(f"'queries' takes at most {MAX_QUERIES}, but {len(queries)} were given.")
    return tuple(shortened(query) for query in queries)


def shortened(query: str) -> str:
    """Reduce a query that is too long to what it asks for, or may ask; a paste never pushes the ask out.

    Of one that asks for nothing both ends are kept, so that the search sees that, too.
    """
    if len(query) <= MAX_QUERY_CHARACTERS:
        return query
    ask = read_ask(query)
    if ask.is_clear:
        return query_of(ask)
    half = MAX_QUERY_CHARACTERS // 2
    return ask.other.text if ask.other is not None else f"{query[:half]}{query[-half:]}"


def _kinds(arguments: ToolArguments) -> tuple[FoundKind, ...]:
    asked, known = _names_in_order(arguments, "kinds"), get_args(FoundKind)
    for kind in asked:
        if kind not in known:
            raise InvalidInput(f"'kinds' takes {', '.join(known)}, not {kind!r}.")
    return tuple(kind for kind in known if kind in asked) or ("tools",)


def _text(arguments: ToolArguments, key: str) -> str | None:
    value = arguments.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{key!r} must be a string, not {type(value).__name__}.")
    return value.strip() or None


def _number(arguments: ToolArguments, key: str, default: int, least: int, most: int) -> int:
    value = arguments.get(key)
    if value is None:
        return default
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise InvalidInput(f"{key!r} must be a whole number, not {value!r}.")
    return min(max(int(value), least), most)


def _flag(arguments: ToolArguments, key: str) -> bool | None:
    value = arguments.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise InvalidInput(f"{key!r} must be true or false, not {value!r}.")


def _choice(arguments: ToolArguments, key: str, choices: tuple[Any, ...], default: Any) -> Any:
    value = arguments.get(key)
    if value is None:
        return default
    if value not in choices:
        raise InvalidInput(f"{key!r} must be one of {', '.join(choices)}, not {value!r}.")
    return value


def _names(arguments: ToolArguments, key: str) -> frozenset[str] | None:
    found = _names_in_order(arguments, key)
    return frozenset(found) if found else None


def _names_in_order(arguments: ToolArguments, key: str) -> tuple[str, ...]:
    value = arguments.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidInput(f"{key!r} must be a list of strings.")
    return tuple(dict.fromkeys(item.strip() for item in value if item.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A `tools/call` of a client: who calls and what it can reach, the way back to it, and its round trip."""

    state: GatewayState
    seen: CallerView
    exchange: Exchange
    turn: Round
    inner: Callable[[str, ToolArguments], Awaitable[McpResult]]
    """Calls a tool by name, as call_tool does."""
    run_saved: Callable[["ToolCall", Tool, ToolArguments], Awaitable[McpResult]]
    """Runs a saved program, whose calls come back to the tools."""
    is_confirmed: bool = False
    """The person has agreed to this call already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaTool(Generic[AskedT]):
    """One of the gateway's own tools."""

    name: str
    description: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    reads: bool = False
    """It changes nothing, so clients need not ask their user before each call."""
    parse: Callable[[ToolArguments, Defaults], AskedT]
    handle: Callable[[ToolCall, AskedT], Awaitable[McpResult]]
    aliases: Mapping[str, Translate] = field(default_factory=dict)
    """Names that other gateways use, with the arguments in their own shape: accepted, never listed."""
    menus: tuple[MenuName, ...] = ()
    is_menu_only: bool = False
    """Accept it only where a menu lists it; others are accepted in every menu."""
    is_offered: Callable[[Settings], bool] = lambda _: True
    """Whether the configuration offers it beside any menu, for a tool that is in none."""

    def is_accepted(self, settings: Settings, menu: MenuName | None) -> bool:
        """Return whether a caller with this menu may use it."""
        return self.is_offered(settings) and (menu in self.menus or not self.is_menu_only)

    async def answer(self, call: ToolCall, arguments: ToolArguments, defaults: Defaults) -> McpResult:
        """Read the arguments, and do what they ask for; long texts are read beside the event loop."""
        if any(map(_is_long, arguments.values())):
            asked = await anyio.to_thread.run_sync(self.parse, arguments, defaults)
        else:
            asked = self.parse(arguments, defaults)
        return await self.handle(call, asked)

    @property
    def definition(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        found = {"name": self.name, "description": self.description, "inputSchema": schema}
        return {**found, "annotations": {"readOnlyHint": True}} if self.reads else found


def _is_long(value: Json) -> bool:
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and len(text) > MAX_QUERY_CHARACTERS for text in texts)


def same_arguments(arguments: ToolArguments) -> ToolArguments:
    return arguments
