"""run_code through real clients: every inner call is a call, whatever the era of its two ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from shortlist.config.settings import AuditSettings, CodeSettings, Effect, TokenSettings, hash_token
from shortlist.errors import StoreError
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.storage.audit import AuditRecord
from shortlist.storage.audit_files import AuditFiles
from shortlist.telemetry.events import Called, Event, ProgramEnded, Searched
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, schema, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ERAS: tuple[Era, ...] = ("legacy", "modern")
READING: dict[str, Effect] = dict.fromkeys(("add", "echo", "fail", "link", "long", "count", "wait"), "read_only")
CODE = ServeOptions(menu="code")


def reading(name: str = "lab", era: Era = "legacy") -> Fixture:
    fixture = Fixture(name, era)
    fixture.effects = dict(READING)
    return fixture


@asynccontextmanager
async def running(*fixtures: Fixture, **more: Any) -> AsyncIterator[Served]:
    async with serve(*(fixtures or (reading(),)), **{"options": CODE, **more}) as served:
        yield served


async def run(client: Client, code: str, **more: Any) -> Any:
    with anyio.fail_after(DEADLINE_SECONDS):
        return await client.call_tool("run_code", {"code": code, **more})


@pytest.mark.parametrize("era", ERAS)
async def test_a_program_combines_calls_and_returns_only_what_it_prints_and_its_last_value(era: Era) -> None:
    code = """
import asyncio
sums = await asyncio.gather(*[tools.lab.add(a=n, b=n) for n in range(5)])
print("summed", len(sums))
sum(each["total"] for each in sums)
"""
    async with running() as served, served.client(era) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        result = await run(client, code)
    assert listed == ["search_tools", "describe_tools", "run_code", "read_result"]
    assert words(result) == "summed 5\n20\nCalls: 5 done."
    assert not result.is_error


async def test_search_and_describe_show_the_functions_that_a_program_calls() -> None:
    async with running(reading("my-lab")) as served, served.client() as client:
        found = words(await client.call_tool("search_tools", {"query": "add two numbers"}))
        described = words(await client.call_tool("describe_tools", {"names": ["my_lab.add"]}))
        inside = await run(client, 'hits = await search("add two numbers", limit=1)\nhits[0]["name"]')
        told = await run(client, 'await describe("my_lab.add")')
    assert "tools.my_lab.add(a: float, b: float)" in found
    assert described.startswith("tools.my_lab.add(a: float, b: float)\n  Add two numbers.")
    assert '"my_lab.add"' in words(inside)
    assert "tools.my_lab.add(a: float, b: float)" in words(told)


async def test_run_code_is_a_tool_like_any_unknown_one_where_programs_are_not_offered() -> None:
    async with serve(reading()) as served, served.client() as client:
        result = await run(client, "await tools.lab.echo(text='x')")
        python = await client.call_tool("search_tools", {"query": "echo", "detail": "python"})
    assert "No tool 'run_code'" in words(result)
    assert "--code" in words(python)
    assert served.fixtures["lab"].calls == []


async def test_the_configuration_offers_programs_too() -> None:
    async with serve(reading(), code=CodeSettings(enabled=True)) as served, served.client() as client:
        assert words(await run(client, "1 + 1")).startswith("2\n")


# What goes wrong


async def test_wrong_arguments_in_the_third_of_five_calls_are_refused_with_the_signature_and_reported() -> None:
    code = "\n".join(
        [
            "a = await tools.lab.echo(text='one')",
            "b = await tools.lab.echo(text='two')",
            "c = await tools.lab.echo(words='three')",
            "d = await tools.lab.echo(text='four')",
            "e = await tools.lab.add(a=1, b=2)",
        ]
    )
    async with running() as served, served.client() as client:
        result = await run(client, code)
    said = words(result)
    assert result.is_error
    assert "The program failed at line 3: c = await tools.lab.echo(words='three')" in said
    assert "unknown argument 'words'. Signature: tools.lab.echo(text: str)" in said
    assert "Calls: 2 done, 1 failed, 2 not started." in said
    assert "- line 4: lab.echo: not started" in said
    assert [arguments for _, arguments in served.fixtures["lab"].calls] == [{"text": "one"}, {"text": "two"}]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("await tools.lab.add(a='x', b=1)", "TypeError: lab.add was NOT invoked: arguments.a: "),
        ("await tools.lab.add(1)", "Signature: tools.lab.add(a: float, b: float)"),
        ("await tools.lab.add(1, 2, 3)", "it takes 2 arguments, but 3 were passed by position"),
        ("await tools.lab.add(1, a=2)", "'a' is passed twice"),
        ("await tools.lab.ad(a=1, b=2)", "AttributeError: No function tools.lab.ad. Did you mean lab.add"),
        ("await tools.nowhere.x()", "No function tools.nowhere.x. "),
        ("await tools.lab.fail()", "RuntimeError: Server 'lab'"),
        ("await search()", "'query' is missing"),
        ("1 +", "SyntaxError"),
        ("def f():\n    yield 1", "Programs cannot use yield expressions\nBuild a list"),
        ("class A(B): pass", "Use functions, dictionaries and plain classes"),
        ("import socket", "Available modules: asyncio"),
        ("x = tools.lab.echo(text='x')\nx", "not started (the program ended before it was awaited)"),
        ("nothing", "NameError"),
    ],
)
async def test_a_mistake_says_what_happened_and_what_to_do(code: str, said: str) -> None:
    async with running() as served, served.client() as client:
        assert said in words(await run(client, code))


async def test_a_program_goes_on_after_a_failure_that_it_catches() -> None:
    code = """
