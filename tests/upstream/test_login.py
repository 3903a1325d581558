"""A server that needs a login, behind a real authorization server: signed, refreshed, and reported when it ended."""

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from shortlist.cli.grants import StoredGrants
from shortlist.config.settings import HttpTransport
from shortlist.storage.secrets import FileSecrets
from shortlist.upstream import http, login
from shortlist.upstream.errors import UpstreamNeedsAuth
from shortlist.upstream.grants import SHARED, LoginKey, LoginStore, TokenGrant
from shortlist.upstream.login import Logins, LoginTarget, login_target
from shortlist.upstream.oauth import LoginFailed
from shortlist.upstream.pool import UpstreamPool
from tests.servers.protected import Protected, protected_server
from tests.upstream.rough_http import rough_server
from tests.upstream.support import MemoryLogins, Recorder, pool_of, web

pytestmark = pytest.mark.anyio
CALLBACK = "http://127.0.0.1:1/callback"


@pytest.fixture
def wiki() -> Iterator[Protected]:
    with protected_server() as server:
        yield server


async def sign_in(wiki: Protected, grants: LoginStore) -> LoginTarget:
    """Sign in as a person with a browser does."""
    logins, target = Logins(grants), LoginTarget(server="wiki", url=f"{wiki.url}/mcp")
    link = await logins.begin(target, SHARED, CALLBACK)
    async with httpx2.AsyncClient() as browser:
        answer = httpx2.URL((await browser.get(link)).headers["location"]).params
    await logins.finish(answer["state"], answer["code"], answer["iss"])
    return target


@asynccontextmanager
async def signed_in(wiki: Protected, grants: LoginStore) -> AsyncIterator[tuple[UpstreamPool, Recorder]]:
    await sign_in(wiki, grants)
    async with pool_of(web("wiki", f"{wiki.url}/mcp"), logins=Logins(grants)) as running:
        yield running


