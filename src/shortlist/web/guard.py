"""Recognises the session of a request to the dashboard by its cookie or token, and hardens every response."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.access.jwt import TokenRefused
from shortlist.config.settings import Settings
from shortlist.front.border import Border, presented_token
from shortlist.web.access import Access, Session

SESSION = "shortlist.session"
"""Where endpoints find the session in the scope; None for a browser that is not signed in."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: under that, browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Recognises the session of a request and hardens every response."""

    def __init__(self, app: ASGIApp, access: Access, border: Border, settings: Callable[[], Settings]) -> None:
        self._app = app
        self._access = access
        self._border = border
        self._settings = settings  # read each time: the configuration may change while serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        scope[SESSION] = await self._session(HTTPConnection(scope))
        await self._app(scope, receive, hardened)

    async def _session(self, connection: HTTPConnection) -> Session | None:
        if presented := presented_token(connection.headers.get("authorization", "")):
            try:
                return Session(principal=await self._border.identify(presented))
            except TokenRefused:
                return None
        return self._access.session(connection.cookies.get(self._access.cookie, ""), self._settings())


def is_own_form(headers: Headers) -> bool:
    """Return whether a form was sent by a page of exactly this origin, port included."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
