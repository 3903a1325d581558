"""Signatures of tools as Python, made of their JSON Schemas, and the arguments of a call as they are sent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from shortlist.code.naming import ROOT, parameter_identifiers
from shortlist.errors import InvalidInput
from shortlist.models import Json, Tool
from shortlist.schema import description_of
from shortlist.text.tokens import clean_text, one_line

MAX_PARAMETERS = 24
"""A signature names every required argument and optional ones up to so many in all."""
MAX_MEMBERS = 8
"""Members of an object that its type spells out."""
MAX_CHOICES = 8
MAX_DEPTH = 3
DESCRIPTION = 120
PARAMETER_DESCRIPTION = 200
NAME_CHARACTERS = 64
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def python_stub(tool: Tool, path: str) -> str:
    """Return the signature of a tool and one line of its description."""
    said = one_line(tool.description or tool.title, DESCRIPTION)
    return f"{python_signature(tool, path)}\n  {said}" if said else python_signature(tool, path)


def python_description(tool: Tool, path: str) -> str:
    """Return the signature of a tool, its whole description, and what its schema says about each parameter."""
    schema = tool.input_schema
    names = parameter_names(schema)
    shown_as, properties = parameter_identifiers(names), _properties(schema)
    said = ((shown_as[name], description_of(properties[name])) for name in names)
    lines = [f"  {name}: {one_line(text, PARAMETER_DESCRIPTION)}" for name, text in said if text]
    description = clean_text(tool.description or tool.title).strip()
    return "\n".join([python_signature(tool, path), *([f"  {description}"] if description else []), *lines])


def python_signature(tool: Tool, path: str) -> str:
    """Return `tools.server.tool(a: str, b: int = None) -> dict`: required parameters first, in the schema's order."""
    return _signature(tool.definition, path)


@lru_cache(maxsize=8_192)
def _signature(definition: str, path: str) -> str:
    raw = json.loads(definition)
    schema = raw.get("inputSchema")
    shown = list(_parameters(schema if isinstance(schema, dict) else {}))
    returned = raw.get("outputSchema")
    arrow = f" -> {_type(returned, returned)}" if isinstance(returned, dict) else ""
    return f"{ROOT}.{path}({', '.join(shown)}){arrow}"


def _parameters(schema: Mapping[str, Json]) -> Iterator[str]:
    names = parameter_names(schema)
    shown_as = parameter_identifiers(names)
    properties, required = _properties(schema), required_names(schema)
    for name in names[: max(MAX_PARAMETERS, len(required))]:
        shown = f"{shown_as[name][:NAME_CHARACTERS]}: {_type(properties[name], schema)}"
        yield shown if name in required else f"{shown} = None"
    if len(names) > max(MAX_PARAMETERS, len(required)):
        yield "…"


def parameter_names(schema: Mapping[str, Json]) -> list[str]:
    """Return the parameters of a schema in the order of its signature."""
    properties, required = _properties(schema), required_names(schema)
    return [n for n in properties if n in required] + [n for n in properties if n not in required]


def required_names(schema: Mapping[str, Json]) -> frozenset[str]:
    """Return the names that a schema requires."""
    required = schema.get("required")
    return frozenset(n for n in required if isinstance(n, str)) if isinstance(required, list) else frozenset()


def _properties(schema: Mapping[str, Json]) -> dict[str, Json]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _type(schema: Json, root: Json, depth: int = 0) -> str:
    """Name the type that a schema describes; what is nested too deep is Any."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return "Any"
    if isinstance(schema.get("$ref"), str):
        return _type(_referred(schema["$ref"], root), root, depth + 1)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
        return f"Literal[{', '.join(_literal(choice) for choice in choices)}]"
    several = schema.get("anyOf") or schema.get("oneOf")
    kind = schema.get("type")
    if not isinstance(several, list) and isinstance(kind, list):
        several = [{**schema, "type": each} for each in kind]
    if isinstance(several, list):
        return _union(_type(each, root, depth + 1) for each in several)
    return _single_type(schema, root, depth)


def _single_type(schema: Mapping[str, Json], root: Json, depth: int) -> str:
    kind = schema.get("type")
    if kind == "array":
        inner = _type(schema.get("items"), root, depth + 1)
        return "list" if inner == "Any" else f"list[{inner}]"
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, root, depth)
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _object(schema: Mapping[str, Json], root: Json, depth: int) -> str:
    properties = _properties(schema)
    if not properties or len(properties) > MAX_MEMBERS or depth >= MAX_DEPTH:
        return "dict"
    inside = (
        f"{json.dumps(clean_text(name)[:NAME_CHARACTERS], ensure_ascii=False)}: {_type(each, root, depth + 1)}"
        for name, each in properties.items()
    )
    return f"{{{', '.join(inside)}}}"


def _union(types: Iterator[str]) -> str:
    found = list(dict.fromkeys(types))
    return "Any" if "Any" in found or not found else " | ".join(found)


def _literal(value: Json) -> str:
    text = repr(clean_text(value)) if isinstance(value, str) else repr(value)
    return one_line(text, NAME_CHARACTERS)


def _referred(reference: str, root: Json) -> Json:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found


def bound_arguments(tool: Tool, positional: Sequence[Any], named: Mapping[str, Json]) -> dict[str, Json]:
    """Return the arguments of a call by name. Raise InvalidInput for too many, repeated and unknown ones.

    An optional argument that is None is left out, unless its schema allows null.
    """
    schema = tool.input_schema
    names, required = parameter_names(schema), required_names(schema)
    if len(positional) > len(names):
        raise InvalidInput(f"it takes {len(names)} arguments, but {len(positional)} were passed by position")
    arguments = dict(zip(names, positional, strict=False))
    own_names = {shown: name for name, shown in parameter_identifiers(names).items()}
    for name, value in named.items():
        own = own_names.get(name, name)
        if own in arguments:
            raise InvalidInput(f"{own!r} is passed twice")
        arguments[own] = value
    unknown = [name for name in arguments if name not in names] if _is_closed(schema) else []
    if unknown:
        raise InvalidInput(f"unknown argument {unknown[0]!r}")
    properties = _properties(schema)
    return {n: v for n, v in arguments.items() if v is not None or n in required or _allows_null(properties.get(n))}


def _is_closed(schema: Mapping[str, Json]) -> bool:
    """Return whether only declared arguments are accepted; a schema that says nothing about others is closed."""
    is_open = schema.get("additionalProperties") not in (None, False) or "patternProperties" in schema
    return not is_open and not any(key in schema for key in ("anyOf", "oneOf", "allOf", "$ref", "if"))


def _allows_null(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    kind = schema.get("type")
    if kind is None:
        several = [each for key in ("anyOf", "oneOf") for each in schema.get(key) or ()]
        return any(map(_allows_null, several)) if several else "$ref" not in schema
    return kind == "null" or (isinstance(kind, list) and "null" in kind)
