"""Tool objects of agent frameworks and plain callables, read by their published shape; none of them is imported."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias

from shortlist.catalog.readers import BadTool
from shortlist.models import Json

McpDefinition: TypeAlias = dict[str, Json]

_SCHEMAS = ("parameters_json_schema", "params_json_schema")
"""What pydantic-ai, google-genai and the OpenAI Agents SDK call a tool's schema."""
_GROUPS = ("function_declarations", "functions", "tools", "tool_defs", "toolsets", "plugins")
"""Where google-genai, Semantic Kernel, Agno, Haystack, pydantic-ai and MCP results keep tools and groups of them."""
_LISTINGS = ("list_tools", "get_tools")
"""The methods by which servers, clients, workbenches and LangChain's toolkits list their tools, many asynchronously."""
_ARGUMENT = re.compile(r"^\s*(?::param\s+)?(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>\S.*)$")
_SECTION = re.compile(r"\n[^\S\n]*(?:Args|Arguments|Parameters):\s*\n|\n[^\S\n]*(?=:param )")
_SKIPPED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_JSON = (Mapping, list, tuple, str, int, float, type(None))
_NO_JSON = object()
_ONE_TEXT: McpDefinition = {"type": "object", "properties": {"__arg1": {"type": "string"}}, "required": ["__arg1"]}
"""What LangChain tells models of a tool that takes one text."""
_EMPTY: McpDefinition = {"type": "object", "properties": {}}


def members(item: Any) -> list[Any] | None:
    """Return the tools and groups in a toolkit, toolset, plugin or listing; None where the object is no such group."""
    if isinstance(item, Mapping):
        return list(item.values()) if holds_objects(item) else None
    if callable(listing := getattr(item, "to_tool_list", None)):  # LlamaIndex' tool specs
        return list(listing())
    if prefix_of(item):
        return [item.wrapped]
    for key in _GROUPS:
        held = getattr(item, key, None)
        if isinstance(held, Mapping):
            apart = getattr(item, "async_functions", None)  # where Agno keeps coroutines
            return [*held.values(), *(apart.values() if isinstance(apart, Mapping) else ())]
        if isinstance(held, (list, tuple)):
            return list(held)
    return _listed(item)


def holds_objects(item: Any) -> bool:
    """Return whether this is a mapping of objects by name, as Semantic Kernel's plugins are, and not JSON."""
    return isinstance(item, Mapping) and bool(item) and not any(isinstance(each, _JSON) for each in item.values())


def prefix_of(item: Any) -> str:
    """Return what pydantic-ai's PrefixedToolset puts before the names of its tools."""
    prefix = getattr(item, "prefix", None)
    return f"{prefix}_" if isinstance(prefix, str) and hasattr(item, "wrapped") else ""


def _listed(item: Any) -> list[Any] | None:
    """List the tools of a LangChain toolkit; raises BadTool where listing them has to be awaited."""
    for name in _LISTINGS:
        listing = getattr(item, name, None)
        if inspect.iscoroutinefunction(listing):
            needed = [key for key, each in inspect.signature(listing).parameters.items() if each.default is each.empty]
            raise BadTool(
                f"its tools are listed asynchronously; pass the result of awaiting its {name}({', '.join(needed)})"
            )
    listing = getattr(item, "get_tools", None)
    return list(listing()) if callable(listing) else None


def definition_of(item: Any) -> McpDefinition | None:
    """Write a tool object or a callable as an MCP definition; None where it is neither."""
    for convert in _KINDS:
        found = convert(item)
        if found is not None:
            return _documented(found)
    return None


