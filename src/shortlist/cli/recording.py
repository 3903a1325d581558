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
from shortlist.telemetry.experiments.assignment import Assign, Assignments, as_configured
from shortlist.telemetry.experiments.store import ExperimentStore
from shortlist.telemetry.figures import stats
from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.recorder import Recorder, Retention
from shortlist.telemetry.redaction import Privacy, hash_key
from shortlist.telemetry.sqlite_store import SqliteFile, events_path
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
    variant: Assign = as_configured
    follow: Callable[[], bool] = lambda: False
    """Take up the experiment that runs now, if any; says whether it is another one."""


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
    assignments = Assignments(recorder)
    try:
        yield Telemetry(
            record=recorder,
            variant=assignments,
            follow=lambda: _follow(assignments),
            lost=lambda: recorder.lost,
            together=together,
            reports={"get_stats": _StatsReport(recorder), "get_ab_test_report": _ab_test_report},
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


def _ab_test_report(arguments: Mapping[str, Json], _: frozenset[ToolId] | None) -> str:
    """Answer get_ab_test_report; it names variants and sums, and no tool."""
    # Statistics that are seldom asked for and take long to import.
    from shortlist.telemetry.experiments.report import build_report  # noqa: PLC0415
    from shortlist.telemetry.experiments.text import report_text  # noqa: PLC0415

    with experiments() as store:
        experiment = store.get(str(arguments["experiment"]) if arguments.get("experiment") else None)
        return report_text(build_report(experiment, store.outcomes(experiment)))


def _follow(assignments: Assignments) -> bool:
    """Take up what the store says; a store that cannot be read changes nothing."""
    try:
        with experiments() as store:
            return assignments.follow(store.running())
    except StoreError:
        return False


@contextmanager
def experiments(*, write: bool = False) -> Iterator[ExperimentStore]:
    """Open the experiments on this machine."""
    file = SqliteFile(events_path(), write=write)
    try:
        yield ExperimentStore(file)
    finally:
        file.close()


def _together() -> UsedTogether:
    """Take up what the log knows; without one, nothing is known yet."""
    try:
        store = SqliteEventStore(events_path())
    except StoreError:
        return UsedTogether()
    try:
        return UsedTogether.of(store.pairs())
    except StoreError:
        return UsedTogether()
    finally:
        store.close()
