"""Newline-delimited JSON-RPC out of a byte stream, with a bound on every message, and into one."""

import re
from dataclasses import dataclass, field

from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    RequestId,
    jsonrpc_message_adapter,
)

EDGE_BYTES = 4_096
_ID = rb'"id"\s*:\s*(?:(?P<number>\d{1,18})|"(?P<text>[^"\\]{1,128})")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
# Only the outermost `id` counts: an answer may itself carry ids.
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID)
_ANSWER = re.compile(rb"\s*\{\s*(?:(?:" + _ID + rb"|" + _VERSION + rb')\s*,\s*)*"(?:result|error)"\s*:')
_ID_LAST = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that was dropped while it arrived; its edges tell which request it answered."""

    size: int
    head: bytes
    tail: bytes

    @property
    def is_answer(self) -> bool:
        """Say whether this answered a request, and was none itself."""
        return _ANSWER.match(self.head) is not None


@dataclass(slots=True)
class LineSplitter:
    """Cuts chunks into lines in linear time; memory stays below `limit` whatever arrives."""

    limit: int
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _head: bytes = b""
    _tail: bytes = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        """Give the lines that this chunk completes."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | Oversized] = []
        for end in ends:
            self._add(end)
            lines.append(self._take())
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._size += len(part)
        if self._size <= self.limit:
            self._parts.append(part)
            return
        if self._parts:
            kept = b"".join(self._parts)
            self._head, self._tail = kept[:EDGE_BYTES], kept[-EDGE_BYTES:]
            self._parts = []
        elif not self._head:
            self._head = part[:EDGE_BYTES]
        self._tail = (self._tail + part)[-EDGE_BYTES:]

    def _take(self) -> bytes | Oversized:
        oversized = self._size > self.limit
        line = Oversized(self._size, self._head, self._tail) if oversized else b"".join(self._parts)
        self._parts, self._size, self._head, self._tail = [], 0, b"", b""
        return line


def read_line(line: bytes | Oversized, limit: int) -> SessionMessage | None:
    """Make a message of a line; one that cannot be read but names its request becomes that request's error.

    None is a line that is not a message at all: a banner, a stray print.
    """
    if isinstance(line, Oversized):
        reason = f"the answer of {line.size:,} bytes is over the limit of {limit:,} (limits.message_bytes)"
        return _error_for(line.head, line.tail, INTERNAL_ERROR, reason)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return _error_for(line[:EDGE_BYTES], line[-EDGE_BYTES:], PARSE_ERROR, "the answer is not valid JSON-RPC")


def refusal(line: Oversized, limit: int) -> SessionMessage:
    """Make the error that answers a request too large to be read."""
    reason = f"the message of {line.size:,} bytes is over the limit of {limit:,} (limits.message_bytes)"
    return _error(_request_id(line.head, line.tail), INVALID_REQUEST, reason)


def write_line(item: SessionMessage) -> bytes:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _error_for(head: bytes, tail: bytes, code: int, reason: str) -> SessionMessage | None:
    request_id = _request_id(head, tail)
    return None if request_id is None else _error(request_id, code, reason)


def _error(request_id: RequestId | None, code: int, reason: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=reason)))


def _request_id(head: bytes, tail: bytes) -> RequestId | None:
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if found is None:
        return None
    return int(found["number"]) if found["number"] else found["text"].decode("utf-8", "replace")
