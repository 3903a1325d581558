"""Serves the gateway over Streamable HTTP: to this machine unless configured otherwise, never to foreign pages."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.access.principal import Principal
from shortlist.config.settings import Limits
from shortlist.errors import InvalidConfig, StoreError
from shortlist.fairness import gives_way
from shortlist.front.border import Bearer, Border
from shortlist.front.modern import serve_call
from shortlist.front.peers import Peers
from shortlist.front.replicas import Replica
from shortlist.front.requests import Turns
from shortlist.front.resumption import ResumableSessions
from shortlist.front.server import HANDLE_PARAMETER, PRINCIPAL, DualServer, Front, usual_call
from shortlist.front.transport import BODY
from shortlist.large import (
    LARGE_BYTES,
    ParsedBytes,
    TooManyValues,
    beside,
    check_values,
    read_json,
    write_json,
)
from shortlist.upstream.framing import (
    CLIENT_VALUES,
    SMALL_VALUES,
    UNUSABLE_ID,
    error_message,
    has_unusable_id,
    is_unanswerable,
    too_many_values,
    well_formed,
)

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ANYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - named here to be refused without tokens
ENDPOINT = "/mcp"
MAX_BODY_BYTES = 16 * 1024 * 1024

logger = logging.getLogger(__name__)


def build_app(
    front: Front,
    host: str,
    routes: Iterable[BaseRoute] = (),
    border: Border | None = None,
    replica: Replica | None = None,
    refused: Counter[str] | None = None,
) -> Starlette:
    """Return the app: `/mcp`, `/mcp/w/<handle>`, and the given routes, each with its own guard.

    Requests that are refused before they are read are counted in `refused`, by limit.
    """
    state = front.gateway.state
    limits = state.settings.limits
    border = border or Border(state, token_required=not is_loopback(host))
    check_binding(host, has_callers=state.settings.has_callers)
    manager = ResumableSessions(
        front.server,
        front.audience.connection,
        most_bytes=limits.resumption_bytes,
        sharing=replica.sharing if replica is not None else None,
        # Host and Origin are checked below, for every route and not only for these.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=limits.sessions,
    )
    front.audience.end_sessions = manager.end_unless
    peers = replica.peers if replica is not None else None
    endpoint, guards = Endpoint(front.server, manager, limits, border, peers, refused), [border.guard]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        async with manager.run():
            yield

    local_only = partial(LocalOnly, host=host, public=lambda: _host(state.settings.oauth.resource))
    app = App(
        local_only(Bearer(endpoint, border)),
        routes=[
            Route(ENDPOINT, endpoint=endpoint, middleware=guards),
            Route(f"{ENDPOINT}/w/{{{HANDLE_PARAMETER}}}", endpoint=endpoint, middleware=guards),
            *border.routes(),
            *routes,
        ],
        middleware=[Middleware(local_only)],
        lifespan=lifespan,
    )
    app.state.sessions = manager
    return app


class App(Starlette):
    """Starlette, whose routing and error pages are not entered for the one path that nearly all requests have."""

    def __init__(self, endpoint: ASGIApp, **options: Any) -> None:
        super().__init__(**options)
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == ENDPOINT:
            scope["app"] = self
            await self._endpoint(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class Endpoint:
    """Reads a request's body within its limits before anything else is done for it.

    A client that opens requests and never completes them holds no session, no task of the SDK and none of the
    places of others.
    """

    def __init__(
        self,
        server: DualServer,
        manager: ResumableSessions,
        limits: Limits,
        border: Border,
        peers: Peers | None = None,
        refused: Counter[str] | None = None,
    ) -> None:
        self._refused = refused if refused is not None else Counter()
        self._border = border
        self._peers = peers
        self._server = server
        self._manager = manager
        self._limits = limits
        self._arriving: dict[asyncio.Timeout, Principal] = {}
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope[PRINCIPAL]
        await self._turns.wait(principal)
        arrived = await self._arrived(principal, scope, receive)
        if isinstance(arrived, Response):
            await arrived(scope, receive, send)
            return
        body = await self._read(arrived)
        if isinstance(body, Response):
            await body(scope, receive, send)
            return
        if missing := self._border.missing(principal, body):
            headers = self._border.insufficient(scope["path"], missing)
            text = f"The access token needs the scopes {' '.join(missing)} for this request."
            await PlainTextResponse(text, 403, headers)(scope, receive, send)
            return
        if self._peers is not None and await self._peers.passed_on(scope, receive, send, body):
            return
        if await serve_call(self._server, scope, receive, send, body):
            return
        if is_unanswerable(body.value) if isinstance(body, ParsedBytes) else has_unusable_id(body):
            await JSONResponse(error_message(None, INVALID_REQUEST, UNUSABLE_ID), 400)(scope, receive, send)
            return
        if isinstance(body, ParsedBytes):
            BODY.set(body)  # each request has a context of its own
        try:
            await self._manager.serve(scope, _replayed(body, receive), send, body)
        except StoreError as error:
            logger.warning("a session cannot be looked up: %s", error)
            text = "The session cannot be looked up at the moment, since the database does not answer."
            await PlainTextResponse(text, 503, {"Retry-After": "1"})(scope, receive, send)

    async def _arrived(self, principal: Principal, scope: Scope, receive: Receive) -> bytes | Response:
        """Return the body of a request, or the response that refuses it."""
        if len(self._arriving) >= self._limits.arriving_requests:
            self._displace_one(principal)
        timeout = asyncio.timeout(self._limits.request_seconds)
        self._arriving[timeout] = principal
        try:
            async with timeout:
                body = await _body(receive) if _declared_bytes(scope) <= MAX_BODY_BYTES else None
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        except TimeoutError:
            if timeout not in self._arriving:
                self._refused["arriving_requests"] += 1
                text = "Too many requests are arriving, and this one takes longest (limits.arriving_requests)."
                return PlainTextResponse(text, 503, {"Retry-After": "1", "Connection": "close"})
            self._refused["request_seconds"] += 1
            text = "The request took too long to arrive (limits.request_seconds)."
            return PlainTextResponse(text, 408, {"Connection": "close"})
        finally:
            self._arriving.pop(timeout, None)
        if body is not None:
            return body
        self._refused["body"] += 1
        return PlainTextResponse(f"The request is over {MAX_BODY_BYTES:,} bytes.", 413, {"Connection": "close"})

    async def _read(self, body: bytes) -> bytes | Response:
        """Return a body without half emojis, a large one with its value; or the response that refuses it.

        A large body is parsed once, beside the event loop. What is not a call is parsed again by the SDK, in one step.
        """
        if len(body) <= LARGE_BYTES:
            return well_formed(body)
        read, most = ParsedBytes(body), CLIENT_VALUES
        try:
            read.value = await beside(read_json, body, most, well_formed)
            if usual_call(read) is not None:
                return read
            most = SMALL_VALUES
            await beside(check_values, body, most)
        except TooManyValues:
            self._refused["body"] += 1
            return PlainTextResponse(f"The request {too_many_values(most)}.", 413)
        except ValueError:
            return JSONResponse(error_message(None, PARSE_ERROR, "Parse error: the request is not valid JSON"), 400)
        if b"\\ud" in body or b"\\uD" in body:
            value = read.value
            read = ParsedBytes(await beside(write_json, value))
            read.value = value
        return read

    def _displace_one(self, newcomer: Principal) -> None:
        """End the request that has taken longest to arrive, of the caller with the most: most arrive in one piece."""
        oldest = gives_way(self._arriving, newcomer)
        if oldest is not None:
            del self._arriving[oldest]
            with suppress(RuntimeError):  # its time is over at this moment
                oldest.reschedule(asyncio.get_running_loop().time())


def _declared_bytes(scope: Scope) -> int:
    """Return the length that a request declares; 0 where it declares none."""
    lengths = (value for name, value in scope["headers"] if name == b"content-length")
    return max((int(value) for value in lengths if value.isdigit()), default=0)


async def _body(receive: Receive) -> bytes | None:
    """Return a request's body, or None where it is too large; raise ClientDisconnect where its client left."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive that yields a body that was read already, and then what comes after it."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


