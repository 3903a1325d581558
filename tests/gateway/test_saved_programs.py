"""Saved programs: offered as tools once they are approved, to callers that reach every tool they use."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from shortlist.access.principal import Principal
from shortlist.config.settings import CodeSettings, TokenSettings, hash_token
from shortlist.errors import StoreError
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.storage.programs import MemoryPrograms, StoredProgram
from shortlist.telemetry.events import Called, Event, ProgramEnded
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, serve, words
from tests.gateway.test_doors import Recognised
from tests.gateway.test_programs import ERAS, reading

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

SUM = StoredProgram(
    name="sum_up",
    source=(
        "import asyncio\n"
        "sums = await asyncio.gather(*[tools.lab.add(a=n, b=n) for n in range(count)])\n"
        "await tools.lab.echo(text=greeting)\n"
        "{'total': sum(each['total'] for each in sums), 'greeting': greeting}"
    ),
    description="Double the first numbers and add them up.",
    parameters={"count": 3, "greeting": "hello"},
    tools=("lab/add", "lab/echo"),
    saved=1.0,
    approved_by="ada",
)
TOUCH = replace(SUM, name="touch_twice", source="await tools.lab.touch()", parameters={}, tools=("lab/touch",))


@asynccontextmanager
async def offering(*programs: StoredProgram, **more: Any) -> AsyncIterator[Served]:
    seams = Seams(programs=MemoryPrograms(*programs))
    async with serve(reading(), **{"seams": seams, **more}) as served:
        yield served


async def call(client: Client, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    with anyio.fail_after(DEADLINE_SECONDS):
        return await client.call_tool(name, dict(arguments or {}))


@pytest.mark.parametrize("era", ERAS)
async def test_an_approved_program_is_found_described_and_called_like_any_tool(era: Era) -> None:
    async with offering(SUM) as served, served.client(era) as client:
        found = words(await call(client, "search_tools", {"query": "double numbers and add them up", "limit": 3}))
        described = words(await call(client, "describe_tools", {"names": ["programs__sum_up"]}))
        by_default = await call(client, "call_tool", {"name": "programs__sum_up", "arguments": {}})
        chosen = await call(client, "call_tool", {"name": "programs__sum_up", "arguments": {"count": 2}})
    assert found.partition("programs__sum_up")[1]
    assert '"greeting"' in described
    assert by_default.structured_content == {"total": 6, "greeting": "hello"}
    assert chosen.structured_content == {"total": 2, "greeting": "hello"}
    assert "Calls:" not in words(chosen)


async def test_a_program_that_nobody_approved_is_not_offered() -> None:
    async with offering(replace(SUM, approved_by="")) as served, served.client() as client:
        result = await call(client, "call_tool", {"name": "programs__sum_up", "arguments": {}})
    assert "No tool 'programs__sum_up'" in words(result)
    assert served.fixtures["lab"].calls == []


@pytest.mark.parametrize("arguments", [{"count": "many"}, {"counts": 1}])
async def test_wrong_arguments_are_refused_before_anything_runs(arguments: dict[str, Any]) -> None:
    for options in (ServeOptions(), ServeOptions(mode="passthrough")):
        async with offering(SUM, options=options) as served, served.client() as client:
            result = await call(client, "programs__sum_up", arguments)
        assert "NOT invoked" in words(result)
        assert served.fixtures["lab"].calls == []


async def test_a_list_of_tools_contains_it_also_beside_the_own_names_of_a_single_server() -> None:
    async with offering(SUM, options=ServeOptions(mode="passthrough")) as served, served.client() as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        result = await call(client, "programs__sum_up")
    assert {"add", "programs__sum_up"} <= set(listed)
    assert result.structured_content == {"total": 6, "greeting": "hello"}


async def test_a_program_calls_a_saved_one_like_any_function() -> None:
    code = "first = await tools.programs.sum_up(count=2)\nsecond = await tools.programs.sum_up()\n[first, second]"
    async with offering(SUM, options=ServeOptions(menu="code")) as served, served.client() as client:
        result = await call(client, "run_code", {"code": code})
    assert words(result).startswith('[{"total": 2, "greeting": "hello"}, {"total": 6, "greeting": "hello"}]')


async def test_many_programs_that_call_saved_ones_do_not_wait_for_each_other_for_ever() -> None:
    done: list[str] = []
    async with offering(SUM, options=ServeOptions(menu="code")) as served, served.client() as client:

        async def run() -> None:
            result = await call(client, "run_code", {"code": "(await tools.programs.sum_up(count=1))['total']"})
            done.append(words(result).splitlines()[0])

        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(run)
    assert done == ["0"] * 12


async def test_its_calls_are_recorded_with_the_program_as_their_parent() -> None:
    events: list[Event] = []
    seams = Seams(programs=MemoryPrograms(SUM), record=events.append)
    async with offering(seams=seams) as served, served.client() as client:
        await call(client, "call_tool", {"name": "programs__sum_up", "arguments": {"count": 1}})
    ended = next(event for event in events if isinstance(event, ProgramEnded))
    called = [(event.tool, event.program) for event in events if isinstance(event, Called)]
    assert called == [("lab/add", ended.program), ("lab/echo", ended.program), ("programs/sum_up", None)]


async def test_it_calls_only_the_tools_that_it_was_approved_with() -> None:
    sly = replace(SUM, source="name = 'link'\nawait getattr(tools.lab, name)()", parameters={})
    async with offering(sly) as served, served.client() as client:
        result = await call(client, "call_tool", {"name": "programs__sum_up", "arguments": {}})
    assert "was approved without it" in words(result)
    assert served.fixtures["lab"].calls == []


async def test_it_writes_only_where_its_approval_the_configuration_or_the_user_says_so() -> None:
    refused, allowed = "was NOT invoked: it may write", "touched"
    cases: list[tuple[StoredProgram, dict[str, Any], str]] = [
        (TOUCH, {}, refused),
        (replace(TOUCH, allow="write"), {}, allowed),
        (TOUCH, {"code": CodeSettings(allow="write")}, allowed),
    ]
    for program, settings, said in cases:
        async with offering(program, **settings) as served, served.client() as client:
            assert said in words(await call(client, "call_tool", {"name": "programs__touch_twice", "arguments": {}}))


@pytest.mark.parametrize("era", ERAS)
async def test_the_user_is_shown_the_calls_of_a_saved_program_that_writes(era: Era) -> None:
    asked: list[str] = []

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={})

    async with offering(TOUCH) as served, served.client(era, elicitation_callback=elicit) as client:
        result = await call(client, "programs__touch_twice")
    assert asked == ["A program wants to call:\n- lab.touch()"]
    assert words(result) == '"touched"'


def guest(*tools: str, can: tuple[Any, ...] | None = None) -> TokenSettings:
    return TokenSettings(name="guest", hash=hash_token("x"), tools=tools, can=can)


@pytest.mark.parametrize(
    ("token", "found"),
    [
        (guest("lab/add", "lab/echo"), True),
        (guest("lab/*"), True),
        (guest("lab/add"), False),
        (guest("programs/*"), False),
        (guest("programs/*", "lab/add"), False),
        (guest("*"), True),
        (guest("lab/*", can=("read",)), True),
    ],
)
async def test_a_caller_reaches_it_only_where_it_reaches_every_tool_it_uses(token: TokenSettings, found: bool) -> None:
    async with offering(SUM, tokens={"guest": token}) as served:
        front = Recognised(served.gateway)
        front.principal = Principal(kind="token", name="guest", credential=token.hash)
        async with Client(front.server) as client:
            searched = words(await call(client, "search_tools", {"query": "double numbers", "limit": 50}))
            result = await call(client, "call_tool", {"name": "programs__sum_up", "arguments": {}})
    assert ("sum_up" in searched) == found
    assert (result.structured_content is not None) == found


async def test_a_token_that_may_only_read_cannot_call_one_that_uses_a_tool_that_writes() -> None:
    token = guest("lab/*", can=("read",))
    async with offering(replace(TOUCH, allow="write"), tokens={"guest": token}) as served:
        front = Recognised(served.gateway)
        front.principal = Principal(kind="token", name="guest", credential=token.hash)
        async with Client(front.server) as client:
            result = await call(client, "call_tool", {"name": "programs__touch_twice", "arguments": {}})
    assert "NOT invoked: your token may call only tools that are configured as read_only" in words(result)
    assert served.fixtures["lab"].calls == []


async def test_it_comes_and_goes_with_its_approval_and_with_its_tools() -> None:
    store = MemoryPrograms(replace(SUM, approved_by=""))
    async with offering(seams=Seams(programs=store)) as served, served.client() as client:

        async def is_offered() -> bool:
            await served.gateway.offer_programs()
            found = words(await call(client, "search_tools", {"query": "double numbers", "limit": 50}))
            return "programs__sum_up" in found

        states = [await is_offered()]
        store.put(SUM)
        states.append(await is_offered())
        await served.gateway.state.renew(lambda catalog: catalog.without_server("lab"))
        states.append(await is_offered())
        store.remove("sum_up")
        states.append(await is_offered())
    assert states == [False, True, False, False]


async def test_programs_that_cannot_be_read_are_reported_and_nothing_else_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Damaged(MemoryPrograms):
        def load(self) -> Mapping[str, StoredProgram]:
            raise StoreError("the file is damaged")

    async with offering(seams=Seams(programs=Damaged())) as served, served.client() as client:
        assert words(await call(client, "lab__echo", {"text": "x"})) == "x"
    assert "saved programs cannot be read: the file is damaged" in caplog.text


async def test_a_server_that_is_called_programs_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    seams = Seams(programs=MemoryPrograms(SUM))
    async with serve(Fixture("programs"), seams=seams) as served, served.client() as client:
        assert words(await call(client, "programs__echo", {"text": "x"})) == "x"
    assert "a server is named 'programs'" in caplog.text
