"""What needs attention: servers in trouble, failing tools, unknown names, configuration problems; each with a link."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from shortlist.errors import StoreError
from shortlist.telemetry.experiments.plan import running_experiment
from shortlist.telemetry.experiments.report import build_report
from shortlist.telemetry.figures import UsageStats
from shortlist.upstream.events import State
from shortlist.web.page import NotForThisToken, Visit

TROUBLE: tuple[State, ...] = ("failed", "down", "needs_auth", "stale")
"""States of a server that somebody should look at, the worst first."""
LEAST_CALLS = 5
ERROR_RATE = 0.2
MOST_TOOLS = 5


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing to look at, and the page that shows it."""

    level: Literal["bad", "warn"]
    text: str
    link: str
    more: str = ""


def concerns(visit: Visit, stats: UsageStats) -> list[Concern]:
    """Return what needs attention, the worst first."""
    first = [*_servers(visit), *_held(visit), *_tools(visit, stats)]
    return [*first, *_calls(stats), *_experiments(visit), *_configuration(visit)]


def _servers(visit: Visit) -> Iterator[Concern]:
    troubled = [status for status in visit.servers().values() if status.state in TROUBLE]
    for status in sorted(troubled, key=lambda each: TROUBLE.index(each.state)):
        text = f"Server {status.server} {_WORDS[status.state]}"
        level: Literal["bad", "warn"] = "warn" if status.state == "stale" else "bad"
        yield Concern(level, text, f"/servers/{quote(status.server, safe='')}", status.error or "")


def _held(visit: Visit) -> Iterator[Concern]:
    try:
        overview = visit.record().pins.overview()
    except (NotForThisToken, StoreError):
        return
    for server, names in overview.items():
        if names:
            count = f"{len(names):,} tool{'' if len(names) == 1 else 's'}"
            yield Concern("warn", f"{count} of {server} held for review", "/review")


_WORDS = {"failed": "did not start", "down": "does not answer", "needs_auth": "needs a login", "stale": "reconnects"}


def _tools(visit: Visit, stats: UsageStats) -> Iterator[Concern]:
    failing = [t for t in stats.tools if t.calls >= LEAST_CALLS and (t.error_rate or 0.0) >= ERROR_RATE]
    for tool in sorted(failing, key=lambda each: -(each.error_rate or 0.0) * each.calls)[:MOST_TOOLS]:
        if visit.may_see(tool.name):
            text = f"{visit.reach.name(tool.name)} fails in {tool.error_rate:.0%} of {tool.calls:,} calls"
            yield Concern("bad", text, f"/tools/{quote(tool.name, safe='')}")


def _calls(stats: UsageStats) -> Iterator[Concern]:
    unknown, unfound = stats.figures["unknown_calls"] or 0, stats.figures["unfound_calls"] or 0
    if unknown:
        yield Concern("warn", f"{_calls_of(unknown)} tools that do not exist", "/misses?kind=unknown")
    if unfound:
        yield Concern("warn", f"{_calls_of(unfound)} tools that no search had found", "/misses?kind=unfound")


def _calls_of(count: float) -> str:
    return f"{count:,.0f} call{'' if count == 1 else 's'} of"


def _experiments(visit: Visit) -> Iterator[Concern]:
    """Yield what is wrong with the running experiment."""
    store = visit.record().experiments
    running = running_experiment(store)
    if running is None:
        return
    report, link = build_report(running, store.outcomes(running.name)), f"/experiments/{quote(running.name, safe='')}"
    if report.mismatched:
        yield Concern("bad", f"Experiment {running.name}: the sample-ratio check failed", link)
    for found in report.broken:
        words = f"{found.metric.meaning} got worse under {found.treatment}"
        yield Concern("bad", f"Experiment {running.name}: a guardrail is broken", link, words)


def _configuration(visit: Visit) -> Iterator[Concern]:
    for problem in visit.state.reloaded.problems:
        yield Concern("warn", f"Configuration: {problem}", "/servers")
