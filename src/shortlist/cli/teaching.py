"""Lets searches learn from use while a gateway serves: exemplars are read from the store, beside the requests."""

import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shortlist.config.settings import Settings, TelemetrySettings
from shortlist.errors import NothingRecorded, ShortlistError
from shortlist.storage.port import ExemplarStore
from shortlist.telemetry.exemplars import exemplars_of

if TYPE_CHECKING:
    from shortlist.search.exemplars import Memory

logger = logging.getLogger(__name__)

AGED_SECONDS = 3_600.0
"""How often exemplars are weighted anew, since they count less as they age."""


class Teacher:
    """Keeps a searcher's memory in step with the store; a store or a model that fails changes nothing."""

    def __init__(self, exemplars: ExemplarStore) -> None:
        self._exemplars = exemplars
        self._taught: tuple[Any, ...] | None = None
        self._failure = ""

    @cached_property
    def memory(self) -> "Memory":
        """What the searcher reads; created with the searcher, since the import is slow."""
        from shortlist.cli.engine import make_memory  # noqa: PLC0415

        return make_memory()

    def refresh(self, settings: Settings) -> None:
        """Learn from calls since the last time, and update the memory if that changes anything."""
        try:
            self._refresh(settings)
        except NothingRecorded:
            return
        except ShortlistError as error:
            if str(error) != self._failure:
                logger.warning("searches cannot learn from use at the moment: %s", error)
            self._failure = str(error)

    def _refresh(self, settings: Settings) -> None:
        self._exemplars.learn()
        groups = tuple((name, settings.asker(name).group) for name in settings.tokens)
        now = (self._exemplars.state(), groups, time.monotonic() // AGED_SECONDS)
        if now != self._taught:
            pairs = self._exemplars.pairs()
            self.memory.teach(exemplars_of(pairs, time.time(), lambda caller: settings.asker(caller).group))
            self._taught = now
        self._failure = ""


def open_teacher(settings: TelemetrySettings, exemplars: ExemplarStore) -> Teacher | None:
    """Return a teacher if learning is enabled and the queries are kept in the store."""
    return Teacher(exemplars) if settings.enabled and settings.learning and settings.queries == "keep" else None
