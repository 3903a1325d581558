"""What clients of legacy HTTP sessions were sent, kept for a while, so that they can resume a broken stream."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

KEPT_BYTES = 64 * 1024 * 1024
"""For all sessions together; the caller that keeps the most loses its oldest events first."""
EVENT_BYTES = 400
"""What an event takes beside its JSON and the name of its stream, which is the id that the client chose."""


@dataclass(frozen=True, slots=True)
class _Event:
    session: "SessionEvents"
    stream: str
    json: bytes | None

    @property
    def bytes(self) -> int:
        return EVENT_BYTES + len(self.stream) + len(self.json or b"")


@dataclass(slots=True)
class _Kept:
    """The events of all sessions of one caller, the oldest first."""

    bytes: int = 0
    numbers: dict[int, None] = field(default_factory=dict)


class EventLog:
    """The events of all sessions as JSON, bounded together by their bytes.

    Where they take too many, the caller that keeps the most loses its oldest: nobody displaces what a caller with
    fewer bytes may still resume.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES, mark: str = "") -> None:
        self._most = most_bytes
        self._mark = mark
        """Begins every id where several gateways keep events: a client may resume with any of them."""
        self.bytes = 0
        self._events: dict[int, _Event] = {}
        self._of_caller: dict[Hashable, _Kept] = {}
        self._numbers = count(1)

    def session(self, caller: Hashable = None) -> "SessionEvents":
        """Return the events of one session, which cannot be asked for another's."""
        return SessionEvents(self, caller)

    def add(self, session: "SessionEvents", stream: str, json: bytes | None) -> str:
        """Keep an event, or the start of a stream, and return its id."""
        number = next(self._numbers)
        event = _Event(session, stream, json)
        kept = self._of_caller.setdefault(session.caller, _Kept())
        self._events[number] = event
        kept.numbers[number] = session.numbers[number] = None
        kept.bytes += event.bytes
        self.bytes += event.bytes
        while self.bytes > self._most:
            most = max(self._of_caller.values(), key=lambda each: each.bytes)
            self._drop(next(iter(most.numbers)))
        return self._id(number, stream)

    def _id(self, number: int, stream: str) -> str:
        return f"{self._mark}{number}-{stream}" if self._mark else str(number)

    def forget(self, session: "SessionEvents") -> None:
        """Drop the events of a session that ended."""
        for number in tuple(session.numbers):
            self._drop(number)

    def after(self, session: "SessionEvents", last: str) -> tuple[str | None, list[EventMessage]]:
        """Return the stream of an event and what was sent on it later; nothing for another session's event."""
        last = last.removeprefix(self._mark).partition("-")[0]
        number = int(last) if last.isascii() and last.isdecimal() and len(last) < 18 else 0
        event = self._events.get(number)
        if event is None or event.session is not session:
            return None, []
        later = ((other, self._events[other]) for other in session.numbers if other > number)
        return event.stream, [
            EventMessage(jsonrpc_message_adapter.validate_json(each.json, by_name=False), self._id(other, each.stream))
            for other, each in later
            if each.stream == event.stream and each.json is not None
        ]

    def _drop(self, number: int) -> None:
        event = self._events.pop(number)
        caller = event.session.caller
        kept = self._of_caller[caller]
        del kept.numbers[number], event.session.numbers[number]
        kept.bytes -= event.bytes
        self.bytes -= event.bytes
        if not kept.numbers:
            del self._of_caller[caller]


class SessionEvents(EventStore):
    """What one session was sent; `caller` is who opened it."""

    def __init__(self, log: EventLog, caller: Hashable) -> None:
        self.log = log
        self.caller = caller
        self.numbers: dict[int, None] = {}
        """The events of this session that are still kept, the oldest first."""

    def keep(self, stream: str, json: bytes | None) -> str:
        return self.log.add(self, stream, json)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        json = None if message is None else message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        return self.keep(stream_id, json)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream, events = self.log.after(self, last_event_id)
        for event in events:
            await send_callback(event)
        return stream
