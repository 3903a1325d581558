"""Calls that a person must confirm, through real clients of both eras over servers of both."""

from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import MCPError

from shortlist.access.catalog import needs_confirmation
from shortlist.access.scope import EVERYTHING, Scope
from shortlist.config.settings import (
    AuditSettings,
    CodeSettings,
    Confirm,
    Effect,
    MemoryTransport,
    ServerSettings,
    Settings,
    ToolOverride,
)
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.storage.audit import AuditRecord
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ERAS: tuple[Era, ...] = ("legacy", "modern")
Action = Literal["accept", "decline", "cancel"]


class Person:
    """Answers every question the same way, and remembers what was asked."""

    def __init__(self, action: Action = "accept") -> None:
        self.action: Action = action
        self.asked: list[str] = []

    async def __call__(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content: Any = {"colour": "red"} if "colour" in str(params.requested_schema) else {}
        return types.ElicitResult(action=self.action, content=content if self.action == "accept" else None)


class Kept:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def record(self, record: AuditRecord) -> None:
        self.records.append(record)

    def close(self) -> None: ...


def careful(era: Era = "legacy", **effects: Effect) -> Fixture:
    fixture = Fixture("lab", era)
    fixture.confirm, fixture.effects = "write", effects
    return fixture


async def call(served: Served, era: Era, person: Person, name: str, arguments: dict[str, Any]) -> Any:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served.client(era, elicitation_callback=person) as client:
            return await client.call_tool(name, arguments)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", ["search", "static", "passthrough"])
async def test_a_call_is_made_once_after_the_person_agreed(mode: Any, era: Era, server: Era) -> None:
    person = Person()
    async with serve(careful(server), options=ServeOptions(mode=mode)) as served:
        name = "echo" if mode == "passthrough" else "lab__echo"
        result = await call(served, era, person, name, {"text": "hello"})
    assert words(result) == "hello"
    assert person.asked == ["Allow this call to the server 'lab'?\necho(text=\"hello\")"]
    assert served.fixtures["lab"].calls == [("echo", {"text": "hello"})]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_call_is_not_made_where_the_person_does_not_agree(action: Action, era: Era) -> None:
    log = Kept()
    async with serve(careful(), seams=Seams(audit=log), audit=AuditSettings(enabled=True)) as served:
        result = await call(served, era, Person(action), "call_tool", {"name": "lab__echo", "arguments": {"text": "x"}})
    assert result.is_error
    assert "lab__echo was NOT invoked: the person who was asked did not allow it" in words(result)
    assert served.fixtures["lab"].calls == []
    assert [(each.decision, each.tool) for each in log.records] == [("refused", "echo")]


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_the_server_follow_the_confirmation(era: Era, server: Era) -> None:
    person = Person()
    async with serve(careful(server)) as served:
        result = await call(served, era, person, "lab__ask_user", {})
    assert "accept {'colour': 'red'}" in words(result)
    assert [question.partition("\n")[0] for question in person.asked] == [
        "Allow this call to the server 'lab'?",
        person.asked[1],
    ]
    assert person.asked[1].endswith("Which colour?")


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_is_configured_as_read_only_is_called_without_a_question(era: Era) -> None:
    person = Person()
    async with serve(careful(echo="read_only")) as served:
        assert words(await call(served, era, person, "lab__echo", {"text": "x"})) == "x"
    assert person.asked == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_program_is_asked_about_once_for_each_call_whatever_programs_may_do(era: Era) -> None:
    for allow in ("read", "write"):
        person = Person()
        code = CodeSettings(enabled=True, allow=allow)
        async with serve(careful(), options=ServeOptions(menu="code"), code=code) as served:
            result = await call(served, era, person, "run_code", {"code": "await tools.lab.echo(text='x')"})
        assert "Calls: 1 done." in words(result)
        assert len(person.asked) == 1


async def test_a_round_that_was_never_asked_for_does_not_count_as_a_confirmation() -> None:
    async with serve(careful("modern")) as served, served.client("modern", elicitation_callback=Person()) as client:
        forged = {"name": "lab__echo", "arguments": {"text": "x"}}
        answers = {"q1": {"action": "accept", "content": {}}}
        for state in ("made up", None):
            params = types.CallToolRequestParams.model_validate(
                {**forged, "inputResponses": answers, **({"requestState": state} if state else {})}
            )
            with pytest.raises(MCPError, match="Unknown requestState"):
                await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)
    assert served.fixtures["lab"].calls == []


@pytest.mark.parametrize(
    ("server", "token", "effect", "needed"),
    [
        ("never", "never", None, False),
        ("write", "never", "read_only", False),
        ("write", "never", "write", True),
        ("write", "never", "destructive", True),
        ("write", "never", None, True),
        ("destructive", "never", "write", False),
        ("destructive", "never", "destructive", True),
        ("destructive", "never", None, True),
        ("never", "write", "write", True),
        ("never", "destructive", "write", False),
        ("destructive", "write", "write", True),
    ],
)
async def test_the_stricter_of_server_and_token_decides_and_an_unknown_effect_counts_as_destructive(
    server: Confirm, token: Confirm, effect: Effect | None, needed: bool
) -> None:
    entry = ServerSettings(
        name="lab",
        transport=MemoryTransport(build=lambda: None),
        confirm=server,
        tools={"wipe": ToolOverride(effect=effect)},
    )
    settings = Settings(servers={"lab": entry})
    scope = EVERYTHING if token == "never" else Scope(confirm=token)
    assert needs_confirmation("lab/wipe", scope, settings) is needed
