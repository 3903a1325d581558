"""What one caller may use of each server, so that the others are served too."""

from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from shortlist.access.principal import Principal
from shortlist.config.settings import Limits, TokenSettings, hash_token
from shortlist.gateway.callers import Caller, Shares, TooManyCalls
from shortlist.gateway.task_handles import MAX_OWN_TASKS, MAX_TASKS, RelayedTasks
from shortlist.models import Tool
from tests.gateway.support import DEADLINE_SECONDS, MODES, Era, Fixture, Served, serve, words
from tests.gateway.test_doors import Recognised

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

TOKENS = {name: TokenSettings(name=name, hash=hash_token(name)) for name in ("ada", "bob")}


def principal(name: str) -> Principal:
    return Principal(kind="token", name=name, credential=hash_token(name))


def client(served: Served, name: str, era: Era = "modern") -> Client:
    """Return a client whose requests are those of one token."""
    front = Recognised(served.gateway)
    front.principal = principal(name)
    return Client(front.server, mode=MODES[era])


async def refused(client: Client, name: str, arguments: dict[str, Any]) -> MCPError:
    with pytest.raises(MCPError) as caught:
        await client.call_tool(name, arguments)
    return caught.value


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_caller_with_too_many_calls_running_is_told_when_to_come_back_and_others_are_served(era: Era) -> None:
    lab, limits = Fixture("lab"), Limits(calls_per_caller=1)
    async with (
        serve(lab, Fixture("den"), tokens=TOKENS, limits=limits) as served,
        client(served, "ada", era) as ada,
        client(served, "bob", era) as bob,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ada.call_tool, "lab__wait", {})
        with anyio.fail_after(DEADLINE_SECONDS):
            await lab.waiting.wait()
            error = await refused(ada, "lab__echo", {"text": "x"})
            elsewhere = await ada.call_tool("den__echo", {"text": "another server"})
            other = await bob.call_tool("lab__echo", {"text": "another caller"})
        tasks.cancel_scope.cancel()
    assert "you have 1 calls running there (limits.calls_per_caller). Try again in 1 second." in error.error.message
    assert error.error.data == {"retryAfterSeconds": 1}
    assert (words(elsewhere), words(other)) == ("another server", "another caller")
    assert ("echo", {"text": "x"}) not in lab.calls


@pytest.mark.parametrize("name", ["lab__echo", "call_tool"])
async def test_calls_of_a_minute_are_counted_for_each_caller_and_server(name: str) -> None:
    arguments: dict[str, Any] = {"text": "x"}
    if name == "call_tool":
        arguments = {"name": "lab__echo", "arguments": arguments}
    async with (
        serve(Fixture("lab"), tokens=TOKENS, limits=Limits(calls_per_minute=2)) as served,
        client(served, "ada") as ada,
        client(served, "bob") as bob,
    ):
        for _ in range(2):
            await ada.call_tool(name, arguments)
        error = await refused(ada, name, arguments)
        await bob.call_tool(name, arguments)
    assert "you may make 2 calls a minute there (limits.calls_per_minute)" in error.error.message
    assert 1 <= error.error.data["retryAfterSeconds"] <= 30
    assert len(served.fixtures["lab"].calls) == 3


def test_the_allowance_of_a_minute_comes_back_little_by_little() -> None:
    now = [0.0]
    shares = Shares(Limits(calls_per_minute=2), clock=lambda: now[0])
    ada = Caller(principal=principal("ada"))

    def call() -> int:
        try:
            with shares.turn(ada, "lab"):
                return 0
        except TooManyCalls as error:
            return error.data["retryAfterSeconds"]  # type: ignore[index,no-any-return]

    assert [call(), call(), call()] == [0, 0, 30]
    now[0] = 29.0
    assert call() == 1
    now[0] = 30.0
    assert [call(), call()] == [0, 30]


async def test_one_caller_displaces_neither_the_results_nor_the_workspace_of_another() -> None:
    limits = Limits(result_characters=200, results_per_caller=2, workspaces_per_caller=2)
    async with serve(Fixture("lab"), tokens=TOKENS, limits=limits) as served:
        state = served.gateway.state
        async with client(served, "ada") as ada, client(served, "bob") as bob:
            long = {"name": "lab__long", "arguments": {"size": 40}}
            kept = words(await ada.call_tool("call_tool", long)).partition("handle='")[2].partition("'")[0]
            await ada.call_tool("load_tools", {"names": ["lab__add"]})
            for _ in range(5):
                await bob.call_tool("call_tool", long)
                state.workspaces.mint(Caller(principal=principal("bob")))
            page = await ada.call_tool("read_result", {"handle": kept})
        loaded = state.workspaces.of(Caller(principal=principal("ada")))
    assert "line 0 of lab" in words(page)
    assert loaded is not None
    assert list(loaded.loaded) == ["lab/add"]


async def test_gateways_in_one_process_share_no_workspace() -> None:
    for name in ("add", "long"):
        async with serve(Fixture("lab"), tokens=TOKENS) as served:
            async with client(served, "ada") as ada:
                await ada.call_tool("load_tools", {"names": [f"lab__{name}"]})
            found = served.gateway.state.workspaces.of(Caller(principal=principal("ada")))
        assert found is not None
        assert list(found.loaded) == [f"lab/{name}"]


def test_one_caller_does_not_displace_the_tasks_of_another() -> None:
    tasks, tool = RelayedTasks(), Tool(id="lab/long", server="lab", name="long")
    ada, bob = (Caller(principal=principal(name)) for name in ("ada", "bob"))
    kept = tasks.keep(ada, tool, {"taskId": "hers"})
    for number in range(MAX_TASKS + 1):
        tasks.keep(bob, tool, {"taskId": str(number)})
    assert tasks.known_to(ada.principal) == [kept]
    assert len(tasks.known_to(bob.principal)) == MAX_OWN_TASKS
