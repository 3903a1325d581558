"""Reads and writes large JSON piece by piece in a thread, so that the event loop runs between the pieces.

A JSON library keeps the interpreter's lock from the first byte to the last, in whatever thread it runs: half a million
values take a third of a second. Here the structure of a text is found first, without making a value, and then each
piece of it is parsed on its own. A worker process would not do: what it returns is unpickled in one step too.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from pydantic_core import from_json, to_json

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

LARGE_BYTES = 64 * 1024
"""Longer JSON is read beside the event loop: in the worst case, an object of many short names, it takes 6 ms."""
LARGE_WEIGHT = 4_000
"""Values that weigh more are written beside the event loop. Each weighs 1, and a text 1 more for 16 characters."""
CHARACTERS_OF_WEIGHT = 16
PIECE_BYTES = 256 * 1024
PIECE_MARKS = 2_000
PIECE_ITEMS = 256
"""How much is parsed in one step."""
BLOCK_BYTES = 512 * 1024
MOST_LEVELS = 200
"""The parser's own limit, which a piece does not reach."""
_OPEN, _CLOSE, _COMMA, _COLON = 1, 2, 3, 4
_KIND_OF = {"[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE, ",": _COMMA, ":": _COLON}
_CLOSED_BY = {ord("["): ord("]"), ord("{"): ord("}")}
_one_at_a_time: RunVar[anyio.CapacityLimiter | None] = RunVar("large JSON", None)


class TooManyValues(ValueError):
    """JSON with more values than are read."""


class TooDeep(ValueError):
    """JSON that is nested more than MOST_LEVELS deep."""

    def __init__(self) -> None:
        super().__init__(f"there are more than {MOST_LEVELS} levels")


class NobodyWaits(Exception):
    """The work was stopped between two pieces: its caller has left, or its time is over."""


_left: ContextVar[threading.Event | None] = ContextVar("left", default=None)


async def beside(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Return what a function returns that reads or writes large JSON; one at a time, since threads share a lock.

    A caller that is cancelled leaves at once, and the work stops after the piece that it is at.
    """
    limiter = _one_at_a_time.get()
    if limiter is None:
        limiter = anyio.CapacityLimiter(1)
        _one_at_a_time.set(limiter)
    left = threading.Event()

    def work() -> Result:
        _left.set(left)
        return function(*arguments)

    try:
        return await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        left.set()
        raise


def _check_wanted() -> None:
    left = _left.get()
    if left is not None and left.is_set():
        raise NobodyWaits


async def written(value: Any) -> bytes:
    """Return JSON, with null for what it has no number for (NaN, infinity)."""
    return await beside(write_json, value) if is_large(value) else to_json(value, inf_nan_mode="null")


def is_large(value: Any) -> bool:
    """Return whether it takes long to write or walk a value."""
    return _weight(value, LARGE_WEIGHT) > LARGE_WEIGHT


def _weight(value: Any, most: int) -> int:
    """Weigh a value, and stop where it weighs too much anyway."""
    weight, waiting = 0, [value]
    while waiting and weight <= most:
        item = waiting.pop()
        weight += 1
        if isinstance(item, str):
            weight += len(item) // CHARACTERS_OF_WEIGHT
        elif isinstance(item, dict):
            if len(item) > most:
                return most + 1
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            if len(item) > most:
                return most + 1
            waiting.extend(item)
    return weight


# Reading


class ParsedBytes(bytes):
    """Large JSON, with the value that was read of it beside the event loop."""

    value: Any = None


def parsed(data: bytes) -> Any:
    """Return the value of JSON; of large JSON the one that was read already."""
    return data.value if isinstance(data, ParsedBytes) else from_json(data)


def check_values(data: bytes, most: int) -> None:
    """Raise TooManyValues where JSON has more values, without parsing it."""
    _Text(data, most)


def read_json(data: bytes, most_values: int, mend: Callable[[bytes], bytes] = bytes) -> Any:
    """Parse JSON of any size in small steps; `mend` gets the pieces that cannot be parsed.

    Raise TooManyValues before anything is parsed, and ValueError where the text is not valid.
    """
    return _Text(data, most_values, mend).value()


def cut_deep(data: bytes, most_values: int, stand_in: bytes) -> bytes:
    """Return JSON in which everything below MOST_LEVELS is replaced; raise ValueError where brackets do not match."""
    return _Text(data, most_values).cut(stand_in)


class _Text:
    """JSON, and where its brackets, commas and colons are, except those inside of strings."""

    def __init__(self, data: bytes, most_values: int, mend: Callable[[bytes], bytes] = bytes) -> None:
        self._data = data
        self._mend = mend
        self._np = importlib.import_module("numpy")  # not at start: a gateway imports it with the first search
        self._at, self._kinds = self._scanned(most_values)
        np = self._np
        steps = (self._kinds == _OPEN).astype(np.int8) - (self._kinds == _CLOSE).astype(np.int8)
        self._depth = np.cumsum(steps, dtype=np.int32)

    def _scanned(self, most_values: int) -> tuple[Any, Any]:
        """Return the places of all marks and their kinds."""
        np = self._np
        kind_of = np.array([_KIND_OF.get(chr(byte), 0) for byte in range(256)], np.uint8)
        data, start, values, inside = self._data, 0, 0, np.uint8(0)
        places, kinds = [np.empty(0, np.int64)], [np.empty(0, np.uint8)]
        while start < len(data):
            _check_wanted()
            block = data[start : start + BLOCK_BYTES]
            while (len(block) - len(block.rstrip(b"\\"))) % 2 and start + len(block) < len(data):
                block += data[start + len(block) : start + len(block) + 1]  # the escaped character
            if inside and b'"' not in block:  # as in images
                start += len(block)
                continue
            plain = np.frombuffer(_without_escapes(block), np.uint8)
            in_string = np.bitwise_xor.accumulate((plain == ord('"')).view(np.uint8)) ^ inside
            found = kind_of[plain]
            found[in_string.view(np.bool_)] = 0
            at = np.flatnonzero(found)
            places.append(at + start)
            kinds.append(found[at])
            values += int(np.count_nonzero(kinds[-1] == _OPEN)) + int(np.count_nonzero(kinds[-1] == _COMMA))
            if values > most_values:
                raise TooManyValues
            inside = in_string[-1]
            start += len(block)
        if inside:
            raise ValueError("a string does not end")
        return np.concatenate(places), np.concatenate(kinds)

    def _check_brackets(self) -> None:
        if len(self._depth) and (self._depth.min() < 0 or self._depth[-1]):
            raise ValueError("brackets do not match")

    def cut(self, stand_in: bytes) -> bytes:
        self._check_brackets()
        opened = self._at[(self._kinds == _OPEN) & (self._depth == MOST_LEVELS + 1)]
        closed = self._at[(self._kinds == _CLOSE) & (self._depth == MOST_LEVELS)]
        parts: list[bytes] = []
        start = 0
        for first, last in zip(opened.tolist(), closed.tolist(), strict=True):
            parts += (self._data[start:first], stand_in)
            start = last + 1
        return b"".join((*parts, self._data[start:]))

    def value(self) -> Any:
        self._check_brackets()
        if len(self._depth) and self._depth.max() > MOST_LEVELS:
            raise TooDeep
        return self._value(0, len(self._data), 0, len(self._at))

    def _value(self, start: int, end: int, first: int, last: int) -> Any:
        """Parse one value between two places; the marks in it are those from `first` to before `last`."""
        if end - start <= PIECE_BYTES and last - first <= PIECE_MARKS:
            return self._parsed(self._data[start:end])
        if first == last:
            return self._string(self._data[start:end].strip())
        opened, closed, level = int(self._at[first]), int(self._at[last - 1]), self._depth[first]
        is_whole = not self._data[start:opened].strip() and not self._data[closed + 1 : end].strip()
        is_one = self._kinds[first] == _OPEN and self._depth[last - 1] == level - 1
        if not (is_whole and is_one) or self._data[closed] != _CLOSED_BY[self._data[opened]]:
            raise ValueError("a value is expected")
        if (self._depth[first : last - 1] < level).any():
            raise ValueError("a value ends before its text does")
        return self._items(first, last - 1) if self._data[opened] == ord("[") else self._members(first, last - 1)

    def _groups(self, first: int, last: int) -> "list[tuple[int, int, int, int]]":
        """Return start, end and marks of what lies between the brackets at two marks: several small values together."""
        np, level = self._np, self._depth[first]
        commas = first + np.flatnonzero((self._kinds[first:last] == _COMMA) & (self._depth[first:last] == level))
        ends = np.append(commas, last)
        places = self._at[ends]
        groups, mark, start, number = [], first + 1, int(self._at[first]) + 1, 0
        while number < len(ends):
            fitting = min(
                int(np.searchsorted(ends, mark + PIECE_MARKS, "right")),
                int(np.searchsorted(places, start + PIECE_BYTES, "right")),
            )
            number = max(fitting, number + 1)
            groups.append((start, int(places[number - 1]), mark, int(ends[number - 1])))
            start, mark = int(places[number - 1]) + 1, int(ends[number - 1]) + 1
        return groups

    def _fits(self, group: tuple[int, int, int, int]) -> bool:
        start, end, first, last = group
        return end - start <= PIECE_BYTES and last - first <= PIECE_MARKS

    def _items(self, first: int, last: int) -> list[Any]:
        items: list[Any] = []
        groups = self._groups(first, last)
        for group in groups:
            if self._is_blank(group, len(groups)):
                continue
            if self._fits(group):
                items += self._parsed(b"[%b]" % self._data[group[0] : group[1]])
            else:
                items.append(self._value(*group))
        return items

    def _members(self, first: int, last: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        groups, level = self._groups(first, last), self._depth[first]
        for group in groups:
            start, end, mark, stop = group
            if self._is_blank(group, len(groups)):
                continue
            if self._fits(group):
                members.update(self._parsed(b"{%b}" % self._data[start:end]))
                continue
            if mark >= stop or self._kinds[mark] != _COLON or self._depth[mark] != level:
                raise ValueError("a name is expected")
            colon = int(self._at[mark])
            name = self._parsed(self._data[start:colon])
            if not isinstance(name, str):
                raise ValueError("a name is a string")
            members[name] = self._value(colon + 1, end, mark + 1, stop)
        return members

    def _is_blank(self, group: tuple[int, int, int, int], groups: int) -> bool:
        """Return whether there is nothing between two brackets; raise where there is nothing beside a comma."""
        if self._data[group[0] : min(group[1], group[0] + 1)].strip() or self._data[group[0] : group[1]].strip():
            return False
        if groups > 1:
            raise ValueError("a value is expected")
        return True

    def _string(self, text: bytes) -> Any:
        """Parse a long string in pieces, cut between two characters; nothing else is that long without marks."""
        if len(text) <= PIECE_BYTES:
            return self._parsed(text)
        if not (text.startswith(b'"') and text.endswith(b'"')):
            raise ValueError("a value is expected")
        parts, start, end = [], 1, len(text) - 1
        while start < end:
            stop = min(start + PIECE_BYTES, end)
            if stop < end:
                stop = start + _cut(text[start:stop], text[stop])
            parts.append(self._parsed(b'"%b"' % text[start:stop]))
            start = stop
        return "".join(parts)

    def _parsed(self, piece: bytes) -> Any:
        _check_wanted()
        try:
            return from_json(piece)
        except ValueError:
            return from_json(self._mend(piece))


def _without_escapes(data: bytes) -> bytes:
    """Return JSON of the same length in which every quote begins or ends a string."""
    return data.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in data else data


def _cut(piece: bytes, following: int) -> int:
    """Return where a piece of a string is to end, so that it ends between two characters."""
    plain = piece.replace(rb"\\", b"__")
    escape = plain.rfind(b"\\", len(plain) - 6)
    if escape >= 0:  # the other half of a pair may be before it
        before = plain[max(escape - 6, 0) : escape].lower()
        return escape - 6 if before.startswith(b"\\ud") and before[3:4] in b"89ab" else escape
    end = len(piece)
    while end > len(piece) - 4 and following & 0xC0 == 0x80:
        end -= 1
        following = piece[end]
    return end


# Writing


def write_json(value: Any) -> bytes:
    """Return JSON like the library's, written in small steps."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes]) -> None:
    if _weight(value, PIECE_MARKS) <= PIECE_MARKS:
        parts.append(to_json(value, inf_nan_mode="null"))
    elif isinstance(value, str):
        step = PIECE_MARKS * CHARACTERS_OF_WEIGHT
        texts = (to_json(value[at : at + step])[1:-1] for at in range(0, len(value), step))
        parts += (b'"', *texts, b'"')
    elif isinstance(value, dict):
        parts.append(b"{")
        _write_members(list(value.items()), parts)
        parts[-1] = b"}"  # instead of the last comma
    else:
        parts.append(b"[")
        _write_items(value, parts)
        parts[-1] = b"]"


def _write_items(items: Any, parts: list[bytes]) -> None:
    """Write some items and a comma after each: together where they are small, half of them at a time otherwise."""
    for part in _some(items):
        _check_wanted()
        if _weight(part, PIECE_MARKS) <= PIECE_MARKS:
            parts += (to_json(part, inf_nan_mode="null")[1:-1], b",")
        elif len(part) > 1:
            _write_items(part, parts)
        else:
            _write(part[0], parts)
            parts.append(b",")


def _write_members(members: list[tuple[Any, Any]], parts: list[bytes]) -> None:
    for part in _some(members):
        _check_wanted()
        if _weight(part, PIECE_MARKS) <= PIECE_MARKS:
            parts += (to_json(dict(part), inf_nan_mode="null")[1:-1], b",")
        elif len(part) > 1:
            _write_members(part, parts)
        else:
            parts.append(to_json({part[0][0]: None})[1:-5])  # the name and its colon
            _write(part[0][1], parts)
            parts.append(b",")


def _some(items: Any) -> Iterator[Any]:
    step = max(min(len(items) // 2, PIECE_ITEMS), 1)
    return (items[at : at + step] for at in range(0, len(items), step))
