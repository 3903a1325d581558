"""How a browser comes to the dashboard of a gateway."""

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
    """Answer every address that is left with the dashboard."""

    @cache
    def pages() -> ASGIApp:
        made: ASGIApp = import_module("shortlist.cli.pages").pages_of(stack, access)
        return made

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (await anyio.to_thread.run_sync(pages))(scope, receive, send)

    return Mount("/", app)


def entrance(access: Access, base: str, tokens: Mapping[str, TokenSettings], own: TokenSettings | None = None) -> str:
    """Describe how a browser comes in: by a link of the user's own token, or with any token."""
    if tokens and own is None:
        return f"{base}/ (sign in with a token)"
    return f"{base}/open?key={access.link(own)} (opens once)"
