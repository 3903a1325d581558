"""Logins against a real authorization server (npm oidc-provider): one gateway signs in at another that trusts it."""

import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.gateway.support import Fixture, serve
from tests.gateway.test_http import listening
from tests.upstream.support import pool_of, text_of

from shortlist.access.jwt import TokenVerifier
from shortlist.cli.grants import StoredGrants
from shortlist.config.settings import (
    ClaimRule,
    HttpTransport,
    IssuerSettings,
    OAuthClientSettings,
    OAuthSettings,
    ServerSettings,
)
from shortlist.errors import UpstreamError
from shortlist.front.border import Border
from shortlist.gateway.view import ServeOptions
from shortlist.storage.secrets import FileSecrets
from shortlist.upstream.events import CallOptions
from shortlist.upstream.grants import SHARED, LoginKey, TokenGrant
from shortlist.upstream.issuers import IssuerClient
from shortlist.upstream.login import Logins, LoginTarget, login_target
from shortlist.upstream.pool import UpstreamPool
from tests_all.identity.person import sign_in
from tests_all.support import Foreign

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
REDIRECT = "http://127.0.0.1:9/callback"
START_SECONDS = 60.0
CALLS = 50


@dataclass(slots=True)
class AuthorizationServer:
    """A running oidc-provider, and the grants that it has given."""

    url: str
    lines: list[str] = field(default_factory=list)

    @property
    def refreshes(self) -> int:
        return self.lines.count("granted refresh_token")


