"""Notifications to clients, a few at a time and within bounds.

What one server announces may concern thousands of clients, and each of them costs a task. Sent at once, the
notifications of a server that floods would take the event loop from every call.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeAlias

import anyio

from shortlist.gateway.tasks import Work

Spawn: TypeAlias = Callable[[str, Work], None]

SENT_AT_ONCE = 5
TURN_SECONDS = 0.005
MOST_WAITING = 2_000
"""Notifications that wait for their turn, of all clients; further ones are dropped."""
MOST_UNREAD = 32
"""Notifications that one client has not taken yet; further ones are dropped."""
UNREAD_SECONDS = 0.5
"""How soon clients that take nothing are tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class Notice:
    """Something to tell one reader: a client, or the stream of one of its requests."""

    reader: object
    server: str
    """The server that it comes from; empty where it comes from the gateway itself."""
    work: Work
    subject: object = None
    """What has changed: it is told once, however often it changes before. A notice without one may be dropped."""


@dataclass(slots=True)
class Notices:
    """The notifications that wait for their turn."""

    spawn: Spawn
    dropped: Counter[str] = field(default_factory=Counter)
    """How many were dropped, by server."""
    _waiting: dict[object, Notice] = field(default_factory=dict)
    _unread: Counter[object] = field(default_factory=Counter)
    _is_sending: bool = False

    def put(self, notice: Notice) -> None:
        """Send a notice soon, unless the same is about to be sent or too many wait."""
        if notice.subject is None and len(self._waiting) >= MOST_WAITING:
            self.dropped[notice.server] += 1
            return
        self._waiting.setdefault(notice if notice.subject is None else (notice.reader, notice.subject), notice)
        if not self._is_sending:
            self._is_sending = True
            self.spawn("sending notifications", self._send)

    def send(self, notice: Notice) -> None:
        """Send a notice at once: what a running request is told after its answer, nobody reads."""
        if not self._begin(notice):
            self.dropped[notice.server] += 1

    async def _send(self) -> None:
        try:
            while self._waiting:
                await anyio.sleep(TURN_SECONDS if self._take_turn() else UNREAD_SECONDS)
        finally:
            self._is_sending = False

    def _take_turn(self) -> bool:
        """Send the next few notices, past those whose readers take none; return whether there was one to send."""
        began = (key for key in tuple(self._waiting) if self._try(key))
        return bool(tuple(islice(began, SENT_AT_ONCE)))

    def _try(self, key: object) -> bool:
        """Send or drop what waits; return False where it waits on, until its reader has taken what came before."""
        notice = self._waiting.pop(key)
        if self._begin(notice):
            return True
        if notice.subject is None:
            self.dropped[notice.server] += 1
            return True
        self._waiting[key] = notice
        return False

    def _begin(self, notice: Notice) -> bool:
        """Begin to send a notice, unless its reader must first take what it was sent before."""
        if self._unread[notice.reader] >= MOST_UNREAD:
            return False
        self._unread[notice.reader] += 1
        origin = f"a notification of {notice.server!r}" if notice.server else "a notification"
        self.spawn(origin, partial(self._finish, notice))
        return True

    async def _finish(self, notice: Notice) -> None:
        try:
            await notice.work()
        finally:
            self._unread[notice.reader] -= 1
            if not self._unread[notice.reader]:
                del self._unread[notice.reader]
