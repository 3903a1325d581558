"""Repairs listed definitions, so that one malformed member of one server does not make clients reject the whole list.

A typed client validates a list as a whole. A member of the wrong type is left out of its definition; the rest of the
definition is kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

IsReadable: TypeAlias = Callable[[Any], bool]

_MOST = 2**63
"""Larger numbers do not fit into the integers of most clients."""


def readable(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool, prompt, resource or template without the members that no client could read."""
    kept = {key: value for key, value in definition.items() if value is None or _MEMBERS.get(key, _anything)(value)}
    if isinstance(kept.get("annotations"), dict):
        kept["annotations"] = _readable_members(kept["annotations"], _ANNOTATIONS)
    for key in ("inputSchema", "outputSchema"):
        if isinstance(kept.get(key), dict):
            kept[key] = _readable_members(kept[key], _SCHEMA)
    uri = kept.get("uri", kept.get("uriTemplate"))
    return kept if uri is None or isinstance(kept.get("name"), str) else {**kept, "name": uri}


def readable_by_legacy(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a tool for clients before 2026-07-28, which can read the output schema of an object only."""
    output = definition.get("outputSchema")
    if output is None or output.get("type") == "object":
        return definition
    return {key: value for key, value in definition.items() if key != "outputSchema"}


def _readable_members(value: dict[str, Any], checks: Mapping[str, IsReadable]) -> dict[str, Any]:
    if all(key not in checks or value[key] is None or checks[key](value[key]) for key in value):
        return value
    return {key: each for key, each in value.items() if key not in checks or each is None or checks[key](each)}


def _anything(_: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _size(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < _MOST


def _share(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1


def _one_of(*choices: str) -> IsReadable:
    return lambda value: isinstance(value, str) and value in choices


def _list_of(check: IsReadable) -> IsReadable:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _with(required: str, checks: Mapping[str, IsReadable]) -> IsReadable:
    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and isinstance(value.get(required), str)
            and all(value.get(key) is None or is_readable(value[key]) for key, is_readable in checks.items())
        )

    return check


def _properties(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, (dict, bool)) for each in value.values())


def _execution(value: Any) -> bool:
    return isinstance(value, dict) and value.get("taskSupport") in (None, "forbidden", "optional", "required")


_ICON = {"mimeType": _text, "sizes": _list_of(_text), "theme": _one_of("light", "dark")}
_ARGUMENT = {"title": _text, "description": _text, "required": _flag}
_MEMBERS: Mapping[str, IsReadable] = {
    "name": _text,
    "title": _text,
    "description": _text,
    "mimeType": _text,
    "size": _size,
    "_meta": _object,
    "annotations": _object,
    "inputSchema": _object,
    "outputSchema": _object,
    "execution": _execution,
    "icons": _list_of(_with("src", _ICON)),
    "arguments": _list_of(_with("name", _ARGUMENT)),
}
_ANNOTATIONS: Mapping[str, IsReadable] = {
    "title": _text,
    "readOnlyHint": _flag,
    "destructiveHint": _flag,
    "idempotentHint": _flag,
    "openWorldHint": _flag,
    "audience": _list_of(_one_of("user", "assistant")),
    "priority": _share,
    "lastModified": _text,
}
_SCHEMA: Mapping[str, IsReadable] = {"$schema": _text, "properties": _properties, "required": _list_of(_text)}
