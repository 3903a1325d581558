"""Variants of an experiment, as clients see them."""

from types import SimpleNamespace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from shortlist.config.settings import PresetSettings
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.telemetry.events import Event, Exposed
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Assignments, Experiment, Variant
from tests.gateway.support import DEADLINE_SECONDS, Fixture, serve, words
from tests.gateway.test_modes import MENU, small

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

SEARCH_MENU = MENU[:4]


def always(variant: Variant) -> Seams:
    return Seams(experiment=SimpleNamespace(assign=lambda *_: variant))


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def test_a_variant_of_the_mode_changes_the_menu_what_is_bound_and_the_instructions() -> None:
    seams = always(Variant(mode="dynamic"))
    async with serve(small("alpha", "add"), seams=seams) as served, served.client("legacy") as client:
        listed = await names(client)
        told = client.instructions or ""
        await client.call_tool("load_toolset", {"toolset": "alpha"})
        loaded = await names(client)
    assert listed == MENU
    assert "load_tools" in told
    assert loaded == [*MENU, "alpha__add"]


async def test_a_variant_of_the_mode_wins_over_the_command_line() -> None:
    options = ServeOptions(dynamic=True)
    seams = always(Variant(mode="search"))
    async with serve(small("alpha", "add"), options=options, seams=seams) as served, served.client() as client:
        assert await names(client) == SEARCH_MENU


async def test_a_single_server_that_is_passed_through_keeps_its_names_under_a_variant_with_a_menu() -> None:
    options, seams = ServeOptions(mode="passthrough"), always(Variant(mode="search"))
    async with serve(small("alpha", "add"), options=options, seams=seams) as served, served.client() as client:
        listed = await names(client)
        found = words(await client.call_tool("search_tools", {"query": "add two numbers"}))
        result = await client.call_tool("call_tool", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert listed == SEARCH_MENU
    assert "add(" in found
    assert words(result) == "3"


async def test_a_variant_of_the_preset_binds_other_tools_and_they_can_be_called() -> None:
    presets = {"sums": PresetSettings(name="sums", tools=("alpha/add",))}
    seams = always(Variant(preset="sums"))
    fixture = small("alpha", "add", "echo")
    async with serve(fixture, seams=seams, presets=presets) as served, served.client() as client:
        listed = await names(client)
        result = await client.call_tool("alpha__add", {"a": 1, "b": 2})
    assert listed == [*SEARCH_MENU, "alpha__add"]
    assert words(result) == "3"


async def test_a_client_is_told_when_only_its_variant_lists_something_else() -> None:
    fixture, told = small("alpha", "add"), anyio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with (
        serve(fixture, seams=always(Variant(mode="passthrough"))) as served,
        served.client("legacy", message_handler=heard) as client,
    ):
        before = await names(client)
        fixture.tools["echo"] = Fixture("other").tools["echo"]
        served.pool.refresh("alpha")
        with anyio.fail_after(DEADLINE_SECONDS):
            await told.wait()
        after = await names(client)
    assert before == ["alpha__add"]
    assert after == ["alpha__add", "alpha__echo"]


async def test_variants_of_limit_and_detail_hold_where_a_search_asks_for_none_and_are_listed() -> None:
    seams = always(Variant(limit=2, detail="full"))
    async with serve(Fixture("alpha"), seams=seams) as served, served.client() as client:
        listed = (await client.list_tools()).tools[0].input_schema["properties"]
        silent = words(await client.call_tool("search_tools", {"query": "ask the user"}))
        explicit = words(await client.call_tool("search_tools", {"query": "ask", "limit": 3, "detail": "compact"}))
    assert (listed["limit"]["default"], listed["detail"]["default"]) == (2, "full")
    assert silent.count("alpha__") == 2
    assert '"type"' in silent
    assert explicit.count("alpha__") == 3
    assert '"type"' not in explicit


async def test_a_variant_of_the_pipeline_answers_searches() -> None:
    query = {"query": "alpha__echo"}
    answers = {}
    for variant in (AS_CONFIGURED, Variant(pipeline="exact"), Variant(pipeline="prefix")):
        async with serve(Fixture("alpha"), seams=always(variant)) as served, served.client() as client:
            answers[variant.name] = words(await client.call_tool("search_tools", query))
    assert answers["pipeline=exact"].count("alpha__") == 1
    assert answers["as configured"] != answers["pipeline=exact"]


async def test_an_exposure_is_recorded_once_and_names_the_workspace_and_its_variant() -> None:
    recorded: list[Event] = []
    assignments = Assignments(recorded.append)
    experiment = Experiment(name="modes", variants=(AS_CONFIGURED, Variant(mode="dynamic")), metric="errors")
    assignments.follow(experiment)
    async with serve(small("alpha", "add"), seams=Seams(experiment=assignments)) as served, served.client() as client:
        listed = await names(client)
        await names(client)
    exposures = [event for event in recorded if isinstance(event, Exposed)]
    assert [(each.experiment, each.caller) for each in exposures] == [("modes", "local")]
    assert exposures[0].variant == experiment.assign(exposures[0].workspace).name
    assert listed == (MENU if exposures[0].variant == "mode=dynamic" else SEARCH_MENU)
