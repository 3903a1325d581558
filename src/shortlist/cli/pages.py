"""Builds the dashboard's pages: imported with the first visit, since the import takes as long as a start."""

from pathlib import Path

from starlette.types import ASGIApp

from shortlist.cli.adding import ConfigSwitch
from shortlist.cli.stack import Stack
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.page import Sources


def pages_of(stack: Stack, access: Access) -> ASGIApp:
    """Return the dashboard of a gateway that runs in this process."""
    sources = Sources(
        state=stack.gateway.state,
        explained=stack.search.explained_here,
        storage=stack.storage,
        reconnect=stack.pool.refresh,
        switch=ConfigSwitch(Path(stack.settings.source)) if stack.settings.source else None,
    )
    return dashboard(sources, access)
