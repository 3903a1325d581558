"""Logins to servers: who is signed in where, tokens that stay fresh, and the link that starts a new login.

No lock is held across a request: a refresh is one task per grant that everybody who needs it waits for.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx2
from mcp.shared.auth_utils import resource_url_from_server_url

from shortlist.config.settings import NO_OAUTH, HttpTransport, OAuthClientSettings, SseTransport, Transport
from shortlist.errors import SecretsUnreadable, ShortlistError, StoreError, UpstreamError
from shortlist.fairness import gives_way
from shortlist.upstream.errors import ConnectionFailed
from shortlist.upstream.grants import SHARED, LoginKey, LoginStore, TokenGrant
from shortlist.upstream.oauth import (
    Authorization,
    Challenge,
    Discovered,
    LoginEnded,
    LoginFailed,
    challenge_of,
    discover,
    exchange,
    new_state,
    refresh,
    register,
)

logger = logging.getLogger(__name__)

AHEAD_SECONDS = 60.0
"""A token this near to its end is refreshed before it is used."""
MOST_PENDING = 256
"""Logins that were begun and not finished, of all principals together."""
PENDING_SECONDS = 600.0
DISCOVERED_SECONDS = 5.0
"""How long what was found out about a server's login, or that nothing was, is used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginTarget:
    """A server that may need a login, and how this gateway signs in there."""

    server: str
    url: str
    settings: OAuthClientSettings = NO_OAUTH

    @property
    def resource(self) -> str:
        return resource_url_from_server_url(self.url)


def login_target(server: str, transport: Transport) -> LoginTarget | None:
    """Return where a login to a server goes; None for servers that cannot have one or bring their own credentials."""
    if not isinstance(transport, (HttpTransport, SseTransport)):
        return None
    if any(name.lower() == "authorization" for name in transport.headers):
        return None
    return LoginTarget(server=server, url=transport.url, settings=transport.oauth)


@dataclass(slots=True)
class _Pending:
    key: LoginKey
    login: Authorization
    target: LoginTarget
    until: float


