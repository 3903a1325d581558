"""JSON-RPC messages as bytes: newline-delimited over pipes, server-sent events over HTTP, each within a bound."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from pydantic_core import from_json, to_json

from shortlist.large import LARGE_BYTES, MOST_LEVELS, TooDeep, TooManyValues, beside, cut_deep, read_json

Message: TypeAlias = dict[str, Any]

EDGE_BYTES = 4_096
NOTIFICATION_BYTES = 1024 * 1024
"""A longer notification is dropped: it goes to many clients, and no call waits for it."""
ERROR_BYTES = 64 * 1024
"""A longer error is cut: its text is masked and logged on the event loop, which takes time for every character."""
ERROR_CHARACTERS = 2_000
MENDED_BYTES = 1024 * 1024
"""Mending a longer message would take the event loop too long."""
MOST_VALUES = 1_000_000
"""A message with more values is not parsed: each takes up to 100 bytes of memory and a third of a microsecond. The
definitions of 25,759 real tools have 522,298."""
CLIENT_VALUES = 200_000
"""The same for a message of a client: its arguments are copied, checked and recorded."""
SMALL_VALUES = 20_000
"""The same for one over HTTP that is not a call: the SDK parses it in one step."""
LISTS = ("tools", "prompts", "resources", "resourceTemplates")
"""Members of a result whose items are read one by one: one that is nested too deeply does not spoil the list."""
NESTED_TOO_DEEPLY = "io.shortlist/nestedTooDeeply"
"""Marks what is left of such a tool: its name."""
_BELOW = secrets.token_hex(8)
"""Stands for what is nested too deeply."""
UNUSABLE_ID = "The id of a request is a text or a whole number."
_ID = rb'"id"\s*:\s*(?:(?P<number>\d{1,18})|"(?P<text>[^"\\]{1,128})")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
# Only the outermost `id` counts: an answer may itself carry ids.
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID)
_ANSWER = re.compile(rb"\s*\{\s*(?:(?:" + _ID + rb"|" + _VERSION + rb')\s*,\s*)*"(?:result|error)"\s*:')
_ID_LAST = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Programs on Windows begin their output with it."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that was dropped before it was parsed; its edges show which request it answered."""

    size: int
    head: bytes
    tail: bytes
    reason: str
    """Why, after "the message" or "the answer"."""

    @property
    def is_answer(self) -> bool:
        """Return whether this answered a request rather than being one."""
        return _ANSWER.match(self.head) is not None


