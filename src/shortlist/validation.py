"""Checks a call's arguments against the tool's schema before anything is sent.

JSON Schema 2020-12, or the older draft that a schema names. References are resolved inside the document only, work is
bounded, and patterns run on a linear-time engine. A schema that cannot be evaluated this way never blocks a call: the
caller is told that nothing was checked. What takes more than a few steps is checked in a worker process. The
validator is imported with the first call, in a thread: that takes a sixth of a second, and a gateway that only searches
never needs it.
"""

import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from time import monotonic, thread_time
from typing import Any, TypeAlias

import anyio.to_thread
import re2
from pydantic_core import from_json

from shortlist.large import written
from shortlist.models import Json, Tool
from shortlist.text.tokens import clean_text, one_line
from shortlist.workers import WorkerFailed, WorkerTimedOut, WorkOwner, prepare_with, run_apart

REMEMBERED_DEFINITIONS = 1_024
_ESCAPED = re.compile(r"\\[bfru]")
"""How control characters are written in JSON."""
_NAMING = ("properties", "patternProperties", "dependentRequired", "dependentSchemas")
"""Members of a schema whose keys are names of arguments."""
_SAYING = ("required", "enum", "const")
"""Members of a schema whose values a call repeats."""
MAX_STEPS = 20_000
"""Keywords evaluated for one call; `anyOf` inside `anyOf` can ask for more than there are atoms."""
MAX_VALUES = 500_000
"""Values compared for one call by `enum`, `const` and `uniqueItems`."""
INLINE_STEPS = 300
INLINE_VALUES = 3_000
INLINE_SECONDS = 0.005
INLINE_CHARACTERS = 50_000
"""What is checked on the event loop, and the schema it is checked against; the rest goes to a worker process."""
INLINE_PATTERN_CHARACTERS = 300
INLINE_MATCHED_CHARACTERS = 1_000
INLINE_PATTERN_SIZE = 600
"""Patterns that are compiled and matched on the event loop: linear time is still a second for `[\\pL\\pN]{1,300}`."""
WORKER_SECONDS = 5.0
HOPELESS_SECONDS = 600.0
"""How long a schema whose check did not end is not tried again: each attempt takes a process for seconds."""
HOPELESS_SCHEMAS = 1_024
MAX_SCHEMA_CHARACTERS = 400_000
MAX_VIOLATIONS = 5
MAX_PATTERN_CHARACTERS = 1_000
SHOWN_ALTERNATIVES = 20
SHOWN_CHARACTERS = 300
READ_CHARACTERS = 2_000
"""Of what is wrong: messages repeat the value, which may be long, and only their beginning is cleaned and shown."""

_is_loaded = threading.Event()

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


class TooManySteps(Unevaluable):
    """The budget of one check is spent."""


async def check_call(tool: Tool, arguments: Mapping[str, Json], caller: Callable[[], str] = str) -> Check:
    """Check arguments without keeping the event loop: small ones here, others in a worker, where callers take turns."""
    if not _is_loaded.is_set():
        await anyio.to_thread.run_sync(_load)
    if len(tool.definition) <= INLINE_CHARACTERS and _size(arguments) <= INLINE_VALUES:
        try:
            return _check(tool.definition, arguments, _inline())
        except TooManySteps:
            pass
    if _hopeless.get(tool.definition, 0.0) > monotonic():
        return Check(unchecked="checking its schema did not end the last time")
    try:
        # As bytes: values are pickled in one step, however many there are.
        sent = await written(dict(arguments))
        owner = WorkOwner(tool.server, caller())
        return await run_apart(_check_written, tool.definition, sent, seconds=WORKER_SECONDS, owner=owner)
    except WorkerFailed as reason:
        if isinstance(reason, WorkerTimedOut):
            _give_up(tool.definition)
        return Check(unchecked=f"checking its schema did not end: {reason}")


_hopeless: OrderedDict[str, float] = OrderedDict()


def _give_up(definition: str) -> None:
    _hopeless[definition] = monotonic() + HOPELESS_SECONDS
    while len(_hopeless) > HOPELESS_SCHEMAS:
        _hopeless.popitem(last=False)


