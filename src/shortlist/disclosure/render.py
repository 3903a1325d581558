"""Tools and hits as text for a model, at three levels of detail, safe to show."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from shortlist.catalog.readable import readable
from shortlist.disclosure.budget import estimate_tokens
from shortlist.models import Annotations, Hit, Json, Parameter, Tool, ToolId
from shortlist.schema import parameters_of
from shortlist.text.tokens import clean_text, cleaned, one_line

Detail: TypeAlias = Literal["compact", "standard", "full"]
NameOf: TypeAlias = Callable[[ToolId], str]

COMPACT_DESCRIPTION = 120
STANDARD_DESCRIPTION = 400
PARAMETER_DESCRIPTION = 100
MAX_SIGNATURE_OPTIONALS = 6
"""A signature names every required argument and this many optional ones; describe_tools shows the rest."""
MAX_ENUM = 6
_SHORT_TYPES = {"integer": "int", "boolean": "bool", "number": "number"}
_EFFECTS = (
    ("read_only", True, "read-only"),
    ("destructive", True, "destructive"),
    ("idempotent", True, "idempotent"),
)


class Entry(NamedTuple):
    """One hit, ready to be shown: its wire name, its text, and what stands for it."""

    name: str
    signature: str
    description: str
    score: float | None = None
    family: tuple[str, ...] = ()
    note: str = ""
    more: str = ""


def entry_of(hit: Hit, detail: Detail, name_of: NameOf, note: str = "") -> Entry:
    """Make a hit showable at a level of detail."""
    tool, name = hit.tool, name_of(hit.tool.id)
    length = COMPACT_DESCRIPTION if detail == "compact" else STANDARD_DESCRIPTION
    return Entry(
        name=name,
        signature=signature_of(tool, name),
        description=one_line(tool.description or tool.title, length),
        score=hit.score,
        family=tuple(name_of(member) for member in hit.family if member != tool.id) if hit.family else (),
        note=note,
        more=_MORE[detail](tool),
    )


def entry_text(entry: Entry) -> str:
    """Write an entry: the signature with its score, the description, and the rest indented below."""
    score = "" if entry.score is None else f" [{entry.score:.2f}]"
    note = f" ({entry.note})" if entry.note else ""
    lines = [f"{entry.signature}{score}{note}"]
    if entry.description:
        lines.append(f"  {entry.description}")
    if entry.family:
        lines.append(f"  also: {', '.join(entry.family)}")
    if entry.more:
        lines.extend(f"  {line}" for line in entry.more.splitlines())
    return "\n".join(lines)


def entry_row(entry: Entry) -> dict[str, Json]:
    """Return an entry as data, for TOON and JSON; every row of a list has the same keys."""
    return {
        "name": entry.name,
        "signature": entry.signature,
        "description": entry.description,
        "score": None if entry.score is None else round(entry.score, 4),
        "family": list(entry.family),
        "note": entry.note,
    }


@lru_cache(maxsize=8_192)
def signature_of(tool: Tool, name: str) -> str:
    """Write `name(a: string, b?: int)`: required arguments first, in the schema's order."""
    parameters = parameters_of(tool)
    required = [p for p in parameters if p.required]
    optional = [p for p in parameters if not p.required]
    shown = [_argument(p) for p in (*required, *optional[:MAX_SIGNATURE_OPTIONALS])]
    if len(optional) > MAX_SIGNATURE_OPTIONALS:
        shown.append("…")
    return f"{name}({', '.join(shown)})"


def describe_text(tool: Tool, name: str, extras: Iterable[str] = ()) -> str:
    """Write all there is to know before a call: description, annotations, schemas, server."""
    definition = tool.mcp()
    lines = [signature_of(tool, name)]
    if tool.title and tool.title != tool.name:
        lines.append(f"title: {one_line(tool.title)}")
    lines.append(f"server: {one_line(tool.server)}" if tool.server else "server: (none)")
    if tool.description:
        lines.append(f"description: {indented(tool.description)}")
    lines.extend([f"effects: {effects_text(tool.annotations)}"] if effects_text(tool.annotations) else [])
    lines.append(f"input schema: {compact_json(tool.input_schema)}")
    if isinstance(definition.get("outputSchema"), dict):
        lines.append(f"output schema: {compact_json(definition['outputSchema'])}")
    lines.extend(extras)
    return "\n".join(lines)


