"""What a gateway says of what happens in it, through real servers and clients."""

from pathlib import Path
from typing import Any, TypeVar

import pytest

from shortlist.access.principal import OWNER
from shortlist.config.settings import TelemetrySettings, ToolsetSettings
from shortlist.errors import InvalidInput
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.telemetry.events import (
    Called,
    CallerEvent,
    CatalogChanged,
    CircleBroken,
    Described,
    Event,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    ToolsListed,
    ToolsLoaded,
    ToolsUnloaded,
    UpstreamChanged,
    count,
)
from shortlist.telemetry.ledger import Ledger, UsedTogether
from shortlist.telemetry.recorder import Recorder
from shortlist.telemetry.redaction import Privacy
from tests.gateway.support import Era, Fixture, serve, words
from tests.telemetry.happenings import events_in

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])
EventT = TypeVar("EventT")
DYNAMIC = ServeOptions(mode="dynamic")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Heard:
    """Everything that was recorded, as seams for a gateway."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.seams = Seams(record=self.events.append)

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]


@eras
async def test_a_whole_session_is_heard(era: Era) -> None:
    heard = Heard()
    async with (
        serve(Fixture("alpha"), options=DYNAMIC, seams=heard.seams) as served,
        served.client(era) as client,
    ):
        listed = (await client.list_tools()).tools
        await client.call_tool("list_toolsets", {})
        await client.call_tool("search_tools", {"query": "add two numbers", "servers": ["alpha"], "limit": 3})
        await client.call_tool("describe_tools", {"names": ["alpha__add"]})
        await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 2, "b": 3}})
        await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": "two"}})
        await client.call_tool("call_tool", {"name": "alpha__nothing", "arguments": {}})
        loaded = words(await client.call_tool("load_toolset", {"toolset": "alpha"}))
    (opened,), (shown,) = heard.of(SessionOpened), heard.of(ToolsListed)
    assert (opened.mode, opened.tools) == ("dynamic", len(listed))
    assert count(opened.tokens) > 10
    assert (shown.tools, count(shown.tokens) > 100) == (len(listed), True)
    assert count(shown.upfront) > 300
    (found,) = heard.of(Searched)
    assert (found.query, found.limit, found.filters) == ("add two numbers", 3, {"servers": ["alpha"]})
    assert found.hits[0].tool == "alpha/add"
    assert found.hits[0].signals["lexical"].rank == 1
    assert found.steps.keys() >= {"lexical", "fuse"}
    assert count(found.tokens) > 20
    assert [event.toolset for event in heard.of(SuggestionGiven)] == ["alpha"]
    assert count(heard.of(ToolsetsListed)[0].tokens) > 5
    assert heard.of(Described)[0].tools == ("alpha/add",)
    assert [(event.tool, event.outcome, event.native) for event in heard.of(Called)] == [
        ("alpha/add", "ok", False),
        ("alpha/add", "invalid_arguments", False),
        ("alpha__nothing", "unknown", False),
    ]
    sent, refused, _ = heard.of(Called)
    assert (sent.size, count(sent.tokens), sent.arguments) == (1, 0, None)
    assert sent.milliseconds > 0
    assert count(refused.tokens) > 20
    assert heard.of(ToolsLoaded)[0].toolset == "alpha"
    assert loaded.startswith("loaded")
    assert len({event.workspace for event in heard.events if isinstance(event, CallerEvent)}) == 1


async def test_servers_that_come_and_go_and_their_tools_are_heard_of() -> None:
    alone, heard = Heard(), Heard()
    async with serve(Fixture("alpha"), seams=alone.seams):
        pass
    async with serve(Fixture("alpha"), Fixture("beta"), seams=heard.seams):
        pass
    assert {(event.server, event.up) for event in heard.of(UpstreamChanged)} == {("alpha", True), ("beta", True)}
    changes = heard.of(CatalogChanged)
    assert {event.server for event in changes} == {"alpha", "beta"}
    assert count(changes[1].upfront) == 2 * count(alone.of(CatalogChanged)[0].upfront) > 0


async def test_a_loaded_tool_is_called_by_its_own_name_and_unloaded() -> None:
    heard = Heard()
    async with (
        serve(Fixture("alpha"), options=DYNAMIC, seams=heard.seams) as served,
        served.client("legacy") as client,
    ):
        await client.call_tool("load_tools", {"names": ["alpha__echo"]})
        await client.call_tool("alpha__echo", {"text": "hello"})
        await client.call_tool("unload_toolset", {"toolset": "alpha"})
    assert [(event.tool, event.native, event.size) for event in heard.of(Called)] == [("alpha/echo", True, 5)]
    assert heard.of(ToolsUnloaded)[0].tools == ("alpha/echo",)


async def test_a_circle_that_is_broken_is_heard_with_what_it_cost() -> None:
    heard = Heard()
    async with serve(Fixture("alpha"), seams=heard.seams) as served, served.client("legacy") as client:
        for _ in range(4):
            await client.call_tool("search_tools", {"query": "add two numbers"})
    (broken,) = heard.of(CircleBroken)
    assert count(broken.tokens) > 20


@pytest.mark.parametrize(("keeping", "kept"), [("omit", None), ("keep", {"text": "hello"})])
async def test_arguments_are_handed_on_only_where_they_are_wanted(keeping: Any, kept: Any) -> None:
    heard, telemetry = Heard(), TelemetrySettings(arguments=keeping)
    async with (
        serve(Fixture("alpha"), seams=heard.seams, telemetry=telemetry) as served,
        served.client() as client,
    ):
        await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": "hello"}})
    assert heard.of(Called)[0].arguments == kept


async def test_how_a_task_ended_is_heard_from_its_caller() -> None:
    heard, telemetry = Heard(), TelemetrySettings(tools=True)
    async with (
        serve(Fixture("alpha"), seams=heard.seams, telemetry=telemetry) as served,
        served.client() as client,
    ):
        await client.call_tool("report_task", {"completed": False, "task": "book a table"})
        missing = words(await client.call_tool("report_task", {}))
    (reported,) = heard.of(TaskReported)
    assert (reported.completed, reported.task) == (False, "book a table")
    assert "'completed' is missing" in missing


async def test_a_report_that_fails_says_so_and_is_told_who_may_see_what() -> None:
    asked: list[Any] = []

    def report(arguments: Any, visible: Any) -> str:
        asked.append((dict(arguments), visible))
        raise InvalidInput("nothing yet")

    seams = Seams(reports={"get_stats": report})
    telemetry, options = TelemetrySettings(tools=True), ServeOptions(exclude=("beta",))
    async with (
        serve(Fixture("alpha"), Fixture("beta"), seams=seams, options=options, telemetry=telemetry) as served,
        served.client() as client,
    ):
        answer = await client.call_tool("get_stats", {"since": "7d"})
        visible = served.gateway.state.reach(OWNER).visible()
    assert (answer.is_error, words(answer)) == (True, "nothing yet")
    assert asked == [({"since": "7d"}, visible)]
    assert visible is not None
    assert all(tool.startswith("alpha/") for tool in visible)


async def test_tools_that_are_called_together_make_toolsets_and_are_named(tmp_path: Path) -> None:
    path, together = tmp_path / "events.sqlite", UsedTogether()
    recorder = Recorder(events_in(path), Ledger(Privacy(), together))
    seams = Seams(record=recorder, co_use=together)
    for _ in range(2):  # each process is a workspace of its own
        async with serve(Fixture("alpha"), seams=seams) as served, served.client() as client:
            await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 2, "b": 3}})
            await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": "5"}})
    recorder.close(60)
    store = events_in(path)
    learned = UsedTogether.of(store.pairs())
    usual = {"sums": ToolsetSettings(name="sums", used_with=("alpha/add",))}
    async with (
        serve(Fixture("alpha"), seams=Seams(co_use=learned), toolsets=usual) as served,
        served.client() as client,
    ):
        described = words(await client.call_tool("describe_tools", {"names": ["alpha__add"]}))
        members = served.gateway.state.reach(OWNER).toolsets["sums"].tools
    assert "often used with: alpha__echo" in described
    assert set(members) == {"alpha/add", "alpha/echo"}
