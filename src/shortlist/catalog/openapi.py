"""An OpenAPI 3 document as tools: one for each operation. No server in it is contacted."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias
from urllib.parse import unquote

from shortlist.errors import InvalidCatalog

OpenApiNode: TypeAlias = Mapping[str, Any]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
READING = ("get", "head", "options")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_UNSAFE_IN_POINTERS = re.compile(r"[^\w.-]+")
_MAX_HOPS = 20
"""The maximum chain of references; a longer one is a cycle."""
_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords that hold a schema for each name."""
_OF_SCHEMAS = (
    *("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems", "contentSchema"),
    *("additionalProperties", "propertyNames", "unevaluatedProperties"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
)
"""Keywords that hold a schema or a list of them."""
_ADDRESSES = ("$id", "$dynamicRef")
"""They would make the references beside or below them lead elsewhere."""
_TOGETHER = frozenset(("$ref", "allOf", "anyOf", "oneOf", "not", "const"))
"""Keywords that can reject null, whatever the type is."""
_ABOUT = ("title", "description", "default", "deprecated", "example", "examples", "readOnly", "writeOnly")
"""Keywords that say something of a value and check nothing."""
_BOUNDS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))


@dataclass(frozen=True, slots=True)
class OpenApiReading:
    """A server with a tool for each operation, in the shape that catalogs are read from, and what was left out."""

    server: dict[str, Any]
    left_out: tuple[tuple[str, str], ...]
    """Places in the document, each with the reason."""


def is_openapi(source: OpenApiNode) -> bool:
    return "paths" in source and ("openapi" in source or "swagger" in source)


def read_openapi(document: OpenApiNode) -> OpenApiReading:
    version = str(document.get("openapi", ""))
    if not version.startswith("3"):
        found = f"Swagger {document['swagger']}" if "swagger" in document else f"OpenAPI {version}"
        raise InvalidCatalog(f"This is a {found} document; convert it to OpenAPI 3 first.")
    info = _node(document.get("info"))
    title = str(info.get("title") or "api")
    reader = _Reader(document)
    server = {
        "name": _UNSAFE.sub("-", title).strip("-").lower() or "api",
        "title": title,
        "description": str(info.get("description") or info.get("summary") or ""),
        "tools": list(reader.tools()),
    }
    return OpenApiReading(server, tuple(reader.left_out))


def _node(value: Any) -> OpenApiNode:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


