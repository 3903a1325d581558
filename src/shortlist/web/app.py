"""The routes of the dashboard."""

from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from shortlist.web.access import Access
from shortlist.web.door import Change, Door
from shortlist.web.guard import Guard
from shortlist.web.page import MakePage, Sources
from shortlist.web.pages import activity, experiments, misses, overview, playground, servers, tools

STATIC = Path(__file__).parent / "static"

PAGES: Mapping[str, MakePage] = {
    "/": overview.page,
    "/search": playground.page,
    "/servers": servers.listing,
    "/servers/{server:path}": servers.page,
    "/tools": tools.listing,
    "/tools/{tool:path}": tools.page,
    "/misses": misses.page,
    "/experiments": experiments.listing,
    "/experiments/{experiment:path}": experiments.page,
    "/activity": activity.page,
    "/activity/feed": activity.feed,
    "/activity/{event}": activity.event,
}

CHANGES: Mapping[str, Change] = {
    "/servers/{server:path}/reconnect": servers.reconnect,
    "/servers/{server:path}/disable": servers.disable,
    "/servers/{server:path}/enable": servers.enable,
}


def dashboard(sources: Sources, access: Access) -> ASGIApp:
    """Return the app of all pages; whoever serves it checks the Host and Origin of requests, as the front does."""
    door = Door(sources, access)
    routes: list[BaseRoute] = [
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/open", door.follow_link),
        Route("/sign-in", door.sign_in, methods=["POST"]),
        Route("/sign-out", door.sign_out, methods=["POST"]),
        *(Route(path, door.change(change), methods=["POST"]) for path, change in CHANGES.items()),
        *(Route(path, door.page(make)) for path, make in PAGES.items()),
        Route("/{rest:path}", door.no_such_page),
    ]
    return Guard(Starlette(routes=routes), access, lambda: sources.state.settings.tokens)
