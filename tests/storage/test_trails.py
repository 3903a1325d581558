"""Figures are the same whether one gateway serves a workspace or two take turns."""

from collections.abc import Iterable
from contextlib import closing

import pytest

from shortlist.storage.port import Batch
from shortlist.storage.postgres.opening import open_postgres
from shortlist.telemetry.events import Event
from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.redaction import Privacy
from tests.storage.postgres import is_running, new_database
from tests.telemetry.happenings import call, search, stamped

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")

DONE: tuple[Event, ...] = (
    search("send a mail", "mail/send", "mail/draft"),
    call("mail/draft"),
    call("mail/draft", "error"),
    call("mail/send"),
    search("read the calendar", "calendar/list"),
    search("read my calendar of today", "calendar/list", "calendar/day"),
    call("calendar/day"),
    call("mail/send"),
    call("git/push"),
    call("git/push"),
    search("push a branch", "git/push", workspace="other"),
    call("git/push", workspace="other"),
)


def figures(events: Iterable[Event], gateways: int) -> tuple[object, ...]:
    """Let gateways record events in turns; return the sums, and what each event was attributed to."""
    address = new_database()
    with closing(open_postgres(address)) as storage:
        ledgers = [Ledger(Privacy(), elsewhere=storage.trails) for _ in range(gateways)]
        for number, each in enumerate(stamped(events)):
            ledger, batch = ledgers[number % gateways], Batch()
            ledger.catch_up([each])
            ledger.enter(batch, each)
            storage.events.append(batch)
            ledger.written(batch)
        stored = [
            (event.kind, event.subject, event.search, event.rank, event.miss) for event in storage.events.events()
        ]
        return storage.tallies.sums(), stored, sorted(storage.tallies.pairs(least=1))


@pytest.mark.parametrize("gateways", [2, 3])
def test_figures_do_not_depend_on_which_gateway_served_a_workspace(gateways: int) -> None:
    one = figures(DONE, 1)
    assert figures(DONE, gateways) == one
    assert ("called", "calendar/day", 6, 2, None) in one[1]  # type: ignore[operator]
