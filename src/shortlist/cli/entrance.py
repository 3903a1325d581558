"""Access to a gateway's dashboard from a browser."""

from functools import cache
from importlib import import_module

import anyio.to_thread
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.access.principal import ANONYMOUS, token_principal
from shortlist.cli.stack import Stack
from shortlist.config.settings import Settings, TokenSettings
from shortlist.front.border import Border
from shortlist.web.access import Access


def dashboard_route(stack: Stack, access: Access, border: Border) -> Mount:
    """Serve the dashboard on all remaining routes."""

    @cache
    def pages() -> ASGIApp:
        made: ASGIApp = import_module("shortlist.cli.pages").pages_of(stack, access, border)
        return made

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if stack.peers is None or not await stack.peers.page_passed_on(scope, receive, send):
            await (await anyio.to_thread.run_sync(pages))(scope, receive, send)

    return Mount("/", app)


def entrance(access: Access, base: str, settings: Settings, own: TokenSettings | None = None) -> str:
    """Describe how to open the dashboard: by a link with the user's own token, or with any token."""
    if settings.has_callers and own is None:
        return f"{base}/ (sign in with a token)"
    return f"{base}/open?key={access.link(token_principal(own) if own else ANONYMOUS)} (opens once)"
