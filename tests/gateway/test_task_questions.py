"""Questions and status of long-running calls: each reaches the client that follows the task, and nobody else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension, NotificationBinding
from pydantic import ConfigDict

from shortlist.access.principal import OWNER, Principal
from shortlist.config.settings import TokenSettings, hash_token
from shortlist.gateway.task_handles import RELATED
from tests.gateway.support import DEADLINE_SECONDS, FORM, MODES, Era, Fixture, Served, serve, words
from tests.gateway.test_doors import GUEST, Recognised
from tests.gateway.test_tasks import PASSED, Follower, Tasks, TaskServer

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ERAS: tuple[Era, ...] = ("legacy", "modern")
STATUS = "notifications/tasks/status"
GUESTS = {"guest": TokenSettings(name="guest", hash=hash_token("x"), tools=("tasks/build",))}


class AskingServer(TaskServer):
    """A server whose tasks need input before they end; `asking` holds a task's question back until it is set."""

    def __init__(self, era: Era = "legacy", support: Any = "optional", name: str = "tasks") -> None:
        super().__init__(name, era, support)
        self.asking: dict[str, anyio.Event] = {}
        self.waiting = anyio.Event()
        self.open = 0
        self.session: Any = None

    async def _wrap(self, ctx: Any, call_next: Any) -> Any:
        self.session = ctx.session
        return await super()._wrap(ctx, call_next)

    def _start(self) -> dict[str, Any]:
        started = super()._start()
        own = f"own-{len(self.statuses) - 1}"
        self.statuses[own] = "input_required"
        return started

    async def _on_task(self, ctx: Any, params: Any) -> dict[str, Any]:
        own = ctx.params["taskId"]
        if ctx.method == "tasks/get" and self.era == "modern" and self.statuses[own] == "input_required":
            question = {"method": "elicitation/create", "params": {"message": "Which colour?", "requestedSchema": FORM}}
            return {**self._shown(own), "inputRequests": {"colour": question}}
        if ctx.method != "tasks/result":
            return await super()._on_task(ctx, params)
        self.asked.append(ctx.method)
        self.open += 1
        self.waiting.set()
        if own in self.asking:
            await self.asking[own].wait()
        form = types.ElicitRequestFormParams.model_validate(
            {"message": f"Which colour for {own}?", "requestedSchema": FORM, "_meta": {RELATED: {"taskId": own}}}
        )
        try:
            answer = await self.session.send_request(types.ElicitRequest(params=form), types.ElicitResult)
            said = f"{own} is {answer.content['colour']}"
        except MCPError as error:
            said = error.error.message
        self.statuses[own] = "completed"
        return {"content": [{"type": "text", "text": said}], "_meta": {RELATED: {"taskId": own}}}

    async def tell(self, own: str, status: str) -> None:
        """Notify the client of a task's status."""
        self.statuses[own] = status
        await self.session._connection.notify(STATUS, self._shown(own))  # the SDK knows no such notification


class Status(types.NotificationParams):
    """Whatever a status notification says."""

    model_config = ConfigDict(extra="allow")


class Told(ClientExtension):
    """Collects the status notifications that a client gets."""

    identifier = "io.example/told"

    def __init__(self, seen: list[tuple[str, str]], pulse: anyio.Event) -> None:
        self.seen, self.pulse = seen, pulse

    def notifications(self) -> Any:
        return (NotificationBinding(method=STATUS, params_type=Status, handler=self._take),)

    async def _take(self, params: Any) -> None:
        told = params.model_dump(by_alias=True)
        self.seen.append((told["taskId"], told["status"]))
        self.pulse.set()


class Person:
    """A client that answers questions, follows tasks and hears of their status."""

    def __init__(self, colour: str) -> None:
        self.colour = colour
        self.asked: list[tuple[str, Any]] = []
        self.seen: list[tuple[str, str]] = []
        self.told = anyio.Event()
        self.follower: Follower

    async def elicit(self, _: Any, params: Any) -> Any:
        related = (params.meta or {}).get(RELATED) or {}
        self.asked.append((params.message, related.get("taskId")))
        return types.ElicitResult(action="accept", content={"colour": self.colour})

    @asynccontextmanager
    async def connected(self, served: Served, era: Era = "legacy", principal: Principal = OWNER) -> AsyncIterator[None]:
        front = Recognised(served.gateway)
        front.principal = principal
        known: list[Any] = [Tasks()] if era == "modern" else [Told(self.seen, self.told)]
        answers: Any = self.elicit
        async with Client(front.server, mode=MODES[era], extensions=known, elicitation_callback=answers) as client:
            self.follower = Follower(client, era)
            yield


async def test_a_legacy_client_is_asked_while_it_waits_for_the_result_of_its_task() -> None:
    server, person = AskingServer(), Person("red")
    async with serve(server, Fixture("other"), options=PASSED) as served, person.connected(served):
        handle = await person.follower.start()
        status = (await person.follower.send("tasks/get", taskId=handle))["status"]
        result = await person.follower.send("tasks/result", taskId=handle)
    assert status == "input_required"
    assert person.asked == [("tasks asks: Which colour for own-0?", handle)]
    assert result["content"][0]["text"] == "own-0 is red"
    assert result["_meta"][RELATED] == {"taskId": handle}


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_knows_no_tasks_is_asked_in_its_call(era: Era) -> None:
    server, person = AskingServer(support="required"), Person("blue")
    async with serve(server) as served:
        answers: Any = person.elicit
        async with served.client(era, elicitation_callback=answers) as client:
            with anyio.fail_after(DEADLINE_SECONDS):
                result = await client.call_tool("call_tool", {"name": "tasks__build", "arguments": {}})
    assert words(result) == "own-0 is blue"
    assert person.asked == [("tasks asks: Which colour for own-0?", None)]


