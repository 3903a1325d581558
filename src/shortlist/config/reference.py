"""The configuration reference and its JSON Schema, generated from the shapes.

`python -m shortlist.config.reference` writes both into a clone: docs/configuration.md and config/schema.json.
"""

import ast
import inspect
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from shortlist.config import identities, shapes
from shortlist.config.identities import Shape
from shortlist.config.settings import (
    CALL_SECONDS,
    CONCURRENT_CALLS,
    DEFAULT_LIMITS,
    DEFAULT_TELEMETRY,
    START_SECONDS,
)
from shortlist.config.shapes import ConfigDocument, LimitsShape, ServerOptions, ServerShape, TelemetryShape
from shortlist.models import Json

SCHEMA = Path(__file__).with_name("schema.json")
_EXAMPLE = "Example: "
_DEFAULTS: Mapping[type[Shape], object] = {LimitsShape: DEFAULT_LIMITS, TelemetryShape: DEFAULT_TELEMETRY}
"""Where a shape leaves a default to the settings, these have it."""
_SERVER_DEFAULTS: Mapping[str, Json] = {
    "timeout": CALL_SECONDS,
    "start_timeout": START_SECONDS,
    "max_concurrency": CONCURRENT_CALLS,
}
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}
_FRAME = """# Configuration

<!-- Generated from src/shortlist/config/shapes.py by `make docs`. Edit the texts there. -->

Shortlist reads one file: the one named with `--config`, else `~/.config/shortlist/config.json`
(`$XDG_CONFIG_HOME/shortlist/config.json`). Without a file it serves the bundled demo servers. The file is JSON with
comments and trailing commas, or TOML when its name ends in `.toml`.

```json
{
  "$schema": "./shortlist.schema.json",
  "mcpServers": {
    "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
    "wiki": {
      "url": "https://example.com/mcp",
      "headers": {"Authorization": "Bearer ${WIKI_TOKEN:-}"},
      "shortlist": {"exclude": ["delete_*"], "timeout": 120}
    }
  },
  "shortlist": {"mode": "search", "toolsets": {"reading": ["wiki/get_*"]}}
}
```

A running gateway applies a changed file by itself, within a second. A file with a mistake is reported and changes
nothing.

| command | what it does |
|---|---|
| `shortlist config check` | read the file and report mistakes with line and suggestion |
| `shortlist config path` | print which file is used |
| `shortlist config schema` | print the JSON Schema; save it and name it in `"$schema"` for completion in your editor |
| `shortlist add`, `remove`, `enable`, `disable`, `edit` | change servers; comments stay ([servers](servers.md)) |

"""


class _Whole(ConfigDocument):
    """A file with its servers typed, for the reference and the schema alone."""

    mcp_servers: dict[str, ServerShape] = Field({}, alias="mcpServers")
    mcp_servers_toml: dict[str, ServerShape] = Field({}, alias="mcp_servers")
    servers: dict[str, ServerShape] = Field({})


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a file: where it stands, and what is written about it."""

    place: str
    name: str
    type: str
    default: str
    text: str
    example: str


@dataclass(frozen=True, slots=True)
class Section:
    """The keys of one object in a file."""

    place: str
    text: str
    keys: tuple[Key, ...]


def sections() -> tuple[Section, ...]:
    """Return every object that a file can hold, each once, the whole file first."""
    return tuple(
        Section(place, inspect.getdoc(_owner(shape)) or "", tuple(_keys(shape, place))) for shape, place in _shapes()
    )


def reference() -> str:
    """Return the configuration page."""
    return _FRAME + "\n".join(_section_text(section) for section in sections())


def schema() -> dict[str, Json]:
    """Return the JSON Schema of a configuration file."""
    found: dict[str, Json] = _Whole.model_json_schema(by_alias=True)
    found.pop("description", None)
    definitions = found.pop("$defs")
    for shape, _ in _shapes():
        target = found if shape is _Whole else definitions[shape.__name__]
        for name, field in shape.model_fields.items():
            entry = target["properties"][field.alias or name]
            text, example = _words(shape, name)
            entry["description"] = text
            if example:
                entry["examples"] = [json.loads(example)]
    for tree in (found, *definitions.values()):
        _untitle(tree)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Shortlist",
        **found,
        "$defs": definitions,
    }


def schema_text() -> str:
    """Return the schema as it is shipped."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _shapes() -> Iterator[tuple[type[Shape], str]]:
    """Yield each shape with the first place it can stand at."""
    seen: dict[type[Shape], str] = {}
    queue: list[tuple[type[Shape], str]] = [(_Whole, "")]
    while queue:
        shape, place = queue.pop(0)
        if shape in seen:
            continue
        seen[shape] = place
        yield shape, place
        for name, field in shape.model_fields.items():
            key = field.alias or name
            for inner, steps in _inner(field.annotation):
                queue.append((inner, ".".join(filter(None, (place, key, steps)))))


