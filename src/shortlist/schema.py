"""What an input schema says about a tool's arguments, read without trusting it."""

from collections.abc import Iterator
from itertools import islice

from shortlist.models import Json, Parameter, Tool

MAX_DEPTH = 6
"""Deeper properties do not help search; this also ends cyclic references."""
MAX_PARAMETERS = 64
MAX_ENUM_VALUES = 24
_OUTER = ("properties", "items")
"""A schema without either has nothing inside."""


def parameters_of(tool: Tool) -> tuple[Parameter, ...]:
    """Return the top-level parameters of a tool."""
    return tuple(_parameters(tool.input_schema))


def nested_properties(schema: Json) -> list[tuple[str, Json]]:
    """Return the properties of a schema and their nested ones, outermost first, bounded in depth and number."""
    found: list[tuple[str, Json]] = []
    level = [schema]
    for _ in range(MAX_DEPTH):
        inner: list[Json] = []
        for outer in level:
            properties = list(_properties(outer))
            found += properties
            for _, details in properties:
                if isinstance(details, dict) and not details.keys().isdisjoint(_OUTER):
                    inner += _inside(details)
        if not inner or len(found) >= MAX_PARAMETERS:
            break
        level = inner
    return found[:MAX_PARAMETERS]


def type_name(schema: Json) -> str:
    """Name a schema's type in one word for signatures."""
    if not isinstance(schema, dict):
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


def enum_of(schema: Json) -> tuple[str, ...]:
    """Return the enumerated values of a schema or of its items."""
    if not isinstance(schema, dict):
        return ()
    values, items = schema.get("enum"), schema.get("items")
    if not isinstance(values, list) and isinstance(items, dict):
        values = items.get("enum")
    return tuple(map(str, values[:MAX_ENUM_VALUES])) if isinstance(values, list) else ()


def description_of(schema: Json) -> str:
    """Return the description of a schema."""
    return text_of(schema.get("description")) if isinstance(schema, dict) else ""


def texts_of(schema: Json) -> tuple[str, ...]:
    """Return the texts of a schema: its description and its enumerated values."""
    if not isinstance(schema, dict):
        return ()
    said = text_of(schema.get("description"))
    return (said, *enum_of(schema)) if "enum" in schema or "items" in schema else (said,)


def _parameters(schema: Json) -> Iterator[Parameter]:
    required = schema.get("required")
    needed = {str(r) for r in required} if isinstance(required, list) else set()
    for name, details in _properties(schema):
        yield Parameter(
            name=name,
            type=type_name(details),
            description=description_of(details),
            required=name in needed,
            enum=enum_of(details),
        )


def _properties(schema: Json) -> Iterator[tuple[str, Json]]:
    properties = schema.get("properties")
    return islice(properties.items(), MAX_PARAMETERS) if isinstance(properties, dict) else iter(())


def _inside(schema: dict[str, Json]) -> list[Json]:
    """Return the schemas that have nested properties: the property itself, its items, or both."""
    return [inner for inner in (schema, schema.get("items")) if isinstance(inner, dict) and "properties" in inner]


def text_of(value: Json) -> str:
    """Read a text that should be a string: real catalogs hold lists, numbers and nulls there."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return " ".join(text_of(v) for v in value)
    return "" if value is None or isinstance(value, (dict, bool)) else str(value)
