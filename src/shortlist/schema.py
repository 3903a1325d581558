"""What an input schema says about a tool's arguments, read without trusting it."""

from collections.abc import Iterator, Mapping
from typing import Any

from shortlist.models import Parameter, Tool

MAX_DEPTH = 6
"""Deeper properties are not what anybody searches by; cyclic references end here too."""
MAX_PARAMETERS = 64
MAX_ENUM_VALUES = 24


def parameters_of(tool: Tool) -> tuple[Parameter, ...]:
    """Give the top-level parameters of a tool."""
    return tuple(_parameters(tool.input_schema))


def nested_parameters_of(tool: Tool) -> tuple[Parameter, ...]:
    """Give the parameters of a tool and those inside them, outermost first, bounded in depth and number."""
    found: list[Parameter] = []
    level: list[Mapping[str, Any]] = [tool.input_schema]
    for _ in range(MAX_DEPTH):
        inner: list[Mapping[str, Any]] = []
        for schema in level:
            found.extend(_parameters(schema))
            inner.extend(_inner_schemas(schema))
        if not inner or len(found) >= MAX_PARAMETERS:
            break
        level = inner[:MAX_PARAMETERS]
    return tuple(found[:MAX_PARAMETERS])


def type_name(schema: Any) -> str:
    """Name a schema's type in one word for signatures."""
    if not isinstance(schema, Mapping):
        return "any"
    kind = schema.get("type")
    if isinstance(kind, list):
        named = [str(k) for k in kind if k != "null"]
        return "|".join(named) or "null"
    if kind == "array":
        inner = type_name(schema.get("items"))
        return "array" if inner == "any" else f"{inner}[]"
    if isinstance(kind, str):
        return kind
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return "|".join(dict.fromkeys(t for t in map(type_name, options) if t != "null")) or "any"
    return "any"


def _parameters(schema: Mapping[str, Any]) -> Iterator[Parameter]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    required = schema.get("required")
    needed = {str(r) for r in required} if isinstance(required, list) else set()
    for name, inner in list(properties.items())[:MAX_PARAMETERS]:
        details = inner if isinstance(inner, Mapping) else {}
        yield Parameter(
            name=str(name),
            type=type_name(details),
            description=text_of(details.get("description")),
            required=str(name) in needed,
            enum=_enum(details),
        )


def _enum(schema: Mapping[str, Any]) -> tuple[str, ...]:
    values = schema.get("enum")
    items = schema.get("items")
    if not isinstance(values, list) and isinstance(items, Mapping):
        values = items.get("enum")
    return tuple(str(v) for v in values[:MAX_ENUM_VALUES]) if isinstance(values, list) else ()


def _inner_schemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    properties = schema.get("properties")
    candidates = list(properties.values()) if isinstance(properties, Mapping) else []
    for candidate in candidates[:MAX_PARAMETERS]:
        if isinstance(candidate, Mapping):
            yield candidate
            if isinstance(candidate.get("items"), Mapping):
                yield candidate["items"]


def text_of(value: Any) -> str:
    """Read a text that should be a string: real catalogs hold lists, numbers and nulls there."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return " ".join(text_of(v) for v in value)
    return "" if value is None or isinstance(value, (dict, bool)) else str(value)
