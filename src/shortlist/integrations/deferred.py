"""The providers' own deferred loading with our ranking in the place of theirs: Anthropic's and OpenAI's.

Both send a model a search tool first. What a search finds is loaded into the conversation by the provider, so that
the cached beginning of it stays as it is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shortlist.catalog.naming import names_of, own_name
from shortlist.disclosure.formats import Definition, anthropic, openai_responses
from shortlist.errors import InvalidInput, ShortlistError, ToolNotFound
from shortlist.library.filter import ToolFilter
from shortlist.models import Json, Server, Tool, ToolId
from shortlist.text.tokens import one_line

SEARCH_TOOL = "search_tools"
FOUND = 5
"""Tools loaded by one search, unless the model asks for another number."""
MOST_FOUND = 20
MOST_DEFERRED = 10_000
"""What Anthropic takes in one request."""
NAMED_SERVERS = 40
_ABOUT = "Search for tools by what they should do, in a few words. Found tools can be called at once."
_PARAMETERS: Definition = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do, e.g. 'open a pull request'."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "description": f"Default {FOUND}."},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class AnthropicTools:
    """Every tool deferred, and a search tool of our own that answers with references."""

    def __init__(self, source: ToolFilter, *, loaded: Iterable[str] = (), limit: int = FOUND) -> None:
        self._source, self._limit = source, limit
        self._loaded = frozenset(tool_id for name in loaded for tool_id in _known(source, name))
        if len(source.catalog) > MOST_DEFERRED:
            raise InvalidInput(
                f"Anthropic takes {MOST_DEFERRED:,} deferred tools, the catalog has {len(source.catalog):,}: "
                "narrow it, or send the result of filter() instead."
            )

    def tools(self) -> list[Definition]:
        """Return the `tools` of every request of the conversation; they never change, so the prompt cache holds."""
        search = {
            "name": SEARCH_TOOL,
            "description": f"{_ABOUT} {_servers_text(self._source)}".strip(),
            "input_schema": _PARAMETERS,
        }
        return [search, *(self._defined(tool) for tool in self._source.catalog.tools.values())]

    def is_search(self, block: Any) -> bool:
        """Return whether a block uses our search tool, not a tool that it found."""
        return (_get(block, "type"), _get(block, "name")) == ("tool_use", SEARCH_TOOL)

    def answer(self, block: Any) -> Definition:
        """Answer a use of the search tool; the API turns each reference into the tool's whole definition."""
        result: Definition = {"type": "tool_result", "tool_use_id": _get(block, "id")}
        try:
            found = _found(self._source, _get(block, "input"), self._limit)
        except ShortlistError as error:
            return {**result, "is_error": True, "content": [{"type": "text", "text": str(error)}]}
        if not found:
            return {**result, "content": [{"type": "text", "text": "No tool fits. Try other words."}]}
        names = self._source.names.by_id
        return {**result, "content": [{"type": "tool_reference", "tool_name": names[tool.id]} for tool in found]}

    def resolve(self, block: Any) -> Tool:
        """Return the tool that a `tool_use` block calls."""
        return self._source.tool(str(_get(block, "name")))

    def _defined(self, tool: Tool) -> Definition:
        definition = anthropic(tool, self._source.names.by_id[tool.id])
        return definition if tool.id in self._loaded else {**definition, "defer_loading": True}