class _Reader:
    """Reads operations; references are followed inside the document alone."""

    def __init__(self, document: OpenApiNode) -> None:
        self._document = document
        self.left_out: list[tuple[str, str]] = []

    def tools(self) -> Iterator[dict[str, Any]]:
        """Yield a tool for each operation; of two with one name the second is called by its method and path."""
        taken: set[str] = set()
        for tool, otherwise in self._operations():
            name = next(name for name in _free_names(tool["name"], otherwise) if name not in taken)
            taken.add(name)
            yield {**tool, "name": name}

    def _operations(self) -> Iterator[tuple[dict[str, Any], str]]:
        for path, raw in _node(self._document.get("paths")).items():
            if str(path).startswith("x-"):  # an extension
                continue
            item = self._path_item(str(path), raw)
            for method in METHODS:
                if isinstance(item.get(method), Mapping):
                    yield self._tool(str(path), method, item), _cleaned(f"{method}{path}")
                elif method in item:
                    self.left_out.append((f"{method.upper()} {path}", "the operation is not an object"))

    def _path_item(self, path: str, raw: Any) -> OpenApiNode:
        """Return what a path says itself and what it refers to."""
        if not isinstance(raw, Mapping):
            self.left_out.append((path, "its operations are not an object"))
        resolved = self._resolved(raw)
        if "$ref" in _node(raw) and not resolved:
            reason = f"its reference {raw['$ref']!r} cannot be followed; put the operations into this document"
            self.left_out.append((path, reason))
        return {**resolved, **_node(raw)}

    def _tool(self, path: str, method: str, shared: OpenApiNode) -> dict[str, Any]:
        operation = _node(shared[method])
        name = operation.get("operationId") or f"{method}{path}"
        words = dict.fromkeys(str(operation[key]).strip() for key in ("summary", "description") if operation.get(key))
        about = ["Deprecated."] if operation.get("deprecated") else []
        tags = operation.get("tags")
        return {
            "name": _cleaned(str(name)) or _cleaned(f"{method}{path}"),
            "description": "\n".join([*about, *words]) or f"{method.upper()} {path}",
            "tags": [tags] if isinstance(tags, str) else [str(tag) for tag in _list(tags)],
            "inputSchema": self._input_schema(operation, shared),
            "annotations": {
                "readOnlyHint": method in READING,
                "destructiveHint": method == "delete",
            },
        }

    def _input_schema(self, operation: OpenApiNode, shared: OpenApiNode) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        for parameter in self._parameters(shared, operation):
            name, about = _named(parameter, properties)
            schema = _node(parameter.get("schema")) or _schema_of(parameter.get("content"))
            properties[name] = {**schema, "description": about} if about else schema
            required += [name] if parameter.get("required") else []
        self._add_body(operation, properties, required)
        schema = {"type": "object", "properties": properties, "required": required}
        try:
            return _Definitions(self._found).standing_alone(schema)
        except RecursionError:  # a document whose references a program has put in place, cycles and all
            return {**schema, "properties": {name: _outline(_node(inner)) for name, inner in properties.items()}}

    def _parameters(self, *owners: OpenApiNode) -> list[OpenApiNode]:
        """Return the parameters of a path and its operation, whose own replace those of the path."""
        found: dict[tuple[str, str], OpenApiNode] = {}
        for raw in (raw for owner in owners for raw in _list(owner.get("parameters"))):
            parameter = self._resolved(raw)
            if isinstance(name := parameter.get("name"), str):
                found[name, str(parameter.get("in"))] = parameter
        return list(found.values())

    def _add_body(self, operation: OpenApiNode, properties: dict[str, Any], required: list[str]) -> None:
        """Add the fields of a JSON body to the parameters; a body that is not an object becomes one argument."""
        body = self._resolved(operation.get("requestBody"))
        schema = _schema_of(body.get("content"))
        if not schema:
            return
        own, needed = self._fields(schema)
        if not own or not properties.keys().isdisjoint(own):
            name = next(name for name in _free_names("body", "request_body") if name not in properties)
            own, needed = {name: schema}, [name]
        properties.update(own)
        required += needed if body.get("required") else []

    def _fields(self, schema: OpenApiNode) -> tuple[dict[str, Any], list[str]]:
        """Return the fields of an object and which are required; none where it can be one of several objects."""
        fields: dict[str, Any] = {}
        needed: list[str] = []
        for part in self._parts(schema, set()):
            if any(_node(other).keys() - {"required"} for key in ("oneOf", "anyOf") for other in _list(part.get(key))):
                return {}, []
            for name, inner in _node(part.get("properties")).items():
                fields[name] = _both(fields[name], inner) if name in fields else inner
            needed += _list(part.get("required"))
        return fields, [name for name in dict.fromkeys(map(str, needed)) if name in fields]

    def _parts(self, schema: Any, seen: set[int]) -> Iterator[OpenApiNode]:
        """Yield the schemas that a value has to fit at once: what one refers to, those of its `allOf`, and itself."""
        node = _node(schema)
        if id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(reference := node.get("$ref"), str):
            yield from self._parts(self._found(reference), seen)
        for part in _list(node.get("allOf")):
            yield from self._parts(part, seen)
        yield node

    def _resolved(self, value: Any) -> OpenApiNode:
        node = _node(value)
        for _ in range(_MAX_HOPS):
            if not isinstance(reference := node.get("$ref"), str):
                return node
            node = _node(self._found(reference))
        return {}

    def _found(self, reference: str) -> Any:
        """Return what a reference points to; nothing for another file, as nothing is fetched."""
        if not reference.startswith("#/"):
            return {}
        found: Any = self._document
        for key in unquote(reference[2:]).split("/"):
            inside = {str(number): item for number, item in enumerate(_list(found))} or _node(found)
            found = inside.get(key.replace("~1", "/").replace("~0", "~"), {})
        return found


