"""Who is let in over HTTP, by every kind of credential, at every door and in both eras; and what a refusal says."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.routing import Mount, Route

from shortlist.access.jwt import LEEWAY_SECONDS, TokenVerifier
from shortlist.access.tokens import mint
from shortlist.config.settings import ClaimRule, OAuthSettings, TokenSettings, ToolsetSettings, hash_token
from shortlist.front.border import METADATA, Border
from shortlist.front.http import build_app
from shortlist.front.probes import probe_routes
from shortlist.front.registry import registry_routes
from shortlist.gateway.menus import BY_NAME
from shortlist.gateway.view import ServeOptions
from shortlist.observability.metrics import GatewayMetrics
from shortlist.storage.local import open_local
from shortlist.web.access import Access
from shortlist.web.app import dashboard, routes_of
from shortlist.web.door import Door
from shortlist.web.page import Sources
from tests.access.issuer import INTROSPECTION, OTHER, RESOURCE, IdentityProvider, trusted
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, serve
from tests.gateway.test_doors import DOORS, SECRETS, Walk, guarded, leaks, walked
from tests.gateway.test_http import connect, listening

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])
OWN = "slt_own-token-of-a-guest"
TOKENS = {"guest": TokenSettings(name="guest", hash=hash_token(OWN), toolsets=("public",))}
TOOLSETS = {"public": ToolsetSettings(name="public", tools=("lobby/echo",))}
GUESTS = trusted(ClaimRule(claim="groups", values=("guests",), toolsets=("public",)), introspection=INTROSPECTION)
SCOPED = (("tools:see", ("see",)), ("tools:read", ("read",)), ("tools:call", ("call",)), ("docs", ("resources",)))
HEADERS: dict[Era, dict[str, str]] = {"legacy": {}, "modern": {"MCP-Protocol-Version": "2026-07-28"}}


@dataclass(frozen=True, slots=True)
class Gate:
    """A gateway over HTTP that trusts an issuer."""

    served: Served
    provider: IdentityProvider
    base: str


@asynccontextmanager
async def gate(oauth: OAuthSettings = GUESTS, *fixtures: Fixture) -> AsyncIterator[Gate]:
    provider = IdentityProvider()
    async with (
        serve(
            *(fixtures or (guarded("lobby"), guarded("vault"))),
            options=ServeOptions(mode="search"),
            tokens=TOKENS,
            toolsets=TOOLSETS,
            oauth=oauth,
        ) as served,
        listening(served, border_of(served, provider)) as base,
    ):
        yield Gate(served, provider, base)


def border_of(served: Served, provider: IdentityProvider) -> Border:

    state = served.gateway.state
    return Border(state, token_required=True, verifier=TokenVerifier(lambda: state.settings.oauth, provider))


def credentials(provider: IdentityProvider) -> dict[str, tuple[str | None, str]]:
    """Return every kind of credential that is not valid, and what the refusal says about it."""
    foreign = replace(provider, keys={"one": OTHER})
    return {
        "none": (None, "required"),
        "revoked token of our own": (mint(), "not known"),
        "expired": (provider.token(groups=["guests"], exp=time.time() - LEEWAY_SECONDS - 1), "expired"),
        "wrong audience": (provider.token(groups=["guests"], aud="https://elsewhere.example"), "another service"),
        "other issuer": (provider.token(groups=["guests"], iss="https://other.example"), "not trusted"),
        "foreign key": (foreign.token(groups=["guests"]), "signature"),
        "revoked opaque token": ("opaque-revoked", "not known"),
        "malformed": ("a.b.c", "malformed"),
        "huge": ("a" * 20_000, "too long"),
    }


KINDS = tuple(credentials(IdentityProvider()))


@eras
@pytest.mark.parametrize("kind", KINDS)
async def test_no_door_opens_without_a_valid_credential(kind: str, era: Era) -> None:
    async with gate() as there, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        credential, reason = credentials(there.provider)[kind]
        headers = {"Accept": "application/json, text/event-stream", **HEADERS[era]}
        if credential is not None:
            headers["Authorization"] = f"Bearer {credential}"
        doors = [{"method": door, "params": {}} for door in DOORS]
        doors += [{"method": "tools/call", "params": {"name": name, "arguments": {}}} for name in BY_NAME]
        doors += [{"method": "tools/call", "params": {"name": "lobby__echo", "arguments": {"text": "x"}}}]
        for path in ("/mcp", "/mcp/w/handle"):
            for door in doors:
                answer = await http.post(
                    f"{there.base}{path}", headers=headers, json={"jsonrpc": "2.0", "id": 1, **door}
                )
                assert answer.status_code == 401, (path, door)
                assert reason in answer.text
                assert credential is None or credential not in answer.text + str(answer.headers)
            assert (await http.get(f"{there.base}{path}", headers=headers)).status_code == 401
            assert (await http.delete(f"{there.base}{path}", headers=headers)).status_code == 401
        touched = [name for fixture in there.served.fixtures.values() for name, _ in fixture.calls]
    assert touched == []


@eras
@pytest.mark.parametrize("kind", ["own token", "jwt", "opaque"])
async def test_a_valid_credential_opens_what_its_scope_allows_and_no_other_door(kind: str, era: Era) -> None:
    async with gate() as there:
        there.provider.says["opaque"] = {"active": True, "sub": "eve", "aud": RESOURCE, "groups": ["guests"]}
        credential = {"own token": OWN, "jwt": there.provider.token(groups=["guests"]), "opaque": "opaque"}[kind]
        async with connect(f"{there.base}/mcp", era, credential) as client:
            kept = await there.served.gateway.state.results.keep("token:somebody", ("the bullion",))
            came = await walked(Walk(client, era, there.served, kept))
            called = await client.call_tool("call_tool", {"name": "lobby__echo", "arguments": {"text": "hello"}})
    assert leaks(came, SECRETS) == []
    assert not called.is_error
    assert there.served.fixtures["lobby"].calls == [("echo", {"text": "hello"})]
    assert there.served.fixtures["vault"].calls == []


PUBLIC = {
    *("/healthz", "/readyz", METADATA, f"{METADATA}/{{path:path}}", "/static"),
    "/login/callback",  # brings the answer of a login, under a secret of its own
    "/sign-out",  # leads to the closed door
}
IN_PATHS = {"handle": "h", "path": "mcp", "name": "local.shortlist/vault", "version": "1", "rest": "nowhere"}
IN_PATHS |= {"server": "vault", "tool": "vault/unlock", "hash": "0", "event": "1", "experiment": "x"}


@dataclass(frozen=True, slots=True)
class Building:
    """All routes of a gateway as `serve --http` puts them together, and a browser or program in front of them."""

    routes: tuple[Route | Mount, ...]
    http: httpx2.AsyncClient
    provider: IdentityProvider

    async def answers(self, credential: str | None) -> AsyncIterator[tuple[str, httpx2.Response]]:
        """Yield what each route answers to GET and to POST."""
        headers = {"Origin": "http://127.0.0.1"} | ({"Authorization": f"Bearer {credential}"} if credential else {})
        for route in self.routes:
            path = re.sub(r"{(\w+)(:path)?}", lambda found: IN_PATHS[found[1]], route.path)
            for method in ("GET", "POST"):
                yield route.path, await self.http.request(method, path, headers=headers)


@asynccontextmanager
async def building(folder: Path) -> AsyncIterator[Building]:
    provider = IdentityProvider()
    async with serve(guarded("lobby"), guarded("vault"), tokens=TOKENS, toolsets=TOOLSETS, oauth=GUESTS) as served:
        state, border = served.gateway.state, border_of(served, provider)
        sources = Sources(state=state, explained=served.searcher.explained, storage=open_local(folder))
        machines = [*probe_routes(state, GatewayMetrics().instruments, border), *registry_routes(state, border)]
        pages = Mount("/", dashboard(sources, Access(), border))
        app = build_app(served.front, "127.0.0.1", [*machines, pages], border)
        found = (*app.routes[:-1], *routes_of(Door(sources, Access(), border)))
        routes = tuple(route for route in found if isinstance(route, (Route, Mount)))
        assert len(routes) == len(found)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
            yield Building(routes, http, provider)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_route_but_the_public_ones_needs_a_valid_credential(kind: str, tmp_path: Path) -> None:
    async with building(tmp_path) as there:
        credential, _ = credentials(there.provider)[kind]
        public = set()
        async for path, answer in there.answers(credential):
            assert leaks({path: [answer.text]}, SECRETS) == []
            if answer.status_code not in (401, 404, 405):
                public.add(path)
    assert public <= PUBLIC
    assert {"/healthz", "/readyz"} <= public


@pytest.mark.parametrize("kind", ["own token", "jwt", "opaque"])
async def test_no_route_shows_a_limited_caller_what_is_outside_of_its_scope(kind: str, tmp_path: Path) -> None:
    async with building(tmp_path) as there:
        there.provider.says["opaque"] = {"active": True, "sub": "eve", "aud": RESOURCE, "groups": ["guests"]}
        credential = {"own token": OWN, "jwt": there.provider.token(groups=["guests"]), "opaque": "opaque"}[kind]
        opened = set()
        elsewhere = tuple(route for route in there.routes if not route.path.startswith("/mcp"))  # walked above
        async for path, answer in replace(there, routes=elsewhere).answers(credential):
            sent = _without_own_words(answer)
            assert leaks({path: [sent]}, SECRETS) == [], answer.text
            assert path in PUBLIC or answer.status_code != 303, path  # no change was made
            if answer.status_code == 200:
                opened.add(path)
    assert {"/v0.1/servers", "/servers", "/tools"} <= opened
    assert "/metrics" not in opened


def _without_own_words(answer: httpx2.Response) -> str:
    """Return an answer without the parts of the path that it was asked for."""
    text, parts = unescape(answer.text), answer.request.url.path.strip("/").split("/")
    for start, end in combinations(range(len(parts) + 1), 2):
        asked = "/".join(parts[start:end])
        text = text.replace(f"'{asked}'", "").replace(f'"{asked}"', "").replace(f"/{asked}", "")
    return text


# What a client is told


@pytest.mark.parametrize(
    ("path", "resource"), [("/mcp", RESOURCE), ("/mcp/w/abc", f"{RESOURCE}/w/abc"), ("", RESOURCE)]
)
async def test_every_endpoint_path_has_metadata_that_names_its_own_uri(path: str, resource: str) -> None:
    async with gate(trusted(scopes=SCOPED)) as there, httpx2.AsyncClient() as http:
        answer = await http.get(f"{there.base}{METADATA}{path}")
        refused = await http.post(f"{there.base}{path or '/mcp'}", json={})
    told = answer.json()
    assert told["resource"] == resource
    assert told["authorization_servers"] == ["https://id.example"]
    assert told["scopes_supported"] == ["tools:see", "tools:read", "tools:call", "docs"]
    assert (
        f'resource_metadata="https://gateway.example{METADATA}{path or "/mcp"}"' in refused.headers["www-authenticate"]
    )
    assert 'scope="tools:see"' in refused.headers["www-authenticate"]
    assert "error" not in refused.headers["www-authenticate"]  # RFC 6750: no error where no token was sent


async def test_a_gateway_without_issuers_has_no_metadata() -> None:
    async with gate(OAuthSettings()) as there, httpx2.AsyncClient() as http:
        assert (await http.get(f"{there.base}{METADATA}/mcp")).status_code == 404
        assert "resource_metadata" not in (await http.post(f"{there.base}/mcp")).headers["www-authenticate"]


CALL = {"name": "lobby__treasury", "arguments": {}}
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "tools/list": ({"method": "tools/list", "params": {}}, "tools:see"),
    "search": ({"method": "tools/call", "params": {"name": "search_tools", "arguments": {"query": "x"}}}, "tools:see"),
    "read": ({"method": "tools/call", "params": {"name": "lobby__echo", "arguments": {}}}, "tools:read"),
    "call": ({"method": "tools/call", "params": CALL}, "tools:call"),
    "call_tool": ({"method": "tools/call", "params": {"name": "call_tool", "arguments": CALL}}, "tools:call"),
    "resources": ({"method": "resources/list", "params": {}}, "docs"),
}


@eras
@pytest.mark.parametrize("step", STEPS)
async def test_a_token_that_lacks_a_scope_is_told_all_scopes_that_the_request_needs(step: str, era: Era) -> None:
    message, needed = STEPS[step]
    async with gate(trusted(scopes=(*SCOPED, ("other", ("prompts",))))) as there, httpx2.AsyncClient() as http:
        headers = {"Authorization": f"Bearer {there.provider.token(scope='other openid')}", **HEADERS[era]}
        answer = await http.post(f"{there.base}/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 1, **message})
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert f'scope="other {needed}"' in answer.headers["www-authenticate"]
    assert there.served.fixtures["lobby"].calls == []


@eras
async def test_scopes_limit_what_a_token_may_do(era: Era) -> None:
    async with gate(trusted(scopes=SCOPED)) as there:
        token = there.provider.token(scope="tools:read")
        async with connect(f"{there.base}/mcp", era, token) as client:
            read = await client.call_tool("call_tool", {"name": "lobby__echo", "arguments": {"text": "hello"}})
            with pytest.raises(Exception, match="error response"):
                await client.call_tool("call_tool", CALL)
    assert not read.is_error
    assert [name for name, _ in there.served.fixtures["lobby"].calls] == ["echo"]


async def test_what_no_scope_can_allow_is_refused_without_asking_for_one() -> None:
    rule = ClaimRule(can=("see",))
    async with gate(trusted(rule, scopes=SCOPED)) as there:
        token = there.provider.token(scope="tools:see")
        async with connect(f"{there.base}/mcp", "modern", token) as client:
            answer = await client.call_tool("call_tool", CALL)
    assert answer.is_error


async def test_a_bearer_that_no_rule_matches_gets_403() -> None:
    async with gate() as there, httpx2.AsyncClient() as http:
        headers = {"Authorization": f"Bearer {there.provider.token(groups=['strangers'])}"}
        answer = await http.post(f"{there.base}/mcp", headers=headers, json={})
    assert answer.status_code == 403
    assert "no rule" in answer.text


async def test_a_token_of_our_own_is_never_sent_to_an_issuer() -> None:
    async with gate() as there, httpx2.AsyncClient() as http:
        await http.post(f"{there.base}/mcp", headers={"Authorization": f"Bearer {mint()}"}, json={})
        assert there.provider.asked == 0


async def test_an_issuer_that_is_down_refuses_its_tokens_and_no_others() -> None:
    async with gate() as there, httpx2.AsyncClient() as http:
        there.provider.down = True
        headers = {"Authorization": f"Bearer {there.provider.token(groups=['guests'])}"}
        answer = await http.post(f"{there.base}/mcp", headers=headers, json={})
        async with connect(f"{there.base}/mcp", "modern", OWN) as client:
            mine = await client.call_tool("call_tool", {"name": "lobby__echo", "arguments": {"text": "hello"}})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "www-authenticate" not in answer.headers  # nobody has to sign in again
    assert not mine.is_error


async def test_a_session_belongs_to_its_caller_and_outlives_a_refreshed_token() -> None:
    async with gate(trusted(ClaimRule())) as there:
        tokens = {name: there.provider.token(sub=name) for name in ("ada", "bob")}
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            session = await open_session(http, there.base, tokens["ada"])
            search = request("tools/call", name="search_tools", arguments={"query": "x"})
            stolen = [
                await http.post(f"{there.base}/mcp", headers=legacy(tokens["bob"], session), json=message)
                for message in (request("tools/list"), search)
            ]
            renewed = there.provider.token(sub="ada", jti="another")
            again = await http.post(f"{there.base}/mcp", headers=legacy(renewed, session), json=request("tools/list"))
    assert [answer.status_code for answer in stolen] == [404, 404]
    assert again.status_code == 200


async def test_a_change_of_the_issuers_rules_ends_the_sessions_it_opened() -> None:
    async with gate(trusted(ClaimRule())) as there, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        session = await open_session(http, there.base, there.provider.token())
        state = there.served.gateway.state
        await state.configure(replace(state.settings, oauth=trusted(ClaimRule(can=("see",)))))
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                headers = legacy(there.provider.token(), session)
                answer = await http.post(f"{there.base}/mcp", headers=headers, json=request("tools/list"))
                if answer.status_code == 404:
                    break
                await anyio.sleep(0)


async def test_a_stream_ends_with_the_token_that_opened_it() -> None:
    async with gate(trusted(ClaimRule())) as there, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        session = await open_session(http, there.base, there.provider.token())
        ending = there.provider.token(exp=time.time() - LEEWAY_SECONDS + 1.5)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with http.stream("GET", f"{there.base}/mcp", headers=legacy(ending, session)) as response:
                assert response.status_code == 200
                with pytest.raises(httpx2.HTTPError):
                    async for _ in response.aiter_raw():
                        pass


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def legacy(token: str, session: str = "") -> dict[str, str]:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    return {**headers, "MCP-Protocol-Version": "2025-11-25", **({"Mcp-Session-Id": session} if session else {})}


async def open_session(http: httpx2.AsyncClient, base: str, token: str) -> str:
    client = {"name": "test", "version": "1"}
    hello = request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    answer = await http.post(f"{base}/mcp", headers=legacy(token), json=hello)
    assert answer.status_code == 200, answer.text
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    session = answer.headers["mcp-session-id"]
    await http.post(f"{base}/mcp", headers=legacy(token, session), json=ready)
    return session
