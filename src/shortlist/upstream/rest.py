"""Servers that start on demand: what is known of one that is not running, and when it may end again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio

from shortlist.models import Json
from shortlist.upstream.connection import Connection
from shortlist.upstream.events import OnEvent, Survey, Surveyed
from shortlist.upstream.host import Cadence
from shortlist.upstream.offers import LISTS, survey_of


@dataclass(slots=True)
class Rest:
    """When one server may end because nobody uses it, and what answers for it meanwhile."""

    survey: Survey | None = None
    """What it listed when it last ran; without it, it is started to be listed."""
    wanted: anyio.Event = field(default_factory=anyio.Event)
    """Set while the server is needed, now or as soon as it runs."""
    is_leaving: bool = False
    used: float | None = None
    """When it was last needed, on the monotonic clock."""
    _seen: float = field(default_factory=monotonic)

    async def learn(self, connection: Connection, server: str, emit: OnEvent) -> None:
        """Note what a server offers now, and report it where it is new."""
        survey = await survey_of(connection)
        if survey != self.survey:
            self.survey = survey
            emit(Surveyed(server=server, survey=survey))

    def began(self) -> None:
        """Note that the server runs."""
        self._seen, self.is_leaving = monotonic(), False

    def leave(self) -> None:
        """Note that the server ends; who needs it from now on starts it again."""
        self.is_leaving, self.wanted, self.used = True, anyio.Event(), None

    async def unused(self, cadence: Cadence, is_busy: Callable[[], bool]) -> None:
        """Wait until nobody has used the server for long enough, and what it offers is known."""
        while True:
            patience = cadence.unused_seconds if self.used is None else cadence.idle_seconds
            left = (self.used or self._seen) + patience - monotonic()
            if left <= 0 and self.survey is not None and not is_busy():
                return
            await anyio.sleep(max(left, patience / 10))

    def answer(self, method: str, params: Mapping[str, Json]) -> dict[str, Any] | None:
        """Return a list of a server that is not running, as it was last; None for any other request."""
        if self.survey is None or method not in self.survey.lists or params.get("cursor") is not None:
            return None
        return {LISTS[method]: [dict(item) for item in self.survey.lists[method]]}