class _Definitions:
    """Writes schemas of a document as JSON schemas that stand alone; each that they refer to is included once."""

    def __init__(self, found: Callable[[str], Any]) -> None:
        self._found = found
        self._names: dict[str, str] = {}
        self._references: list[str] = []

    def standing_alone(self, schema: OpenApiNode) -> dict[str, Any]:
        written: dict[str, Any] = self._written(schema)
        definitions = {}
        for reference in self._references:  # which grow as what they point to refers to more
            found = self._found(reference)
            definitions[self._names[reference]] = found if isinstance(found, bool) else self._written(_node(found))
        return {**written, "$defs": definitions} if definitions else written

    def _written(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        written = {key: self._inside(key, value) for key, value in schema.items() if key not in _ADDRESSES}
        if isinstance(reference := written.pop("$ref", None), str) and reference.startswith("#/"):
            written["$ref"] = f"#/$defs/{self._name(reference)}"  # one to another file may be anything
        return _without_own_keywords(written)

    def _inside(self, key: str, value: Any) -> Any:
        if key in _OF_NAMES and isinstance(value, Mapping):
            return {name: self._written(inner) for name, inner in value.items()}
        if key in _OF_SCHEMAS:
            return [*map(self._written, value)] if isinstance(value, (list, tuple)) else self._written(value)
        return value

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            path = unquote(reference).removeprefix("#/").removeprefix("components/").removeprefix("schemas/")
            name = _UNSAFE_IN_POINTERS.sub("_", path) or "_"
            taken = self._names.values()
            self._names[reference] = next(free for free in _free_names(name) if free not in taken)
            self._references.append(reference)
        return self._names[reference]


def _without_own_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    """Say in JSON Schema what OpenAPI 3.0 says by `nullable` and by exclusive bounds that are true or false."""
    for bound, exclusive in _BOUNDS:
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    if schema.pop("nullable", None) is not True:
        return schema
    if not _TOGETHER.isdisjoint(schema):
        about = {key: schema.pop(key) for key in _ABOUT if key in schema}
        return {**about, "anyOf": [schema, {"type": "null"}]}
    kinds = schema.get("type")
    if isinstance(kinds, (str, list)):
        schema["type"] = list(dict.fromkeys([*([kinds] if isinstance(kinds, str) else kinds), "null"]))
    if isinstance(choices := schema.get("enum"), list) and None not in choices:
        schema["enum"] = [*choices, None]
    return schema


def _both(first: Any, second: Any) -> dict[str, Any]:
    """Return the schema of a field that two parts of an object describe."""
    return {**_node(second), "allOf": [first, *_list(_node(second).get("allOf"))]}


def _named(parameter: OpenApiNode, taken: Mapping[str, Any]) -> tuple[str, str]:
    """Return an argument's name and description; of a path's and a query's `id` the second is `query_id`."""
    own, place, about = parameter["name"], parameter.get("in"), str(parameter.get("description") or "")
    if own not in taken:
        return own, about
    name = next(name for name in _free_names(f"{place}_{own}") if name not in taken)
    return name, f"The {place} parameter {own!r}. {about}".strip()


def _schema_of(content: Any) -> OpenApiNode:
    """Return the schema of a content; JSON is preferred."""
    media = min(_node(content).items(), key=lambda item: _distance_from_json(str(item[0])), default=("", None))[1]
    return _node(_node(media).get("schema"))


def _distance_from_json(media_type: str) -> int:
    kind = media_type.partition(";")[0].strip().lower()
    return 0 if kind == "application/json" else 1 if kind.endswith("+json") else 2


def _cleaned(name: str) -> str:
    return _UNSAFE.sub("_", name).strip("_")


def _free_names(*names: str) -> Iterator[str]:
    yield from names
    yield from (f"{names[-1]}_{number}" for number in count(2))


def _outline(schema: OpenApiNode) -> dict[str, Any]:
    """Return a schema without its inside."""
    return {key: value for key, value in schema.items() if isinstance(value, (str, int, float))}
