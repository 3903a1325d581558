"""A call's arguments against the tool's schema, before anything is sent.

JSON Schema 2020-12 (or the older draft that a schema names), with references inside the document only, a
bound on the work, and patterns by a linear-time engine. A schema that cannot be evaluated so never blocks a
call: the caller is told that nothing was checked. The validator is loaded with the first call: it takes a
sixth of a second, and a gateway that only searches never needs it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import re2

from shortlist.models import Json, Tool
from shortlist.text.clean import one_line

MAX_STEPS = 20_000
"""Keywords evaluated for one call; `anyOf` inside `anyOf` can ask for more than there are atoms."""
MAX_SCHEMA_CHARACTERS = 400_000
MAX_VIOLATIONS = 5
MAX_PATTERN_CHARACTERS = 1_000

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Any]
Validator: TypeAlias = Any
Error: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Violation:
    """One place in the arguments that the schema does not allow."""

    path: str
    constraint: str

    def __str__(self) -> str:
        return f"{self.path}: {self.constraint}"


@dataclass(frozen=True, slots=True)
class Check:
    """What checking found; `unchecked` says why a schema could not be evaluated."""

    violations: tuple[Violation, ...] = ()
    unchecked: str = ""


class Unevaluable(Exception):
    """The schema, or the work it asks for, is beyond what is evaluated here."""


def check_arguments(tool: Tool, arguments: Mapping[str, Json]) -> Check:
    """Check arguments against a tool's input schema."""
    try:
        validator = _validator(tool.definition)
        with _Steps(MAX_STEPS):
            errors = list(islice(validator.iter_errors(dict(arguments)), MAX_VIOLATIONS))
    except Unevaluable as reason:
        return Check(unchecked=str(reason))
    except Exception as error:  # a stranger's schema can break the validator anywhere; no call fails for that
        return Check(unchecked=f"its schema cannot be evaluated ({type(error).__name__})")
    return Check(tuple(_violation(error) for error in errors))


@lru_cache(maxsize=1024)
def _validator(definition: str) -> Validator:
    if len(definition) > MAX_SCHEMA_CHARACTERS:
        raise Unevaluable(f"its schema is larger than {MAX_SCHEMA_CHARACTERS:,} characters")
    schema = json.loads(definition).get("inputSchema")
    if not isinstance(schema, dict):
        schema = {"type": "object"}
    from jsonschema import validators  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    known = validators.validator_for(schema, default=validators.Draft202012Validator)
    # An empty registry resolves references inside the document and nothing else: no file, no network.
    return _bounded(known)(schema, registry=Registry())


@lru_cache(maxsize=16)
def _bounded(known: Validator) -> Callable[..., Validator]:
    from jsonschema import validators  # noqa: PLC0415

    keywords: Mapping[str, Keyword] = {
        **known.VALIDATORS,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
    }
    counted = {name: _counted(keyword) for name, keyword in keywords.items()}
    made: Callable[..., Validator] = validators.extend(known, counted)
    return made


class _Steps:
    """Counts the keywords evaluated for one call; checking is synchronous, so one counter serves all."""

    left = 0

    def __init__(self, most: int) -> None:
        _Steps.left = most

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        _Steps.left = 0


def _counted(keyword: Keyword) -> Keyword:
    def count(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _Steps.left -= 1
        if _Steps.left < 0:
            raise Unevaluable("checking its schema takes too many steps")
        return keyword(validator, value, instance, schema)

    return count


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[Error]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if validator.is_type(instance, "string") and not _expression(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Error]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if _expression(pattern).search(key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


@lru_cache(maxsize=1024)
def _expression(pattern: Any) -> Any:
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARACTERS:
        raise Unevaluable("its schema has a pattern that is too long or no text")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise Unevaluable(f"its schema has a pattern that needs backtracking: {one_line(pattern, 80)!r}") from error


def _violation(error: Error) -> Violation:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    constraint = one_line(_explained(error), 300)
    return Violation(one_line(f"arguments{path}", 200), constraint)


def _explained(error: Error) -> str:
    if error.validator in ("anyOf", "oneOf") and error.context:
        options = "; or ".join(dict.fromkeys(inner.message for inner in error.context[:4]))
        return f"fits none of the alternatives ({options})"
    return str(error.message)
