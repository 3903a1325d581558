"""A tool as each provider's API takes it. Names are those of the catalog's naming: safe and unique."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from shortlist.disclosure.render import bound_definition
from shortlist.errors import InvalidInput
from shortlist.models import Json, Tool
from shortlist.text.tokens import clean_text

Format: TypeAlias = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp"]
Named: TypeAlias = tuple[Tool, str]
Definition: TypeAlias = dict[str, Json]

OPENAI_DESCRIPTION = 1_024
"""OpenAI refuses a request with a longer description."""
_COMBINED = ("anyOf", "oneOf", "allOf")
_NOT_AT_THE_TOP = frozenset({*_COMBINED, "not", "enum", "const", "if", "then", "else", "$schema", "$id"})


def formatted(format_: Format, tools: Iterable[Named]) -> Any:
    """Write tools in a format, ready for the `tools` of a request."""
    if format_ not in FORMATS:
        raise InvalidInput(f"No format {format_!r}. There are {', '.join(FORMATS)}; docs/frameworks has the others.")
    return _WRAPPED.get(format_, list)([FORMATS[format_](tool, name) for tool, name in tools])


def openai_function(tool: Tool, name: str) -> Definition:
    """Write a tool for OpenAI's Chat Completions and compatible APIs."""
    return {"type": "function", "function": _function(tool, name)}


def openai_responses(tool: Tool, name: str) -> Definition:
    """Write a tool for OpenAI's Responses, which would make it strict where a schema allows it."""
    return {"type": "function", **_function(tool, name), "strict": False}


def anthropic(tool: Tool, name: str) -> Definition:
    return {"name": name, "description": described(tool), "input_schema": object_schema(tool)}


def gemini(tool: Tool, name: str) -> Definition:
    """Write a function declaration; the JSON Schema goes whole, not as the smaller OpenAPI dialect."""
    return {"name": name, "description": described(tool), "parametersJsonSchema": object_schema(tool)}


def described(tool: Tool) -> str:
    """Return the description of a tool without invisible characters; it is never empty."""
    return clean_text(tool.description).strip() or clean_text(tool.title).strip() or tool.name


def object_schema(tool: Tool) -> Definition:
    """Return an input schema that every provider accepts: an object, without alternatives at its top.

    Properties of the alternatives are kept, and none of them is required.
    """
    schema = tool.input_schema
    kept = {key: value for key, value in schema.items() if key not in _NOT_AT_THE_TOP}
    properties = {**_properties_of_alternatives(schema), **_mapping(schema.get("properties"))}
    required = [name for name in _list(schema.get("required")) if name in properties]
    found = {**kept, "type": "object", "properties": properties}
    return {**found, "required": required} if required else {k: v for k, v in found.items() if k != "required"}


def _function(tool: Tool, name: str) -> Definition:
    text = described(tool)
    short = text if len(text) <= OPENAI_DESCRIPTION else text[: OPENAI_DESCRIPTION - 1].rstrip() + "…"
    return {"name": name, "description": short, "parameters": object_schema(tool)}


def _properties_of_alternatives(schema: Mapping[str, Json]) -> Definition:
    found: Definition = {}
    for alternative in (part for key in _COMBINED for part in _list(schema.get(key))):
        found.update(_mapping(_mapping(alternative).get("properties")))
    return found


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _declarations(definitions: list[Definition]) -> list[Definition]:
    return [{"functionDeclarations": definitions}] if definitions else []


FORMATS: Mapping[Format, Callable[[Tool, str], Definition]] = {
    "openai": openai_function,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "mcp": bound_definition,
}
_WRAPPED: Mapping[Format, Callable[[list[Definition]], list[Definition]]] = {"gemini": _declarations}
