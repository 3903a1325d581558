"""The demo servers through the same pool that the gateway uses, and as a process of their own."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shortlist.config import ServerSettings, StdioTransport
from shortlist.demo.server import demo_names, demo_settings, http_app
from shortlist.demo.world import Act, World
from shortlist.upstream.errors import UpstreamRefused
from shortlist.upstream.pool import UpstreamPool
from tests.demo import bundle
from tests.upstream.support import DEADLINE_SECONDS, pool_of, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def example(schema: Mapping[str, Any]) -> Any:
    """Make a small value that a schema accepts."""
    if "default" in schema or "enum" in schema:
        return schema["default"] if "default" in schema else schema["enum"][0]
    made: dict[str, Callable[[], Any]] = {
        "object": lambda: {n: example(schema.get("properties", {}).get(n, {})) for n in schema.get("required", ())},
        "array": lambda: [example(schema.get("items", {}))] * max(1, schema.get("minItems", 1)),
        "integer": lambda: schema.get("minimum", 1),
        "number": lambda: schema.get("minimum", 1),
        "boolean": lambda: True,
        "string": lambda: "1" * max(1, schema.get("minLength", 1)),
    }
    return made[schema.get("type", "string")]()


async def call(pool: UpstreamPool, tool_id: str, arguments: Mapping[str, Any]) -> Any:
    server, _, name = tool_id.partition("/")
    result = await pool.call_tool(server, name, arguments)
    return result if result["isError"] else json.loads(text_of(result))


async def test_every_bundled_tool_is_listed_as_written_and_answers_by_its_output_schema() -> None:
    tools = bundle.tools()
    async with pool_of(*demo_settings().values()) as (pool, recorder):
        listed = {tool.id: tool.mcp() for name in demo_names() for tool in recorder.tools(name)[0].tools}
        assert listed == tools
        for tool_id, definition in tools.items():
            server, _, name = tool_id.partition("/")
            result = await pool.call_tool(server, name, example(definition["inputSchema"]))
            assert "was not run" not in text_of(result), tool_id
            if "outputSchema" in definition and not result["isError"]:
                Draft202012Validator(definition["outputSchema"]).validate(result["structuredContent"])


async def test_what_is_created_is_found_changed_and_deleted() -> None:
    async with pool_of(demo_settings()["slack"], demo_settings()["filesystem"]) as (pool, _):
        await call(pool, "filesystem/write_file", {"path": "/notes.md", "content": "hello world"})
        read = await call(pool, "filesystem/read_text_file", {"path": "/notes.md"})
        assert read["content"] == "hello world"
        missing = await call(pool, "filesystem/read_text_file", {"path": "/other.md"})
        assert missing["isError"] is True
        assert "there is no file with path '/other.md'" in text_of(missing)


async def test_arguments_are_checked_before_anything_is_done() -> None:
    async with pool_of(demo_settings()["filesystem"]) as (pool, _):
        result = await pool.call_tool("filesystem", "write_file", {"path": 7})
        assert result["isError"] is True
        assert "write_file was not run: $" in text_of(result)


async def test_an_unknown_tool_is_a_protocol_error() -> None:
    async with pool_of(demo_settings()["filesystem"]) as (pool, _):
        with pytest.raises(UpstreamRefused, match="Unknown tool: nope"):
            await pool.call_tool("filesystem", "nope", {})


async def test_one_demo_server_runs_as_a_process_of_its_own() -> None:
    transport = StdioTransport(
        command=sys.executable,
        args=("-m", "shortlist.demo.server", "weather"),
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    async with pool_of(ServerSettings(name="weather", transport=transport)) as (pool, _):
        await pool.settled(DEADLINE_SECONDS)
        assert pool.status()["weather"].tools == len(bundle.servers()["weather"]["tools"])


def test_all_demo_servers_are_served_at_their_own_paths() -> None:
    assert [route.path for route in http_app().routes] == [f"/{name}" for name in demo_names()]


def test_the_same_calls_give_the_same_answers() -> None:
    def story(world: World) -> list[Any]:
        act = Act("create", "issue")
        return [
            world.perform(act, {"title": "a"}),
            world.perform(Act("search", "issue"), {"query": "a bravo"}),
            world.perform(Act("update", "issue", "number"), {"number": 2, "title": "b"}),
            world.perform(Act("delete", "issue", "number"), {"number": 1}),
            world.perform(Act("list", "issue"), {"limit": 2}),
            world.perform(Act("compute", "sum"), {"x": 1}),
        ]

    first, second = story(World()), story(World())
    assert first == second
    created, searched, updated, deleted, listed, _ = first
    assert created["id"] == "issue-4"
    assert [item["id"] for item in searched["items"]] == ["issue-2", "issue-4"]
    assert updated["title"] == "b"
    assert deleted == {"deleted": "issue-1", "left": 3}
    assert (len(listed["items"]), listed["total"]) == (2, 3)


def test_the_demo_says_which_of_its_tools_only_read() -> None:
    effects = {name: settings.tools for name, settings in demo_settings().items()}
    assert effects["weather"]["get_current_weather"].effect == "read_only"
    assert effects["github"]["create_issue"].effect is None
    assert sum(tool.effect == "read_only" for tools in effects.values() for tool in tools.values()) > 100
