"""Sets up recording: what is written about use, and what is read back of it while serving."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio.to_thread

from shortlist.config.settings import AuditSettings, TelemetrySettings
from shortlist.errors import StoreError
from shortlist.gateway.state import Report
from shortlist.models import Json, ToolId
from shortlist.paths import data_folder
from shortlist.storage.audit import AuditLog
from shortlist.storage.port import Storage, TallyStore
from shortlist.storage.shared import SharedStores, Spool
from shortlist.telemetry.events import RecordEvent, record_nothing
from shortlist.telemetry.experiments.plan import (
    Assignments,
    find_experiment,
    running_experiment,
)
from shortlist.telemetry.figures import parse_since, stats, stats_text
from shortlist.telemetry.ledger import Ledger, UsedTogether
from shortlist.telemetry.recorder import Recorder, Retention, Spooling, is_set
from shortlist.telemetry.redaction import Privacy, hash_key

DAY = 86_400.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Where events go, and what is known from those recorded so far."""

    record: RecordEvent = record_nothing
    lost: Callable[[], Mapping[str, int]] = dict
    together: UsedTogether = field(default_factory=UsedTogether)
    reports: Mapping[str, Report] = field(default_factory=dict)
    experiment: Assignments | None = None
    follow: Callable[[], bool] = lambda: False
    """Switch to the experiment that is running now, if any; returns whether it changed."""


@contextmanager
def open_telemetry(settings: TelemetrySettings, storage: Storage) -> Iterator[Telemetry]:
    """Record while serving; what is queued at the end is written."""
    if not settings.enabled:
        yield Telemetry()
        return
    together = _together(storage.tallies)
    # Gateways on one store give a workspace the same hash, so that its events belong together.
    key = hash_key(data_folder() / "hash.key") if storage.shared is None else storage.shared.key("workspaces")
    privacy = Privacy(queries=settings.queries, arguments=settings.arguments, key=key)
    recorder = Recorder(
        storage.events,
        Ledger(privacy, together, storage.trails),
        retention=Retention(days=settings.days, megabytes=settings.megabytes),
        spooling=_spooling(storage.shared),
    )
    if storage.shared is not None:
        recorder.recover()
    assignments = Assignments(recorder)
    try:
        yield Telemetry(
            record=recorder,
            experiment=assignments,
            follow=lambda: _follow(assignments, storage),
            lost=lambda: recorder.lost,
            together=together,
            reports={
                "get_stats": _StatsReport(recorder, storage.tallies),
                "get_ab_test_report": partial(_ab_test_report, storage),
            },
        )
    finally:
        recorder.close()


def _spooling(shared: SharedStores | None) -> Spooling | None:
    """Return what keeps events from being lost with a process, where others count on the same store."""
    if shared is None:
        return None
    try:
        return Spooling(_spool(shared, "spool"), shared.spooled)
    except StoreError as error:
        logger.warning("events that have not reached the database are lost when this gateway is killed: %s", error)
        return None


def _spool(shared: SharedStores, name: str) -> Spool:
    from shortlist.storage.spool import SpoolFile  # noqa: PLC0415 - only a shared store needs the cipher

    return SpoolFile(data_folder() / name, shared.key("spool"))


@asynccontextmanager
async def open_audit(settings: AuditSettings, storage: Storage) -> AsyncIterator[AuditLog]:
    """Open the audit log of this process; one that is not enabled may be so after a reload."""
    log = await anyio.to_thread.run_sync(_audit_log, settings, storage)
    with closing(log):
        yield log


def _audit_log(settings: AuditSettings, storage: Storage) -> AuditLog:
    """Return the audit log; first remove the records whose retention has ended."""
    if settings.enabled and is_set(now := time.time()):
        try:
            storage.audit.prune(now - settings.days * DAY)
        except StoreError as error:
            logger.warning("old audit records could not be removed: %s", error)

    def spool() -> Spool:
        if storage.shared is None:
            raise StoreError("The audit log needs a shared database for its spool.")
        return _spool(storage.shared, "audit-spool")

    return storage.audit.log(spool)


@dataclass(frozen=True, slots=True)
class _StatsReport:
    """Answers get_stats: figures of what the caller may see, and what this process has lost since."""

    recorder: Recorder
    tallies: TallyStore

    def __call__(self, arguments: Mapping[str, Json], visible: frozenset[ToolId] | None) -> str:
        since = parse_since(arguments["since"]) if arguments.get("since") else None
        return stats_text(stats(self.tallies, since).among(visible), lost=self.recorder.untold)


def _ab_test_report(storage: Storage, arguments: Mapping[str, Json], _: frozenset[ToolId] | None) -> str:
    """Answer get_ab_test_report; it contains variants and sums, and no tool."""
    # Statistics that are seldom asked for and slow to import.
    from shortlist.telemetry.experiments.report import build_report, report_text  # noqa: PLC0415

    name = str(arguments["experiment"]) if arguments.get("experiment") else None
    experiment = find_experiment(storage.experiments, name)
    return report_text(build_report(experiment, storage.experiments.outcomes(experiment.name)))


def _follow(assignments: Assignments, storage: Storage) -> bool:
    """Switch to the running experiment; a store that cannot be read changes nothing."""
    try:
        return assignments.follow(running_experiment(storage.experiments))
    except StoreError:
        return False


def _together(tallies: TallyStore) -> UsedTogether:
    """Start from what was recorded; a store that cannot be read counts as empty."""
    try:
        return UsedTogether.of(tallies.pairs())
    except StoreError:
        return UsedTogether()
