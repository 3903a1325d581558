"""What legacy HTTP clients have been sent, kept for a while so that a broken stream can be taken up again."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCMessage

from shortlist.models import Json

KEPT_CHARACTERS = 64 * 1024 * 1024
"""For all sessions together; the oldest events go first."""
EVENT_CHARACTERS = 200
"""What an event weighs beside its text."""
RETRY_MILLISECONDS = 1_000
"""How soon a client whose stream ended comes back."""


@dataclass(frozen=True, slots=True)
class _Event:
    owner: object
    stream: str
    message: JSONRPCMessage | None
    characters: int


class EventLog:
    """The events of all sessions, bounded together."""

    def __init__(self, characters: int = KEPT_CHARACTERS) -> None:
        self._most = characters
        self._held = 0
        self._events: OrderedDict[int, _Event] = OrderedDict()
        self._numbers = count(1)

    def session(self) -> EventStore:
        """Give the part of one session: it can be asked for no other's events."""
        return _SessionEvents(self)

    def add(self, owner: object, stream: str, message: JSONRPCMessage | None) -> str:
        number = next(self._numbers)
        event = _Event(owner, stream, message, EVENT_CHARACTERS + _characters(_body(message)))
        self._events[number] = event
        self._held += event.characters
        while self._held > self._most:
            _, oldest = self._events.popitem(last=False)
            self._held -= oldest.characters
        return str(number)

    def after(self, owner: object, last: str) -> tuple[str | None, list[EventMessage]]:
        """Give the stream of an event and what was sent on it later; nothing for an event that is not its owner's."""
        event = self._events.get(int(last)) if last.isascii() and last.isdecimal() else None
        if event is None or event.owner is not owner:
            return None, []
        later = [
            EventMessage(other.message, str(number))
            for number, other in self._events.items()
            if number > int(last)
            and other.owner is owner
            and other.stream == event.stream
            and other.message is not None
        ]
        return event.stream, later


class _SessionEvents(EventStore):
    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        return self._log.add(self, stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream, events = self._log.after(self, last_event_id)
        for event in events:
            await send_callback(event)
        return stream


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, each with events of its own.

    The SDK names a stream by the client's request id, which other sessions use as well; with one store for all
    of them a client that comes back would be sent another's answer.
    """

    def __init__(self, app: Server[Any], **options: Any) -> None:
        self._log = EventLog()
        super().__init__(app, retry_interval=RETRY_MILLISECONDS, **options)

    @property
    def event_store(self) -> EventStore | None:
        """Read once by the SDK for every session that it opens."""
        return self._log.session()

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """Ignore what the SDK's constructor sets."""


def _body(message: JSONRPCMessage | None) -> Json:
    return getattr(message, "result", None) or getattr(message, "params", None)


def _characters(value: Json) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _characters(item) for key, item in value.items())
    return sum(map(_characters, value)) if isinstance(value, list) else 0