def _name(item: Any) -> str | None:
    name = getattr(item, "name", None)
    return name if isinstance(name, str) and name else None


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _dumped(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _defined(name: str, description: Any, schema: Mapping[str, Any] | None) -> McpDefinition:
    about = description if isinstance(description, str) else ""
    return {"name": name, "description": about, "inputSchema": _as_json(schema or _EMPTY)}


def _as_json(schema: Mapping[str, Any]) -> dict[str, Json]:
    """Return a schema without what JSON cannot say, as the constraints that Semantic Kernel leaves in as objects."""
    return {str(key): value for key, inner in schema.items() if (value := _json_value(inner)) is not _NO_JSON}


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _as_json(value)
    if isinstance(value, (list, tuple)):
        return [each for inner in value if (each := _json_value(inner)) is not _NO_JSON]
    return value if value is None or isinstance(value, (str, int, float)) else _NO_JSON


def _langchain(item: Any) -> McpDefinition | None:
    schema = getattr(item, "tool_call_schema", None)
    if schema is None or (name := _name(item)) is None:
        return None
    if getattr(item, "args_schema", schema) is None and set(_mapping(item.args) or ()) == {"tool_input"}:
        return _defined(name, item.description, _ONE_TEXT)  # its own schema has the configuration of a run in it
    return _defined(name, item.description, schema if isinstance(schema, dict) else schema.model_json_schema())


def _llama_index(item: Any) -> McpDefinition | None:
    metadata = getattr(item, "metadata", None)
    read = getattr(metadata, "get_parameters_dict", None)
    if metadata is None or not callable(read) or (name := _name(metadata)) is None:
        return None
    about = str(getattr(metadata, "description", ""))
    signature, line_break, rest = about.partition("\n")
    return _defined(name, rest if line_break and signature.startswith(f"{name}(") else about, read())


def _fastmcp(item: Any) -> McpDefinition | None:
    convert = getattr(item, "to_mcp_tool", None)
    return _dumped(convert()) if callable(convert) and _name(item) is not None else None


def _pydantic_ai(item: Any) -> McpDefinition | None:
    definition = getattr(item, "tool_def", None)
    return None if definition is None else _by_json_schema(definition)


def _by_json_schema(item: Any) -> McpDefinition | None:
    if (name := _name(item)) is None:
        return None
    schema = next((found for key in _SCHEMAS if (found := _mapping(getattr(item, key, None))) is not None), None)
    return None if schema is None else _defined(name, getattr(item, "description", None), schema)


def _google(item: Any) -> McpDefinition | None:
    """Read a FunctionDeclaration, whose own kind of schema writes its types in capitals."""
    if not hasattr(item, "parameters_json_schema") or (name := _name(item)) is None:
        return None
    own = getattr(item, "parameters", None)
    schema = _lower_types(_dumped(own)) if hasattr(own, "model_dump") else None
    return _defined(name, getattr(item, "description", None), schema)


def _lower_types(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: inner.lower() if key == "type" and isinstance(inner, str) else _lower_types(inner)
            for key, inner in value.items()
        }
    return [_lower_types(inner) for inner in value] if isinstance(value, list) else value


def _autogen(item: Any) -> McpDefinition | None:
    schema = _mapping(getattr(item, "schema", None))
    if schema is None or not isinstance(name := schema.get("name"), str):
        return None
    return _defined(name, schema.get("description"), _mapping(schema.get("parameters")))


def _smolagents(item: Any) -> McpDefinition | None:
    inputs = _mapping(getattr(item, "inputs", None))
    if inputs is None or not hasattr(item, "output_type") or (name := _name(item)) is None:
        return None
    required = [key for key, schema in inputs.items() if not (_mapping(schema) or {}).get("nullable")]
    return _defined(name, item.description, {"type": "object", "properties": dict(inputs), "required": required})


def _dspy(item: Any) -> McpDefinition | None:
    arguments = _mapping(getattr(item, "args", None))
    if arguments is None or not hasattr(item, "desc") or (name := _name(item)) is None:
        return None
    described = _mapping(getattr(item, "arg_desc", None)) or {}
    properties = {
        key: {**(_mapping(schema) or {}), **({"description": described[key]} if key in described else {})}
        for key, schema in arguments.items()
    }
    required = [key for key, each in properties.items() if _is_required(each.get("default", inspect.Parameter.empty))]
    schema = _completed({"type": "object", "properties": properties, "required": required}, getattr(item, "func", None))
    return _defined(name, item.desc, schema)


def _semantic_kernel(item: Any) -> McpDefinition | None:
    metadata = getattr(item, "metadata", None)
    parameters = getattr(metadata, "parameters", None)
    if metadata is None or not isinstance(parameters, list) or (name := _name(metadata)) is None:
        return None
    properties = {each.name: _kernel_parameter(each) for each in parameters}
    required = [each.name for each in parameters if each.is_required]
    schema = {"type": "object", "properties": properties, "required": required}
    server = getattr(metadata, "plugin_name", None)
    definition = _defined(name, metadata.description, schema)
    return {**definition, "server": server} if isinstance(server, str) and server else definition


def _kernel_parameter(parameter: Any) -> dict[str, Any]:
    described = {"description": parameter.description} if parameter.description else {}
    default = {} if parameter.default_value is None else _as_default(parameter.default_value)
    return {**(_mapping(parameter.schema_data) or {}), **described, **default}


def _by_args_schema(item: Any) -> McpDefinition | None:
    """Read a tool that names a pydantic model of its arguments, as CrewAI's do."""
    model = getattr(item, "args_schema", None)
    write = getattr(model, "model_json_schema", None)
    if not callable(write) or (name := _name(item)) is None:
        return None
    return _defined(name, getattr(item, "description", None), write())


def _by_parameters(item: Any) -> McpDefinition | None:
    """Read a tool with a JSON schema in `parameters`, as Haystack's and Agno's have."""
    schema, name = _mapping(getattr(item, "parameters", None)), _name(item)
    if schema is None or name is None:
        return None
    entrypoint = getattr(item, "entrypoint", None)
    if callable(entrypoint) and not schema.get("properties"):  # Agno reads the function when an agent is made
        return {**_from_callable(entrypoint), "name": name}
    return _defined(name, getattr(item, "description", None), _completed(schema, entrypoint))


def _completed(schema: Mapping[str, Any], function: Any) -> Mapping[str, Any]:
    """Add the defaults, descriptions and limits of a function's arguments that a framework has left out."""
    properties = _mapping(schema.get("properties"))
    if properties is None or not callable(function):
        return schema
    written = _signature_schema(function)["properties"]
    added = {
        key: {word: value for word, value in written.get(key, {}).items() if _is_addition(word, value)}
        for key in properties
    }
    return {
        **schema,
        "properties": {
            key: {**added[key], **_as_json(own)} if isinstance(own, Mapping) else own for key, own in properties.items()
        },
    }


def _is_addition(word: str, value: Any) -> bool:
    """Return whether a keyword adds to a schema and is not another way to write its structure."""
    return word in ("default", "enum") or (word not in ("$ref", "type") and isinstance(value, (str, int, float)))


def _model(item: Any) -> McpDefinition | None:
    dumps = hasattr(item, "model_dump") and not isinstance(item, type) and _name(item) is not None
    found = _dumped(item) if dumps else None
    return found if found and ("inputSchema" in found or "description" in found) else None


def _callable(item: Any) -> McpDefinition | None:
    return _from_callable(item) if callable(item) else None


def _from_callable(item: Callable[..., Any]) -> McpDefinition:
    named: Any = item
    while isinstance(named, partial):
        named = named.func
    name = getattr(named, "__name__", None) or type(named).__name__
    about = inspect.getdoc(named) or ("" if inspect.isroutine(named) else inspect.getdoc(named.__call__))
    return _defined(name, about, _signature_schema(item))


def _signature_schema(item: Callable[..., Any]) -> dict[str, Any]:
    properties: dict[str, Json] = {}
    required: list[str] = []
    definitions: dict[str, Json] = {}
    for name, parameter, annotation in _parameters(item):
        default = parameter.default
        if _is_field(default):
            schema = _type_schema(Annotated[annotation, default]) or _type_schema(Annotated[Any, default])
        else:
            schema = {**_type_schema(annotation), **_as_default(default)}
        definitions.update(schema.pop("$defs", {}))
        properties[name] = schema
        if _is_required(default):
            required.append(name)
    found = {"type": "object", "properties": properties, "required": required}
    return {**found, "$defs": definitions} if definitions else found


def _type_schema(annotation: Any) -> dict[str, Any]:
    """Return the schema of a type; an empty one where no schema can say it."""
    from pydantic import TypeAdapter  # noqa: PLC0415
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError  # noqa: PLC0415

    try:
        return TypeAdapter(annotation).json_schema(ref_template="#/$defs/{model}")
    except (PydanticSchemaGenerationError, PydanticUserError, NameError):
        return {}


def _is_field(default: Any) -> bool:
    """Return whether a parameter's default is pydantic's `Field(default, description=…)`."""
    return callable(getattr(default, "is_required", None))


def _is_required(default: Any) -> bool:
    return bool(default.is_required()) if _is_field(default) else default is inspect.Parameter.empty


def _as_default(value: Any) -> dict[str, Json]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return {}
    return {"default": value}


def _parameters(item: Callable[..., Any]) -> Iterator[tuple[str, inspect.Parameter, Any]]:
    try:
        signature = inspect.signature(item, eval_str=True)
    except (NameError, TypeError, ValueError):
        signature = inspect.Signature() if not inspect.isroutine(item) else inspect.signature(item)
    for name, parameter in signature.parameters.items():
        if parameter.kind not in _SKIPPED:
            annotation = parameter.annotation
            yield name, parameter, Any if annotation is inspect.Parameter.empty else annotation


def _documented(definition: McpDefinition) -> McpDefinition:
    """Move what a docstring says of the arguments to them, where they have no description but their own name."""
    text, schema = definition.get("description"), definition.get("inputSchema")
    if not isinstance(text, str) or not isinstance(schema, Mapping):
        return definition
    about, notes = _docstring(text)
    properties = schema.get("properties")
    if not notes or not isinstance(properties, Mapping) or not notes.keys() & properties.keys():
        return {**definition, "description": about if notes else text.strip()}
    filled = {
        key: {**value, "description": notes[key]}
        if key in notes
        and isinstance(value, Mapping)
        and value.get("description", key) == key  # AutoGen repeats the name
        else value
        for key, value in properties.items()
    }
    return {**definition, "description": about, "inputSchema": {**schema, "properties": filled}}


def _docstring(text: str) -> tuple[str, Mapping[str, str]]:
    parts = _SECTION.split(f"\n{text}", maxsplit=1)
    if len(parts) == 1:
        return text.strip(), {}
    notes = {m["name"]: m["text"] for line in parts[1].splitlines() if (m := _ARGUMENT.match(line))}
    return parts[0].strip(), notes


_KINDS: Iterable[Callable[[Any], McpDefinition | None]] = (
    _langchain,
    _llama_index,
    _fastmcp,
    _pydantic_ai,
    _by_json_schema,
    _google,
    _autogen,
    _smolagents,
    _dspy,
    _semantic_kernel,
    _by_args_schema,
    _by_parameters,
    _model,
    _callable,
)
"""The readers, the most particular shape first."""