@contextmanager
def authorization_server(foreign: Foreign, resource: str) -> Iterator[AuthorizationServer]:
    """Start the authorization server beside its packages, which Node looks for there."""
    program = foreign.modules.parent / "authorization_server.mjs"
    shutil.copy(Path(__file__).parent / "identity" / program.name, program)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(foreign.node), str(program), str(port), resource, "3600"]
    ready, there = threading.Event(), AuthorizationServer(f"http://127.0.0.1:{port}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:

        def read() -> None:
            assert running.stdout is not None
            for line in running.stdout:
                there.lines.append(line.strip())
                if line.startswith("ready"):
                    ready.set()

        threading.Thread(target=read, daemon=True).start()
        try:
            assert ready.wait(START_SECONDS)
            yield there
        finally:
            running.terminate()


@dataclass(frozen=True, slots=True)
class World:
    """A protected gateway, the authorization server that it trusts, and where logins to it are kept."""

    provider: AuthorizationServer
    server: ServerSettings
    target: LoginTarget
    folder: Path

    @property
    def key(self) -> LoginKey:
        return LoginKey(SHARED, self.target.server, self.target.resource)

    def logins(self) -> Logins:
        """Return the logins as one process sees them."""
        return Logins(self.grants())

    def grants(self) -> StoredGrants:
        return StoredGrants(FileSecrets(self.folder))

    async def sign_in(self, name: str, principal: str = SHARED) -> None:
        logins = self.logins()
        answer = await sign_in(await logins.begin(self.target, principal, REDIRECT), name, REDIRECT)
        await logins.finish(answer["state"], answer.get("code"), answer.get("iss"), answer.get("error"))

    async def grant(self) -> TokenGrant:
        found = await self.grants().get(self.key)
        assert found is not None
        return found

    async def expire(self) -> None:
        """Let the access token look as if it had ended, so that the next request refreshes it."""
        await self.grants().put(self.key, replace(await self.grant(), expires_at=1.0))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[UpstreamPool]:
        async with pool_of(self.server, logins=self.logins()) as (pool, _):
            yield pool


@pytest.fixture
async def world(foreign: Foreign, tmp_path: Path) -> AsyncIterator[World]:
    fixture = Fixture("notes")
    fixture.effects = {"echo": "read_only"}
    async with serve(fixture, options=ServeOptions(mode="passthrough")) as served:
        state = served.gateway.state
        border = Border(
            state, token_required=True, verifier=TokenVerifier(lambda: state.settings.oauth, IssuerClient())
        )
        async with listening(served, border) as base:
            with authorization_server(foreign, f"{base}/mcp") as provider:
                issuer = IssuerSettings(
                    name="company",
                    issuer=provider.url,
                    audiences=(f"{base}/mcp",),
                    rules=(
                        ClaimRule(claim="sub", values=("ada",)),
                        ClaimRule(claim="sub", values=("bob",), can=("see",)),
                    ),
                    scopes=(("tools:read", ("read",)), ("tools:write", ("call",))),
                )
                oauth = OAuthSettings(resource=f"{base}/mcp", issuers={"company": issuer})
                await state.configure(replace(state.settings, oauth=oauth))
                settings = OAuthClientSettings(scopes=("openid",))
                server = ServerSettings(name="notes", transport=HttpTransport(url=f"{base}/mcp", oauth=settings))
                target = login_target("notes", server.transport)
                assert target is not None
                yield World(provider, server, target, tmp_path)


async def echo(pool: UpstreamPool, text: str = "hello") -> str:
    return text_of(await pool.call_tool("notes", "echo", {"text": text}))


async def test_a_login_opens_a_server_that_was_closed_before(world: World) -> None:
    async with world.connected() as pool:
        assert pool.status()["notes"].state == "needs_auth"
    await world.sign_in("ada")
    async with world.connected() as pool:
        assert await echo(pool) == "hello"


async def test_a_person_whom_no_rule_knows_is_not_let_in(world: World) -> None:
    await world.sign_in("mallory")
    async with world.connected() as pool:
        with pytest.raises(UpstreamError):
            await echo(pool)


async def test_an_expired_token_is_refreshed_and_the_refresh_token_rotates(world: World) -> None:
    await world.sign_in("ada")
    used = [(await world.grant()).refresh_token]
    async with world.connected() as pool:
        for _ in range(2):
            await world.expire()
            assert await echo(pool) == "hello"
            used.append((await world.grant()).refresh_token)
    assert world.provider.refreshes == 2
    assert len(set(used)) == 3


async def test_fifty_calls_of_two_gateways_with_an_expired_token_use_one_refresh(world: World) -> None:
    await world.sign_in("ada")
    async with world.connected() as one, world.connected() as two:
        await echo(one)
        await echo(two)
        await world.expire()
        said: list[str] = []

        async def call(pool: UpstreamPool, number: int) -> None:
            said.append(await echo(pool, str(number)))

        async with anyio.create_task_group() as tasks:
            for number in range(CALLS):
                tasks.start_soon(call, (one, two)[number % 2], number)
    assert sorted(map(int, said)) == list(range(CALLS))
    assert world.provider.refreshes == 1


async def test_a_revoked_login_is_one_to_renew(world: World) -> None:
    await world.sign_in("ada")
    async with world.connected() as pool:
        await echo(pool)
        grant = await world.grant()
        form: dict[str, Any] = {"token": grant.refresh_token, "client_id": grant.client.client_id}
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{world.provider.url}/token/revocation", data=form)
            assert answer.status_code == 200
        await world.expire()
        with pytest.raises(UpstreamError, match="shortlist login notes"):
            await echo(pool)
    assert await world.grants().get(world.key) is None
    await world.sign_in("ada")
    async with world.connected() as pool:
        assert await echo(pool) == "hello"


async def test_a_call_that_needs_more_scopes_is_allowed_after_a_login_with_all_of_them(world: World) -> None:
    await world.sign_in("ada")
    assert "tools:write" not in (await world.grant()).scope
    async with world.connected() as pool:
        assert await echo(pool) == "hello"
        with pytest.raises(UpstreamError, match="lacks rights"):
            await pool.call_tool("notes", "add", {"a": 1, "b": 2})
    await world.sign_in("ada")
    assert {"tools:read", "tools:write"} <= set((await world.grant()).scope.split())
    async with world.connected() as pool:
        assert text_of(await pool.call_tool("notes", "add", {"a": 1, "b": 2})) == "3"


async def test_two_callers_use_one_server_at_once_with_rights_of_their_own(world: World) -> None:
    await world.sign_in("ada")  # the shared login lists the tools
    await world.sign_in("ada", "token:ada")
    await world.sign_in("bob", "token:bob")
    async with world.connected() as pool:
        said: dict[str, str] = {}

        async def call(caller: str) -> None:
            options = CallOptions(session=f"token:{caller}", principal=f"token:{caller}")
            try:
                said[caller] = text_of(await pool.call_tool("notes", "echo", {"text": "hello"}, options=options))
            except UpstreamError as error:
                said[caller] = str(error)

        async with anyio.create_task_group() as tasks:
            for caller in ("ada", "bob", "eve"):
                tasks.start_soon(call, caller)
    assert said["ada"] == "hello"
    assert "NOT invoked" in said["bob"]
    assert "shortlist login notes --as token:eve" in said["eve"]
