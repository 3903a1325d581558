"""How a browser comes to the dashboard of a gateway."""

from functools import cache
from importlib import import_module

import anyio.to_thread
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.cli.stack import Stack
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


def entrance(access: Access, base: str, *, tokens: bool) -> str:
    """Say how a browser comes in."""
    return f"{base}/ (sign in with a token)" if tokens else f"{base}/open?key={access.link()} (opens once)"
