"""The dashboard's pages, put together: imported with the first visit, since they take as long as a start."""

from starlette.types import ASGIApp

from shortlist.cli.stack import Stack
from shortlist.telemetry.sqlite_store import events_path
from shortlist.telemetry.store import SqliteEventStore
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.page import Sources


def pages_of(stack: Stack, access: Access) -> ASGIApp:
    """Show a stack that is running here."""
    sources = Sources(
        state=stack.gateway.state,
        explained=stack.search.searcher.explained,
        open_store=lambda: SqliteEventStore(events_path()),
        reconnect=stack.pool.refresh,
    )
    return dashboard(sources, access)