async def test_of_two_clients_each_is_asked_about_its_own_task() -> None:
    server, first, second = AskingServer(), Person("red"), Person("green")
    server.asking = {own: anyio.Event() for own in ("own-0", "own-1")}
    texts: dict[str, str] = {}

    async def read(person: Person, handle: str) -> None:
        texts[person.colour] = await person.follower.result(handle)

    async with (
        serve(server, Fixture("other"), options=PASSED, tokens=GUESTS) as served,
        first.connected(served),
        second.connected(served, principal=GUEST),
        anyio.create_task_group() as tasks,
    ):
        handles = [await person.follower.start() for person in (first, second)]
        for person, handle in zip((first, second), handles, strict=True):
            server.waiting = anyio.Event()
            tasks.start_soon(read, person, handle)
            with anyio.fail_after(DEADLINE_SECONDS):
                await server.waiting.wait()
        assert server.open == 2
        for event in server.asking.values():
            event.set()
    assert texts == {"red": "own-0 is red", "green": "own-1 is green"}
    assert [asked[1] for asked in (*first.asked, *second.asked)] == handles


@pytest.mark.parametrize("support", ["optional", "required"])
async def test_a_server_that_may_not_ask_does_not_ask_in_a_task_either(support: str) -> None:
    server, person = AskingServer(support=support), Person("red")
    server.may_ask = ()
    async with serve(server, Fixture("other"), options=PASSED) as served, person.connected(served):
        text = await person.follower.result(await person.follower.start())
    assert "may not ask clients for elicitation" in text
    assert person.asked == []


async def test_a_task_is_cancelled_while_it_asks() -> None:
    server, person = AskingServer(), Person("red")
    server.asking = {"own-0": anyio.Event()}
    async with serve(server, Fixture("other"), options=PASSED) as served, person.connected(served):
        handle = await person.follower.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(person.follower.result, handle)
            with anyio.fail_after(DEADLINE_SECONDS):
                await server.waiting.wait()
            cancelled = await person.follower.send("tasks/cancel", taskId=handle)
            tasks.cancel_scope.cancel()
    assert cancelled["status"] == "cancelled"
    assert person.asked == []


async def test_a_modern_task_asks_in_the_name_of_its_server() -> None:
    server, person = AskingServer("modern"), Person("red")
    async with serve(server, Fixture("other"), options=PASSED) as served, person.connected(served, "modern"):
        handle = await person.follower.start()
        asked = await person.follower.send("tasks/get", taskId=handle)
        await person.follower.send("tasks/update", taskId=handle, inputResponses={"colour": {"action": "decline"}})
    assert asked["inputRequests"]["colour"]["params"]["message"] == "tasks asks: Which colour?"
    assert server.updates == [{"colour": {"action": "decline"}}]


async def test_a_modern_task_of_a_server_that_may_not_ask_is_refused() -> None:
    server, person = AskingServer("modern"), Person("red")
    server.may_ask = ()
    async with serve(server, Fixture("other"), options=PASSED) as served, person.connected(served, "modern"):
        handle = await person.follower.start()
        with pytest.raises(MCPError, match="may not ask clients for elicitation"):
            await person.follower.send("tasks/get", taskId=handle)


async def test_the_status_of_a_task_is_told_to_the_client_that_follows_it_until_it_expires() -> None:
    server, owner, guest = AskingServer(), Person("red"), Person("green")
    now = 0.0
    async with (
        serve(server, Fixture("other"), options=PASSED, tokens=GUESTS) as served,
        owner.connected(served),
        guest.connected(served, principal=GUEST),
    ):
        served.gateway.state.relayed_tasks.clock = lambda: now
        server.ttl = 5_000
        of_owner = await owner.follower.start()
        server.ttl = 60_000
        of_guest = await guest.follower.start()
        await server.tell("own-0", "working")
        with anyio.fail_after(DEADLINE_SECONDS):
            await owner.told.wait()
        now = 5.0
        await server.tell("own-0", "completed")
        await server.tell("own-1", "failed")  # told last, so what came before has been decided
        with anyio.fail_after(DEADLINE_SECONDS):
            await guest.told.wait()
    assert owner.seen == [(of_owner, "working")]
    assert guest.seen == [(of_guest, "failed")]


async def test_the_status_of_a_task_out_of_reach_is_not_told() -> None:
    gone, there, person = AskingServer(name="gone"), AskingServer(), Person("red")
    async with serve(gone, there, options=PASSED) as served, person.connected(served):
        await person.follower.start("gone__build")
        handle = await person.follower.start()
        await served.gateway.state.renew(lambda catalog: catalog.without_server("gone"))
        await gone.tell("own-0", "completed")
        await there.tell("own-0", "completed")
        with anyio.fail_after(DEADLINE_SECONDS):
            await person.told.wait()
    assert person.seen == [(handle, "completed")]
