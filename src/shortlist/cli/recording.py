"""Puts together what is recorded about use, and what is read back of it while serving."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from shortlist.config.settings import TelemetrySettings
from shortlist.errors import StoreError
from shortlist.gateway.state import Report
from shortlist.models import Json, ToolId
from shortlist.paths import data_folder
from shortlist.telemetry.events import Record, record_nothing
from shortlist.telemetry.figures import stats
from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.recorder import Recorder, Retention
from shortlist.telemetry.redaction import Privacy, hash_key
from shortlist.telemetry.sqlite_store import events_path
from shortlist.telemetry.stats_text import parse_since, stats_text
from shortlist.telemetry.store import SqliteEventStore
from shortlist.telemetry.together import UsedTogether


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """A place for events, and what is known from those that are there."""

    record: Record = record_nothing
    lost: Callable[[], Mapping[str, int]] = dict
    together: UsedTogether = field(default_factory=UsedTogether)
    reports: Mapping[str, Report] = field(default_factory=dict)


@contextmanager
def open_telemetry(settings: TelemetrySettings) -> Iterator[Telemetry]:
    """Record while serving; what waits to be written at the end is written."""
    if not settings.enabled:
        yield Telemetry()
        return
    together = _together()
    privacy = Privacy(queries=settings.queries, arguments=settings.arguments, key=hash_key(data_folder() / "hash.key"))
    recorder = Recorder(
        lambda: SqliteEventStore(events_path(), write=True),
        Ledger(privacy, together),
        retention=Retention(days=settings.days, megabytes=settings.megabytes),
    )
    try:
        yield Telemetry(
            record=recorder,
            lost=lambda: recorder.lost,
            together=together,
            reports={"get_stats": _StatsReport(recorder)},
        )
    finally:
        recorder.close()


@dataclass(frozen=True, slots=True)
class _StatsReport:
    """What get_stats answers: figures of what the caller may see, and what this process has lost since."""

    recorder: Recorder

    def __call__(self, arguments: Mapping[str, Json], visible: frozenset[ToolId] | None) -> str:
        since = parse_since(arguments["since"]) if arguments.get("since") else None
        store = SqliteEventStore(events_path())
        try:
            return stats_text(stats(store, since).among(visible), lost=self.recorder.untold)
        finally:
            store.close()


def _together() -> UsedTogether:
    """Take up what the log knows; without one, nothing is known yet."""
    try:
        store = SqliteEventStore(events_path())
    except StoreError:
        return UsedTogether()
    try:
        return UsedTogether.of(store.sums(names=("together",)))
    except StoreError:
        return UsedTogether()
    finally:
        store.close()
