"""The routes of the dashboard."""

from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from shortlist.front.border import Border
from shortlist.web.access import Access
from shortlist.web.door import Change, Door
from shortlist.web.guard import Guard
from shortlist.web.page import LOGIN_CALLBACK, MakePage, Sources
from shortlist.web.pages import activity, experiments, misses, overview, playground, review, servers, tools

STATIC = Path(__file__).parent / "static"

PAGES: Mapping[str, MakePage] = {
    "/": overview.page,
    "/search": playground.page,
    "/servers": servers.listing,
    "/servers/{server:path}": servers.page,
    "/tools": tools.listing,
    "/tools/{tool:path}": tools.page,
    "/add": servers.new,
    "/review": review.page,
    "/misses": misses.page,
    "/experiments": experiments.listing,
    "/experiments/{experiment:path}": experiments.page,
    "/activity": activity.page,
    "/activity/feed": activity.feed,
    "/activity/{event}": activity.event,
}

DOWNLOADS: Mapping[str, MakePage] = {
    "/download/overview.csv": overview.download,
    "/download/servers.csv": servers.download,
    "/download/tools.csv": tools.download,
    "/download/misses.csv": misses.download,
    "/download/activity.csv": activity.download,
}

CHANGES: Mapping[str, Change] = {
    "/servers/{server:path}/reconnect": servers.reconnect,
    "/servers/{server:path}/disable": servers.disable,
    "/servers/{server:path}/enable": servers.enable,
    "/servers/{server:path}/restart": servers.restart,
    "/servers/{server:path}/login": servers.login,
    "/servers/{server:path}/remove": servers.remove,
    "/tools/{tool:path}/disable": tools.disable,
    "/tools/{tool:path}/call": tools.call,
    "/add": servers.propose,
    "/add/confirm": servers.add,
    "/misses/dismiss": misses.dismiss,
    "/misses/keyword": misses.add_keyword,
    "/misses/synonym": misses.add_synonym,
    "/review/{hash}/{server:path}/approve": review.approve,
    "/review/{hash}/{server:path}/reject": review.reject,
}


def dashboard(sources: Sources, access: Access, border: Border) -> ASGIApp:
    """Return the app of all pages; whoever serves it checks the Host and Origin of requests, as the front does."""
    app = Starlette(routes=routes_of(Door(sources, access, border)))
    return Guard(app, access, border, lambda: sources.state.settings)


def routes_of(door: Door) -> list[BaseRoute]:
    """Return every route of the dashboard."""
    return [
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/open", door.follow_link),
        Route(LOGIN_CALLBACK, door.finish_login),
        Route("/sign-in", door.sign_in, methods=["POST"]),
        Route("/sign-out", door.sign_out, methods=["POST"]),
        *(Route(path, door.change(change), methods=["POST"]) for path, change in CHANGES.items()),
        *(Route(path, door.page(make)) for path, make in {**PAGES, **DOWNLOADS}.items()),
        Route("/{rest:path}", door.no_such_page),
    ]
