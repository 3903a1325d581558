"""JSON with comments and trailing commas as text with places: find a key, put an entry, remove one.

An edit touches the characters of the entry alone. Comments, order, indentation and line endings stay as they are.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Path: TypeAlias = Sequence[str]

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}/]+")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n]*|(?:/\*[^\n]*?\*/[ \t]*)*)")


class NotJson(ValueError):
    """Text that is not JSON; `offset` is where."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__(f"not JSON at character {offset}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands; only objects and lists have members."""

    start: int
    end: int
    members: "tuple[Member, ...]" = ()

    def get(self, key: str | int) -> "Member | None":
        return next((member for member in self.members if member.key == key), None)


@dataclass(frozen=True, slots=True)
class Member:
    """A key (in a list its number) with its value; `start` is where the key stands."""

    key: str | int
    start: int
    value: Node


def parse(text: str) -> Node:
    """Read a document; raises NotJson with the offset of the mistake."""
    try:
        node = _node(text, _skip(text, 0))
    except RecursionError:
        raise NotJson(0) from None
    end = _skip(text, node.end)
    if end != len(text):
        raise NotJson(end)
    return node


def find(text: str, path: Path) -> Member | None:
    """Return the member at a path, or None."""
    node, found = parse(text), None
    for key in path:
        found = node.get(key)
        if found is None:
            return None
        node = found.value
    return found


def put(text: str, path: Path, value: Any) -> str:
    """Set the value at a path; objects on the way there are made where they are missing."""
    if not text.strip():
        text = "{\n}\n"
    node, depth = parse(text), 0
    while depth < len(path) - 1 and (inner := node.get(path[depth])) is not None:
        node, depth = inner.value, depth + 1
    key = path[depth]
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    if (present := node.get(key)) is not None:
        return text[: present.value.start] + _written(text, present.start, value) + text[present.value.end :]
    if text[node.start] != "{":
        raise NotJson(node.start)
    return _appended(text, node, key, value)


def remove(text: str, path: Path) -> str:
    """Remove the member at a path with its comma; without such a member the text is returned unchanged."""
    node = parse(text)
    for key in path[:-1]:
        inner = node.get(key)
        if inner is None:
            return text
        node = inner.value
    position = next((i for i, member in enumerate(node.members) if member.key == path[-1]), None)
    if position is None:
        return text
    member = node.members[position]
    start, end = member.start, member.value.end
    comma = _skip(text, end)
    if text[comma] == ",":
        end = comma + 1
    elif position:  # the last one: the comma before it goes too
        before = node.members[position - 1].value.end
        comma = _skip(text, before)
        text = text[:comma] + text[comma + 1 :]
        start, end = start - 1, end - 1
    return _cut(text, start, end)


def line_of(text: str, place: str) -> int | None:
    """Return the line of a place such as `mcpServers.web.args[1]`, or of the deepest part of it that is there."""
    try:
        node = parse(text)
    except NotJson:
        return None
    offset, rest = None, place
    while rest:
        member = max((m for m in node.members if _begins(rest, m.key)), key=lambda m: len(str(m.key)), default=None)
        if member is None:
            break
        offset, node = member.start, member.value
        rest = rest[len(_shown(member.key, rest)) :].removeprefix(".")
    return None if offset is None else text.count("\n", 0, offset) + 1


def _begins(place: str, key: str | int) -> bool:
    shown = _shown(key, place)
    return place.startswith(shown) and place[len(shown) : len(shown) + 1] in ("", ".", "[")


def _shown(key: str | int, place: str) -> str:
    return f"[{key}]" if isinstance(key, int) and place.startswith("[") else str(key)


def _node(text: str, start: int) -> Node:
    opening = text[start : start + 1]
    if opening == "{":
        return _container(text, start, "}", _object_members)
    if opening == "[":
        return _container(text, start, "]", _list_members)
    match = (_STRING if opening == '"' else _SCALAR).match(text, start)
    if match is None:
        raise NotJson(start)
    try:
        json.loads(match[0])
    except ValueError:
        raise NotJson(start) from None
    return Node(start, match.end())


def _container(text: str, start: int, closing: str, read: Any) -> Node:
    members, end = [], start
    for member, after in read(text, start + 1, closing):
        if member is not None:
            members.append(member)
        end = after
    return Node(start, end + 1, tuple(members))


def _object_members(text: str, position: int, closing: str) -> Iterator[tuple[Member | None, int]]:
    position = _skip(text, position)
    while text[position : position + 1] != closing:
        key = _STRING.match(text, position)
        if key is None:
            raise NotJson(position)
        colon = _skip(text, key.end())
        if text[colon : colon + 1] != ":":
            raise NotJson(colon)
        value = _node(text, _skip(text, colon + 1))
        yield Member(json.loads(key[0]), position, value), value.end
        position = _next(text, value.end, closing)
    yield None, position


def _list_members(text: str, position: int, closing: str) -> Iterator[tuple[Member | None, int]]:
    position, number = _skip(text, position), 0
    while text[position : position + 1] != closing:
        value = _node(text, position)
        yield Member(number, value.start, value), value.end
        position, number = _next(text, value.end, closing), number + 1
    yield None, position


def _next(text: str, end: int, closing: str) -> int:
    position = _skip(text, end)
    if text[position : position + 1] == ",":
        return _skip(text, position + 1)
    if text[position : position + 1] != closing:
        raise NotJson(position)
    return position


def _skip(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _appended(text: str, node: Node, key: str, value: Any) -> str:
    """Add a member after the last one, or as the first one of an empty object."""
    newline, unit = _style(text)
    outer = _indentation(text, node.start)
    if not node.members:
        inner = outer + unit
        body = f"{newline}{inner}{json.dumps(key, ensure_ascii=False)}: {_indented(value, inner, unit, newline)}"
        inside = text[node.start + 1 : node.end - 1]
        kept = inside.rstrip() if inside.strip() else ""  # a comment in an empty object
        return f"{text[: node.start + 1]}{kept}{body}{newline}{outer}{text[node.end - 1 :]}"
    last = node.members[-1]
    if "\n" not in text[node.start : last.start]:  # written on one line: stay on it
        comma = _skip(text, last.value.end)
        cut = comma + 1 if text[comma] == "," else last.value.end
        return f"{text[: last.value.end]}, {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}{text[cut:]}"
    inner = _indentation(text, last.start)
    body = f"{newline}{inner}{json.dumps(key, ensure_ascii=False)}: {_indented(value, inner, unit, newline)}"
    comma = _skip(text, last.value.end)
    if text[comma] == ",":  # a trailing comma: keep the habit
        at = _line_end(text, comma + 1)
        return f"{text[:at]}{body},{text[at:]}"
    at = _line_end(text, last.value.end)
    return f"{text[: last.value.end]},{text[last.value.end : at]}{body}{text[at:]}"


def _written(text: str, start: int, value: Any) -> str:
    newline, unit = _style(text)
    return _indented(value, _indentation(text, start), unit, newline)


def _indented(value: Any, indentation: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + indentation).join(lines)


def _style(text: str) -> tuple[str, str]:
    """Return the line ending and the unit of indentation that a text uses."""
    newline = "\r\n" if "\r\n" in text else "\n"
    found = re.search(r"\n([ \t]+)\S", text)
    return newline, found[1] if found else "  "


def _indentation(text: str, position: int) -> str:
    line = text.rfind("\n", 0, position) + 1
    match = re.compile(r"[ \t]*").match(text, line)
    return match[0] if match else ""


def _line_end(text: str, position: int) -> int:
    """Return the end of what follows on the same line and is a comment or blank."""
    match = _REST_OF_LINE.match(text, position)
    end = match.end() if match else position
    return end - 1 if text[end - 1 : end] == "\r" else end


def _cut(text: str, start: int, end: int) -> str:
    """Cut a span, and its whole lines where nothing else stands on them."""
    line = text.rfind("\n", 0, start) + 1
    after = _line_end(text, end)
    alone = not text[line:start].strip() and text[after : after + 1] in ("", "\n", "\r")
    if not alone:
        return (
            text[:start] + text[end:].removeprefix(" ")
            if text[start - 1 : start] in "{ "
            else text[:start] + text[end:]
        )
    following = text.find("\n", after)
    return text[:line] + (text[following + 1 :] if following >= 0 else "")
