"""`shortlist dashboard`: the pages over what a gateway has recorded, whatever it serves over."""

import argparse
import threading
import webbrowser
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from shortlist.access.jwt import TokenVerifier
from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.arguments import add_command
from shortlist.cli.engine import Known, make_searcher, open_model
from shortlist.cli.entrance import entrance
from shortlist.cli.listening import address, listen
from shortlist.cli.reading import read_settings, say
from shortlist.cli.stack import run_plainly
from shortlist.cli.words import Words
from shortlist.config.settings import Settings
from shortlist.demo import CATALOG
from shortlist.front.border import Border
from shortlist.front.http import LocalOnly, check_binding
from shortlist.gateway.state import GatewayState
from shortlist.search.engine import Engine
from shortlist.storage.opening import open_storage
from shortlist.storage.port import Storage
from shortlist.upstream.issuers import IssuerClient
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.page import Sources
from shortlist.web.recorded import RecordedUpstreams


def register(subparsers: Any) -> None:
    """Add `dashboard`."""
    parser = add_command(subparsers, "dashboard")
    parser.add_argument("--config", help="a configuration file (default: your own, else the demo servers)")
    parser.add_argument(
        "--http", metavar="HOST:PORT", default="127.0.0.1:0", help="address to listen on (default: any free port)"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser of this machine")
    parser.set_defaults(run=_dashboard)


def _dashboard(arguments: argparse.Namespace) -> int:
    host, port = address(arguments.http)
    settings = read_settings(arguments.config)
    check_binding(host, has_callers=settings.has_callers)
    run_plainly(lambda: _serve(settings, host, port, arguments.open))
    return 0


async def _serve(settings: Settings, host: str, port: int, open_browser: bool) -> None:
    expansions, access, storage = Words(settings.expansions).expansions, Access(), open_storage(settings.storage)
    search = Engine(
        lambda catalog: make_searcher(
            catalog, settings.search, open_model(settings.search), Known(expansions=expansions)
        ),
        _catalog(settings, storage),
    )
    search.begin()
    upstreams = RecordedUpstreams(tuple(settings.servers), storage.events)
    sources = Sources(
        state=GatewayState(settings, search, upstreams),
        explained=search.explained_here,
        storage=storage,
    )
    border = Border(sources.state, token_required=True, verifier=TokenVerifier(lambda: settings.oauth, IssuerClient()))
    pages = dashboard(sources, access, border)
    app = Starlette(routes=[Mount("/", pages)], middleware=[Middleware(LocalOnly, host=host)])

    def announce(base: str) -> None:
        link = entrance(access, base, settings)
        say(f"dashboard: {link}")
        if open_browser:  # beside the loop: a browser in the terminal returns when it is closed
            threading.Thread(target=webbrowser.open, args=(link.partition(" ")[0],), daemon=True).start()

    await listen(app, host, port, announce)


def _catalog(settings: Settings, storage: Storage) -> Catalog:
    """Return the tools as the gateway saved them last; the demo servers' never change."""
    if not settings.source:
        return read_catalog(CATALOG).catalog
    return SavedCatalog(storage.catalogs, settings.servers).load()
