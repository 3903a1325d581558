"""The servers of a gateway that runs in another process, read from what it recorded."""

from collections.abc import Mapping, Sequence
from typing import NoReturn, cast, get_args

from shortlist.config.settings import EMPTY
from shortlist.errors import StoreError
from shortlist.models import Json
from shortlist.storage.port import EventQuery, EventStore, StoredEvent
from shortlist.upstream.errors import UpstreamUnavailable
from shortlist.upstream.events import NO_OPTIONS, CallOptions, Peer, State, UpstreamStatus

LOOKED_AT = 1_000
"""The latest state changes of all servers."""


class RecordedUpstreams:
    """Servers in their last recorded state; requests to them are refused."""

    def __init__(self, servers: Sequence[str], events: EventStore) -> None:
        self._servers = servers
        self._events = events

    def status(self) -> Mapping[str, UpstreamStatus]:
        """Return every server's last state, in configuration order; `stopped` where none was recorded."""
        last = self._last()
        return {name: _status(name, last.get(name)) for name in self._servers}

    @property
    def states(self) -> Mapping[str, State]:
        return {name: status.state for name, status in self.status().items()}

    def peer(self, server: str) -> Peer | None:  # noqa: ARG002 - of none
        return None

    async def request(
        self,
        server: str,
        method: str,  # noqa: ARG002 - none is
        params: Mapping[str, Json] = EMPTY,  # noqa: ARG002
        *,
        options: CallOptions = NO_OPTIONS,  # noqa: ARG002
    ) -> dict[str, Json]:
        return _refuse(server)

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = EMPTY) -> None:  # noqa: ARG002
        _refuse(server)

    async def watch(self, server: str, uris: Sequence[str]) -> None:  # noqa: ARG002
        _refuse(server)

    def _last(self) -> dict[str, StoredEvent]:
        found: dict[str, StoredEvent] = {}
        try:
            for event in self._events.events(EventQuery(kinds=("upstream",), latest=True, limit=LOOKED_AT)):
                found.setdefault(event.subject or "", event)
        except StoreError:
            return {}
        return found


def _status(name: str, event: StoredEvent | None) -> UpstreamStatus:
    state = event.outcome if event and event.outcome in get_args(State) else "stopped"
    return UpstreamStatus(server=name, state=cast("State", state), since=event.at / 1000 if event else 0.0)


def _refuse(server: str) -> NoReturn:
    raise UpstreamUnavailable(server, "the server runs in the gateway's process, and this is only its dashboard")
