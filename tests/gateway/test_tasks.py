"""Long-running calls: tasks between a real client and a real server, in both eras."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension, ResultClaim
from pydantic import ConfigDict

from shortlist.access.principal import OWNER, Principal
from shortlist.config.settings import TokenSettings, hash_token
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, MODES, Era, Fixture, Served, schema, serve, words
from tests.gateway.test_doors import GUEST, Recognised

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ERAS: tuple[Era, ...] = ("legacy", "modern")
EXTENSION = "io.modelcontextprotocol/tasks"
PASSED = ServeOptions(mode="passthrough")
TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}


class TaskServer(Fixture):
    """A server whose tool `build` is a task that ends when the test says so."""

    def __init__(self, name: str, era: Era, support: Any = "optional", ttl: int | None = None) -> None:
        super().__init__(name, era)
        self.ttl, self.support = ttl, support
        self.statuses: dict[str, str] = {}
        self.asked: list[str] = []
        self.updates: list[Any] = []
        self.tools["build"] = ("Build the project.", schema())
        self.started = anyio.Event()
        self.polled = anyio.Event()
        self.done = anyio.Event()
        self.was_cancelled = anyio.Event()
        for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"):
            self.server.add_request_handler(method, types.RequestParams, self._on_task)
        self.server.middleware.append(self._wrap)

    async def list_tools(self, *_: Any) -> types.ListToolsResult:
        listed = await super().list_tools()
        for tool in listed.tools:
            if tool.name == "build" and self.era == "legacy":
                tool.execution = types.ToolExecution(task_support=self.support)
        return listed

    async def _wrap(self, ctx: Any, call_next: Any) -> Any:
        params = ctx.params or {}
        if ctx.method == "tools/call" and params.get("name") == "build" and self._is_wanted(ctx):
            return self._start()
        result = await call_next(ctx)
        if ctx.method == "initialize":
            result["capabilities"]["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        elif ctx.method == "server/discover":
            result["capabilities"]["extensions"] = {EXTENSION: {}}
        return result

    def _is_wanted(self, ctx: Any) -> bool:
        if self.era == "legacy":
            return "task" in ctx.params
        return EXTENSION in (ctx.session.client_capabilities.extensions or {})

    async def tool_build(self, *_: Any) -> Any:
        return types.CallToolResult(content=[types.TextContent(text="built at once")])

    def _start(self) -> dict[str, Any]:
        own = f"own-{len(self.statuses)}"
        self.statuses[own] = "working"
        self.started.set()
        task = self._shown(own)
        return {"task": task} if self.era == "legacy" else {**task, "resultType": "task"}

    def _shown(self, own: str) -> dict[str, Any]:
        names = ("ttl", "pollInterval") if self.era == "legacy" else ("ttlMs", "pollIntervalMs")
        times = dict(zip(names, (self.ttl, 10), strict=True))
        return {"taskId": own, "status": self.statuses[own], **TIMES, **times}

    async def _on_task(self, ctx: Any, _: Any) -> dict[str, Any]:
        method, own = ctx.method, ctx.params["taskId"]
        self.asked.append(method)
        self.polled.set()
        if own not in self.statuses:
            raise MCPError(-32602, "Unknown task")
        result = {"content": [{"type": "text", "text": f"built {own}"}]}
        if method == "tasks/cancel":
            self.statuses[own] = "cancelled"
            self.was_cancelled.set()
            return self._shown(own) if self.era == "legacy" else {}
        if method == "tasks/update":
            self.updates.append(ctx.params["inputResponses"])
            return {}
        if self.done.is_set() and self.statuses[own] == "working":
            self.statuses[own] = "completed"
        if method == "tasks/result":
            await self.done.wait()
            return result
        ended = self.era == "modern" and self.statuses[own] == "completed"
        return {**self._shown(own), **({"result": result} if ended else {})}


class Started(types.Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


async def never(*_: Any) -> types.CallToolResult:
    raise AssertionError("the tests follow their tasks themselves")


class Tasks(ClientExtension):
    """A modern client that knows tasks."""

    identifier = EXTENSION

    def claims(self) -> Any:
        return (ResultClaim(result_type="task", model=Started, resolve=never),)


class Raw(types.Result):
    """Whatever a server answers."""

    model_config = ConfigDict(extra="allow")


class Follower:
    """A client that starts a task and follows it, as its era does."""

    def __init__(self, client: Client, era: Era) -> None:
        self.client, self.era = client, era

    async def start(self, name: str = "tasks__build", **arguments: Any) -> str:
        if self.era == "modern":
            started = await self.client.session.call_tool(name, arguments, allow_claimed=True)
            assert isinstance(started, Started)
            return started.task_id
        answer = await self.send("tools/call", name=name, arguments=arguments, task={"ttl": 60_000})
        return str(answer["task"]["taskId"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        if self.era == "legacy":  # the session of the SDK rejects the answer to a call that became a task
            with anyio.fail_after(DEADLINE_SECONDS):
                return dict(await self.client.session._dispatcher.send_raw_request(method, params))
        request: Any = types.Request[dict[str, Any], str](method=method, params=params)
        with anyio.fail_after(DEADLINE_SECONDS):
            answer = await self.client.session.send_request(request, Raw)
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def result(self, handle: str) -> str:
        """Return the text of an ended task."""
        if self.era == "modern":
            found = (await self.send("tasks/get", taskId=handle))["result"]
        else:
            found = await self.send("tasks/result", taskId=handle)
        return str(found["content"][0]["text"])


@asynccontextmanager
async def following(era: Era, server: TaskServer, **more: Any) -> AsyncIterator[tuple[Served, Follower]]:
    async with (
        serve(server, Fixture("other"), **{"options": PASSED, **more}) as served,
        connected(served, era) as follower,
    ):
        yield served, follower


@asynccontextmanager
async def connected(served: Served, era: Era, principal: Principal = OWNER) -> AsyncIterator[Follower]:
    front = Recognised(served.gateway)
    front.principal = principal
    known: Any = [Tasks()] if era == "modern" else []
    async with Client(front.server, mode=MODES[era], extensions=known) as client:
        yield Follower(client, era)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_starts_follows_and_reads_a_task_of_a_server_of_its_era(era: Era) -> None:
    server = TaskServer("tasks", era)
    async with following(era, server) as (_, follower):
        handle = await follower.start()
        working = await follower.send("tasks/get", taskId=handle)
        server.done.set()
        ended = await follower.send("tasks/get", taskId=handle)
        text = await follower.result(handle)
    assert handle not in server.statuses
    assert (working["taskId"], working["status"]) == (handle, "working")
    assert (ended["taskId"], ended["status"]) == (handle, "completed")
    assert text == "built own-0"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_cancels_its_task(era: Era) -> None:
    server = TaskServer("tasks", era)
    async with following(era, server) as (_, follower):
        handle = await follower.start()
        await follower.send("tasks/cancel", taskId=handle)
        assert (await follower.send("tasks/get", taskId=handle))["status"] == "cancelled"
    assert server.statuses == {"own-0": "cancelled"}


@pytest.mark.parametrize("era", ERAS)
async def test_an_expired_task_is_unknown(era: Era) -> None:
    server = TaskServer("tasks", era, ttl=5_000)
    now = 0.0
    async with following(era, server) as (served, follower):
        served.gateway.state.relayed_tasks.clock = lambda: now
        handle = await follower.start()
        now = 4.9
        assert (await follower.send("tasks/get", taskId=handle))["status"] == "working"
        now = 5.0
        for method in ("tasks/get", "tasks/cancel"):
            with pytest.raises(MCPError, match="Unknown task"):
                await follower.send(method, taskId=handle)
    assert server.asked == ["tasks/get"]


@pytest.mark.parametrize("era", ERAS)
async def test_nobody_else_follows_a_task_and_nobody_out_of_scope(era: Era) -> None:
    server = TaskServer("tasks", era)
    token = TokenSettings(name="guest", hash=hash_token("x"), tools=("tasks/build",))
    async with (
        serve(server, Fixture("other"), options=PASSED, tokens={"guest": token}) as served,
        connected(served, era) as owner,
        connected(served, era, GUEST) as guest,
    ):
        of_owner, of_guest = await owner.start(), await guest.start()
        assert (await guest.send("tasks/get", taskId=of_guest))["status"] == "working"
        asked = len(server.asked)
        for follower, handle in ((guest, of_owner), (owner, of_guest), (guest, "own-0"), (guest, "nothing")):
            for method in ("tasks/get", "tasks/cancel", *(("tasks/result",) if era == "legacy" else ())):
                with pytest.raises(MCPError, match="Unknown task"):
                    await follower.send(method, taskId=handle)
        await served.gateway.state.renew(lambda catalog: catalog.without_server("tasks"))
        with pytest.raises(MCPError, match="Unknown task"):
            await guest.send("tasks/get", taskId=of_guest)
    assert len(server.asked) == asked


async def test_a_legacy_client_lists_its_own_tasks() -> None:
    server = TaskServer("tasks", "legacy")
    async with following("legacy", server) as (served, follower):
        handles = [await follower.start() for _ in range(2)]
        async with connected(served, "legacy", GUEST) as guest:
            of_guest = await guest.send("tasks/list")
        listed = await follower.send("tasks/list")
    assert [task["taskId"] for task in listed["tasks"]] == handles[::-1]
    assert of_guest["tasks"] == []


async def test_a_modern_client_answers_what_its_task_asks() -> None:
    server = TaskServer("tasks", "modern")
    async with following("modern", server) as (_, follower):
        handle = await follower.start()
        await follower.send("tasks/update", taskId=handle, inputResponses={"q": {"action": "accept"}})
    assert server.updates == [{"q": {"action": "accept"}}]


@pytest.mark.parametrize(
    ("era", "method"), [("legacy", "tasks/update"), ("modern", "tasks/result"), ("modern", "tasks/list")]
)
async def test_an_era_has_only_its_own_requests(era: Era, method: str) -> None:
    async with following(era, TaskServer("tasks", era)) as (_, follower):
        with pytest.raises(MCPError) as refused:
            await follower.send(method, taskId="x")
    assert refused.value.error.code == -32601


@pytest.mark.parametrize("name", ["tasks__echo", "search_tools", "other__echo"])
async def test_a_legacy_client_that_insists_on_a_task_is_refused_where_there_is_none(name: str) -> None:
    server = TaskServer("tasks", "legacy")
    async with following("legacy", server, options=ServeOptions()) as (_, follower):
        with pytest.raises(MCPError) as refused:
            await follower.start(name, **({"query": "x"} if name == "search_tools" else {"text": "x"}))
    assert refused.value.error.code == -32601
    assert server.calls == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_knows_no_tasks_gets_the_result_of_one(era: Era) -> None:
    server = TaskServer("tasks", "legacy", support="required")
    async with serve(server) as served, served.client(era) as client:
        server.done.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            result = await client.call_tool("call_tool", {"name": "tasks__build", "arguments": {}})
    assert words(result) == "built own-0"
    assert server.asked == ["tasks/get", "tasks/result"]


async def test_a_modern_client_gets_the_result_of_a_legacy_task() -> None:
    server = TaskServer("tasks", "legacy", support="required")
    async with following("modern", server) as (_, follower):
        server.done.set()
        result = await follower.client.call_tool("tasks__build", {})
    assert words(result) == "built own-0"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_cancelled_cancels_the_task_that_the_gateway_follows(era: Era) -> None:
    server = TaskServer("tasks", "legacy", support="required")
    async with serve(server) as served, served.client(era) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "call_tool", {"name": "tasks__build", "arguments": {}})
            with anyio.fail_after(DEADLINE_SECONDS):
                await server.polled.wait()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(DEADLINE_SECONDS):
            await server.was_cancelled.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_without_tasks_calls_a_tool_that_may_be_one(era: Era) -> None:
    server = TaskServer("tasks", era)
    async with serve(server) as served, served.client(era) as client:
        result = await client.call_tool("call_tool", {"name": "tasks__build", "arguments": {}})
    assert words(result) == "built at once"
