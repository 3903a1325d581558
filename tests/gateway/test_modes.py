from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from shortlist.config.settings import Limits, PresetSettings, ToolsetSettings
from shortlist.errors import InvalidConfig
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])
DYNAMIC = ServeOptions(mode="dynamic")
MENU = [
    *("search_tools", "describe_tools", "call_tool", "read_result"),
    *("list_toolsets", "load_toolset", "load_tools", "unload_toolset"),
]


def small(name: str, *tools: str) -> Fixture:
    fixture = Fixture(name)
    fixture.tools = {tool: fixture.tools[tool] for tool in tools}
    return fixture


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def ask(client: Client, tool: str, **arguments: Any) -> str:
    return words(await client.call_tool(tool, arguments))


async def test_dynamic_loads_calls_directly_and_unloads() -> None:
    async with serve(small("alpha", "add", "echo"), options=DYNAMIC) as served, served.client("legacy") as client:
        before = await names(client)
        loaded = await ask(client, "load_toolset", toolset="alpha")
        during = await names(client)
        result = await client.call_tool("alpha__add", {"a": 1, "b": 2})
        again = await ask(client, "load_toolset", toolset="alpha")
        unloaded = await ask(client, "unload_toolset", toolset="alpha")
        after = await names(client)
    assert before == after == MENU
    assert during == [*MENU, "alpha__add", "alpha__echo"]
    assert loaded.startswith("loaded: toolset 'alpha': alpha__add, alpha__echo")
    assert words(result) == "3"
    assert again.startswith("already_loaded")
    assert unloaded.startswith("unloaded")


async def test_a_legacy_client_is_told_that_its_list_changed() -> None:
    told = anyio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with (
        serve(small("alpha", "add"), options=DYNAMIC) as served,
        served.client("legacy", message_handler=heard) as client,
    ):
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed is True
        await ask(client, "load_tools", names=["alpha__add"])
        with anyio.fail_after(DEADLINE_SECONDS):
            await told.wait()


async def test_two_legacy_sessions_never_see_each_others_loaded_tools() -> None:
    async with (
        serve(small("alpha", "add"), small("beta", "echo"), options=DYNAMIC) as served,
        served.client("legacy") as one,
        served.client("legacy") as two,
    ):
        await ask(one, "load_tools", names=["alpha__add"])
        await ask(two, "load_tools", names=["beta__echo"])
        assert await names(one) == [*MENU, "alpha__add"]
        assert await names(two) == [*MENU, "beta__echo"]


async def test_a_modern_clients_list_never_changes_by_connection() -> None:
    async with serve(small("alpha", "add"), options=DYNAMIC) as served, served.client() as client:
        before = await names(client)
        loaded = await ask(client, "load_tools", names=["alpha__add"])
        after = await names(client)
        reached = await ask(client, "call_tool", name="alpha__add", arguments={"a": 1, "b": 2})
    assert before == after == MENU
    assert "workspace: " in loaded
    assert reached == "3"


async def test_a_modern_client_loads_more_into_the_workspace_it_names() -> None:
    async with serve(small("alpha", "add", "echo"), options=DYNAMIC) as served, served.client() as client:
        loaded = await ask(client, "load_tools", names=["alpha__add"])
        handle = loaded.split("workspace: ")[1].split(" ")[0]
        again = await ask(client, "load_tools", names=["alpha__add"], workspace=handle)
        gone = await ask(client, "unload_toolset", toolset="alpha", workspace=handle)
        wrong = await client.call_tool("load_tools", {"names": ["alpha__add"], "workspace": "guessed"})
    assert again.startswith("already_loaded")
    assert "workspace: " not in again
    assert gone.startswith("unloaded")
    assert wrong.is_error


async def test_a_search_in_dynamic_mode_offers_to_load_what_it_found() -> None:
    async with (
        serve(small("alpha", "add"), small("beta", "echo"), options=DYNAMIC) as served,
        served.client("legacy") as client,
    ):
        offered = await ask(client, "search_tools", query="add two numbers", limit=1)
        await ask(client, "load_tools", names=["alpha__add"])
        bound = await ask(client, "search_tools", query="add two numbers", limit=1)
    assert "Not loaded yet: load_tools(names=['alpha__add'])" in offered
    assert "Not loaded yet" not in bound


async def test_what_a_preset_bound_is_not_unloaded() -> None:
    options = ServeOptions(mode="dynamic", preset="mine")
    presets = {"mine": PresetSettings(name="mine", toolsets=("alpha",))}
    async with (
        serve(small("alpha", "add"), small("beta", "echo"), options=options, presets=presets) as served,
        served.client("legacy") as client,
    ):
        listed = await names(client)
        refused = await client.call_tool("unload_toolset", {"toolset": "alpha"})
        unknown = await client.call_tool("unload_toolset", {"toolset": "beta"})
    assert listed == [*MENU, "alpha__add"]
    assert refused.is_error
    assert words(refused).startswith("refused: toolset 'alpha' is bound for every client")
    assert words(unknown).startswith("not_loaded")


@eras
async def test_static_binds_a_preset_and_nothing_else(era: Era) -> None:
    options = ServeOptions(mode="static", preset="mine")
    presets = {"mine": PresetSettings(name="mine", tools=("*/add",))}
    async with (
        serve(small("alpha", "add", "echo"), small("beta", "add"), options=options, presets=presets) as served,
        served.client(era) as client,
    ):
        assert sorted(await names(client)) == ["alpha__add", "beta__add"]
        assert await ask(client, "call_tool", name="alpha__echo", arguments={"text": "still reachable"}) == (
            "still reachable"
        )