class Logins:
    """All logins of a gateway, by principal, server and resource."""

    def __init__(
        self,
        grants: LoginStore,
        *,
        clock: Callable[[], float] = time.time,
        mark: str = "",
    ) -> None:
        self._grants = grants
        self._mark = mark
        """Begins the states of logins, which only the gateway that began them knows."""
        self._clock = clock
        self._flights: dict[LoginKey, asyncio.Task[TokenGrant | None]] = {}
        self._discoveries: dict[LoginTarget, asyncio.Task[Discovered]] = {}
        self._pending: dict[str, _Pending] = {}
        self._reported = ""

    def auth(self, target: LoginTarget, principal: str) -> "BearerAuth":
        """Return what signs the requests of one principal to one server."""
        return BearerAuth(self, target, LoginKey(principal, target.server, target.resource))

    def report(self, error: SecretsUnreadable) -> None:
        """Log once that logins cannot be read: it is noticed with every request."""
        if str(error) != self._reported:
            self._reported = str(error)
            logger.warning("Requests to servers are sent without a login for now. %s", error)

    async def usable(self, target: LoginTarget, key: LoginKey) -> TokenGrant | None:
        """Return a grant that is good for a request, refreshed ahead of its end; None where nobody signed in."""
        grant = await self._grants.get(key)
        if grant is None or grant.expires_at is None or grant.expires_at - self._clock() > AHEAD_SECONDS:
            return grant
        try:
            return await self.renewed(target, key, grant)
        except (LoginFailed, StoreError):
            if grant.expires_at > self._clock():
                return grant  # still good; the authorization server or the store may be back before it ends
            raise

    async def renewed(self, target: LoginTarget, key: LoginKey, used: TokenGrant) -> TokenGrant | None:
        """Return a grant newer than the one that was used; None where the login has ended."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._refresh(target, key, used))
            flight.add_done_callback(lambda done: self._land(key, done))
        return await asyncio.shield(flight)  # a caller that leaves must not lose a rotated token for the others

    def _land(self, key: LoginKey, done: asyncio.Task[TokenGrant | None]) -> None:
        self._flights.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen, also where every caller has left

    async def _refresh(self, target: LoginTarget, key: LoginKey, used: TokenGrant) -> TokenGrant | None:
        async with self._grants.refreshing(key):
            newer = await self._newer(key, used)
            if newer is not None:
                return newer
            try:
                async with await self._http(target) as http:
                    fresh = await refresh(http, target.server, used, self._clock())
            except LoginEnded:
                newer = await self._newer(key, used)  # another machine may have used the refresh token first
                if newer is None:
                    await self._grants.remove(key)
                return newer
            await self._grants.put(key, fresh)
            return fresh

    async def lacks(self, key: LoginKey, used: TokenGrant, scope: str) -> None:
        """Note that a server wants more scopes than a grant has: the next login asks for all of them."""
        from mcp.client.auth.utils import union_scopes  # noqa: PLC0415 - with every part of the SDK's login

        wanted = union_scopes(used.wanted or used.scope, scope) or ""
        if wanted != used.wanted:
            await self._grants.put(key, replace(used, wanted=wanted))

    async def _newer(self, key: LoginKey, used: TokenGrant) -> TokenGrant | None:
        current = await self._grants.get(key)
        return current if current is not None and current.access_token != used.access_token else None

    async def begin(self, target: LoginTarget, principal: str, redirect_uri: str) -> str:
        """Start a login and return the link that its user must open."""
        key = LoginKey(principal, target.server, target.resource)
        before = await self._grants.get(key)
        wanted = (*target.settings.scopes, *(before.wanted.split() if before is not None else ()))
        found = (await self._discovered(target)).asking(wanted)
        async with await self._http(target) as http:
            client = await register(http, found, target.settings, redirect_uri)
        login = Authorization(discovered=found, client=client, redirect_uri=redirect_uri, state=new_state(self._mark))
        self._keep(_Pending(key, login, target, self._clock() + PENDING_SECONDS))
        return login.url

    async def _discovered(self, target: LoginTarget) -> Discovered:
        """Return where to sign in to a server: all who ask at once, or soon after one another, share one discovery.

        It is made without anybody's credentials, so it tells one principal nothing about another.
        """
        flight = self._discoveries.get(target)
        if flight is None:
            flight = self._discoveries[target] = asyncio.create_task(self._discover(target))
            flight.add_done_callback(lambda done: self._forget_later(target, done))
        return await asyncio.shield(flight)

    def _forget_later(self, target: LoginTarget, done: asyncio.Task[Discovered]) -> None:
        if not done.cancelled():
            done.exception()  # seen, also where every caller has left
        asyncio.get_running_loop().call_later(DISCOVERED_SECONDS, self._discoveries.pop, target, None)

    async def _discover(self, target: LoginTarget) -> Discovered:
        async with await self._http(target) as http:
            challenge = await challenge_of(http, target.server, target.url)
            return await discover(http, target.server, target.url, challenge)

    def expects(self, state: str) -> bool:
        """Return whether an authorization response with this state belongs to a login that was begun here."""
        return state in self._pending

    async def finish(self, state: str, code: str | None, issuer: str | None, error: str | None = None) -> LoginKey:
        """Complete the login that an authorization response belongs to; each is used once."""
        pending = self._pending.pop(state, None)
        if pending is None or pending.until < self._clock():
            raise LoginFailed("unknown", "this login has expired or was already used; start it again.")
        server = pending.target.server
        if issuer is not None and issuer != pending.login.discovered.authorization_server.issuer:
            raise LoginFailed(server, f"the login was answered by {issuer!r}, which is not who was asked.")
        if error is not None or code is None:
            raise LoginFailed(server, f"the login was not granted ({error or 'no code'}).")
        async with await self._http(pending.target) as http:
            grant = await exchange(http, pending.login, code, issuer, self._clock())
        await self._grants.put(pending.key, grant)
        return pending.key

    async def sign_out(self, target: LoginTarget, principal: str) -> bool:
        """Forget a grant, and return whether there was one."""
        key = LoginKey(principal, target.server, target.resource)
        found = await self._grants.get(key) is not None
        await self._grants.remove(key)
        return found

    def _keep(self, pending: _Pending) -> None:
        """Keep a login until its user comes back; where there are too many, the principal with the most loses one."""
        for state in [state for state, other in self._pending.items() if other.until < self._clock()]:
            del self._pending[state]
        if len(self._pending) >= MOST_PENDING:
            owners = {state: other.key.principal for state, other in self._pending.items()}
            self._pending.pop(gives_way(owners, pending.key.principal) or next(iter(owners)))
        self._pending[pending.login.state] = pending

    async def _http(self, target: LoginTarget) -> httpx2.AsyncClient:
        from shortlist.upstream.guarded import guarded_client  # noqa: PLC0415 - loads the whole HTTP client
        from shortlist.upstream.http import trusted  # noqa: PLC0415

        # The configuration named this host, so its own authorization server may share its address.
        host = urlsplit(target.url).hostname
        hosts = (host,) if host else ()
        return guarded_client(await trusted(), hosts, allow_private=target.settings.allow_private_addresses)


class BearerAuth(httpx2.Auth):
    """Signs requests with a principal's token: refreshed ahead of its end, and once when it is refused."""

    def __init__(self, logins: Logins, target: LoginTarget, key: LoginKey) -> None:
        self._logins = logins
        self._target = target
        self._key = key

    @property
    def command(self) -> str:
        """Return the command that signs this principal in."""
        who = "" if self._key.principal == SHARED else f" --as {shlex.quote(self._key.principal)}"
        return f"shortlist login {self._target.server}{who}"

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Attach the token, and try once more with a fresh one when the server refuses it."""
        try:
            grant = await self._asked(self._logins.usable(self._target, self._key))
        except SecretsUnreadable as error:
            # Whether there was a login is not known. A server that needs none must not be affected.
            self._logins.report(error)
            response = yield request
            if response.status_code == 401:
                await _discard(response)
                raise ConnectionFailed(str(error), sent=False) from None
            return
        if grant is None:
            yield request
            return
        _sign(request, grant)
        response = yield request
        challenge = Challenge.of(response)
        if response.status_code == 403 and challenge.error == "insufficient_scope":
            await self._logins.lacks(self._key, grant, challenge.scope or "")
            await _discard(response)
            raise ConnectionFailed(f"the login lacks rights that it asks for; `{self.command}`", sent=False)
        if response.status_code != 401:
            return
        fresh = await self._asked(self._logins.renewed(self._target, self._key, grant))
        if fresh is not None:
            await _discard(response)
            _sign(request, fresh)
            yield request

    async def _asked(self, asked: Awaitable[TokenGrant | None]) -> TokenGrant | None:
        """Return a grant; what keeps it from being read or refreshed fails the request before it is sent."""
        try:
            return await asked
        except SecretsUnreadable:
            raise
        except UpstreamError as error:
            raise ConnectionFailed(str(error).removeprefix(f"Server {error.server!r}: "), sent=False) from None
        except ShortlistError as error:
            raise ConnectionFailed(str(error), sent=False) from None


async def _discard(response: httpx2.Response) -> None:
    """Close a refusal unread: httpx2 would read all of its body, however long, before the next attempt."""
    response._content = b""
    await response.aclose()


def _sign(request: httpx2.Request, grant: TokenGrant) -> None:
    request.headers["Authorization"] = f"Bearer {grant.access_token}"
