"""Builds the dashboard's pages: imported with the first visit, since the import takes as long as a start."""

from starlette.types import ASGIApp

from shortlist.cli.controls import controls_of
from shortlist.cli.stack import Stack
from shortlist.front.border import Border
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.page import Sources


def pages_of(stack: Stack, access: Access, border: Border) -> ASGIApp:
    """Return the dashboard of a gateway that runs in this process."""
    sources = Sources(
        state=stack.gateway.state,
        explained=stack.search.explained_here,
        storage=stack.storage,
        controls=controls_of(stack),
    )
    return dashboard(sources, access, border)