try:
    await tools.lab.fail()
except RuntimeError as error:
    print("caught")
(await tools.lab.add(a=1, b=2))["total"]
"""
    async with running() as served, served.client() as client:
        result = await run(client, code)
    assert words(result).startswith("caught\n3\nCalls: 1 done, 1 failed.")
    assert not result.is_error


async def test_a_missing_program_is_refused() -> None:
    async with running() as served, served.client() as client:
        for arguments in ({}, {"code": ""}, {"code": 7}):
            assert "'code' is missing" in words(await client.call_tool("run_code", arguments))
        assert "20,000 are allowed" in words(await run(client, "x = 1\n" * 20_000))


async def test_a_tool_that_disappears_in_the_middle_is_unknown_from_then_on() -> None:
    fixture = reading()
    started = anyio.Event()

    async def held(*_: Any) -> Any:
        started.set()
        await gone.wait()
        return types.CallToolResult(content=[types.TextContent(text="held")])

    gone = anyio.Event()
    fixture.tools["hold"] = ("Wait for a change.", schema())
    fixture.effects["hold"] = "read_only"
    fixture.tool_hold = held  # type: ignore[attr-defined]
    results: list[Any] = []
    async with running(fixture) as served, served.client() as client, anyio.create_task_group() as tasks:

        async def program() -> None:
            code = "await tools.lab.hold()\nawait tools.lab.echo(text='x')"
            results.append(await run(client, code))

        tasks.start_soon(program)
        await started.wait()
        await served.gateway.state.renew(lambda catalog: catalog.without_server("lab"))
        gone.set()
    assert "No function tools.lab.echo" in words(results[0])
    assert "- line 1: lab.hold: done\n- line 2: lab.echo: failed" in words(results[0])


async def test_a_large_value_is_kept_for_read_result_and_a_huge_result_never_enters_the_program() -> None:
    async with running() as served, served.client() as client:
        long = await run(client, "text = await tools.lab.long(size=2000)\nprint(text)", max_tokens=100)
        handle = words(long).partition("handle='")[2].partition("'")[0]
        passage = words(await client.call_tool("read_result", {"handle": handle, "query": "1999"}))
        huge = await run(client, "await tools.lab.long(size=60_000)")
    assert len(words(long)) < 1_000
    assert "line 1999 of lab" in passage
    assert "too large for a program" in words(huge)
    assert "read_result(handle=" in words(huge)


async def test_a_result_of_50_megabytes_is_reported_and_the_program_goes_on() -> None:
    class Huge(Fixture):
        async def tool_long(self, *_: Any) -> Any:
            return types.CallToolResult(content=[types.TextContent(text="x" * 50_000_000)])

    fixture = Huge("lab")
    fixture.effects = dict(READING)
    code = (
        "try:\n    await tools.lab.long(size=1)\nexcept RuntimeError:\n    print('too large')\nawait tools.lab.link()"
    )
    async with running(fixture) as served, served.client() as client:
        said = words(await run(client, code))
    assert said.startswith("too large\n")
    assert "- line 2: lab.long: failed (RuntimeError: The call was made, but its result of 50,000,000" in said
    assert "- line 5: lab.link: done" in said


# Budgets


@pytest.mark.parametrize(
    ("budget", "code", "said"),
    [
        ({"calls": 3}, "for n in range(9):\n    await tools.lab.add(a=n, b=n)", "more than 3 calls"),
        ({"seconds": 0.5}, "import asyncio\nawait asyncio.sleep(60)", "longer than 0.5 s"),
        ({"memory_megabytes": 8}, "x = 'y' * 50_000_000", "MemoryError"),
        ({"output_characters": 100}, "while True:\n    print('flood')", "more than 100 characters"),
    ],
)
async def test_a_budget_ends_a_program_and_the_report_says_what_was_done(
    budget: dict[str, Any], code: str, said: str
) -> None:
    async with running(code=CodeSettings(**budget)) as served, served.client() as client:
        result = await run(client, code)
        calls = served.fixtures["lab"].calls
        assert said in words(result)
        assert ("Calls: " in words(result)) == bool(calls)
        assert words(await run(client, "1 + 1")).startswith("2\n")


async def test_an_upstream_that_hangs_is_reported_as_running_when_the_program_ended() -> None:
    async with running(code=CodeSettings(seconds=2.0)) as served, served.client() as client:
        await run(client, "await tools.lab.add(a=1, b=1)")
        said = words(await run(client, "await tools.lab.add(a=1, b=1)\nawait tools.lab.wait()\nawait tools.lab.link()"))
        with anyio.fail_after(DEADLINE_SECONDS):
            await served.fixtures["lab"].cancelled.wait()
    assert "- line 1: lab.add: done" in said
    assert "- line 2: lab.wait: failed (it was running when the program ended" in said
    assert "- line 3: lab.link: not started" in said


@pytest.mark.parametrize("era", ERAS)
async def test_cancelling_the_request_cancels_the_calls_of_its_program(era: Era) -> None:
    code = "try:\n    await tools.lab.wait()\nexcept BaseException:\n    pass\nawait tools.lab.echo(text='after')"
    async with running() as served, served.client(era) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(run, client, code)
        fixture = served.fixtures["lab"]
        with anyio.fail_after(DEADLINE_SECONDS):
            await fixture.waiting.wait()
            tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        await fixture.cancelled.wait()
    assert [name for name, _ in fixture.calls] == ["wait"]


# Writing


WRITE = "done = await tools.lab.touch()\nagain = await tools.lab.touch()\n(done, again)"


async def test_a_tool_that_may_write_is_not_called_unasked() -> None:
    async with running() as served, served.client() as client:
        result = await run(client, WRITE)
    assert "PermissionError: lab.touch was NOT invoked: it may write" in words(result)
    assert served.fixtures["lab"].calls == []


async def test_the_configuration_may_allow_writing_or_say_what_only_reads() -> None:
    for settings in (CodeSettings(allow="write"), CodeSettings(read_only=("lab/touch",))):
        async with running(code=settings) as served, served.client() as client:
            assert '["touched", "touched"]' in words(await run(client, WRITE))


async def test_what_a_server_says_about_its_own_effects_lets_nothing_run_unasked() -> None:
    class Boasting(Fixture):
        async def list_tools(self, *_: Any) -> types.ListToolsResult:
            listed = await super().list_tools()
            for tool in listed.tools:
                tool.annotations = types.ToolAnnotations(read_only_hint=True)
            return listed

    async with running(Boasting("lab")) as served, served.client() as client:
        assert "was NOT invoked" in words(await run(client, WRITE))
    assert served.fixtures["lab"].calls == []


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("answer", ["once", "always", "decline"])
async def test_a_user_who_is_shown_the_calls_decides(answer: str, era: Era, server: Era) -> None:
    asked: list[str] = []

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        if answer == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"always": answer == "always"})

    async with running(reading(era=server)) as served, served.client(era, elicitation_callback=elicit) as client:
        result = await run(client, WRITE)
    assert asked[0] == "A program wants to call:\n- lab.touch()"
    assert len(asked) == {"once": 2, "always": 1, "decline": 1}[answer]
    assert len(served.fixtures["lab"].calls) == (0 if answer == "decline" else 2)
    assert ("the user did not allow it" in words(result)) == (answer == "decline")


@pytest.mark.parametrize("era", ERAS)
async def test_parallel_calls_that_write_are_asked_about_at_once(era: Era) -> None:
    asked: list[str] = []

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={})

    fixture = Fixture("lab")
    code = "import asyncio\nawait asyncio.gather(tools.lab.echo(text='a'), tools.lab.add(a=1, b=2))"
    async with running(fixture) as served, served.client(era, elicitation_callback=elicit) as client:
        result = await run(client, code)
    assert asked == ['A program wants to call:\n- lab.echo(text="a")\n- lab.add(a=1, b=2)']
    assert '["a", {"total": 3}]' in words(result)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_a_server_suspend_the_program_and_resume_it(era: Era, server: Era) -> None:
    async def elicit(_: Any, __: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "red"})

    async def sample(_: Any, __: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="A poem."), model="m")

    fixture = Fixture("lab", server)
    code = "colour = await tools.lab.ask_user()\npoem = await tools.lab.ask_model()\nf'{colour} {poem}'"
    async with (
        running(fixture, code=CodeSettings(allow="write")) as served,
        served.client(era, elicitation_callback=elicit, sampling_callback=sample) as client,
    ):
        result = await run(client, code)
    assert "accept {'colour': 'red'}" in words(result)
    assert "A poem." in words(result)
    assert "Calls: 2 done." in words(result)


# An inner call is a call


@pytest.mark.parametrize("era", ERAS)
async def test_inner_calls_and_searches_are_recorded_with_their_program(era: Era) -> None:
    events: list[Event] = []
    code = 'await search("say a text back")\nawait tools.lab.echo(text="x")\nawait tools.lab.add(a="x", b=1)'
    async with running(seams=Seams(record=events.append)) as served, served.client(era) as client:
        await run(client, code)
    ended = next(event for event in events if isinstance(event, ProgramEnded))
    called = [event for event in events if isinstance(event, Called)]
    assert [event.query for event in events if isinstance(event, Searched)] == ["say a text back"]
    assert [(event.tool, event.outcome) for event in called] == [("lab/echo", "ok"), ("lab/add", "invalid_arguments")]
    assert {event.program for event in called} == {ended.program}
    assert (ended.outcome, dict(ended.calls)) == ("failed", {"done": 2, "failed": 1})


@pytest.mark.parametrize("era", ERAS)
async def test_the_audit_log_names_the_program_as_the_parent_of_its_calls(era: Era, tmp_path: Path) -> None:
    log = AuditFiles(tmp_path)
    code = "await tools.lab.echo(text='x')\nawait tools.lab.nothing()"
    async with (
        running(seams=Seams(audit=log), audit=AuditSettings(enabled=True)) as served,
        served.client(era) as client,
    ):
        await run(client, code)
        await client.call_tool("lab__echo", {"text": "from outside"})
    log.close()
    rows = list(AuditFiles(tmp_path).records())
    program = rows[0]["program"]
    assert [(r["action"], r.get("tool", ""), r["decision"], r.get("outcome", "")) for r in rows] == [
        ("run_code", "", "allowed", ""),
        ("tools/call", "echo", "allowed", ""),
        ("tools/call", "echo", "allowed", "ok"),
        ("tools/call", "lab/nothing", "refused", ""),
        ("run_code", "", "allowed", "failed"),
        ("tools/call", "echo", "allowed", ""),
        ("tools/call", "echo", "allowed", "ok"),
    ]
    assert [r.get("program") for r in rows] == [program] * 5 + [None] * 2


async def test_a_program_that_must_be_audited_does_not_run_where_that_fails() -> None:
    class Full:
        def record(self, record: AuditRecord) -> None:
            raise StoreError(f"no room for {record.action}")

        def close(self) -> None: ...

    settings = AuditSettings(enabled=True, required=True)
    async with running(seams=Seams(audit=Full()), audit=settings) as served, served.client() as client:
        result = await run(client, "await tools.lab.echo(text='x')")
    assert "NOT sent" in words(result)
    assert served.fixtures["lab"].calls == []


async def test_a_review_may_find_that_a_tool_only_reads() -> None:
    class Reviewed:
        def read_only(self, server: str) -> frozenset[str]:
            return frozenset({"touch"}) if server == "lab" else frozenset()

    async with running(Fixture("lab"), seams=Seams(reviews=Reviewed())) as served, served.client() as client:
        result = await run(client, WRITE)
        other = await run(client, "await tools.lab.echo(text='x')")
    assert '["touched", "touched"]' in words(result)
    assert "was NOT invoked" in words(other)


async def test_progress_of_inner_calls_reaches_the_client_as_one_growing_number() -> None:
    heard: list[float] = []
    complete = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        if len(heard) == 4:
            complete.set()

    async with running() as served, served.client("legacy") as client:
        code = "await tools.lab.count()\nawait tools.lab.count()"
        await client.call_tool("run_code", {"code": code}, progress_callback=hear)
        with anyio.fail_after(DEADLINE_SECONDS):
            await complete.wait()
    assert heard == [1, 2, 3, 4]


async def test_a_token_that_may_only_read_writes_nothing_by_a_program() -> None:
    token = TokenSettings(name="guest", hash=hash_token("x"), can=("read",))
    from tests.gateway.test_doors import GUEST, Recognised

    async with running(tokens={"guest": token}, code=CodeSettings(allow="write")) as served:
        front = Recognised(served.gateway)
        front.principal = GUEST
        async with Client(front.server) as client:
            result = await run(client, "print(await tools.lab.echo(text='x'))\nawait tools.lab.touch()")
    assert "your token may call only tools that are configured as read_only" in words(result)
    assert [name for name, _ in served.fixtures["lab"].calls] == ["echo"]
