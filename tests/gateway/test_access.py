"""What a new configuration changes for those who are connected, and what a scope is made of."""

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp.client.subscriptions import SubscriptionLost

from shortlist.access.principal import OWNER, Principal
from shortlist.access.scope import scopes_of
from shortlist.config.settings import (
    Limits,
    MemoryTransport,
    ServerSettings,
    Settings,
    TokenSettings,
    ToolOverride,
    ToolsetSettings,
    hash_token,
)
from shortlist.errors import InvalidConfig
from shortlist.front import notices as notices_module
from shortlist.front.notices import MOST_UNREAD, MOST_WAITING, SENT_AT_ONCE, Notice, Notices
from shortlist.gateway.changes import ListChanged
from shortlist.gateway.state import Seams
from shortlist.gateway.tasks import BackgroundTasks, Work
from shortlist.gateway.view import ServeOptions
from shortlist.models import Tool
from shortlist.upstream.events import Notified, ToolsChanged
from tests.gateway.support import DEADLINE_SECONDS, Fixture, Served, schema, serve, words
from tests.gateway.test_http import connect, listening
from tests.gateway.test_modes import small

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ADA = TokenSettings(name="ada", hash=hash_token("ada-secret"))
BOB = TokenSettings(name="bob", hash=hash_token("bob-secret"))


def server(name: str, **more: Any) -> ServerSettings:
    return ServerSettings(name=name, transport=MemoryTransport(build=lambda: None), **more)


def scoped(token: TokenSettings, toolset: ToolsetSettings | None, *servers: ServerSettings) -> Any:
    toolsets = {toolset.name: toolset} if toolset else {}
    settings = Settings(servers={each.name: each for each in servers}, toolsets=toolsets, tokens={token.name: token})
    return scopes_of(settings)[f"token:{token.name}"]


# Scopes


@pytest.mark.parametrize(
    ("toolset", "covered", "outside"),
    [
        (ToolsetSettings(name="t", servers=("a",)), "a/x", "b/x"),
        (ToolsetSettings(name="t", tools=("a/re*",)), "a/read", "a/write"),
        (ToolsetSettings(name="t", tags=("safe",)), "a/x", "b/x"),
        (ToolsetSettings(name="t", categories=("docs",)), "b/x", "a/x"),
        (ToolsetSettings(name="t", effects=("read_only",)), "a/read", "a/write"),
        (ToolsetSettings(name="t", effects=("write",)), "a/wipe", "a/read"),
        (ToolsetSettings(name="t", servers=("b",), tools=("*/read",)), "b/read", "a/read"),
    ],
)
def test_a_toolset_in_a_scope_is_what_the_configuration_says(
    toolset: ToolsetSettings, covered: str, outside: str
) -> None:
    tools = {"read": ToolOverride(effect="read_only"), "wipe": ToolOverride(effect="destructive")}
    a, b = server("a", tags=("safe",), tools=tools), server("b", categories=("docs",))
    scope = scoped(replace(ADA, toolsets=("t",)), toolset, a, b)
    assert scope.covers(covered)
    assert not scope.covers(outside)


@pytest.mark.parametrize(
    ("toolset", "why"),
    [
        (ToolsetSettings(name="t", tags=("safe",)), "no server in the configuration has the tag 'safe'"),
        (ToolsetSettings(name="t", categories=("docs",)), "no server in the configuration has the category 'docs'"),
        (ToolsetSettings(name="t", effects=("read_only",)), "no tool is configured with the effect read_only"),
        (ToolsetSettings(name="t", used_with=("a/x",)), "'used_with' follows what other callers do"),
    ],
)
async def test_a_token_limited_by_what_servers_say_of_themselves_is_a_configuration_error(
    toolset: ToolsetSettings, why: str
) -> None:
    tokens = {"ada": replace(ADA, toolsets=("t",))}
    with pytest.raises(InvalidConfig, match=rf"Token 'ada' is limited by toolset 't'.*{why}"):
        async with serve(small("a", "echo"), tokens=tokens, toolsets={"t": toolset}):
            pass


def test_a_token_without_limits_covers_everything_and_one_with_empty_limits_nothing() -> None:
    assert scoped(ADA, None, server("a")).covers("a/x")
    assert not scoped(replace(ADA, servers=()), None, server("a")).covers("a/x")


