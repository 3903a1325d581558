"""The OAuth 2.1 client for servers that need a login: discovery, registration, code with PKCE, refresh.

Every function sends its requests through the client it is given, which decides which addresses may be reached.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode, urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_field_from_www_auth,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from shortlist.config.settings import OAuthClientSettings
from shortlist.errors import UpstreamError
from shortlist.models import Json
from shortlist.upstream.addresses import ForbiddenAddress, fetch, is_loopback_host
from shortlist.upstream.grants import RegisteredClient, TokenGrant

CLIENT_NAME = "Shortlist"
OFFLINE = "offline_access"
MAX_EXPIRY_SECONDS = 10**9
SIGN_IN_METHODS = ("client_secret_basic", "client_secret_post", "none")
_PROBE = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class LoginFailed(UpstreamError):
    """A login that could not be completed; the message says why and what to do."""


class LoginEnded(UpstreamError):
    """A refresh token that the authorization server no longer accepts: somebody has to sign in again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a server's refusal says about the login it wants."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, response: httpx2.Response) -> "Challenge":
        read = {name: extract_field_from_www_auth(response, name) for name in ("resource_metadata", "scope", "error")}
        return cls(**read)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationServer:
    """An authorization server as its metadata describes it, or as the 2025-03-26 defaults do."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None
    auth_methods: tuple[str, ...] = SIGN_IN_METHODS
    scopes: tuple[str, ...] | None = None
    client_id_documents: bool = False
    sends_issuer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """Where to sign in for a server, for which resource, and with which scope."""

    server: str
    resource: str
    sends_resource: bool
    authorization_server: AuthorizationServer
    scope: str | None

    def asking(self, wanted: Iterable[str]) -> "Discovered":
        """Return the same login with more scopes, and with the one that keeps it alive where that is offered."""
        scope = union_scopes(self.scope, " ".join(wanted) or None)
        if scope and OFFLINE in (self.authorization_server.scopes or ()) and OFFLINE not in scope.split():
            scope = f"{scope} {OFFLINE}"
        return replace(self, scope=scope)


def new_state(mark: str = "") -> str:
    """Return a secret that the answer to a login must carry; the mark tells several gateways whose login it is."""
    return mark + secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """A login that waits for its user: where to send them, and what their answer is checked against."""

    discovered: Discovered
    client: RegisteredClient
    redirect_uri: str
    state: str = field(default_factory=new_state, repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)

    @property
    def url(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            **_resource(self.discovered),
        }
        scope = self.discovered.scope
        if scope:
            asked["scope"] = scope
            if OFFLINE in scope.split():
                asked["prompt"] = "consent"
        endpoint = self.discovered.authorization_server.authorization_endpoint
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(asked)}"


async def challenge_of(http: httpx2.AsyncClient, server: str, url: str) -> Challenge:
    """Send a server a request without credentials, and return what its refusal says about the login."""
    request = http.build_request("POST", url, json=_PROBE, headers={"accept": "application/json, text/event-stream"})
    response = await _send(http, server, request, "first request")
    return Challenge.of(response) if response.status_code == 401 else Challenge()


async def discover(http: httpx2.AsyncClient, server: str, url: str, challenge: Challenge) -> Discovered:
    """Find out where to sign in: challenge, protected-resource metadata, authorization-server metadata."""
    resource = resource_url_from_server_url(url)
    metadata = await _resource_metadata(http, server, url, challenge)
    if metadata is not None and metadata.resource:
        named = str(metadata.resource)
        if not check_resource_allowed(requested_resource=resource, configured_resource=named):
            raise LoginFailed(server, f"its metadata is for another resource ({named}); no login was started.")
        resource = named
    issuer = str(metadata.authorization_servers[0]) if metadata and metadata.authorization_servers else None
    found = await _authorization_server(http, server, url, issuer)
    supported = metadata.scopes_supported if metadata else None
    scope = challenge.scope or (" ".join(supported) if supported else None)
    return Discovered(server=server, resource=resource, sends_resource=True, authorization_server=found, scope=scope)


async def register(
    http: httpx2.AsyncClient, found: Discovered, settings: OAuthClientSettings, redirect_uri: str
) -> RegisteredClient:
    """Return the client to sign in with: pre-registered, else a client ID document, else registered now."""
    target = found.authorization_server
    if settings.client_id is not None:
        method = _method(target, has_secret=settings.client_secret is not None)
        return RegisteredClient(
            client_id=settings.client_id, issuer="", client_secret=settings.client_secret, auth_method=method
        )
    if settings.client_metadata_url is not None and target.client_id_documents:
        return RegisteredClient(client_id=settings.client_metadata_url, issuer=target.issuer)
    if target.registration_endpoint is None:
        raise LoginFailed(
            found.server,
            f"{target.issuer} does not register clients by itself. Register one there and set `client_id` "
            "(and `client_secret`) in the server's `oauth` settings.",
        )
    wanted = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _registered_method(target),
        "application_type": "native" if is_loopback_host(urlsplit(redirect_uri).hostname) else "web",
        **({"scope": found.scope} if found.scope else {}),
    }
    request = http.build_request("POST", target.registration_endpoint, json=wanted)
    raw = await _answer(http, found.server, request, "client registration", (200, 201))
    assigned: Json = raw.get("token_endpoint_auth_method") or wanted["token_endpoint_auth_method"]
    if assigned not in SIGN_IN_METHODS or (assigned != "none" and not raw.get("client_secret")):
        raise LoginFailed(found.server, f"{target.issuer} registered a client that cannot sign in ({assigned!r}).")
    return RegisteredClient(
        client_id=_text(found.server, raw, "client_id"),
        issuer=target.issuer,
        client_secret=raw.get("client_secret"),
        auth_method=str(assigned),
    )


async def exchange(
    http: httpx2.AsyncClient, login: Authorization, code: str, issuer: str | None, now: float | None = None
) -> TokenGrant:
    """Exchange the code of an authorization response for tokens; `issuer` is its `iss`, compared exactly."""
    target, server = login.discovered.authorization_server, login.discovered.server
    if issuer is None and target.sends_issuer:
        raise LoginFailed(server, f"the answer of {target.issuer} lacks the issuer it promised; sign in again.")
    if issuer is not None and issuer != target.issuer:
        raise LoginFailed(server, f"the login was answered by {issuer!r}, not by {target.issuer!r}; nothing was sent.")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": login.redirect_uri,
        "code_verifier": login.verifier,
        **_resource(login.discovered),
    }
    raw = await _token(http, server, target.token_endpoint, login.client, form)
    grant = _grant(server, raw, login.client, target, login.discovered.scope or "", now)
    return replace(grant, resource=login.discovered.resource)


async def refresh(http: httpx2.AsyncClient, server: str, grant: TokenGrant, now: float | None = None) -> TokenGrant:
    """Return a fresh grant; raises LoginEnded where the refresh token is no longer accepted."""
    if grant.refresh_token is None:
        raise LoginEnded(server, "the login has expired; sign in again.")
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token, "resource": grant.resource}
    raw = await _token(http, server, grant.token_endpoint, grant.client, form)
    target = AuthorizationServer(
        issuer=grant.issuer, authorization_endpoint="", token_endpoint=grant.token_endpoint, registration_endpoint=None
    )
    renewed = _grant(server, raw, grant.client, target, grant.scope, now)
    return replace(renewed, resource=grant.resource, refresh_token=renewed.refresh_token or grant.refresh_token)


async def _resource_metadata(
    http: httpx2.AsyncClient, server: str, url: str, challenge: Challenge
) -> ProtectedResourceMetadata | None:
    for candidate in build_protected_resource_metadata_discovery_urls(challenge.resource_metadata, url):
        response = await _send(http, server, http.build_request("GET", candidate), "protected-resource metadata")
        if response.status_code >= 500 or response.status_code == 429:
            raise LoginFailed(server, f"{candidate} answered {response.status_code}; try again later.")
        if response.status_code == 200:
            try:
                return ProtectedResourceMetadata.model_validate_json(response.content)
            except ValidationError:
                continue
    return None


async def _authorization_server(
    http: httpx2.AsyncClient, server: str, url: str, issuer: str | None
) -> AuthorizationServer:
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    for candidate in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
        response = await _send(http, server, http.build_request("GET", candidate), "authorization-server metadata")
        if response.status_code >= 500:
            raise LoginFailed(server, f"{candidate} answered {response.status_code}; try again later.")
        if response.status_code != 200:
            continue
        try:
            metadata = OAuthMetadata.model_validate_json(response.content)
        except ValidationError:
            continue
        return _read_metadata(server, metadata, issuer, origin)
    if issuer is not None:
        raise LoginFailed(server, f"{issuer} publishes no authorization-server metadata; no login was started.")
    return AuthorizationServer(  # the defaults of protocol 2025-03-26, for servers that publish nothing
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
    )


def _read_metadata(server: str, metadata: OAuthMetadata, issuer: str | None, origin: str) -> AuthorizationServer:
    stated = str(metadata.issuer)
    if not (stated == issuer if issuer is not None else issuers_match(stated, origin)):
        raise LoginFailed(server, f"its authorization server says it is {stated!r}, not {issuer or origin!r}.")
    methods = metadata.code_challenge_methods_supported
    if methods is None or "S256" not in methods:
        raise LoginFailed(server, f"{stated} does not support PKCE with S256, which a safe login needs.")
    endpoints = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.registration_endpoint)
    for endpoint in endpoints:
        if endpoint is not None and not _is_safe(str(endpoint)):
            raise LoginFailed(server, f"{stated} names {endpoint}, which is neither HTTPS nor on this machine.")
    supported = metadata.token_endpoint_auth_methods_supported
    return AuthorizationServer(
        issuer=stated,
        authorization_endpoint=str(metadata.authorization_endpoint),
        token_endpoint=str(metadata.token_endpoint),
        registration_endpoint=str(metadata.registration_endpoint) if metadata.registration_endpoint else None,
        auth_methods=tuple(supported) if supported is not None else ("client_secret_basic",),
        scopes=tuple(metadata.scopes_supported) if metadata.scopes_supported is not None else None,
        client_id_documents=metadata.client_id_metadata_document_supported is True,
        sends_issuer=metadata.authorization_response_iss_parameter_supported is True,
    )


def _method(target: AuthorizationServer, *, has_secret: bool) -> str:
    """Return how a client proves itself at the token endpoint."""
    if not has_secret:
        return "none"
    return next((m for m in SIGN_IN_METHODS if m in target.auth_methods and m != "none"), "client_secret_basic")


def _registered_method(target: AuthorizationServer) -> str:
    """Return the method to register with: none where that is enough, since a stolen file then holds no secret."""
    preferred = ("none", "client_secret_basic", "client_secret_post")
    return next((method for method in preferred if method in target.auth_methods), "client_secret_basic")


async def _token(
    http: httpx2.AsyncClient, server: str, endpoint: str, client: RegisteredClient, form: Mapping[str, str]
) -> dict[str, Json]:
    fields, headers = dict(form), {}
    if client.auth_method == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        fields["client_id"] = client.client_id
        if client.auth_method == "client_secret_post" and client.client_secret is not None:
            fields["client_secret"] = client.client_secret
    request = http.build_request("POST", endpoint, data=fields, headers=headers)
    response = await _send(http, server, request, "token request")
    raw = _object(response)
    if response.status_code == 200 and raw:
        return raw
    error = raw.get("error")
    if form["grant_type"] == "refresh_token" and error in ("invalid_grant", "invalid_client", "unauthorized_client"):
        raise LoginEnded(server, "the login is no longer accepted; sign in again.")
    raise LoginFailed(server, f"the token request was refused ({error or response.status_code}); sign in again.")


def _grant(
    server: str,
    raw: Mapping[str, Json],
    client: RegisteredClient,
    target: AuthorizationServer,
    scope: str,
    now: float | None,
) -> TokenGrant:
    if str(raw.get("token_type", "")).lower() != "bearer":
        raise LoginFailed(server, f"the token is of type {raw.get('token_type')!r}; only bearer tokens can be used.")
    refreshing = raw.get("refresh_token")
    return TokenGrant(
        client=client,
        issuer=target.issuer,
        token_endpoint=target.token_endpoint,
        access_token=_text(server, raw, "access_token"),
        refresh_token=refreshing if isinstance(refreshing, str) and refreshing else None,
        expires_at=_expiry(raw.get("expires_in"), time.time() if now is None else now),
        scope=raw["scope"] if isinstance(raw.get("scope"), str) else scope,
    )


def _expiry(seconds: Json, now: float) -> float | None:
    valid = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < MAX_EXPIRY_SECONDS
    return now + seconds if valid else None


async def _answer(
    http: httpx2.AsyncClient, server: str, request: httpx2.Request, what: str, accepted: tuple[int, ...]
) -> dict[str, Json]:
    response = await _send(http, server, request, what)
    raw = _object(response)
    if response.status_code not in accepted or not raw:
        raise LoginFailed(server, f"the {what} was refused ({raw.get('error') or response.status_code}).")
    return raw


async def _send(http: httpx2.AsyncClient, server: str, request: httpx2.Request, what: str) -> httpx2.Response:
    if not _is_safe(str(request.url)):
        raise LoginFailed(server, f"the {what} would go to {request.url}, which is neither HTTPS nor on this machine.")
    try:
        return await fetch(http, request)
    except ForbiddenAddress as error:
        raise LoginFailed(server, str(error)) from None
    except TimeoutError:
        raise LoginFailed(server, f"{request.url.host} did not answer the {what} in time; try again later.") from None
    except httpx2.HTTPError as error:
        raise LoginFailed(server, f"the {what} failed at {request.url.host}: {error}") from None


def _resource(found: Discovered) -> dict[str, str]:
    return {"resource": found.resource} if found.sends_resource else {}


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(parts.hostname))


def _object(response: httpx2.Response) -> dict[str, Json]:
    try:
        raw = response.json()
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) else {}


def _text(server: str, raw: Mapping[str, Json], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise LoginFailed(server, f"the authorization server's answer lacks {key!r}; sign in again.")
    return value