@dataclass(slots=True)
class LineSplitter:
    """Cuts chunks into lines in linear time; memory stays below `limit` whatever arrives."""

    limit: int
    _kept: bytearray = field(default_factory=bytearray)
    """Not a list of chunks: a server that writes single bytes would make each of them cost forty."""
    _size: int = 0
    _head: bytes = b""
    _tail: bytes = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        """Return the lines that this chunk completes; empty ones are left out."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | Oversized] = []
        for end in ends:
            if end or self._size:
                self._add(end)
                lines.append(self._take())
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._size += len(part)
        if self._size <= self.limit:
            self._kept += part
            return
        if self._kept:
            self._head, self._tail = bytes(self._kept[:EDGE_BYTES]), bytes(self._kept[-EDGE_BYTES:])
            self._kept = bytearray()
        elif not self._head:
            self._head = part[:EDGE_BYTES]
        self._tail = (self._tail + part)[-EDGE_BYTES:]

    def _take(self) -> bytes | Oversized:
        line = bytes(self._kept) if self._size <= self.limit else self._oversized()
        self._kept, self._size, self._head, self._tail = bytearray(), 0, b"", b""
        return line

    def _oversized(self) -> Oversized:
        reason = f"of {self._size:,} bytes is over the limit of {self.limit:,} (limits.message_bytes)"
        return Oversized(self._size, self._head, self._tail, reason)


@dataclass(slots=True)
class ServerSentEvent:
    """One event of a stream; `data` is empty in events that only carry an id or a retry time."""

    event: str = "message"
    data: bytes = b""
    id: str | None = None
    retry_milliseconds: int | None = None


LINE_BYTES = 64
"""What a line of an event counts beside its bytes: millions of short ones take seconds to read."""


class EventTooLarge(Exception):
    """A server-sent event over the byte limit."""


@dataclass(slots=True)
class EventSplitter:
    """Cuts a byte stream into server-sent events; an event over `limit` bytes raises EventTooLarge."""

    limit: int
    _rest: bytearray = field(default_factory=bytearray)
    _scanned: int = 0
    _size: int = 0
    _data: bytearray = field(default_factory=bytearray)
    """Not a list of lines: short ones would take six times their size."""
    _event: ServerSentEvent = field(default_factory=ServerSentEvent)
    _is_empty: bool = True
    _after_return: bool = False
    """The last byte ended a line, and a line feed after it belongs to that end."""

    @property
    def is_idle(self) -> bool:
        """Return whether no event has begun: there were only comments, empty lines and unknown fields."""
        return self._is_empty and len(self._rest) <= EDGE_BYTES

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that this chunk completes."""
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if chunk.endswith(b"\r"):  # not kept until more comes: it may be the end of the answer
            self._after_return = True
        self._rest += chunk
        for line in self._lines():
            if not line:
                if self._size and (event := self._take()):
                    yield event
            elif not line.startswith(b":"):  # a comment
                self._line(line)
        if self._size + len(self._rest) > self.limit:
            raise EventTooLarge(f"an event is over the limit of {self.limit:,} bytes (limits.message_bytes)")

    def _lines(self) -> list[bytes]:
        """Take the complete lines out of what has arrived."""
        last = max(self._rest.rfind(b"\n", self._scanned), self._rest.rfind(b"\r", self._scanned))
        lines = bytes(self._rest[: last + 1]).splitlines()
        del self._rest[: last + 1]
        self._scanned = len(self._rest)
        return lines

    def _line(self, line: bytes) -> None:
        name, _, value = line.removeprefix(BYTE_ORDER_MARK).partition(b":")
        value = value.removeprefix(b" ")
        self._size += len(line) + LINE_BYTES
        if self._size > self.limit:
            raise EventTooLarge(f"an event is over the limit of {self.limit:,} bytes (limits.message_bytes)")
        if name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._event.event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._event.id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 9:
            self._event.retry_milliseconds = int(value)
        else:
            return
        self._is_empty = False

    def _take(self) -> ServerSentEvent | None:
        self._size = 0
        if self._is_empty:
            return None
        event = replace(self._event, data=bytes(self._data[:-1]))
        self._event, self._data, self._is_empty = ServerSentEvent(), bytearray(), True
        return event


def too_many_values(most: int) -> str:
    return f"has more than {most:,} JSON values"


def read_client_line(line: bytes) -> Any | Oversized:
    """Parse a long line of a client; return what stands for it where it has too many values."""
    try:
        return read_json(line, CLIENT_VALUES, well_formed)
    except TooManyValues:
        return Oversized(len(line), line[:EDGE_BYTES], line[-EDGE_BYTES:], too_many_values(CLIENT_VALUES))


class NotificationTooLarge(ValueError):
    """A notification over NOTIFICATION_BYTES."""


def decode(data: bytes) -> Message:
    """Parse one message; raise ValueError where it is not a JSON object, or a notification that is too large.

    TooDeep is raised before anything else is done with a message that is nested too deeply.
    """
    if len(data) > LARGE_BYTES:
        value = read_json(data.removeprefix(BYTE_ORDER_MARK), MOST_VALUES, well_formed)
    else:
        try:
            value = from_json(data)
        except ValueError as refused:
            if "recursion limit" in str(refused):
                raise TooDeep from None
            value = from_json(well_formed(data.removeprefix(BYTE_ORDER_MARK)))
    if not isinstance(value, dict):
        raise ValueError("a message is a JSON object")
    if len(data) > NOTIFICATION_BYTES and "method" in value and "id" not in value:
        raise NotificationTooLarge(f"a notification of {len(data):,} bytes")
    if len(data) > ERROR_BYTES and isinstance(error := value.get("error"), dict):
        value["error"] = _cut_error(error, len(data))
    return value


async def decode_beside(data: bytes) -> Message:
    """Parse one message like `decode`, a large one beside the event loop; items of a list may be nested too deeply."""
    if len(data) <= LARGE_BYTES:
        with suppress(TooDeep):
            return decode(data)
    return await beside(_decode_lists, data)


def _decode_lists(data: bytes) -> Message:
    try:
        return decode(data)
    except TooDeep:
        cut = cut_deep(data.removeprefix(BYTE_ORDER_MARK), MOST_VALUES, to_json(_BELOW))
        return _without_deep_items(decode(cut))


