"""Access to a gateway's dashboard from a browser."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module

import anyio.to_thread
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.cli.stack import Stack
from shortlist.config.settings import TokenSettings
from shortlist.web.access import Access


def dashboard_route(stack: Stack, access: Access) -> Mount:
    """Serve the dashboard on all remaining routes."""

    @cache
    def pages() -> ASGIApp:
        made: ASGIApp = import_module("shortlist.cli.pages").pages_of(stack, access)
        return made

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (await anyio.to_thread.run_sync(pages))(scope, receive, send)

    return Mount("/", app)


def entrance(access: Access, base: str, tokens: Mapping[str, TokenSettings], own: TokenSettings | None = None) -> str:
    """Describe how to open the dashboard: by a link with the user's own token, or with any token."""
    if tokens and own is None:
        return f"{base}/ (sign in with a token)"
    return f"{base}/open?key={access.link(own)} (opens once)"
