"""Values that leave the sandbox: bounded, and turned into what JSON has.

A program can build more than its memory seems to allow: a list that holds another one a thousand times costs it little,
and all of it has to be written here. So a value is counted before anything is made of it.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_monty import MontyClassProxy

from shortlist.models import Json

MAX_DEPTH = 100
MAX_INTEGER_BITS = 10_000
"""Writing the digits of a longer integer takes time that grows with its square."""
_ENCODER = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Room:
    """How much a value may hold."""

    values: int
    characters: int


class TooLarge(Exception):
    """A value holds more than may leave the sandbox; the message says more of what."""


def plain(value: Any, room: Room) -> Json:
    """Return a value as JSON has it: lists, strings as keys, attributes of objects. Raise TooLarge where it is."""
    _measure(value, room)
    return _plain(value)


def json_text(value: Any, room: Room) -> str:
    """Write a value as JSON, in Python steps: a large one written at once would keep other threads waiting."""
    return "".join(_ENCODER.iterencode(plain(value, room)))


def _measure(value: Any, room: Room) -> None:
    """Raise TooLarge as soon as it is clear; shared parts count as often as they are held."""
    values = characters = 0
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        values += 1
        if isinstance(each, (str, bytes)):
            characters += len(each)
        elif isinstance(each, int):
            characters += _digits(each)
        else:
            inner = _parts(each)
            if values + len(waiting) + len(inner) > room.values:
                raise TooLarge(f"more than {room.values:,} values")
            if inner and depth >= MAX_DEPTH:
                raise TooLarge(f"more than {MAX_DEPTH} levels")
            waiting.extend((part, depth + 1) for part in inner)
        if characters > room.characters:
            raise TooLarge(f"more than {room.characters:,} characters")


def _digits(number: int) -> int:
    bits = number.bit_length()
    if bits > MAX_INTEGER_BITS:
        raise TooLarge(f"an integer of {bits:,} bits, where {MAX_INTEGER_BITS:,} are possible")
    return bits // 3


def _parts(value: Any) -> Collection[Any]:
    """Return what a value holds."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    held = value.attributes if isinstance(value, MontyClassProxy) else value
    return (*held, *held.values()) if isinstance(held, Mapping) else ()


def _plain(value: Any) -> Json:
    if isinstance(value, MontyClassProxy):
        value = value.attributes
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    is_json = value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if is_json else str(value)
