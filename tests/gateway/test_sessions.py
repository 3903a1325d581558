"""Connections to servers that keep state: shared, of one caller, or of one workspace."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from pydantic import FileUrl

from shortlist.access.principal import OWNER, Principal
from shortlist.config.settings import MemoryTransport, ServerSettings, SessionScope, TokenSettings, hash_token
from shortlist.front.requests import RequestContext
from shortlist.front.server import Front
from shortlist.gateway.callers import Caller, client_key, session_of
from shortlist.upstream import sessions
from tests.gateway.support import Fixture, Served, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
TOKENS = {name: TokenSettings(name=name, hash=hash_token(name)) for name in ("ada", "bob")}
PRINCIPALS = {n: Principal(kind="token", name=n, credential=t.hash) for n, t in TOKENS.items()}


class Known(Front):
    """A front whose border recognises one principal."""

    principal = OWNER

    def caller(self, context: RequestContext) -> Caller:
        return replace(super().caller(context), principal=self.principal)


@asynccontextmanager
async def served_with(scope: SessionScope) -> AsyncIterator[tuple[Served, list[Fixture]]]:
    """Serve a stateful server; every connection to it is a new fixture."""
    started: list[Fixture] = []

    def build() -> Any:
        started.append(Fixture("notes"))
        return started[-1].server

    server = ServerSettings(name="notes", transport=MemoryTransport(build=build), sessions=scope)
    async with serve(others={"notes": server}, tokens=TOKENS) as served:
        yield served, started


def client(served: Served, name: str) -> Client:
    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(f"file:///home/{name}"))])

    front = Known(served.gateway)
    front.principal = PRINCIPALS[name]
    return Client(front.server, mode="legacy", list_roots_callback=roots)


async def ask(there: Client, tool: str, **arguments: Any) -> str:
    return words(await there.call_tool("call_tool", {"name": f"notes__{tool}", "arguments": arguments}))


async def test_each_caller_has_a_connection_and_roots_of_its_own() -> None:
    async with (
        served_with("per_principal") as (served, started),
        client(served, "ada") as ada,
        client(served, "bob") as bob,
    ):
        said = [await ask(each, "echo", text="hello") for each in (ada, bob, ada)]
        roots = [await ask(each, "ask_roots") for each in (ada, bob)]
    assert said == ["hello"] * 3
    assert roots == ["file:///home/ada", "file:///home/bob"]
    calls = [[name for name, _ in fixture.calls] for fixture in started]
    assert [] in calls  # the shared connection lists the tools and is not used for calls
    assert ["echo", "echo", "ask_roots"] in calls
    assert ["echo", "ask_roots"] in calls


async def test_a_shared_server_has_one_connection() -> None:
    async with served_with("shared") as (served, _), client(served, "ada") as ada, client(served, "bob") as bob:
        assert [await ask(each, "echo", text="hello") for each in (ada, bob)] == ["hello"] * 2
        assert served.pool._sessions._open == {}


async def test_connections_are_bounded_and_the_least_recently_used_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 1)
    async with (
        served_with("per_principal") as (served, _),
        client(served, "ada") as ada,
        client(served, "bob") as bob,
    ):
        for each in (ada, bob, ada):
            assert await ask(each, "echo", text="hello") == "hello"
        assert list(served.pool._sessions._open) == [("notes", "token:ada")]


def test_a_connection_is_named_by_what_may_share_it() -> None:
    caller = Caller(principal=PRINCIPALS["ada"], era="legacy", session="s1")
    server = ServerSettings(name="notes", transport=MemoryTransport(build=list))
    other = replace(caller, session="s2")
    assert session_of(server, caller, {}) == ("", "")
    rooted = {"notes": client_key(caller)}
    assert session_of(server, caller, rooted) == ("", "")
    assert session_of(server, other, rooted)[0] not in ("", session_of(server, replace(other, session="s3"), rooted)[0])
    assert session_of(replace(server, sessions="shared"), other, rooted) == ("", "")
    assert session_of(replace(server, sessions="per_principal"), caller, {}) == ("token:ada", "")
    assert session_of(replace(server, identity="per_principal"), caller, {}) == ("token:ada", "token:ada")
    by_workspace = replace(server, sessions="per_workspace")
    assert session_of(by_workspace, caller, {}) != session_of(by_workspace, other, {})
    modern = Caller(process="p1")
    assert session_of(by_workspace, modern, {}) != session_of(by_workspace, replace(modern, process="p2"), {})
