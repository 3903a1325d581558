"""A server that needs a login in the middle of a call: the user gets a link, and the call goes on after the login.

A client of the modern era is asked with `input_required` and comes back. One of the legacy era gets the error -32042
with the link and calls again. A client that can open no links gets the link in the text of the refusal.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import anyio

from shortlist.errors import RequestRefused, ShortlistError
from shortlist.gateway.callers import OPEN_LINK, Exchange, Round
from shortlist.gateway.ports import StartedLogin
from shortlist.gateway.state import GatewayState
from shortlist.gateway.tools import McpResult
from shortlist.models import Json
from shortlist.upstream.errors import UpstreamNeedsAuth, UpstreamUnavailable
from shortlist.upstream.grants import SHARED

URL_ELICITATION_REQUIRED = -32042
SIGN_IN_SECONDS = 300.0
"""How long a call waits for a login."""
RECONNECT_SECONDS = 20.0
AGAIN_SECONDS = 0.1

Again: TypeAlias = Callable[[Exchange], Awaitable[McpResult]]
"""Makes the call once more."""


async def after_login(
    state: GatewayState, exchange: Exchange, turn: Round, refused: UpstreamNeedsAuth, again: Again
) -> McpResult:
    """Let the user sign in and make the call again; raise where the user cannot be asked now."""
    server = refused.server
    login = await _started(state, exchange, refused)
    message = f"Sign in to {server!r} to go on."
    asked = {"mode": "url", "message": message, "url": login.url, "elicitationId": login.id}
    if not exchange.can(OPEN_LINK) or (not turn.is_first and not exchange.answers_in_place):
        raise UpstreamNeedsAuth(
            server,
            f"it needs a login. Open {login.url} in a browser on the machine of the gateway, or run "
            f"`{_command(state, exchange, server)}` there, then call again.",
        )
    if exchange.caller.era == "legacy":
        raise RequestRefused(message, code=URL_ELICITATION_REQUIRED, data={"elicitations": [asked]})

    async def ask(asker: Exchange, _: Mapping[str, Json]) -> McpResult:
        answer = await asker.ask("elicitation/create", asked)
        if answer.get("action") != "accept":
            raise UpstreamUnavailable(server, "it needs a login, which the user did not start.")
        with anyio.move_on_after(SIGN_IN_SECONDS):
            await login.done.wait()
            return await _once_connected(asker, again)
        raise UpstreamUnavailable(server, f"nobody signed in within {SIGN_IN_SECONDS / 60:.0f} minutes. Call again.")

    if exchange.answers_in_place:
        return await ask(exchange, {})
    return await state.open_calls.start(exchange, ask)


def _is_own(state: GatewayState, server: str) -> bool:
    settings = state.settings.servers.get(server)
    return settings is not None and settings.identity == "per_principal"


def _command(state: GatewayState, exchange: Exchange, server: str) -> str:
    who = f" --as {exchange.caller.principal.key}" if _is_own(state, server) else ""
    return f"shortlist login {server}{who}"


async def _started(state: GatewayState, exchange: Exchange, refused: UpstreamNeedsAuth) -> StartedLogin:
    """Start a login; a shared one only for those who may administer the gateway, since everybody uses it then."""
    is_own, principal = _is_own(state, refused.server), exchange.caller.principal
    may_share = principal.kind == "owner" or "admin" in state.everything.scope(principal).actions
    if state.seams.sign_in is None or not (is_own or may_share):
        raise refused
    try:
        return await state.seams.sign_in(refused.server, principal.key if is_own else SHARED)
    except ShortlistError:
        raise refused from None


async def _once_connected(exchange: Exchange, again: Again) -> McpResult:
    """Make a call whose server is being connected again."""
    with anyio.move_on_after(RECONNECT_SECONDS):
        while True:
            try:
                return await again(exchange)
            except UpstreamNeedsAuth:
                await anyio.sleep(AGAIN_SECONDS)
    return await again(exchange)
