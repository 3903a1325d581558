"""Reading the benchmark's tools the way a peer would be given them."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.baselines.protocol import Tools

RESERVED = frozenset({"search_tools"})  # pydantic-ai refuses a catalog that has a tool of this name
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def ids_of(tools: Tools) -> tuple[str, ...]:
    return tuple(str(tool["id"]) for tool in tools)


def name_of(tool: Mapping[str, Any]) -> str:
    return str(tool["name"])


def server_of(tool: Mapping[str, Any]) -> str:
    return str(tool.get("server") or "")


def description_of(tool: Mapping[str, Any]) -> Any:
    """Return the description as it came: what a peer does with one that is not text is part of the result."""
    return tool.get("description") or ""


def schema_of(tool: Mapping[str, Any]) -> Any:
    return tool.get("input_schema") or NO_PARAMETERS


def parameters_of(tool: Mapping[str, Any]) -> dict[str, str]:
    """Top-level parameters with their descriptions, made text whatever they are."""
    schema = schema_of(tool)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {
        str(name): as_text(value.get("description")) if isinstance(value, Mapping) else ""
        for name, value in properties.items()
    }


def text_of(tool: Mapping[str, Any]) -> str:
    return f"{name_of(tool)} {as_text(tool.get('description'))}"


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(map(as_text, value))
    return str(value)


def wire_names(tools: Tools) -> list[str]:
    """One name per tool for peers that key on it: the tool's own, with its server in front where two collide.

    That is what aggregating gateways do with colliding names.
    """
    taken = Counter(name_of(tool) for tool in tools)
    names: dict[str, None] = {}
    for tool in tools:
        name = name_of(tool)
        if taken[name] > 1:
            name = f"{re.sub(r'[^A-Za-z0-9]+', '_', server_of(tool)).strip('_')}_{name}"
        unique, copy = name, 2
        while unique in names:
            unique, copy = f"{name}_{copy}", copy + 1
        names[unique] = None
    return list(names)


def sanitised(tools: Tools) -> Tools:
    """Make every description text, reduce every schema to its parameters' texts, rename what a peer reserves."""
    return [
        {
            **tool,
            "name": f"{server_of(tool)}_{name_of(tool)}" if name_of(tool) in RESERVED else name_of(tool),
            "description": as_text(tool.get("description")),
            "input_schema": _plain(tool),
        }
        for tool in tools
    ]


def _plain(tool: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: {"description": text} for name, text in parameters_of(tool).items()}
    return {"type": "object", "properties": properties}