class OpenAITools:
    """A client-executed `tool_search`; what it finds is loaded in a namespace for each server."""

    def __init__(self, source: ToolFilter, *, loaded: Iterable[str] = (), limit: int = FOUND) -> None:
        self._source, self._limit = source, limit
        self._loaded = sorted(tool_id for name in loaded for tool_id in _known(source, name))
        members = {server: ids for server, ids in source.catalog.members.items() if server}
        self._spaces = names_of({"": members}).by_id
        self._inside = {server: _functions(server, ids) for server, ids in members.items()}

    def tools(self) -> list[Definition]:
        """Return the `tools` of every request: the search, and what is to be there from the start."""
        search: Definition = {
            "type": "tool_search",
            "execution": "client",
            "description": f"{_ABOUT} {_servers_text(self._source)}".strip(),
            "parameters": _PARAMETERS,
        }
        tools = self._source.catalog.tools
        return [search, *self._grouped([tools[tool_id] for tool_id in self._loaded], deferred=False)]

    def is_search(self, item: Any) -> bool:
        """Return whether a search waits for our answer; the API may also run one itself."""
        return (_get(item, "type"), _get(item, "execution")) == ("tool_search_call", "client")

    def answer(self, item: Any) -> Definition:
        """Answer a `tool_search_call`; an impossible query loads nothing."""
        try:
            found = _found(self._source, _get(item, "arguments"), self._limit)
        except ShortlistError:
            found = []
        return {
            "type": "tool_search_output",
            "execution": "client",
            "call_id": _get(item, "call_id"),
            "status": "completed",
            "tools": list(self._grouped(found, deferred=True)),
        }

    def resolve(self, item: Any) -> Tool:
        """Return the tool that a `function_call` item calls, by its namespace and name."""
        space, name = _get(item, "namespace"), str(_get(item, "name"))
        if space is None:
            return self._source.tool(name)
        for server, known in self._spaces.items():
            inside = {function: tool_id for tool_id, function in self._inside[server].items()}
            if known == space and name in inside:
                return self._source.catalog.tools[inside[name]]
        raise ToolNotFound(f"{space}.{name}")

    def _grouped(self, tools: Iterable[Tool], *, deferred: bool) -> Iterator[Definition]:
        by_server: dict[str, list[Tool]] = {}
        for tool in tools:
            by_server.setdefault(tool.server, []).append(tool)
        for server, members in by_server.items():
            functions = [self._function(tool, deferred=deferred) for tool in members]
            if not server:
                yield from functions
                continue
            about = _about(self._source.catalog.servers[server])
            yield {"type": "namespace", "name": self._spaces[server], "description": about, "tools": functions}

    def _function(self, tool: Tool, *, deferred: bool) -> Definition:
        name = self._inside[tool.server][tool.id] if tool.server else self._source.names.by_id[tool.id]
        definition = openai_responses(tool, name)
        return {**definition, "defer_loading": True} if deferred else definition


def _found(source: ToolFilter, arguments: Json, limit: int) -> list[Tool]:
    given = _parsed(arguments)
    if not isinstance(given, Mapping) or not isinstance(given.get("query"), str):
        raise InvalidInput('Pass {"query": "what the tool should do"}.')
    wanted = given.get("limit")
    count = min(wanted, MOST_FOUND) if isinstance(wanted, int) and wanted > 0 else limit
    return [scored.tool for scored in source.filter(given["query"], limit=count).tools]


def _parsed(arguments: Json) -> Json:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None


def _functions(server: str, ids: Iterable[ToolId]) -> Mapping[ToolId, str]:
    """Name a server's tools inside its namespace: their own names, made safe."""
    own = {own_name(tool_id, server): tool_id for tool_id in ids}
    safe = names_of({"": own}).by_id
    return {tool_id: safe[name] for name, tool_id in own.items()}


def _known(source: ToolFilter, name: str) -> frozenset[ToolId]:
    found = source.resolve(name)
    if not found:
        raise ToolNotFound(name, suggestions=source.similar(name))
    return found


def _servers_text(source: ToolFilter) -> str:
    names = [name for name in source.catalog.servers if name]
    more = f" and {len(names) - NAMED_SERVERS} more" if len(names) > NAMED_SERVERS else ""
    return f"Servers: {', '.join(names[:NAMED_SERVERS])}{more}." if names else ""


def _about(server: Server) -> str:
    return one_line(server.description or server.title or f"Tools of {server.name}.", 300)


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