def indented(text: str) -> str:
    """Clean a text of several lines and indent all but the first, so that none of them looks like a line of ours."""
    return clean_text(text).strip().replace("\n", "\n  ")


def effects_text(annotations: Annotations) -> str:
    """Name what a server claims about a tool's effects."""
    return ", ".join(word for key, value, word in _EFFECTS if getattr(annotations, key) is value)


def compact_json(value: Json) -> str:
    """Write JSON without spaces and without invisible characters."""
    return json.dumps(cleaned(value), ensure_ascii=False, separators=(",", ":"))


def _argument(parameter: Parameter) -> str:
    mark = "" if parameter.required else "?"
    return f"{one_line(parameter.name, 64)}{mark}: {_type(parameter)}"


def _type(parameter: Parameter) -> str:
    if parameter.enum and len(parameter.enum) <= MAX_ENUM:
        return "|".join(json.dumps(one_line(value, 32), ensure_ascii=False) for value in parameter.enum)
    return "|".join(_SHORT_TYPES.get(part, one_line(part, 32)) for part in parameter.type.split("|"))


def _nothing_more(_: Tool) -> str:
    return ""


def _arguments(tool: Tool) -> str:
    described = [p for p in parameters_of(tool) if p.description]
    lines = [f"- {one_line(p.name, 64)}: {one_line(p.description, PARAMETER_DESCRIPTION)}" for p in described]
    effects = effects_text(tool.annotations)
    return "\n".join([*lines, *([f"effects: {effects}"] if effects else [])])


def _schema(tool: Tool) -> str:
    return f"input schema: {compact_json(tool.input_schema)}"


_MORE: Mapping[str, Callable[[Tool], str]] = {
    "compact": _nothing_more,
    "standard": _arguments,
    "full": _schema,
}


def bound_definition(tool: Tool, name: str, mark: str = "") -> dict[str, Any]:
    """Return a tool's definition under its wire name, its texts cleaned, and marked where something is to be known.

    Values that a call has to repeat (names of properties, enums, constants) are cleaned too: a call of a tool that
    hides characters in them is refused, and the refusal says why. Members that no client could read are left out.
    """
    return _bound_definition(tool.definition, name, mark)


@lru_cache(maxsize=32_768)
def _bound_definition(raw: str, name: str, mark: str) -> dict[str, Any]:
    definition: dict[str, Any] = readable(cleaned(json.loads(raw)))
    definition["name"] = name
    if mark:
        definition["description"] = f"[{mark}] {definition.get('description') or ''}".strip()
    definition["inputSchema"] = {**(definition.get("inputSchema") or {}), "type": "object"}
    return definition


def entries_text(entries: Sequence[Entry], *, toon: bool) -> str:
    """Write entries as text, or as TOON when asked for and no entry carries a schema and it costs less."""
    plain = "\n".join(entry_text(entry) for entry in entries)
    if not toon or not entries or any(entry.more for entry in entries):
        return plain
    encoded = entries_toon(entries)
    return encoded if estimate_tokens(encoded) < estimate_tokens(plain) else plain


def entries_toon(entries: Sequence[Entry]) -> str:
    """Write entries as one TOON table; a column that is empty in every row is left out."""
    rows = [entry_row(entry) for entry in entries]
    for row in rows:
        del row["name"]  # the signature begins with it
        row["family"] = " ".join(row["family"])
    used = [key for key in rows[0] if any(row[key] not in ("", None) for row in rows)]
    from toon_format import encode  # noqa: PLC0415 - only where TOON is asked for

    return encode({"tools": [{key: row[key] for key in used} for row in rows]})
