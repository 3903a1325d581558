"""A server that connects after the front has answered: clients hear of its prompts and resources."""

from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged

from shortlist.config.settings import MemoryTransport, ServerSettings
from tests.gateway.support import DEADLINE_SECONDS, Fixture, Served, serve

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
