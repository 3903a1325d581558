"""Who is let in over HTTP: tokens of our own, access tokens of configured issuers, and what a refusal says.

This is an OAuth 2.1 resource server as MCP describes it: protected-resource metadata (RFC 9728), a challenge that
names it, and `insufficient_scope` with the scopes that a request needs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.access.claims import NoRule, principal_of
from shortlist.access.jwt import CannotCheck, TokenRefused, TokenVerifier
from shortlist.access.principal import ANONYMOUS, Principal, token_principal
from shortlist.access.scope import actions_of, scope_of_principal, scopes_for, with_implied
from shortlist.access.tokens import PREFIX
from shortlist.config.settings import Action, IssuerSettings, OAuthSettings, TokenSettings, hash_token
from shortlist.front.server import PRESENTED, PRINCIPAL
from shortlist.gateway.calling import CALL
from shortlist.gateway.menus import BY_NAME
from shortlist.gateway.state import GatewayState
from shortlist.gateway.view import ServedView
from shortlist.large import parsed

RETRY_SECONDS = 5
METADATA = "/.well-known/oauth-protected-resource"
_ACTIONS: Mapping[str, Action] = {
    "tools/list": "see",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources",
}
"""What each request needs; `tools/call` depends on the tool."""


class Border:
    """Decides who a request comes from, for `/mcp` and every other route that is only for clients.

    A bearer token is required while there are any or issuers are trusted, and with `token_required` always.
    """

    def __init__(
        self,
        state: GatewayState,
        *,
        token_required: bool,
        on_use: Callable[[str], None] | None = None,
        verifier: TokenVerifier | None = None,
    ) -> None:
        self._state = state  # read each time: the configuration may change while serving
        self._required = token_required
        self._on_use = on_use
        self._verifier = verifier

    @property
    def guard(self) -> Middleware:
        return Middleware(Bearer, border=self)

    @property
    def oauth(self) -> OAuthSettings:
        return self._state.settings.oauth

    async def recognise(self, headers: Headers) -> Principal | None:
        """Return the principal of a request, None without a token; raise TokenRefused for one that is not valid."""
        settings = self._state.settings
        if not settings.has_callers and not self._required:
            return ANONYMOUS
        presented = presented_token(headers.get("authorization", ""))
        return await self.identify(presented) if presented else None

    async def identify(self, presented: str) -> Principal:
        """Return the principal of a token; raise TokenRefused for one that is not valid."""
        settings = self._state.settings
        token = find_token(presented, settings.tokens)
        if token is not None:
            if self._on_use is not None:
                self._on_use(token.name)
            return token_principal(token)
        # A token of our own is never sent to an issuer, even where it was revoked.
        if self._verifier is None or not settings.oauth.issuers or presented.startswith(PREFIX):
            raise TokenRefused("the token is not known here")
        return principal_of(await self._verifier.verify(presented))

    def missing(self, principal: Principal, body: bytes) -> tuple[str, ...]:
        """Return all OAuth scopes that a request needs, where the access token lacks one that its bearer may have."""
        view = self._state.everything
        issuer = view.settings.oauth.issuers.get(principal.issuer)
        if issuer is None or not issuer.scopes:
            return ()
        allowed = view.scopes[f"{issuer.name}:{principal.rule}"].actions
        withheld = allowed - actions_of(issuer, principal.granted)
        if not withheld:
            return ()
        needed = needed_action(view, principal, body)
        if needed is None or needed not in withheld:
            return ()
        return tuple(dict.fromkeys((*sorted(principal.granted), *scopes_for(issuer, {needed}))))

    def challenge(self, path: str, reason: str | None) -> dict[str, str]:
        """Return the header that tells a client how to authenticate; `reason` says why its token was refused."""
        fields = {"realm": "shortlist"}
        if reason is not None:
            fields |= {"error": "invalid_token", "error_description": reason}
        if self.oauth.issuers:
            fields["resource_metadata"] = self._metadata_url(path)
            if first := _first_scopes(self.oauth.issuers.values()):
                fields["scope"] = first
        return _challenge(fields)

    def insufficient(self, path: str, scopes: Iterable[str]) -> dict[str, str]:
        """Return the header that tells a client which scopes its token must have."""
        return _challenge(
            {
                "realm": "shortlist",
                "error": "insufficient_scope",
                "scope": " ".join(scopes),
                "resource_metadata": self._metadata_url(path),
            }
        )

    def _metadata_url(self, path: str) -> str:
        parts = urlsplit(self.oauth.resource)
        return f"{parts.scheme}://{parts.netloc}{METADATA}{parts.path}{_below_endpoint(path)}"

    def routes(self) -> list[Route]:
        """Return the protected-resource metadata of every endpoint path; it is public."""

        async def metadata(request: Request) -> Response:
            oauth = self.oauth
            if not oauth.issuers:
                return PlainTextResponse("This gateway accepts its own tokens only.", 404)
            scopes = dict.fromkeys(name for issuer in oauth.issuers.values() for name, _ in issuer.scopes)
            return JSONResponse(
                {
                    "resource": f"{oauth.resource}{_below_endpoint(request.url.path.removeprefix(METADATA))}",
                    "authorization_servers": [issuer.issuer for issuer in oauth.issuers.values()],
                    "bearer_methods_supported": ["header"],
                    "resource_name": "Shortlist",
                    **({"scopes_supported": list(scopes)} if scopes else {}),
                },
                headers={"Cache-Control": "max-age=300", "Access-Control-Allow-Origin": "*"},
            )

        return [Route(METADATA, metadata), Route(f"{METADATA}/{{path:path}}", metadata)]


class Bearer:
    """Recognises the principal of a request by its bearer token, once, before anything else sees the request."""

    def __init__(self, app: ASGIApp, border: Border) -> None:
        self._app = app
        self._border = border

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = None
        try:
            principal = await self._border.recognise(Headers(scope=scope))
        except NoRule as error:
            await PlainTextResponse(f"Refused: {error.reason}.", 403)(scope, receive, send)
            return
        except CannotCheck as error:  # not 401: the client would throw a good token away and ask its user to sign in
            text = f"The token cannot be checked now: {error.reason}. Try again shortly."
            await PlainTextResponse(text, 503, {"Retry-After": str(RETRY_SECONDS)})(scope, receive, send)
            return
        except TokenRefused as error:
            principal, reason = None, error.reason
        if principal is None:
            challenge = self._border.challenge(scope["path"], reason)
            text = f"A bearer token is required{f': {reason}' if reason else ''}"
            await PlainTextResponse(text, 401, challenge)(scope, receive, send)
            return
        if not principal.anonymous:
            # The SDK ties a session to this user, and refuses it to any other.
            user = AccessToken(token="", client_id=principal.name, subject=principal.credential, scopes=[])
            scope["user"] = AuthenticatedUser(user)
        scope[PRINCIPAL] = principal
        PRESENTED.set(principal)
        if scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        with anyio.move_on_after(principal.seconds_left()):  # a stream ends with the token that opened it
            await self._app(scope, receive, send)


def presented_token(header: str) -> str:
    """Return the bearer token of an Authorization header; empty where there is none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def find_token(token: str, tokens: Mapping[str, TokenSettings]) -> TokenSettings | None:
    """Find a token by its hash: what timing reveals about hashes does not help to guess a token."""
    wanted = hash_token(token) if token else None
    for settings in tokens.values():
        if settings.hash == wanted:
            return settings
    return None