def _load() -> None:
    """Import the validator, and let it read what it reads once."""
    _check_whole('{"inputSchema": {"properties": {"text": {"type": "string"}}}}', {"text": ""})
    _is_loaded.set()


prepare_with(_load)


def check_arguments(tool: Tool, arguments: Mapping[str, Json]) -> Check:
    """Check arguments against a tool's input schema, however many of the allowed steps that takes."""
    return _check_whole(tool.definition, dict(arguments))


def _check_whole(definition: str, arguments: dict[str, Json]) -> Check:
    try:
        return _check(definition, arguments, _Budget(MAX_STEPS, MAX_VALUES))
    except TooManySteps as reason:
        return Check(unchecked=str(reason))


def _check_written(definition: str, arguments: bytes) -> Check:
    return _check_whole(definition, from_json(arguments))


@dataclass(slots=True)
class _Budget:
    """What is left for one check: keywords, compared values, and on the event loop a moment and simple patterns."""

    steps: int
    values: int
    ends: float = math.inf
    is_inline: bool = False

    def spend(self, steps: int = 0, values: int = 0) -> None:
        self.steps -= steps
        self.values -= values
        if self.steps < 0 or (self.is_inline and thread_time() > self.ends):
            raise TooManySteps("checking its schema takes too many steps")
        if self.values < 0:
            raise TooManySteps("checking its schema compares too many values")


def _inline() -> _Budget:
    return _Budget(INLINE_STEPS, INLINE_VALUES, is_inline=True)


class _Running(threading.local):
    """The budget of the check that runs in this thread."""

    budget = _Budget(0, 0)


_running = _Running()


def _check(definition: str, arguments: Mapping[str, Json], budget: _Budget) -> Check:
    try:
        validator = _validator(definition)
        _running.budget = budget
        if budget.is_inline:  # from here on: the validator of a schema is made once
            budget.ends = thread_time() + INLINE_SECONDS
        errors = list(islice(validator.iter_errors(dict(arguments)), MAX_VIOLATIONS))
    except TooManySteps:
        raise
    except Unevaluable as reason:
        return Check(unchecked=str(reason))
    except Exception as error:  # a stranger's schema can break the validator anywhere; no call fails for that
        return Check(unchecked=f"its schema cannot be evaluated ({type(error).__name__})")
    return Check(tuple(_violation(error) for error in errors))


def _size(value: Any) -> int:
    """Estimate how much there is to check, and stop counting where it is too much anyway."""
    size, waiting = 0, [value]
    while waiting and size <= INLINE_VALUES:
        item = waiting.pop()
        size += 1
        if isinstance(item, str):
            size += len(item) // 100
        elif isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return size


@lru_cache(maxsize=256)
def _validator(definition: str) -> Validator:
    if len(definition) > MAX_SCHEMA_CHARACTERS:
        raise Unevaluable(f"its schema is larger than {MAX_SCHEMA_CHARACTERS:,} characters")
    if '"unevaluatedProperties"' in definition and '"patternProperties"' in definition:
        raise Unevaluable("its schema combines unevaluatedProperties with patternProperties")  # by Python's own regexes
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
        "additionalProperties": _additional_properties,
        "enum": _enum,
        "const": _const,
        "uniqueItems": _unique_items,
    }
    counted = {name: _counted(keyword) for name, keyword in keywords.items()}
    made: Callable[..., Validator] = validators.extend(known, counted)
    return made