@pytest.mark.parametrize(
    ("principal", "tokens", "current"),
    [
        (OWNER, {"ada": ADA}, True),
        (Principal(anonymous=True), {}, True),
        (Principal(anonymous=True), {"ada": ADA}, False),
        (Principal(kind="token", name="ada", credential=ADA.hash), {"ada": ADA}, True),
        (Principal(kind="token", name="ada", credential=BOB.hash), {"ada": ADA}, False),
        (Principal(kind="token", name="ada", credential=ADA.hash), {}, False),
        (Principal(kind="nobody", name="nobody"), {}, False),
    ],
)
def test_a_principal_counts_only_while_it_would_be_let_in(
    principal: Principal, tokens: dict[str, TokenSettings], current: bool
) -> None:
    assert principal.is_current(Settings(tokens=tokens)) is current


# A new configuration


async def configure(served: Served, **changes: Any) -> Any:
    return await served.gateway.configure(replace(served.gateway.state.settings, **changes))


async def test_a_configuration_that_renames_an_excluded_toolset_is_refused_whole() -> None:
    toolsets = {"private": ToolsetSettings(name="private", tools=("a/add",))}
    options = ServeOptions(mode="search", exclude=("private",))
    async with serve(small("a", "echo", "add"), toolsets=toolsets, options=options) as served:
        before = served.gateway.state.everything
        with pytest.raises(InvalidConfig, match="No toolset 'private', which --exclude names"):
            await configure(
                served, toolsets={"hidden": ToolsetSettings(name="hidden", tools=("a/add",))}, mode="dynamic"
            )
        assert served.gateway.state.everything is before
        assert "a/add" not in served.gateway.state.reach(OWNER)


async def test_a_token_that_is_gone_reaches_nothing() -> None:
    ada = Principal(kind="token", name="ada", credential=ADA.hash)
    async with serve(small("a", "echo"), tokens={"ada": ADA, "bob": BOB}) as served:
        assert "a/echo" in served.gateway.state.reach(ada)
        reload = await configure(served, tokens={"bob": BOB})
        assert "a/echo" not in served.gateway.state.reach(ada)
    assert reload.changes == ("tokens: removed ada",)


async def test_new_limits_hold_at_once_and_are_named() -> None:
    async with serve(Fixture("a")) as served, served.client() as client:
        call = {"name": "a__long", "arguments": {"size": 100}}
        whole = words(await client.call_tool("call_tool", call))
        reload = await configure(served, limits=Limits(result_characters=200))
        paged = words(await client.call_tool("call_tool", call))
    assert "read_result" not in whole
    assert "read_result" in paged
    assert reload.changes == ("limits: result_characters 20,000 → 200",)


async def test_names_that_match_nothing_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    tokens = {"ada": replace(ADA, servers=("nix",), toolsets=("nothing",))}
    toolsets = {"t": ToolsetSettings(name="t", servers=("gone",))}
    with caplog.at_level(logging.WARNING):
        async with serve(
            small("a", "echo"), tokens=tokens, toolsets=toolsets, always_load=("nowhere__x",), intents={"i": ("none",)}
        ) as served:
            problems = served.gateway.state.everything.problems
    assert set(problems) == {
        "token 'ada': no server 'nix'",
        "token 'ada': no toolset 'nothing'",
        "toolset 't': no server 'gone'",
        "always_load 'nowhere__x': no server 'nowhere'",
        "intent 'i': no toolset 'none'",
    }
    assert "token 'ada': no server 'nix'" in caplog.text


async def test_excluding_what_servers_say_of_themselves_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    claimed = ToolsetSettings(name="writers", effects=("write",), tags=("danger",))
    written = ToolsetSettings(name="sure", tools=("a/write_*",))
    options = ServeOptions(exclude=("writers", "sure", "a"))
    with caplog.at_level(logging.WARNING):
        async with serve(small("a", "echo"), options=options, toolsets={"writers": claimed, "sure": written}):
            pass
    assert "--exclude 'writers' hides tools by effects and tags, which servers may state themselves" in caplog.text
    assert "'sure'" not in caplog.text


async def test_what_is_checked_on_the_event_loop_needs_no_scoped_catalog() -> None:
    tokens = {"ada": replace(ADA, servers=("a",))}
    ada = Principal(kind="token", name="ada", credential=ADA.hash)
    async with serve(small("a", "echo"), small("b", "add"), tokens=tokens) as served:
        view = served.gateway.state.everything
        reached = {name: view.tool_in_reach(ada, name) is not None for name in ("a__echo", "b__add", "nothing")}
        servers = {name: view.server_in_reach(ada, name) for name in ("a", "b")}
        assert view.scope(ada) not in view.scoped_catalogs
        scoped = view.scoped(ada)
    assert (
        reached
        == {name: scoped.named(name) is not None for name in reached}
        == {
            "a__echo": True,
            "b__add": False,
            "nothing": False,
        }
    )
    assert servers == {name: scoped.has_server(name) for name in servers} == {"a": True, "b": False}