def _inner(annotation: Any) -> Iterator[tuple[type[Shape], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        yield annotation, ""
        return
    named = "NAME" if get_origin(annotation) is dict else ""
    for part in get_args(annotation):
        for shape, steps in _inner(part):
            yield shape, ".".join(filter(None, (named, steps)))


def _keys(shape: type[Shape], place: str) -> Iterator[Key]:
    for name, field in shape.model_fields.items():
        text, example = _words(shape, name)
        key = field.alias or name
        yield Key(
            place=f"{place}.{key}" if place else key,
            name=key,
            type=_type(field.annotation),
            default=_default(shape, name, field),
            text=text,
            example=example,
        )


@cache
def _docstrings() -> Mapping[tuple[str, str], str]:
    """Read the text below each key; classes keep no docstrings of their attributes."""
    found: dict[tuple[str, str], str] = {}
    for node in (node for module in (identities, shapes) for node in ast.parse(inspect.getsource(module)).body):
        if not isinstance(node, ast.ClassDef):
            continue
        for statement, after in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[node.name, statement.target.id] = " ".join(str(after.value.value).split())
    return found


def _words(shape: type[Shape], name: str) -> tuple[str, str]:
    """Return the text about a key and its example."""
    text, _, example = _docstrings().get((_owner(shape).__name__, name), "").partition(_EXAMPLE)
    return text.strip(), example.strip().strip("`")


def _owner(shape: type[Shape]) -> type[Shape]:
    return ConfigDocument if shape is _Whole else shape


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if hasattr(annotation, "__metadata__"):
        return _type(parts[0])
    if origin is Literal:
        return "one of " + ", ".join(f'`"{value}"`' for value in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in parts if part is not type(None)))
    kinds: Mapping[Any, str] = {tuple: "list of {}", list: "list of {}", dict: "object: {} by name"}
    return kinds[origin].format(_type(parts[-1] if origin is dict else parts[0])) if origin in kinds else "object"


def _default(shape: type[Shape], name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        kept = _DEFAULTS.get(shape)
        value = getattr(kept, name, None) if is_dataclass(kept) and name in {f.name for f in fields(kept)} else None
        value = _SERVER_DEFAULTS.get(name) if shape is ServerOptions else value
    if value is None or isinstance(value, Shape) or value in ((), {}, [], ""):
        return "–"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{json.dumps(value)}`"


def _section_text(section: Section) -> str:
    title = f"`{section.place}`" if section.place else "The file"
    lines = [
        f"## {title}",
        "",
        section.text,
        "",
        "| key | type | default | what it does | example |",
        "|---|---|---|---|---|",
    ]
    for key in section.keys:
        cells = (f"`{key.name}`", key.type, key.default, key.text, f"`{key.example}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _untitle(tree: Any) -> None:
    """Drop the titles that pydantic makes of names: they are words of our classes."""
    for entry in tree.get("properties", {}).values():
        entry.pop("title", None)
    tree.pop("title", None)


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), "utf-8")
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    page.write_text(reference(), "utf-8")
