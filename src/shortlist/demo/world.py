"""The small world behind a demo server: records by kind, the same at every start, changed by calls."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shortlist.models import Json

DemoRecord: TypeAlias = dict[str, Json]

SEEDS = 3
FIRST_DAY = "2026-01-0"
DEFAULT_LIMIT = 20
_WORDS = ("alpha", "bravo", "charlie")


class NotThere(Exception):
    """A record that was asked for by key and does not exist; the message lists those that do."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a tool does: an action on a kind of record, and the argument that names the record, if one does."""

    action: str
    entity: str
    key: str | None = None


@dataclass(slots=True)
class World:
    """Every record of one server; all answers follow from the calls so far and nothing else."""

    kinds: dict[str, dict[str, DemoRecord]] = field(default_factory=dict)
    _count: dict[str, int] = field(default_factory=dict)

    def perform(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        """Simulate the tool and return its answer as an object."""
        return _ACTIONS[act.action](self, act, arguments)

    def records(self, entity: str) -> dict[str, DemoRecord]:
        """Return the records of a kind, the three it begins with included."""
        if entity not in self.kinds:
            self._count[entity] = SEEDS
            self.kinds[entity] = {str(n): _seed(entity, n) for n in range(1, SEEDS + 1)}
        return self.kinds[entity]

    def create(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        records = self.records(act.entity)
        self._count[act.entity] += 1
        number = self._count[act.entity]
        given = arguments.get(act.key) if act.key else None
        record = {"id": _text(given) if given is not None else f"{act.entity}-{number}", "number": number, **arguments}
        records[_text(given) if given is not None else str(number)] = record
        return record

    def list(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        found = [record for record in self.records(act.entity).values() if _agrees(record, arguments)]
        return _some(act, found, arguments)

    def get(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        return {**self._find(act, arguments)}

    def update(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        record = self._find(act, arguments)
        record.update(arguments, revision=record.get("revision", 1) + 1)
        return {**record}

    def delete(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        record = self._find(act, arguments)
        records = self.records(act.entity)
        records.pop(next(key for key, value in records.items() if value is record))
        return {"deleted": record["id"], "left": len(records)}

    def search(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        wanted = {word for value in arguments.values() if isinstance(value, str) for word in value.lower().split()}
        everything = self.records(act.entity).values()
        found = [record for record in everything if wanted & _words(record)]
        return _some(act, found, arguments)

    def send(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        return {**self.create(Act("create", act.entity), arguments), "status": "sent"}

    def compute(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        digest = hashlib.sha256(f"{act.entity}{json.dumps(arguments, sort_keys=True)}".encode()).hexdigest()
        return {"entity": act.entity, "input": dict(arguments), "value": int(digest[:6], 16) / 1000, "digest": digest}

    def _find(self, act: Act, arguments: Mapping[str, Json]) -> DemoRecord:
        """Find a record by its key; where no argument names one, the newest is meant."""
        records = self.records(act.entity)
        if not records:
            raise NotThere(f"there is no {act.entity} left; create one first")
        given = arguments.get(act.key) if act.key else None
        named = _text(given) if given is not None else None
        if named is None:
            return next(reversed(records.values()))
        for key, record in records.items():
            if named in (key, record["id"], _text(record.get(act.key or "id"))):
                return record
        known = ", ".join(repr(record["id"]) for record in list(records.values())[:10])
        raise NotThere(f"there is no {act.entity} with {act.key} {named!r}; there are {known}")


_ACTIONS: dict[str, Callable[[World, Act, Mapping[str, Json]], DemoRecord]] = {
    "create": World.create,
    "list": World.list,
    "get": World.get,
    "update": World.update,
    "delete": World.delete,
    "search": World.search,
    "send": World.send,
    "compute": World.compute,
}


def shaped(answer: DemoRecord, schema: Mapping[str, Json]) -> DemoRecord:
    """Fit an answer to a declared output schema: what it has keeps its place, what is missing is made up."""
    properties: Mapping[str, Json] = schema.get("properties", {})
    return {name: _value(name, wanted, answer) for name, wanted in properties.items()}


def _value(name: str, schema: Mapping[str, Json], answer: DemoRecord) -> Json:
    kind = schema.get("type", "string")
    if name in answer and isinstance(answer[name], _PYTHON[kind]) and _is_allowed(answer[name], schema):
        return answer[name]
    if kind == "array":
        items = answer.get("items", [])
        return items if schema.get("items", {}).get("type") == "object" else sorted({k for i in items for k in i})
    if kind in ("integer", "number"):
        return answer.get("total", answer.get("number", len(name)))
    made_up = {"boolean": False, "object": answer, "string": _string(name, schema, answer)}
    return made_up[kind]


_PYTHON: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _string(name: str, schema: Mapping[str, Json], answer: DemoRecord) -> str:
    if schema.get("enum"):
        return str(schema["enum"][0])
    if schema.get("format") == "uri":
        return f"https://demo.invalid/{answer.get('id', name)}"
    if schema.get("format") == "date-time":
        return f"{FIRST_DAY}1T09:00:00Z"
    return str(answer.get("id", answer.get("digest", name)))


def _is_allowed(value: Json, schema: Mapping[str, Json]) -> bool:
    return "enum" not in schema or value in schema["enum"]


def _seed(entity: str, number: int) -> DemoRecord:
    word = _WORDS[number - 1]
    return {
        "id": f"{entity}-{number}",
        "number": number,
        "name": f"{word} {entity.replace('_', ' ')}",
        "created": f"{FIRST_DAY}{number}T09:00:00Z",
    }


def _some(act: Act, found: list[DemoRecord], arguments: Mapping[str, Json]) -> DemoRecord:
    asked = arguments.get("limit")
    limit = asked if isinstance(asked, int) and asked > 0 else DEFAULT_LIMIT
    return {"entity": act.entity, "items": [dict(record) for record in found[:limit]], "total": len(found)}


def _agrees(record: DemoRecord, arguments: Mapping[str, Json]) -> bool:
    """Compare only the keys that both sides have, so that a filter ignores fields that a record lacks."""
    return all(record[key] == value for key, value in arguments.items() if key in record)


def _words(record: DemoRecord) -> set[str]:
    texts: Iterable[str] = (value for value in record.values() if isinstance(value, str))
    return {word for text in texts for word in text.lower().replace("-", " ").split()}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
