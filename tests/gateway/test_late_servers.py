"""A server that connects late: clients hear of its prompts and resources, and a first search waits for its tools."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged

from shortlist.config.settings import MemoryTransport, ServerSettings
from shortlist.gateway import arrivals
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


async def reload(served: Served, *fixtures: Fixture) -> None:
    """Apply a configuration with these servers, as a reload does."""
    servers = {
        f.name: served.gateway.state.settings.servers.get(f.name)
        or ServerSettings(name=f.name, transport=MemoryTransport(build=lambda f=f: f.server))  # type: ignore[misc]
        for f in fixtures
    }
    await served.gateway.configure(replace(served.gateway.state.settings, servers=servers))
    await served.pool.reload(servers)


async def shown(client: Client) -> tuple[list[str], list[str]]:
    prompts = (await client.list_prompts(cache_mode="bypass")).prompts
    resources = (await client.list_resources(cache_mode="bypass")).resources
    return [prompt.name for prompt in prompts], [str(resource.uri) for resource in resources]


async def test_a_legacy_client_hears_of_a_server_that_comes_and_goes() -> None:
    alpha, late = Fixture("alpha"), Fixture("late")
    send, heard = anyio.create_memory_object_stream[Any](100)

    async def hear(message: Any) -> None:
        if isinstance(message, (types.PromptListChangedNotification, types.ResourceListChangedNotification)):
            await send.send(type(message))

    async with serve(alpha) as served, served.client("legacy", message_handler=hear) as client:
        before = await shown(client)
        with anyio.fail_after(DEADLINE_SECONDS):
            await reload(served, alpha, late)
            came = {await heard.receive(), await heard.receive()}
            during = await shown(client)
            await reload(served, alpha)
            went = {await heard.receive(), await heard.receive()}
        after = await shown(client)
    assert came == went == {types.PromptListChangedNotification, types.ResourceListChangedNotification}
    assert before == after == (["alpha__brief"], ["shortlist://alpha/note://today"])
    assert during[0] == ["alpha__brief", "late__brief"]
    assert len(during[1]) == 2


async def test_a_modern_client_that_listens_hears_of_a_server_that_comes_late() -> None:
    alpha, late = Fixture("alpha", "modern"), Fixture("late", "modern")
    async with (
        serve(alpha) as served,
        served.client() as client,
        client.listen(prompts_list_changed=True, resources_list_changed=True) as subscription,
    ):
        before = await shown(client)
        await reload(served, alpha, late)
        told = set()
        with anyio.fail_after(DEADLINE_SECONDS):
            async for event in subscription:
                told.add(type(event))
                if len(told) == 2:
                    break
        after = await shown(client)
    assert told == {PromptsListChanged, ResourcesListChanged}
    assert before[0] == ["alpha__brief"]
    assert after[0] == ["alpha__brief", "late__brief"]


class SlowFixture(Fixture):
    """A server that lists its tools when the test lets it."""

    def __init__(self, name: str, era: Era = "legacy") -> None:
        self.asked, self.gate = anyio.Event(), anyio.Event()
        super().__init__(name, era)

    async def list_tools(self, *_: Any) -> types.ListToolsResult:
        self.asked.set()
        await self.gate.wait()
        return await super().list_tools()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_first_search_waits_for_a_server_that_is_starting(era: Era, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "WAIT_SECONDS", 600.0)
    slow, answers, answered = SlowFixture("slow"), list[str](), anyio.Event()
    async with serve() as served, served.client(era) as client, anyio.create_task_group() as tasks:

        async def search() -> None:
            answers.append(words(await client.call_tool("search_tools", {"query": "add two numbers"})))
            answered.set()

        with anyio.fail_after(DEADLINE_SECONDS):
            tasks.start_soon(reload, served, slow)
            await slow.asked.wait()
            tasks.start_soon(search)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            slow.gate.set()
            await answered.wait()
    assert "slow__add" in answers[0]
    assert "Still connecting" not in answers[0]


async def test_a_search_does_not_wait_for_years_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(arrivals, "time", SimpleNamespace(time=lambda: 0.0))
    slow = SlowFixture("slow")
    async with serve() as served, served.client() as client, anyio.create_task_group() as tasks:
        with anyio.fail_after(DEADLINE_SECONDS):
            tasks.start_soon(reload, served, slow)
            await slow.asked.wait()
            answer = words(await client.call_tool("search_tools", {"query": "add two numbers"}))
            slow.gate.set()
    assert "Still connecting" in answer


async def test_a_search_that_has_waited_long_enough_says_what_is_still_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "WAIT_SECONDS", 0.0)
    slow = SlowFixture("slow")
    async with serve() as served, served.client() as client, anyio.create_task_group() as tasks:
        with anyio.fail_after(DEADLINE_SECONDS):
            tasks.start_soon(reload, served, slow)
            await slow.asked.wait()
            answer = words(await client.call_tool("search_tools", {"query": "add two numbers"}))
            slow.gate.set()
    assert answer.startswith("No confident match for 'add two numbers'.")
    assert "Still connecting, their tools are not searched yet: slow." in answer


@pytest.mark.parametrize(
    ("meta", "arguments"),
    [
        ("call_tool", {"name": "echo", "arguments": {"text": "hi"}}),
        ("describe_tools", {"names": ["echo"]}),
        ("load_tools", {"names": ["echo"]}),
    ],
)
async def test_a_bare_name_is_refused_while_the_tools_of_any_server_are_unknown(
    meta: str, arguments: dict[str, Any]
) -> None:
    alpha, silent = Fixture("alpha"), Fixture("silent")
    async with serve(alpha, options=ServeOptions(dynamic=True)) as served, served.client() as client:
        known = served.gateway.state.settings
        unheard = ServerSettings(name="silent", transport=MemoryTransport(build=lambda: silent.server))
        await served.gateway.configure(replace(known, servers={**known.servers, "silent": unheard}))
        assert "alpha__echo" in words(await client.call_tool(meta, arguments))  # as a suggestion
        assert not alpha.calls
        await served.gateway.configure(known)
        await client.call_tool(meta, arguments)
        assert bool(alpha.calls) == (meta == "call_tool")