def needed_action(view: ServedView, principal: Principal, body: bytes) -> Action | None:
    """Return the action that a JSON-RPC request needs; None where it needs none, or cannot be read here."""
    try:
        message = parsed(body)
    except ValueError:
        return None
    method, params = (message.get("method"), message.get("params")) if isinstance(message, dict) else (None, None)
    if method != "tools/call":
        return _ACTIONS.get(method) if isinstance(method, str) else None
    name = _called(params if isinstance(params, dict) else {})
    tool_id = view.names.by_name.get(name, name) if name is not None else None
    if tool_id is None:
        return "see"
    scope = scope_of_principal(principal, view.scopes, view.settings)
    return "read" if tool_id in scope.read_only else "call"


def _called(params: Mapping[str, Any]) -> str | None:
    """Return the name of the tool that a request calls, also through call_tool; None for our other tools."""
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or name not in BY_NAME:
        return name if isinstance(name, str) else None
    tool, translate = BY_NAME[name]
    if tool is not CALL or not isinstance(arguments, dict):
        return None
    try:
        called = translate(arguments).get("name")
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return called if isinstance(called, str) else None


def _first_scopes(issuers: Iterable[IssuerSettings]) -> str:
    """Return the scopes to ask for at first: the least that lets a caller find tools."""
    return " ".join(dict.fromkeys(name for issuer in issuers for name in scopes_for(issuer, with_implied({"see"}))))


def _below_endpoint(path: str) -> str:
    """Return the part of an endpoint's path that names a workspace, such as `/w/abc`."""
    return path.removeprefix("/mcp") if path.startswith("/mcp/w/") else ""


def _challenge(fields: Mapping[str, str]) -> dict[str, str]:
    quoted = (f'{name}="{_quotable(value)}"' for name, value in fields.items())
    return {"WWW-Authenticate": f"Bearer {', '.join(quoted)}"}


def _quotable(value: str) -> str:
    """Keep a value from ending the quoted string or the header."""
    return "".join(c for c in value if c.isprintable() and c.isascii() and c not in '"\\')