async def test_logins_read_the_trusted_certificates_once_and_beside_the_event_loop(
    wiki: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await http.trusted()
    monkeypatch.setattr(ssl, "create_default_context", None)  # which a client calls that is given no certificates
    monkeypatch.setattr(httpx2, "create_ssl_context", None)
    logins, target = Logins(MemoryLogins()), LoginTarget(server="wiki", url=f"{wiki.url}/mcp")
    for _ in range(2):
        assert (await logins.begin(target, SHARED, CALLBACK)).startswith("http")
    assert await http.trusted() is context


async def whoami(pool: UpstreamPool) -> str:
    text: str = (await pool.call_tool("wiki", "whoami", {}))["content"][0]["text"]
    return text


async def test_without_a_login_the_server_says_which_command_signs_in(wiki: Protected) -> None:
    async with pool_of(web("wiki", f"{wiki.url}/mcp"), logins=Logins(MemoryLogins())) as (pool, _):
        assert pool.status()["wiki"].state == "needs_auth"
        with pytest.raises(UpstreamNeedsAuth, match="`shortlist login wiki`"):
            await whoami(pool)


async def begun(logins: Logins, target: LoginTarget, principals: Iterable[str]) -> dict[str, str | LoginFailed]:
    """Begin a login for each principal at the same time, and return the links or errors."""
    found: dict[str, str | LoginFailed] = {}

    async def begin(principal: str) -> None:
        try:
            found[principal] = await logins.begin(target, principal, CALLBACK)
        except LoginFailed as error:
            found[principal] = error

    async with anyio.create_task_group() as tasks:
        for principal in principals:
            tasks.start_soon(begin, principal)
    return found


async def test_principals_share_the_discovery_of_a_server_and_no_login(wiki: Protected) -> None:
    grants, target = MemoryLogins(), LoginTarget(server="wiki", url=f"{wiki.url}/mcp")
    logins = Logins(grants)
    links = await begun(logins, target, [f"token:{number}" for number in range(10)])
    assert wiki.discoveries == 1
    asked = {principal: httpx2.URL(str(link)).params for principal, link in links.items()}
    for member in ("state", "client_id", "code_challenge"):
        assert len({params[member] for params in asked.values()}) == 10
    async with httpx2.AsyncClient() as browser:
        answer = httpx2.URL((await browser.get(str(links["token:3"]))).headers["location"]).params
    await logins.finish(answer["state"], answer["code"], answer["iss"])
    keys = [LoginKey(principal, "wiki", target.resource) for principal in links]
    assert [key.principal for key in keys if await grants.get(key) is not None] == ["token:3"]


async def test_a_discovery_that_fails_starts_no_login_of_anybody_and_is_tried_again_later(
    wiki: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "DISCOVERED_SECONDS", 0.0)
    wiki.is_broken = True
    logins, target = Logins(MemoryLogins()), LoginTarget(server="wiki", url=f"{wiki.url}/mcp")
    failed = await begun(logins, target, ("token:a", "token:b"))
    assert all(isinstance(error, LoginFailed) for error in failed.values())
    assert (wiki.discoveries, len(wiki.clients)) == (1, 0)
    wiki.is_broken = False
    await anyio.wait_all_tasks_blocked()
    links = await begun(logins, target, ("token:a",))
    assert str(links["token:a"]).startswith("http")
    assert wiki.discoveries == 2


async def test_the_state_of_a_login_tells_which_gateway_began_it(wiki: Protected) -> None:
    logins, target = Logins(MemoryLogins(), mark="r7-"), LoginTarget(server="wiki", url=f"{wiki.url}/mcp")
    state = httpx2.URL(await logins.begin(target, SHARED, CALLBACK)).params["state"]
    assert state.startswith("r7-")
    assert logins.expects(state)


async def test_twenty_calls_with_an_expired_token_are_answered_after_one_refresh(
    wiki: Protected, tmp_path: Path
) -> None:
    async with signed_in(wiki, StoredGrants(FileSecrets(tmp_path))) as (pool, recorder):
        assert await whoami(pool) == "you are signed in"
        wiki.expire()
        answers: list[str] = []

        async def call() -> None:
            answers.append(await whoami(pool))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
        assert answers == ["you are signed in"] * 20
        assert wiki.refreshes == 1
        assert len(wiki.called_with) == 21
        assert recorder.states("wiki") == ["ready"]


async def test_a_token_near_its_end_is_refreshed_before_it_is_used(wiki: Protected) -> None:
    wiki.expires_in = 30
    grants = MemoryLogins()
    target = await sign_in(wiki, grants)
    first = await grants.get(LoginKey(SHARED, "wiki", target.resource))
    wiki.expires_in = 3600
    async with pool_of(web("wiki", f"{wiki.url}/mcp"), logins=Logins(grants)) as (pool, _):
        await whoami(pool)
    assert wiki.refreshes == 1
    assert first is not None
    assert first.access_token not in wiki.called_with


async def test_a_revoked_login_is_reported_as_one_to_renew(wiki: Protected) -> None:
    grants = MemoryLogins()
    async with signed_in(wiki, grants) as (pool, recorder):
        wiki.revoke()
        with pytest.raises(UpstreamNeedsAuth, match="`shortlist login wiki`"):
            await whoami(pool)
        await recorder.state("wiki", "needs_auth")
        assert "`shortlist login wiki`" in str(pool.status()["wiki"].error)
        await sign_in(wiki, grants)
        pool.refresh("wiki")
        await recorder.until(lambda _: pool.status()["wiki"].state == "ready")
        assert await whoami(pool) == "you are signed in"


async def test_a_login_that_another_process_has_renewed_is_kept(wiki: Protected, tmp_path: Path) -> None:
    grants, theirs = StoredGrants(FileSecrets(tmp_path)), StoredGrants(FileSecrets(tmp_path))
    target = await sign_in(wiki, grants)
    key = LoginKey(SHARED, "wiki", target.resource)
    used = await grants.get(key)
    assert used is not None
    renewed = await Logins(theirs).renewed(target, key, used)
    assert renewed is not None
    assert await Logins(grants).renewed(target, key, used) == renewed
    assert wiki.refreshes == 1


class Late(MemoryLogins):
    """Grants in which another process's renewal becomes visible only after the first read."""

    def __init__(self, old: TokenGrant) -> None:
        super().__init__()
        self._first: TokenGrant | None = old

    async def get(self, key: LoginKey) -> TokenGrant | None:
        first, self._first = self._first, None
        return first or await super().get(key)


async def test_a_refresh_that_lost_against_another_process_does_not_remove_the_login(wiki: Protected) -> None:
    theirs = MemoryLogins()
    target = await sign_in(wiki, theirs)
    key = LoginKey(SHARED, "wiki", target.resource)
    used = await theirs.get(key)
    assert used is not None
    renewed = await Logins(theirs).renewed(target, key, used)
    assert renewed is not None
    ours = Late(used)
    await ours.put(key, renewed)
    assert await Logins(ours).renewed(target, key, used) == renewed
    assert await ours.get(key) == renewed
    assert wiki.refreshes == 2


async def test_an_answer_to_no_login_or_of_another_issuer_is_refused(wiki: Protected) -> None:
    grants = MemoryLogins()
    logins, target = Logins(grants), LoginTarget(server="wiki", url=f"{wiki.url}/mcp")
    link = await logins.begin(target, SHARED, CALLBACK)
    with pytest.raises(LoginFailed, match="expired or was already used"):
        await logins.finish("guessed", "code", wiki.url)
    with pytest.raises(LoginFailed, match="not who was asked"):
        await logins.finish(httpx2.URL(link).params["state"], "code", "https://evil.example")
    assert await grants.get(LoginKey(SHARED, "wiki", target.resource)) is None


async def test_a_damaged_file_of_logins_affects_only_servers_that_need_one(
    wiki: Protected, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = FileSecrets(tmp_path)
    secrets.path.write_text("{ damaged")
    async with (
        rough_server("legacy") as free,
        pool_of(web("wiki", f"{wiki.url}/mcp"), web("free", free.url), logins=Logins(StoredGrants(secrets))) as (
            pool,
            _,
        ),
    ):
        assert (await pool.call_tool("free", "echo", {"text": "hi"}))["content"]
        status = pool.status()["wiki"]
        assert status.state == "failed"
        assert str(secrets.path) in str(status.error)
    assert caplog.text.count("sent without a login") == 1
    assert secrets.path.read_text() == "{ damaged"


async def test_configured_credentials_are_never_replaced_by_a_login() -> None:
    configured = HttpTransport(url="https://example.com/mcp", headers={"authorization": "Bearer mine"})
    assert login_target("wiki", configured) is None
