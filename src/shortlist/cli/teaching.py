"""What searches learn from use while a gateway serves: taken from the log, beside the requests."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shortlist.config.settings import Settings, TelemetrySettings
from shortlist.errors import ShortlistError
from shortlist.telemetry.exemplar_store import ExemplarStore
from shortlist.telemetry.exemplars import exemplars_of
from shortlist.telemetry.sqlite_store import SqliteFile, events_path

if TYPE_CHECKING:
    from shortlist.search.exemplars import Memory

logger = logging.getLogger(__name__)

AGED_SECONDS = 3_600.0
"""So often exemplars are weighed anew, since they count less as they age."""


class Teacher:
    """Keeps the memory of a searcher up with the log; a store or a model that fails changes nothing."""

    def __init__(self) -> None:
        self._taught: tuple[Any, ...] | None = None
        self._failure = ""

    @cached_property
    def memory(self) -> "Memory":
        """Give what the searcher reads; made with the searcher, since it takes as long to import."""
        made: Memory = import_module("shortlist.cli.engine").make_memory()
        return made

    def refresh(self, settings: Settings) -> None:
        """Learn from what was called since the last time, and teach it if that changes anything."""
        try:
            self._refresh(settings)
        except ShortlistError as error:
            if str(error) != self._failure:
                logger.warning("nothing new is learned from use for now: %s", error)
            self._failure = str(error)

    def _refresh(self, settings: Settings) -> None:
        if not events_path().is_file():
            return
        with exemplar_store() as store:
            store.learn()
            groups = tuple((name, settings.asker(name).group) for name in settings.tokens)
            now = (store.state(), groups, time.monotonic() // AGED_SECONDS)
            if now != self._taught:
                pairs = store.pairs()
                self.memory.teach(exemplars_of(pairs, time.time(), lambda caller: settings.asker(caller).group))
                self._taught = now
        self._failure = ""


def open_teacher(settings: TelemetrySettings) -> Teacher | None:
    """Learn where that is wanted, and where the log says what was asked."""
    return Teacher() if settings.enabled and settings.learning and settings.queries == "keep" else None


@contextmanager
def exemplar_store() -> Iterator[ExemplarStore]:
    """Open what was learned on this machine; raises where nothing has been recorded yet."""
    path = events_path()
    file = SqliteFile(path, write=path.is_file())
    try:
        yield ExemplarStore(file)
    finally:
        file.close()