def _counted(keyword: Keyword) -> Keyword:
    def count(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _running.budget.spend(steps=1)
        return keyword(validator, value, instance, schema)

    return count


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Error]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if not validator.is_type(instance, "object"):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [
        name for name in instance if name not in properties and not any(_matches(pattern, name) for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        names = ", ".join(repr(name) for name in sorted(extras))
        were = "was" if len(extras) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {were} unexpected)")


def _enum(_: Any, allowed: Any, instance: Any, __: Any) -> Iterator[Error]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if isinstance(allowed, list) and _key(instance) not in _alternatives(allowed):
        more = f" and {len(allowed) - SHOWN_ALTERNATIVES} more" if len(allowed) > SHOWN_ALTERNATIVES else ""
        yield ValidationError(f"{instance!r} is not one of {allowed[:SHOWN_ALTERNATIVES]!r}{more}")


def _const(_: Any, expected: Any, instance: Any, __: Any) -> Iterator[Error]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if _key(instance) != _key(expected):
        yield ValidationError(f"{expected!r} was expected")


def _unique_items(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Error]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if wanted and validator.is_type(instance, "array") and len({_key(item) for item in instance}) < len(instance):
        yield ValidationError("it holds the same item more than once")


_known_alternatives: OrderedDict[int, tuple[list[Any], frozenset[Hashable]]] = OrderedDict()


def _alternatives(allowed: list[Any]) -> frozenset[Hashable]:
    """Return the keys of an enumeration, computed once: the list lives as long as its validator."""
    known = _known_alternatives.get(id(allowed))
    if known is None or known[0] is not allowed:
        known = (allowed, frozenset(map(_key, allowed)))
        _known_alternatives[id(allowed)] = known
        while len(_known_alternatives) > 1024:
            _known_alternatives.popitem(last=False)
    return known[1]


def _key(value: Any) -> Hashable:
    """Return a key that is equal for values that JSON Schema calls equal: 1 is 1.0, and true is not 1."""
    _running.budget.spend(values=1)
    if isinstance(value, bool) or value is None:
        return (type(value), value)
    if isinstance(value, list):
        return ("list", tuple(map(_key, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(item)) for name, item in value.items()))
    return value if isinstance(value, Hashable) else repr(value)


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[Error]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Error]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if _matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _matches(pattern: Any, text: str) -> bool:
    budget = _running.budget
    budget.spend(values=1)
    if budget.is_inline and not (len(text) <= INLINE_MATCHED_CHARACTERS and _is_simple(pattern)):
        raise TooManySteps("it has a pattern that may take long")
    return bool(_expression(pattern).search(text))


@lru_cache(maxsize=1024)
def _is_simple(pattern: Any) -> bool:
    """Return whether a pattern is compiled and matched in a moment: no classes of Unicode, and few repetitions."""
    if not isinstance(pattern, str) or len(pattern) > INLINE_PATTERN_CHARACTERS:
        return False
    size = len(pattern)
    for group, least, most in _REPETITION.findall(pattern):
        times = int(most or least)
        size = size * max(times, 1) if group else size + times
    return size <= INLINE_PATTERN_SIZE and r"\p" not in pattern.lower()


_REPETITION = re.compile(r"(\)?)\{(\d{1,9})(?:,(\d{0,9}))?\}")


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
    constraint = one_line(_explained(error)[:READ_CHARACTERS], SHOWN_CHARACTERS)
    return Violation(one_line(f"arguments{path}"[:READ_CHARACTERS], 200), constraint)


def _explained(error: Error) -> str:
    if error.validator in ("anyOf", "oneOf") and error.context:
        options = "; or ".join(dict.fromkeys(inner.message for inner in error.context[:4]))
        return f"fits none of the alternatives ({options})"
    return str(error.message)


@lru_cache(maxsize=REMEMBERED_DEFINITIONS)
def hides_characters(definition: str) -> bool:
    """Return whether a definition hides characters in names of arguments or in values to choose from."""
    if clean_text(definition) == definition and not _ESCAPED.search(definition):
        return False
    return any(clean_text(text) != text for text in _repeated(json.loads(definition).get("inputSchema")))


def _repeated(schema: Json) -> Iterator[str]:
    """Yield the names and values of a schema that a call repeats."""
    if isinstance(schema, list):
        for each in schema:
            yield from _repeated(each)
    for key, inner in schema.items() if isinstance(schema, dict) else ():
        if key in _NAMING and isinstance(inner, dict):
            yield from inner
            yield from _repeated([*inner.values()])
        elif key in _SAYING:
            yield from _strings(inner)
        else:
            yield from _repeated(inner)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from _strings([*value.values()])
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
