"""Forms made of a tool's schema: one field for each property, and the arguments that somebody filled in."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist.errors import InvalidInput
from shortlist.models import Json

FieldKind: TypeAlias = Literal["text", "number", "flag", "choice", "json"]
PREFIX = "argument."
"""Begins the name of every field, so that no property can pass for a field of ours."""
MOST_FIELDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One property as a field of a form."""

    name: str
    kind: FieldKind
    required: bool = False
    description: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""

    @property
    def key(self) -> str:
        return PREFIX + self.name


def fields_of(schema: Mapping[str, Json]) -> tuple[SchemaField, ...]:
    """Return the fields of a tool's input schema, required ones first."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return ()
    needed = set(required) if isinstance(required, list) else set()
    fields = [_field(name, raw, name in needed) for name, raw in list(properties.items())[:MOST_FIELDS]]
    return tuple(sorted(fields, key=lambda field: not field.required))


def arguments_of(fields: tuple[SchemaField, ...], form: Mapping[str, str]) -> dict[str, Json]:
    """Read the arguments from a form; a field that is left empty is left out."""
    return {field.name: value for field in fields for value in _read(field, form.get(field.key, ""))}


def _field(name: str, raw: Json, required: bool) -> SchemaField:
    schema = raw if isinstance(raw, Mapping) else {}
    kind = schema.get("type")
    choices = schema.get("enum")
    is_choice = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    kinds: dict[str, FieldKind] = {"string": "text", "integer": "number", "number": "number", "boolean": "flag"}
    default = schema.get("default")
    return SchemaField(
        name=name,
        kind="choice" if is_choice else kinds.get(str(kind), "json"),
        required=required,
        description=str(schema.get("description") or ""),
        choices=tuple(choices) if is_choice and isinstance(choices, list) else (),
        default="" if default is None else default if isinstance(default, str) else json.dumps(default),
    )


def _read(field: SchemaField, text: str) -> Iterator[Json]:
    if not text.strip():
        return
    if field.kind in ("text", "choice"):
        yield text
        return
    try:
        yield json.loads(text)
    except ValueError:
        wanted = {"number": "a number", "flag": "true or false"}.get(field.kind, "JSON")
        raise InvalidInput(f"{field.name!r} takes {wanted}, not {text!r}.") from None
