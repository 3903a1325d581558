"""Who is let in, and what a page of somebody else can do: nothing."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from shortlist.access.jwt import LEEWAY_SECONDS
from shortlist.cli.adding import ConfigEditor
from shortlist.config.settings import ClaimRule
from shortlist.web.access import SESSION_SECONDS
from shortlist.web.app import DOWNLOADS, PAGES
from shortlist.web.controls import Controls
from tests.access.issuer import trusted
from tests.gateway.support import DEADLINE_SECONDS, Fixture
from tests.web.support import TOKENS, visiting

pytestmark = pytest.mark.anyio
ADDRESSES = [
    path.replace("{server:path}", "alpha").replace("{tool:path}", "alpha/add")
    for path in PAGES
    if path not in ("/activity/feed", "/activity/{event}", "/experiments/{experiment:path}")
]


@pytest.mark.parametrize("path", [*ADDRESSES, *DOWNLOADS, "/nowhere"])
async def test_without_a_session_a_page_shows_nothing(path: str) -> None:
    async with visiting(Fixture("alpha")) as visitor:
        answer = await visitor.http.get(path)
    assert answer.status_code == 401
    assert "alpha" not in answer.text
    assert "shortlist dashboard" in answer.text


@pytest.mark.parametrize("path", ADDRESSES)
async def test_a_session_opens_every_page(path: str, tmp_path: Path) -> None:
    controls = Controls(editor=ConfigEditor(tmp_path / "config.json"))
    async with visiting(Fixture("alpha"), controls=controls) as visitor:
        await visitor.enter()
        page = await visitor.read(path)
    assert "Playground" in page.words
    assert page.inline() == []
    clients = ("cursor://anysphere.cursor-deeplink/mcp/install?", "vscode:mcp/install?")
    assert all(link.startswith(("/", "#", *clients)) for link in page.links())


async def test_a_link_opens_once_and_its_cookie_is_kept_from_scripts_and_other_sites() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        link = f"/open?key={visitor.access.link()}"
        opened = await visitor.http.get(link)
        cookie = opened.headers["set-cookie"]
        again = await visitor.http.get(link)
        inside = await visitor.http.get("/servers")
    assert opened.status_code == 200
    assert cookie.startswith(visitor.access.cookie)
    for part in ("HttpOnly", "SameSite=strict", f"Max-Age={SESSION_SECONDS:.0f}", "Path=/"):
        assert part in cookie
    assert again.status_code == 401
    assert "already been used" in again.text
    assert inside.status_code == 200


@pytest.mark.parametrize("path", ["/servers", "/nowhere", "/static/dashboard.css", "/open?key=x", "/static/none.css"])
async def test_every_answer_trusts_nothing_but_our_own_files(path: str) -> None:
    async with visiting(Fixture("alpha")) as visitor:
        strangers = await visitor.http.get(path)
        await visitor.enter()
        ours = await visitor.http.get(path)
    for answer in (strangers, ours):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403)]
)
async def test_a_page_elsewhere_cannot_reach_the_dashboard(headers: dict[str, str], status: int) -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        answer = await visitor.http.get("/servers", headers=headers)
    assert answer.status_code == status


async def test_a_token_opens_a_session_and_a_wrong_one_does_not() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta"), tokens=TOKENS) as visitor:
        asked = await visitor.http.get("/servers")
        wrong = await visitor.sign_in("guessed")
        empty = await visitor.sign_in("")
        right = await visitor.sign_in(" ada-secret ")
        inside = await visitor.read("/servers")
    assert "Sign in with the token" in asked.text
    assert {asked.status_code, wrong.status_code, empty.status_code} == {401}
    assert right.status_code == 200
    assert "ada-secret" not in right.text
    assert "alpha" in inside.words


async def test_a_bearer_token_is_good_for_looking() -> None:
    async with visiting(Fixture("alpha"), tokens=TOKENS) as visitor:
        answer = await visitor.http.get("/servers", headers={"Authorization": "Bearer ada-secret"})
        wrong = await visitor.http.get("/servers", headers={"Authorization": "Bearer nobody"})
    assert answer.status_code == 200
    assert wrong.status_code == 401


async def test_an_access_token_of_an_issuer_opens_a_session_with_the_rights_of_its_rule() -> None:
    rules = (
        ClaimRule(claim="groups", values=("admins",)),
        ClaimRule(claim="groups", values=("beta",), servers=("beta",)),
    )
    async with visiting(Fixture("alpha"), Fixture("beta"), oauth=trusted(*rules)) as visitor:
        closed = await visitor.http.get("/servers")
        whole = await visitor.sign_in(visitor.provider.token(groups=["admins"]))
        everything = await visitor.read("/servers")
        await visitor.sign_in(visitor.provider.token(groups=["beta"]))
        part = await visitor.read("/servers")
        recorded = await visitor.http.get("/activity")
    assert closed.status_code == 401
    assert "Sign in with the token" in closed.text
    assert whole.status_code == 200
    assert "alpha" in everything.words
    assert "beta" in part.words
    assert "alpha" not in part.words
    assert recorded.status_code == 403


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": time.time() - 3_600}, "expired"),
        ({"aud": "https://elsewhere.example"}, "another service"),
        ({"iss": "https://other.example"}, "not trusted"),
        ({"groups": ["strangers"]}, "no rule"),
    ],
)
async def test_an_access_token_that_is_not_valid_opens_no_page(claims: dict[str, Any], reason: str) -> None:
    rule = ClaimRule(claim="groups", values=("admins",))
    async with visiting(Fixture("alpha"), oauth=trusted(rule)) as visitor:
        token = visitor.provider.token(**{"groups": ["admins"], **claims})
        refused = await visitor.sign_in(token)
        bearing = [
            await visitor.http.get(path, headers={"Authorization": f"Bearer {token}"})
            for path in (*ADDRESSES, *DOWNLOADS)
        ]
        after = await visitor.http.get("/servers")
    assert refused.status_code == after.status_code == 401
    assert reason in refused.text
    assert token not in refused.text
    assert {answer.status_code for answer in bearing} == {401}
    assert not any("alpha" in answer.text for answer in bearing)


async def test_a_session_ends_with_the_access_token_that_opened_it() -> None:
    async with visiting(Fixture("alpha"), oauth=trusted(ClaimRule())) as visitor:
        await visitor.sign_in(visitor.provider.token(exp=time.time() - LEEWAY_SECONDS + 2))
        with anyio.fail_after(DEADLINE_SECONDS):
            while (await visitor.http.get("/servers")).status_code == 200:
                await anyio.sleep(0.05)


async def test_a_change_of_the_issuers_rules_ends_the_sessions_it_opened() -> None:
    async with visiting(Fixture("alpha"), oauth=trusted(ClaimRule())) as visitor:
        await visitor.sign_in(visitor.provider.token())
        before = await visitor.http.get("/servers")
        state = visitor.served.gateway.state
        await state.configure(replace(state.settings, oauth=trusted(ClaimRule(can=("see",)))))
        after = await visitor.http.get("/servers")
    assert (before.status_code, after.status_code) == (200, 401)


async def test_a_link_opens_nothing_where_there_are_tokens() -> None:
    async with visiting(Fixture("alpha"), tokens=TOKENS) as visitor:
        await visitor.enter()
        answer = await visitor.http.get("/servers")
    assert answer.status_code == 401


async def test_signing_out_ends_the_session_for_good() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        cookies = dict(visitor.http.cookies)
        forged = await visitor.post("/sign-out", csrf="guessed")
        still = await visitor.http.get("/servers")
        await visitor.post("/sign-out", csrf=await visitor.csrf())
        after = await visitor.http.get(
            "/servers", headers={"Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())}
        )
    assert forged.status_code == 303
    assert still.status_code == 200
    assert after.status_code == 401


async def test_a_session_ends_in_time() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        visitor.clock.now += SESSION_SECONDS + 1
        answer = await visitor.http.get("/servers")
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:9999"},  # another program on this machine: the same site, but not ours
        {"Origin": "http://localhost:8765"},
        {"Origin": "null"},
    ],
)
async def test_what_changes_something_is_taken_only_from_our_own_pages(headers: dict[str, str]) -> None:
    fixture = Fixture("alpha")
    async with visiting(fixture) as visitor:
        await visitor.enter()
        csrf = await visitor.csrf()
        answer = await visitor.post("/servers/alpha/reconnect", headers=headers, csrf=csrf)
        forged = await visitor.post("/servers/alpha/reconnect", csrf="guessed")
        long = await visitor.post("/servers/alpha/reconnect", csrf=csrf, more="x" * 100_000)
        real = await visitor.post("/servers/alpha/reconnect", csrf=csrf)
    assert {answer.status_code, forged.status_code, long.status_code} == {403}
    assert real.status_code == 303
    assert real.headers["location"] == "/servers/alpha"


async def test_a_changing_address_does_nothing_when_it_is_only_visited() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        answer = await visitor.http.get("/servers/alpha/reconnect")
    assert answer.status_code == 404
