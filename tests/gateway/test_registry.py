"""The servers behind a gateway as a registry: the published format, and to each caller only what it can reach."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from shortlist.config.clients.registry import is_usable, offers, read_server
from shortlist.config.settings import TokenSettings, hash_token
from shortlist.front.border import Border
from shortlist.front.http import build_app
from shortlist.front.registry import registry_routes
from tests.gateway.support import Fixture, serve

pytestmark = pytest.mark.anyio
BASE = "http://127.0.0.1:8765"
TOKENS = {
    "ada": TokenSettings(name="ada", hash=hash_token("ada-secret")),
    "bob": TokenSettings(name="bob", hash=hash_token("bob-secret"), servers=("beta",)),
    "eve": TokenSettings(name="eve", hash=hash_token("eve-secret"), can=("prompts",)),
}


@asynccontextmanager
async def registry(token: str | None = None, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with serve(Fixture("alpha"), Fixture("beta"), Fixture("sea side"), **settings) as served:
        state = served.gateway.state
        border = Border(state, token_required=False)
        app = build_app(served.front, "127.0.0.1", registry_routes(state, border), border)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as http:
            yield http


def names(answer: httpx2.Response) -> list[str]:
    return [each["server"]["name"] for each in answer.json()["servers"]]


async def test_every_server_is_listed_in_the_published_format() -> None:
    async with registry() as http:
        answer = await http.get("/v0.1/servers")
    assert names(answer) == ["local.shortlist/alpha", "local.shortlist/beta", "local.shortlist/sea-side"]
    first = answer.json()["servers"][0]
    assert first["server"]["description"] == "The alpha fixture."
    assert first["server"]["version"] == "1"
    assert first["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"] is True
    assert is_usable(first)
    offer = offers(read_server(first, BASE))[0]
    assert offer.entry({}) == {"type": "http", "url": f"{BASE}/mcp"}


async def test_a_list_is_searched_and_paged() -> None:
    async with registry() as http:
        found = await http.get("/v0.1/servers", params={"search": "BETA"})
        seen, cursor = [], ""
        while True:
            page = await http.get("/v0.1/servers", params={"limit": 1, "version": "latest", "cursor": cursor})
            assert page.json()["metadata"]["count"] == 1
            seen += names(page)
            cursor = page.json()["metadata"].get("nextCursor", "")
            if not cursor:
                break
        wrong = [await http.get("/v0.1/servers", params={"limit": limit}) for limit in ("0", "101", "many")]
    assert names(found) == ["local.shortlist/beta"]
    assert seen == ["local.shortlist/alpha", "local.shortlist/beta", "local.shortlist/sea-side"]
    assert [each.status_code for each in wrong] == [422] * 3
    assert "'many'; pass a number from 1 to 100" in wrong[2].json()["detail"]


async def test_a_server_is_found_by_its_name_and_version() -> None:
    path = f"/v0.1/servers/{quote('local.shortlist/beta', safe='')}/versions"
    async with registry() as http:
        assert names(await http.get(path)) == ["local.shortlist/beta"]
        for version in ("latest", "1"):
            found = await http.get(f"{path}/{version}")
            assert found.json()["server"]["name"] == "local.shortlist/beta"
        for missing in (f"{path}/2", "/v0.1/servers/local.shortlist%2Fgamma/versions", "/v0.1/servers/x/versions/1"):
            answer = await http.get(missing)
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"


async def test_a_caller_sees_only_the_servers_in_its_reach() -> None:
    async with registry("bob-secret", tokens=TOKENS) as http:
        listed = await http.get("/v0.1/servers")
        hidden = await http.get("/v0.1/servers/local.shortlist%2Falpha/versions/latest")
    assert names(listed) == ["local.shortlist/beta"]
    assert hidden.status_code == 404
    entry = listed.json()["servers"][0]
    needs = offers(read_server(entry, BASE))[0].asks
    assert [(need.name, need.secret, need.required) for need in needs] == [("token", True, True)]
    async with registry("eve-secret", tokens=TOKENS) as http:
        assert names(await http.get("/v0.1/servers")) == []


async def test_without_a_token_nothing_is_listed_where_tokens_are_configured() -> None:
    for token in (None, "guessed"):
        async with registry(token, tokens=TOKENS) as http:
            for path in ("/v0.1/servers", "/v0.1/servers/a/versions", "/v0.1/servers/a/versions/latest"):
                answer = await http.get(path)
                assert answer.status_code == 401
                assert "alpha" not in json.dumps(answer.text)