def check_binding(host: str, *, has_callers: bool) -> None:
    """Refuse to serve other machines without tokens or issuers."""
    if not is_loopback(host) and not has_callers:
        raise InvalidConfig(
            f"Serving on {host!r} lets other machines call every tool. Define `tokens` or `oauth` in the "
            "configuration, or serve on 127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False


class LocalOnly:
    """Answers only requests that name this host, so that no web page can reach it by a name of its own."""

    def __init__(self, app: ASGIApp, host: str, public: Callable[[], str | None] = lambda: None) -> None:
        self._app = app
        self._public = public  # read each time: the host under which a reverse proxy serves this gateway
        self._anywhere = host in ANYWHERE  # bound to every address, there are tokens, and any name may be ours
        self._hosts = LOOPBACK | {host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # RFC 9110 §5.5: white space around a value is not part of it, and not every HTTP parser takes it away.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        headers = Headers(scope=scope)
        names = [name for name, _ in scope["headers"]]
        if names.count(b"host") > 1:  # which one counts would be a matter of taste, here and below
            await PlainTextResponse("More than one Host header", 400)(scope, receive, send)
        elif names.count(b"authorization") > 1:
            await PlainTextResponse("More than one Authorization header", 400)(scope, receive, send)
        elif not self._anywhere and not self._names_us(_host(f"//{headers.get('host', '')}")):
            await PlainTextResponse("Invalid Host header", 421)(scope, receive, send)
        elif not self._is_ours(headers.get("origin"), headers.get("host", "")):
            await PlainTextResponse("Invalid Origin header", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _names_us(self, name: str | None) -> bool:
        return name is not None and (name in self._hosts or name == self._public())

    def _is_ours(self, origin: str | None, host: str) -> bool:
        if origin is None:
            return True
        name = _host(origin)
        return self._names_us(name) or (self._anywhere and name is not None and name == _host(f"//{host}"))


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.port != 0 else None
    except ValueError:  # also where the port is not a number
        return None
