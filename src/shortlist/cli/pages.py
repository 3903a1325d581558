"""The dashboard's pages, put together: imported with the first visit, since they take as long as a start."""

from starlette.types import ASGIApp

from shortlist.cli.stack import Stack
from shortlist.telemetry.sqlite_store import events_path
from shortlist.telemetry.store import SqliteEventStore
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.page import Sources


def pages_of(stack: Stack, access: Access) -> ASGIApp:
    """Show a gateway that runs in this process."""
    sources = Sources(
        state=stack.gateway.state,
        explained=stack.search.explained,
        open_store=open_store,
        reconnect=stack.pool.refresh,
    )
    return dashboard(sources, access)


def open_store() -> SqliteEventStore:
    """Open what was recorded on this machine."""
    return SqliteEventStore(events_path())