async def test_title_and_categories_of_a_configured_server_reach_the_catalog() -> None:
    async with serve(small("a", "echo")) as served:
        settings = served.gateway.state.settings.servers["a"]
        named = replace(settings, title="Archive", categories=("documents",))
        await configure(served, servers={"a": named})
        found = served.gateway.state.reach(OWNER).server("a")
    assert found is not None
    assert (found.title, found.categories) == ("Archive", ("documents",))


async def test_the_streams_of_a_revoked_token_end_and_others_stay_open() -> None:
    tokens = {"ada": ADA, "bob": BOB}
    async with (
        serve(Fixture("a"), tokens=tokens) as served,
        listening(served) as base,
        connect(f"{base}/mcp", "modern", "ada-secret") as ada,
        connect(f"{base}/mcp", "modern", "bob-secret") as bob,
        connect(f"{base}/mcp", "legacy", "ada-secret") as old,
        bob.listen(tools_list_changed=True),
    ):
        await old.list_tools()
        refused: list[str] = []

        async def wait(client: Any) -> None:
            try:
                await client.call_tool("call_tool", {"name": "a__wait", "arguments": {}})
            except MCPError as error:
                refused.append(error.error.message)

        async def listen() -> None:
            with suppress(SubscriptionLost, MCPError):
                async with ada.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        pass
            refused.append("stream ended")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, ada)
            tasks.start_soon(listen)
            tasks.start_soon(wait, old)
            with anyio.fail_after(DEADLINE_SECONDS):
                await served.fixtures["a"].waiting.wait()
                while len(served.front.audience._streams) < 2:
                    await anyio.sleep(0)
            await configure(served, tokens={"bob": BOB})
            with anyio.fail_after(DEADLINE_SECONDS):
                while len(refused) < 3:
                    await anyio.sleep(0.01)
        assert [caller.name for caller, _ in served.front.audience._streams.values()] == ["bob"]
        assert await bob.list_tools(cache_mode="bypass")
    assert "stream ended" in refused


async def test_a_malformed_notification_of_a_server_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serve(Fixture("a")) as served, served.client("legacy") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "call_tool", {"name": "a__wait", "arguments": {}})
            with anyio.fail_after(DEADLINE_SECONDS):
                await served.fixtures["a"].waiting.wait()
            served.gateway.state.announce(Notified(server="a", method="notifications/message", params={"level": "x"}))
            with anyio.fail_after(DEADLINE_SECONDS):
                while not served.gateway.state.background.failures:
                    await anyio.sleep(0)
            tasks.cancel_scope.cancel()
        assert (await client.list_tools()).tools
    assert served.gateway.state.background.failures == {"a notification of 'a'": 1}
    assert "a notification of 'a' failed" in caplog.text


class Reluctant(Fixture):
    """A server that refuses to end a subscription."""

    async def unsubscribe(self, *_: Any) -> Any:
        raise MCPError(-32050, "Not now")


async def test_a_client_that_leaves_while_its_server_refuses_to_unsubscribe_ends_nothing() -> None:
    async with serve(Reluctant("a")) as served, served.client("legacy") as stays:
        async with served.client("legacy") as leaves:
            listed = await leaves.list_resources()
            await leaves.subscribe_resource(str(listed.resources[0].uri))
        with anyio.fail_after(DEADLINE_SECONDS):
            while not served.gateway.state.background.failures:
                await anyio.sleep(0)
        assert (await stays.list_tools()).tools


async def test_a_thousand_clients_are_told_of_a_change_a_few_at_a_time() -> None:
    """The loop turns between the notifications, so that calls are answered meanwhile."""
    turns, told = [0], Counter[int]()

    class Idle:
        async def send_tool_list_changed(self) -> None:
            told[turns[0]] += 1

    async def turn() -> None:
        while True:
            turns[0] += 1
            await anyio.sleep(0)

    async with serve(Fixture("a")) as served, served.client("legacy") as client, anyio.create_task_group() as tasks:
        await client.list_tools()
        audience = served.front.audience
        (link,) = audience._links.values()
        audience._links |= {str(n): replace(link, connection=Idle()) for n in range(1_000)}  # type: ignore[arg-type]
        tasks.start_soon(turn)
        audience.tell(ListChanged())
        with anyio.fail_after(DEADLINE_SECONDS):
            while told.total() < 1_000:
                await anyio.sleep(0)
        for name in map(str, range(1_000)):
            del audience._links[name]
        tasks.cancel_scope.cancel()
    assert max(told.values()) <= SENT_AT_ONCE