def _without_deep_items(message: Message) -> Message:
    """Return a list with the items that were not cut, and the names of the tools that were; raise for the rest."""
    result = message.get("result")
    if not isinstance(result, dict):
        raise TooDeep
    found = {key: result.pop(key) for key in LISTS if isinstance(result.get(key), list)}
    if not found or _is_cut(message):
        raise TooDeep
    for key, items in found.items():
        kept = (item if not _is_cut(item) else _name_alone(item) if key == "tools" else None for item in items)
        result[key] = [item for item in kept if item is not None]
    return message


def _is_cut(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if item == _BELOW:
            return True
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return False


def _name_alone(item: Any) -> Message:
    name = item.get("name") if isinstance(item, dict) else None
    return {"name": name if isinstance(name, str) else "", NESTED_TOO_DEEPLY: True}


def _cut_error(error: Message, size: int) -> Message:
    text = error.get("message")
    kept = text[:ERROR_CHARACTERS] if isinstance(text, str) else "it gave no reason"
    return {"code": error.get("code"), "message": f"{kept} … (an error of {size:,} bytes, cut here)"}


def well_formed(data: bytes) -> bytes:
    """Return JSON with `?` for each half of a surrogate pair, as programs write that cut a text inside an emoji.

    Whatever else is wrong with it stays.
    """
    if len(data) > MENDED_BYTES or (b"\\ud" not in data and b"\\uD" not in data):
        return data
    try:
        from_json(data)
    except ValueError:
        try:
            return json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace")
        except (ValueError, RecursionError):
            return data
    return data


def has_unusable_id(data: bytes) -> bool:
    """Return whether a message is a request whose id is neither a text nor a whole number.

    Typed readers take it for a notification, so that its sender would wait for an answer for ever.
    """
    if b'"id"' not in data:
        return False
    try:
        return is_unanswerable(from_json(data))
    except ValueError:
        return False


def is_unanswerable(message: Any) -> bool:
    """Return whether a parsed message is a request whose id is neither a text nor a whole number."""
    is_request = isinstance(message, dict) and "method" in message and "id" in message
    return is_request and (isinstance(message["id"], bool) or not isinstance(message["id"], (int, str)))


def encode(message: Message) -> bytes:
    """Return a message as JSON; what JSON has no number for (NaN, infinity) becomes null."""
    return to_json(message, inf_nan_mode="null")


def read_line(line: bytes | Oversized) -> Message | None:
    """Parse a line; one that cannot be read but names its request becomes that request's error.

    None is a line that is not a message at all: a banner, a stray print.
    """
    if isinstance(line, Oversized):
        return _error_for(line.head, line.tail, INTERNAL_ERROR, f"the answer {line.reason}")
    try:
        return _known(decode(line))
    except ValueError as error:
        return _failed(line, error)


async def read_line_beside(line: bytes | Oversized) -> Message | None:
    """Parse a line like `read_line`, a long one beside the event loop; items of a list may be nested too deeply."""
    if isinstance(line, Oversized):
        return read_line(line)
    try:
        return _known(await decode_beside(line))
    except ValueError as error:
        return _failed(line, error)


def _known(message: Message) -> Message | None:
    return message if "method" in message or "id" in message else None


def _failed(line: bytes, error: ValueError) -> Message | None:
    return _error_for(line[:EDGE_BYTES], line[-EDGE_BYTES:], INTERNAL_ERROR, unreadable(error))


def unreadable(error: ValueError) -> str:
    """Return why an answer cannot be read, in the words of an error message."""
    if isinstance(error, TooDeep):
        return f"the answer is nested more than {MOST_LEVELS} levels deep"
    return f"the answer {too_many_values(MOST_VALUES) if isinstance(error, TooManyValues) else 'is not valid JSON-RPC'}"


def refusal(line: Oversized) -> Message:
    """Return the error that answers a request too large to be read."""
    return error_message(_request_id(line.head, line.tail), INVALID_REQUEST, f"the message {line.reason}")


def id_of_unreadable_request(line: bytes) -> int | str | None:
    """Return the id of a request that cannot be parsed, such as one that is nested too deeply."""
    head, tail = line[:EDGE_BYTES], line[-EDGE_BYTES:]
    is_request = (b'"method"' in head or b'"method"' in tail) and not _ANSWER.match(head)
    return _request_id(head, tail) if is_request else None


def error_message(request_id: int | str | None, code: int, reason: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": reason}}


def _error_for(head: bytes, tail: bytes, code: int, reason: str) -> Message | None:
    request_id = _request_id(head, tail)
    return None if request_id is None else error_message(request_id, code, reason)


def _request_id(head: bytes, tail: bytes) -> int | str | None:
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if found is None:
        return None
    return int(found["number"]) if found["number"] else found["text"].decode("utf-8", "replace")