async def test_the_built_in_presets_need_no_configuration() -> None:
    fixtures = small("alpha", "add"), small("beta", "echo")
    limits = Limits(auto_tokens=60)
    async with (
        serve(*fixtures, options=ServeOptions(mode="static"), limits=limits) as served,
        served.client() as client,
    ):
        assert await names(client) == ["alpha__add"]
    options = ServeOptions(mode="static", preset="full")
    async with serve(*fixtures, options=options, limits=limits) as served, served.client() as client:
        assert sorted(await names(client)) == ["alpha__add", "beta__echo"]


async def test_an_unknown_preset_is_refused_before_anything_is_served() -> None:
    with pytest.raises(InvalidConfig, match=r"No preset 'nix'\. There are default, full"):
        async with serve(small("alpha", "add"), options=ServeOptions(preset="nix")):
            pass


@eras
async def test_passthrough_binds_everything(era: Era) -> None:
    options = ServeOptions(mode="passthrough")
    async with (
        serve(small("alpha", "add"), small("beta", "echo"), options=options) as served,
        served.client(era) as client,
    ):
        assert sorted(await names(client)) == ["alpha__add", "beta__echo"]


@pytest.mark.parametrize(("tokens", "listed"), [(10_000, ["add", "echo"]), (10, MENU[:4])])
async def test_auto_binds_everything_while_it_is_cheap(tokens: int, listed: list[str]) -> None:
    options, limits = ServeOptions(mode="auto"), Limits(auto_tokens=tokens)
    async with (
        serve(small("alpha", "add", "echo"), options=options, limits=limits) as served,
        served.client() as client,
    ):
        assert await names(client) == listed


@pytest.mark.parametrize("mode", ["search", "dynamic", "static", "passthrough"])
async def test_always_load_is_bound_in_every_mode(mode: Any) -> None:
    options = ServeOptions(mode=mode, toolsets=("beta",))
    async with (
        serve(
            small("alpha", "add", "echo"), small("beta", "echo"), options=options, always_load=("alpha/add",)
        ) as served,
        served.client() as client,
    ):
        assert "alpha__add" in await names(client)


@pytest.mark.parametrize("options", [ServeOptions(toolsets=("betta",)), ServeOptions(exclude=("betta",))])
async def test_an_unknown_toolset_is_refused_so_that_nothing_misspelled_stays_in_sight(
    options: ServeOptions,
) -> None:
    with pytest.raises(InvalidConfig, match=r"No toolset 'betta', which --\w+ names\. Did you mean 'beta'\?"):
        async with serve(small("alpha", "add"), small("beta", "echo"), options=options):
            pass


async def test_toolsets_are_bound_and_excluded_ones_are_nowhere() -> None:
    options = ServeOptions(mode="dynamic", toolsets=("sums",), exclude=("beta",))
    sets = {"sums": ToolsetSettings(name="sums", tools=("*/add",))}
    async with (
        serve(small("alpha", "add", "echo"), small("beta", "add"), options=options, toolsets=sets) as served,
        served.client("legacy") as client,
    ):
        listed = await names(client)
        found = await ask(client, "search_tools", query="add two numbers", limit=9)
        called = await client.call_tool("call_tool", {"name": "beta__add", "arguments": {"a": 1, "b": 2}})
        described = await client.call_tool("describe_tools", {"names": ["beta__add"]})
        loaded = await client.call_tool("load_tools", {"names": ["beta__add"]})
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
    assert listed == [*MENU, "alpha__add"]
    assert "beta" not in found
    assert called.is_error
    assert described.is_error
    assert loaded.is_error
    assert prompts == ["alpha__brief"]


async def test_a_list_grows_at_its_end_and_keeps_the_order_of_the_rest() -> None:
    fixture = small("alpha", "echo", "link")
    async with (
        serve(fixture, small("beta", "echo"), options=ServeOptions(mode="passthrough")) as served,
        served.client("legacy") as client,
    ):
        before = await names(client)
        changed = anyio.Event()
        served.gateway.state.on_change(lambda _: changed.set())
        fixture.tools = {"add": Fixture("x").tools["add"], "link": fixture.tools["link"]}
        served.pool.refresh("alpha")
        with anyio.fail_after(DEADLINE_SECONDS):
            await changed.wait()
        after = await names(client)
    assert sorted(before) == ["alpha__echo", "alpha__link", "beta__echo"]  # in the order in which the servers came
    assert after == [*(name for name in before if name != "alpha__echo"), "alpha__add"]


async def test_a_modern_client_that_listens_is_told_of_a_changed_catalog() -> None:
    fixture = small("alpha", "echo")
    async with (
        serve(fixture, small("beta", "echo"), options=ServeOptions(mode="passthrough")) as served,
        served.client() as client,
        client.listen(tools_list_changed=True) as subscription,
    ):
        fixture.tools = dict(Fixture("x").tools)
        served.pool.refresh("alpha")
        with anyio.fail_after(DEADLINE_SECONDS):
            async for _ in subscription:
                break


async def test_a_tool_that_went_away_is_an_unknown_tool() -> None:
    fixture = small("alpha", "echo", "add")
    async with serve(fixture, options=ServeOptions(mode="search")) as served, served.client() as client:
        changed = anyio.Event()
        original = served.gateway.state.renew

        async def renew(*arguments: Any) -> Any:
            views = await original(*arguments)
            changed.set()
            return views

        served.gateway.state.renew = renew  # type: ignore[method-assign, assignment]
        del fixture.tools["add"]
        served.pool.refresh("alpha")
        with anyio.fail_after(DEADLINE_SECONDS):
            await changed.wait()
        found = await ask(client, "search_tools", query="add two numbers")
        result = await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 1, "b": 2}})
    assert "alpha__add(" not in found
    assert result.is_error