async def test_what_servers_announce_without_end_waits_within_bounds_and_changes_are_told_once() -> None:
    """Clients that take nothing cost a few tasks each, and hear of a change when they read again."""
    spawned, taken, reads, background = 0, Counter[str](), anyio.Event(), BackgroundTasks()

    async with anyio.create_task_group() as tasks:

        def spawn(_: str, work: Work) -> None:
            nonlocal spawned
            spawned += 1
            tasks.start_soon(background.contained, "a test", work)

        async def take(what: str) -> None:
            await reads.wait()
            taken[what] += 1

        notices = Notices(spawn)
        for number in range(3 * MOST_WAITING):
            notices.put(Notice(number % 10, "loud", partial(take, "log")))
        with anyio.fail_after(DEADLINE_SECONDS):
            while notices._waiting:
                await anyio.sleep(0)
        for _ in range(100):
            notices.put(Notice(0, "", partial(take, "change"), "tools"))
        assert len(notices._waiting) == 1
        assert spawned <= 10 * MOST_UNREAD + 2
        reads.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            while not taken["change"]:
                await anyio.sleep(0)
    assert taken == {"log": 10 * MOST_UNREAD, "change": 1}
    assert notices.dropped == {"loud": 3 * MOST_WAITING - 10 * MOST_UNREAD}


async def test_clients_that_take_nothing_do_not_delay_what_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices_module, "UNREAD_SECONDS", 3_600.0)
    told, background = anyio.Event(), BackgroundTasks()
    async with anyio.create_task_group() as tasks:

        def spawn(origin: str, work: Work) -> None:
            tasks.start_soon(background.contained, origin, work)

        notices = Notices(spawn)
        for reader in range(2 * SENT_AT_ONCE):
            for _ in range(MOST_UNREAD):
                notices.send(Notice(reader, "", anyio.sleep_forever))
            notices.put(Notice(reader, "", anyio.sleep_forever, "tools"))

        async def tell() -> None:
            told.set()

        notices.put(Notice("reads", "", tell, "tools"))
        with anyio.fail_after(DEADLINE_SECONDS):
            await told.wait()
        tasks.cancel_scope.cancel()


async def test_a_wish_is_repeated_as_it_was_typed_where_its_correction_is_out_of_reach() -> None:
    office, vault = Fixture("office"), Fixture("vault")
    office.tools = {"read_file": ("Read a file.", schema()), "send_email": ("Send an email.", schema())}
    vault.tools = {f"open_{number}": ("Open the zorblaxia.", schema()) for number in range(3)}
    query = {"query": "read the file and send an email about the zorblaxa"}
    tokens = {"ada": replace(ADA, servers=("office",)), "bob": BOB}
    async with serve(office, vault, tokens=tokens) as served, listening(served) as base:
        async with connect(f"{base}/mcp", "modern", "bob-secret") as client:
            assert "- send an email about the zorblaxia: " in words(await client.call_tool("search_tools", query))
        async with connect(f"{base}/mcp", "modern", "ada-secret") as client:
            assert "- send an email about the zorblaxa: " in words(await client.call_tool("search_tools", query))


async def test_advice_names_only_tools_in_reach() -> None:
    tokens = {"ada": replace(ADA, servers=("a",))}
    seams = Seams(co_use=lambda _: frozenset({"a/echo", "b/add"}))
    async with (
        serve(small("a", "echo", "add"), small("b", "add"), tokens=tokens, seams=seams) as served,
        listening(served) as base,
        connect(f"{base}/mcp", "modern", "ada-secret") as client,
    ):
        described = words(await client.call_tool("describe_tools", {"names": ["a__add"]}))
    assert "often used with: a__echo" in described
    assert "b__" not in described


class SlowGate:
    """Admits every definition, once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def admit(self, server: str, tools: Sequence[Tool], said: Mapping[str, str]) -> Sequence[Tool]:  # noqa: ARG002
        if tools and server == "b":
            self.released.wait(DEADLINE_SECONDS)
        return tools

    def words(self, server: str, said: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        return said

    def doubts(self, server: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}


async def test_a_server_whose_tools_are_being_admitted_is_still_starting() -> None:
    gate = SlowGate()
    echo = Tool(id="b/echo", name="echo", server="b")
    async with serve(small("a", "echo"), small("b"), seams=Seams(gate=gate)) as served, served.client() as client:
        served.gateway.on_upstream(ToolsChanged(server="b", tools=(echo,)))
        early = words(await client.call_tool("call_tool", {"name": "b__echo", "arguments": {}}))
        gate.released.set()
        await served.gateway.settled()
        assert "b/echo" in served.gateway.state.everything.catalog.tools
    assert "still starting" in early
