"""A server that needs a login in the middle of a call: a real gateway, a real authorization server, a real link."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError

from shortlist.cli.grants import StoredGrants, open_logins
from shortlist.cli.stack import Stack, open_stack
from shortlist.config.settings import HttpTransport, SearchSettings, ServerSettings, Settings, TelemetrySettings
from shortlist.gateway.view import ServeOptions
from shortlist.paths import data_folder
from shortlist.storage.local import open_local
from shortlist.storage.secrets import FileSecrets
from shortlist.upstream.grants import SHARED, LoginKey
from shortlist.upstream.login import login_target
from tests.gateway.support import MODES, Era, words
from tests.servers.protected import Protected, protected_server

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
SECONDS = 120


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def wiki(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Protected]:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    with protected_server() as server:
        yield server


def browse(link: str) -> None:
    """Open a link as a person does who signs in."""
    answer = httpx2.get(link, follow_redirects=True)
    assert answer.status_code == 200, answer.text


@asynccontextmanager
async def gateway(wiki: Protected) -> AsyncIterator[Stack]:
    """Serve the wiki: signed in at first, and then no more."""
    entry = ServerSettings(name="wiki", transport=HttpTransport(url=f"{wiki.url}/mcp"))
    settings = Settings(
        servers={"wiki": entry},
        search=SearchSettings(embedder="none"),
        telemetry=TelemetrySettings(enabled=False),
    )
    with anyio.fail_after(SECONDS):
        async with open_stack(settings, ServeOptions()) as stack:
            start = stack.gateway.state.seams.sign_in
            assert start is not None
            login = await start("wiki", SHARED)
            await anyio.to_thread.run_sync(browse, login.url)
            await login.done.wait()
            while "wiki/whoami" not in stack.gateway.state.everything.catalog.tools:
                await anyio.sleep(0.01)
            wiki.revoke()
            while stack.pool.states["wiki"] != "needs_auth":
                async with client_of(stack, "legacy") as client:
                    await outcome(client)
            yield stack


def client_of(stack: Stack, era: Era, **more: Any) -> Client:
    return Client(stack.front.server, mode=MODES[era], **more)


async def outcome(client: Client) -> Any:
    """Return the result of a call, or the error."""
    try:
        return await client.call_tool("call_tool", {"name": "wiki__whoami", "arguments": {}})
    except MCPError as error:
        return error


async def test_a_modern_client_is_asked_to_open_the_link_and_the_call_goes_on(wiki: Protected) -> None:
    asked: list[Any] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        await anyio.to_thread.run_sync(browse, params.url)
        return types.ElicitResult(action="accept")

    async with gateway(wiki) as stack, client_of(stack, "modern", elicitation_callback=person) as client:
        result = await outcome(client)
    assert words(result) == "you are signed in"
    assert [(params.mode, params.message) for params in asked] == [("url", "Sign in to 'wiki' to go on.")]


async def test_a_legacy_client_gets_the_error_with_the_link_and_calls_again(wiki: Protected) -> None:
    async def person(_: Any, __: Any) -> types.ElicitResult:
        raise AssertionError("a legacy client is not asked by a request")

    async with gateway(wiki) as stack, client_of(stack, "legacy", elicitation_callback=person) as client:
        refused = await outcome(client)
        assert isinstance(refused, MCPError)
        (link,) = refused.error.data["elicitations"]
        await anyio.to_thread.run_sync(browse, link["url"])
        while stack.pool.states["wiki"] != "ready":
            await anyio.sleep(0.01)
        result = await outcome(client)
    assert refused.error.code == -32042
    assert link["mode"] == "url"
    assert words(result) == "you are signed in"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_can_open_no_links_gets_the_link_in_the_refusal(wiki: Protected, era: Era) -> None:
    async with gateway(wiki) as stack, client_of(stack, era) as client:
        refused = words(await outcome(client))
        assert "it needs a login. Open http" in refused
        link = refused.partition("Open ")[2].partition(" in a browser")[0]
        await anyio.to_thread.run_sync(browse, link)
        while stack.pool.states["wiki"] != "ready":
            await anyio.sleep(0.01)
        assert words(await outcome(client)) == "you are signed in"


async def test_a_person_who_declines_ends_the_call(wiki: Protected) -> None:
    async def person(_: Any, __: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with gateway(wiki) as stack, client_of(stack, "modern", elicitation_callback=person) as client:
        assert "which the user did not start" in words(await outcome(client))


async def test_calls_that_need_a_login_at_the_same_time_start_one(wiki: Protected) -> None:
    links: set[str] = set()

    async def call(client: Client) -> None:
        links.add(words(await outcome(client)).partition("Open ")[2].partition(" in a browser")[0])

    async with gateway(wiki) as stack, client_of(stack, "modern") as client:
        await call(client)
        await anyio.to_thread.run_sync(browse, links.pop())
        while stack.pool.states["wiki"] != "ready":
            await anyio.sleep(0.01)
        wiki.revoke()
        clients, discoveries = len(wiki.clients), wiki.discoveries
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call, client)
        assert len(wiki.clients) == clients + 1
        assert wiki.discoveries <= discoveries + 1
        (link,) = links
        assert link.startswith("http")


PROCESS = """
import asyncio, sys
from shortlist.cli.grants import open_logins
from shortlist.storage.local import open_local
from shortlist.upstream.grants import SHARED, LoginKey
from shortlist.upstream.login import LoginTarget

async def main():
    target = LoginTarget(server="wiki", url=sys.argv[1])
    logins, key = open_logins(open_local()), LoginKey(SHARED, "wiki", target.resource)
    print("ready", flush=True)
    sys.stdin.readline()
    found = await asyncio.gather(*(logins.usable(target, key) for _ in range(25)))
    print(*{grant.access_token for grant in found})

asyncio.run(main())
"""


async def test_two_processes_use_one_refresh_and_do_not_destroy_the_refresh_token(wiki: Protected) -> None:
    target = login_target("wiki", HttpTransport(url=f"{wiki.url}/mcp"))
    assert target is not None
    grants, key = StoredGrants(FileSecrets(data_folder())), LoginKey(SHARED, "wiki", target.resource)
    async with gateway(wiki) as stack:
        start = stack.gateway.state.seams.sign_in
        assert start is not None
        login = await start("wiki", SHARED)
        await anyio.to_thread.run_sync(browse, login.url)
        await login.done.wait()
    grant, before = await grants.get(key), wiki.refreshes
    assert grant is not None
    await grants.put(key, replace(grant, expires_at=1.0))
    used = await anyio.to_thread.run_sync(race, wiki.url)
    assert len(used) == 1
    assert wiki.refreshes == before + 1
    again = await open_logins(open_local()).renewed(target, key, await grants.get(key) or grant)
    assert again is not None


def race(url: str) -> set[str]:
    """Let two processes ask for a token at the same time, and return the tokens that they got."""
    command = [sys.executable, "-c", PROCESS, f"{url}/mcp"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as two:
        for process in (one, two):
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=SECONDS)[0] for process in (one, two)]
    return {token for text in said for token in text.split()}
