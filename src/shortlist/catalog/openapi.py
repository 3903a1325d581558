"""An OpenAPI 3 document as tools: one for each operation. No server in it is contacted."""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, TypeAlias

from shortlist.errors import InvalidCatalog

OpenApiNode: TypeAlias = Mapping[str, Any]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
READING = ("get", "head", "options")
_SCHEMAS = "#/components/schemas/"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_HOPS = 20
"""The maximum chain of references; a longer one is a cycle."""


def is_openapi(source: OpenApiNode) -> bool:
    return "paths" in source and ("openapi" in source or "swagger" in source)


def server_of(document: OpenApiNode) -> dict[str, Any]:
    """Return a server with a tool for each operation of a document, in the shape that catalogs are read from."""
    version = str(document.get("openapi", ""))
    if not version.startswith("3"):
        found = f"Swagger {document['swagger']}" if "swagger" in document else f"OpenAPI {version}"
        raise InvalidCatalog(f"This is a {found} document; convert it to OpenAPI 3 first.")
    info = _node(document.get("info"))
    title = str(info.get("title") or "api")
    return {
        "name": _UNSAFE.sub("-", title).strip("-").lower() or "api",
        "title": title,
        "description": str(info.get("description") or info.get("summary") or ""),
        "tools": list(_Reader(document).tools()),
    }


def _node(value: Any) -> OpenApiNode:
    return value if isinstance(value, Mapping) else {}


class _Reader:
    """Reads operations; references are followed inside the document alone."""

    def __init__(self, document: OpenApiNode) -> None:
        self._document = document

    def tools(self) -> Iterator[dict[str, Any]]:
        """Yield a tool for each operation; of two with one name the second is called by its method and path."""
        taken: set[str] = set()
        for tool, otherwise in self._operations():
            name = next(name for name in _free_names(tool["name"], otherwise) if name not in taken)
            taken.add(name)
            yield {**tool, "name": name}

    def _operations(self) -> Iterator[tuple[dict[str, Any], str]]:
        for path, item in _node(self._document.get("paths")).items():
            shared = self._resolved(item)
            for method in METHODS:
                if isinstance(shared.get(method), Mapping):
                    yield self._tool(str(path), method, shared), _cleaned(f"{method}{path}")

    def _tool(self, path: str, method: str, shared: OpenApiNode) -> dict[str, Any]:
        operation = _node(shared[method])
        name = operation.get("operationId") or f"{method}{path}"
        words = dict.fromkeys(str(operation[key]).strip() for key in ("summary", "description") if operation.get(key))
        about = ["Deprecated."] if operation.get("deprecated") else []
        return {
            "name": _cleaned(str(name)) or _cleaned(f"{method}{path}"),
            "description": "\n".join([*about, *words]) or f"{method.upper()} {path}",
            "tags": [str(tag) for tag in operation.get("tags") or ()],
            "inputSchema": self._input_schema(operation, shared),
            "annotations": {
                "readOnlyHint": method in ("get", "head", "options"),
                "destructiveHint": method == "delete",
            },
        }

    def _input_schema(self, operation: OpenApiNode, shared: OpenApiNode) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        for raw in (*(shared.get("parameters") or ()), *(operation.get("parameters") or ())):
            parameter = self._resolved(raw)
            if not isinstance(name := parameter.get("name"), str):
                continue
            described = {"description": parameter["description"]} if parameter.get("description") else {}
            properties[name] = {**self._parameter_schema(parameter), **described}
            if parameter.get("required") and name not in required:
                required.append(name)
        self._add_body(operation, properties, required)
        schema = {"type": "object", "properties": properties, "required": required}
        try:
            return self._with_definitions(schema)
        except RecursionError:  # a document whose references a program has put in place, cycles and all
            return {**schema, "properties": {name: _outline(_node(inner)) for name, inner in properties.items()}}

    def _parameter_schema(self, parameter: OpenApiNode) -> OpenApiNode:
        content = _node(next(iter(_node(parameter.get("content")).values()), None))
        return _node(parameter.get("schema")) or _node(content.get("schema"))

    def _add_body(self, operation: OpenApiNode, properties: dict[str, Any], required: list[str]) -> None:
        """Add the fields of a JSON body to the parameters; a body that is not an object becomes one argument."""
        body = self._resolved(operation.get("requestBody"))
        content = _node(body.get("content"))
        media = content.get("application/json") or next(iter(content.values()), None)
        schema = _node(_node(media).get("schema"))
        if not schema:
            return
        fields = self._resolved(schema)
        own = _node(fields.get("properties"))
        if not own or not properties.keys().isdisjoint(own):
            properties["body"] = schema
            required += ["body"] if body.get("required") else []
            return
        properties.update(own)
        if body.get("required"):
            required += [str(name) for name in fields.get("required") or () if name in own]

    def _resolved(self, value: Any) -> OpenApiNode:
        node = _node(value)
        for _ in range(_MAX_HOPS):
            if not isinstance(reference := node.get("$ref"), str):
                return node
            node = self._target(reference)
        return {}

    def _target(self, reference: str) -> OpenApiNode:
        if not reference.startswith("#/"):
            return {}  # another file: nothing is fetched
        found: Any = self._document
        for key in reference[2:].split("/"):
            found = _node(found).get(key.replace("~1", "/").replace("~0", "~"))
        return _node(found)

    def _with_definitions(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Include each referenced schema once, so that cycles stay finite."""
        definitions: dict[str, Any] = {}
        waiting = list(_references(schema))
        while waiting:
            name = waiting.pop()
            if name not in definitions:
                definitions[name] = self._target(f"{_SCHEMAS}{name}")
                waiting += _references(definitions[name])
        inside = _local({**schema, "$defs": definitions}) if definitions else _local(schema)
        return dict(inside)


def _cleaned(name: str) -> str:
    return _UNSAFE.sub("_", name).strip("_")


def _free_names(name: str, otherwise: str) -> Iterator[str]:
    yield from (name, otherwise)
    yield from (f"{otherwise}_{number}" for number in count(2))


def _outline(schema: OpenApiNode) -> dict[str, Any]:
    """Return a schema without its inside."""
    return {key: value for key, value in schema.items() if isinstance(value, (str, int, float))}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(_SCHEMAS):
            yield reference.removeprefix(_SCHEMAS)
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _references(inner)


def _local(value: Any) -> Any:
    """Point the references of a schema at its own definitions."""
    if isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str) and not reference.startswith(_SCHEMAS):
            return {
                key: inner for key, inner in value.items() if key == "description"
            }  # of another file: may be anything
        return {
            key: f"#/$defs/{inner.removeprefix(_SCHEMAS)}"
            if key == "$ref" and isinstance(inner, str)
            else _local(inner)
            for key, inner in value.items()
        }
    return [_local(inner) for inner in value] if isinstance(value, (list, tuple)) else value
