"""MCP Apps: the `ui://` resource of a tool, listed and read through the gateway."""

from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from shortlist.config.settings import TokenSettings, hash_token
from shortlist.gateway.router import from_uri, to_uri
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, MODES, Era, Fixture, serve
from tests.gateway.test_doors import GUEST, Recognised

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
OWN, SHOWN = "ui://clock/app.html", "ui://shortlist/app-server/clock/app.html"


class Apps(Fixture):
    """A server whose echo has an app."""

    async def list_tools(self, *_: Any) -> types.ListToolsResult:
        listed = await super().list_tools()
        for tool in listed.tools:
            if tool.name == "echo":
                tool.meta = {"ui": {"resourceUri": OWN, "visibility": ["model"]}, "ui/resourceUri": OWN}
        return listed

    async def list_resources(self, *_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="clock", uri=OWN)])


@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_app_is_named_so_that_its_client_can_read_it(era: Era, server: Era) -> None:
    options = ServeOptions(mode="passthrough")
    async with (
        serve(Apps("app-server", server), Fixture("two"), options=options) as served,
        served.client(era) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        listed = [str(each.uri) for each in (await client.list_resources()).resources]
        read = await client.read_resource(SHOWN)
    meta = tools["app-server__echo"].meta
    assert meta == {"ui": {"resourceUri": SHOWN, "visibility": ["model"]}, "ui/resourceUri": SHOWN}
    assert tools["two__echo"].meta is None
    assert SHOWN in listed
    content = read.contents[0]
    assert isinstance(content, types.TextResourceContents)
    assert (str(content.uri), content.text) == (SHOWN, f"{OWN} of app-server")


async def test_a_single_server_that_is_passed_through_keeps_its_addresses() -> None:
    options = ServeOptions(mode="passthrough")
    async with serve(Apps("app-server"), options=options) as served, served.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        read = await client.read_resource(OWN)
    assert tools["echo"].meta == {"ui": {"resourceUri": OWN, "visibility": ["model"]}, "ui/resourceUri": OWN}
    assert str(read.contents[0].uri) == OWN


async def test_a_caller_out_of_scope_reads_no_app() -> None:
    token = TokenSettings(name="guest", hash=hash_token("x"), tools=("app-server/echo",))
    async with serve(Apps("app-server"), Fixture("two"), tokens={"guest": token}) as served:
        front = Recognised(served.gateway)
        front.principal = GUEST
        async with Client(front.server) as client:
            for uri in (SHOWN, OWN):
                with pytest.raises(MCPError, match="Unknown resource"):
                    await client.read_resource(uri)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_app_is_unknown_once_its_callers_token_is_no_longer_valid(era: Era) -> None:
    token = TokenSettings(name="guest", hash=hash_token("x"), servers=("app-server",), can=("call", "resources"))
    async with serve(Apps("app-server", era), Fixture("two"), tokens={"guest": token}) as served:
        front = Recognised(served.gateway)
        front.principal = GUEST
        async with Client(front.server, mode=MODES[era]) as client:
            assert (await client.read_resource(SHOWN, cache_mode="bypass")).contents
            await served.gateway.configure(replace(served.gateway.state.settings, tokens={}))
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.read_resource(SHOWN, cache_mode="bypass")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_reading_an_app_is_cancelled_at_its_server(era: Era) -> None:
    class Slow(Apps):
        async def read_resource(self, *_: Any) -> Any:
            return await self.tool_wait()

    fixture = Slow("app-server", era)
    async with serve(fixture, Fixture("two")) as served, served.client(era) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.read_resource, SHOWN)
            with anyio.fail_after(DEADLINE_SECONDS):
                await fixture.waiting.wait()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(DEADLINE_SECONDS):
            await fixture.cancelled.wait()


@pytest.mark.parametrize("server", ["plain", "with space", "a/b"])
@pytest.mark.parametrize("uri", ["ui://x/y.html", "ui://", "note://today", "file:///a"])
def test_a_renamed_address_leads_back(server: str, uri: str) -> None:
    assert from_uri(to_uri(server, uri)) == (server, uri)
