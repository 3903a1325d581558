"""Calls of legacy clients over HTTP: answered at once, as a stream where they must, resumed, cancelled and ended."""

import asyncio
import gc
import json
import math
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import anyio
import httpx2
import pytest
from benchmarks.stress.client import RawClient
from mcp import Client

from shortlist.config.settings import Limits
from shortlist.front import legacy, modern, resumption
from shortlist.front.resumption import ResumableSessions
from tests.gateway.support import DEADLINE_SECONDS, Fixture, Served, serve, words
from tests.gateway.test_http import TOKENS
from tests.gateway.test_limits import listening

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
ACCEPT = {"Accept": "application/json, text/event-stream"}
versions = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])


@dataclass
class RawSession:
    """A legacy session whose requests and responses the test sees as they are."""

    http: httpx2.AsyncClient
    url: str
    version: str
    headers: dict[str, str] = field(default_factory=dict)

    async def open(self) -> None:
        """Shake hands, and make a request so that the gateway knows the session."""
        await self.shake_hands()
        await self.post("tools/list", {}, id=2)

    async def shake_hands(self) -> None:
        params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        opened = await self.post("initialize", params, id=1)
        self.headers |= {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": self.version}
        await self.post("notifications/initialized", {})

    async def post(self, method: str, params: dict[str, Any], **more: Any) -> httpx2.Response:
        return await self.http.post(self.url, json=_message(method, params, **more), headers=self.headers)

    async def call(self, tool: str, arguments: dict[str, Any], number: int = 3, **more: Any) -> httpx2.Response:
        params = {"name": "call_tool", "arguments": {"name": tool, "arguments": arguments}, **more}
        return await self.post("tools/call", params, id=number)

    def stream(self, tool: str, number: int = 3) -> Any:
        params = {"name": "call_tool", "arguments": {"name": tool, "arguments": {}}}
        message = _message("tools/call", params, id=number)
        return self.http.stream("POST", self.url, json=message, headers=self.headers)

    def listening(self) -> Any:
        return self.http.stream("GET", self.url, headers=self.headers)

    async def ping(self) -> httpx2.Response:
        return await self.post("ping", {}, id=4)

    async def end(self) -> httpx2.Response:
        return await self.http.delete(self.url, headers=self.headers)


@pytest.fixture
def _watched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "WATCH_SECONDS", 0.0)


@pytest.fixture
def _stream_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr(legacy, "STREAM_SECONDS", 0.0)


def _message(method: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **more}


def messages(response: httpx2.Response) -> list[dict[str, Any]]:
    """Return the messages of a response, whichever form it has."""
    if response.headers["content-type"] == "application/json":
        return [response.json()]
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@asynccontextmanager
async def sessions(alpha: Fixture, version: str, **settings: Any) -> AsyncIterator[RawSession]:
    async with (
        serve(alpha, **settings) as served,
        listening(served, Limits()) as (port, _),
        httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http,
    ):
        session = RawSession(http, f"http://127.0.0.1:{port}/mcp", version)
        if settings.get("tokens"):
            session.headers["Authorization"] = "Bearer ada-secret"
        with anyio.fail_after(DEADLINE_SECONDS):
            await session.open()
            yield session


async def test_an_answer_that_comes_at_once_is_plain_json_for_clients_that_cannot_resume() -> None:
    async with sessions(Fixture("alpha"), "2025-06-18") as session:
        response = await session.call("alpha__echo", {"text": "hi"})
    assert response.headers["content-type"] == "application/json"
    assert response.json()["id"] == 3
    assert response.json()["result"]["content"][0]["text"] == "hi"


@versions
async def test_progress_comes_before_the_answer(version: str) -> None:
    async with sessions(Fixture("alpha"), version) as session:
        response = await session.call("alpha__count", {}, _meta={"progressToken": "p"})
    found = messages(response)
    steps = [m["params"]["progress"] for m in found if m.get("method") == "notifications/progress"]
    assert steps == [1, 2]
    assert found[-1]["id"] == 3
    assert "result" in found[-1]


@versions
async def test_a_call_that_its_client_cancels_is_cancelled_at_the_server_and_ends(version: str) -> None:
    alpha = Fixture("alpha")
    ended: list[dict[str, Any]] = []
    async with sessions(alpha, version) as session, anyio.create_task_group() as tasks:

        async def call() -> None:
            ended.extend(messages(await session.call("alpha__wait", {})))

        tasks.start_soon(call)
        await alpha.waiting.wait()
        await session.post("notifications/cancelled", {"requestId": 3})
        await alpha.cancelled.wait()
    assert [(each["id"], each["error"]["message"]) for each in ended] == [(3, "Request cancelled")]


@versions
@pytest.mark.parametrize("watch_seconds", [0.0, 60.0])
async def test_a_session_that_ends_takes_its_calls_with_it_and_they_say_so(
    version: str, watch_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy, "WATCH_SECONDS", watch_seconds)
    alpha = Fixture("alpha")
    ended: list[dict[str, Any]] = []
    async with sessions(alpha, version) as session, anyio.create_task_group() as tasks:

        async def call() -> None:
            ended.extend(messages(await session.call("alpha__wait", {})))

        tasks.start_soon(call)
        await alpha.waiting.wait()
        assert (await session.http.delete(session.url, headers=session.headers)).status_code == 200
        await alpha.cancelled.wait()
        assert (await session.call("alpha__echo", {"text": "late"})).status_code == 404
    assert [(each["id"], each["error"]["message"]) for each in ended] == [(3, legacy.SESSION_ENDED)]


@versions
@pytest.mark.usefixtures("_watched_at_once")
async def test_an_answer_that_comes_later_is_plain_json_as_long_as_nothing_was_to_be_sent_before_it(
    version: str,
) -> None:
    alpha = Fixture("alpha")
    async with sessions(alpha, version) as session:
        response = await session.call("alpha__echo", {"text": "x" * 2_000_000})
    assert response.headers["content-type"] == "application/json"
    assert [each["id"] for each in messages(response)] == [3]


@pytest.mark.usefixtures("_watched_at_once")
async def test_a_legacy_client_of_the_sdk_reads_an_answer_that_is_too_large_for_an_event() -> None:
    text = "x" * 2_000_000
    limits = Limits(result_characters=3_000_000)
    async with (
        serve(Fixture("alpha"), limits=limits) as served,
        listening(served, limits) as (port, _),
        Client(f"http://127.0.0.1:{port}/mcp", mode="legacy") as client,
    ):
        shown = await client.call_tool("call_tool", {"name": "alpha__echo", "arguments": {"text": text}})
    assert words(shown) == text


async def test_the_first_call_of_a_session_is_served_as_all_others_are() -> None:
    async with (
        serve(Fixture("alpha")) as served,
        listening(served, Limits()) as (port, _),
        httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http,
    ):
        session = RawSession(http, f"http://127.0.0.1:{port}/mcp", "2025-06-18")
        await session.shake_hands()
        with anyio.fail_after(DEADLINE_SECONDS):
            while served.front.audience.connection(session.headers["Mcp-Session-Id"]) is None:
                await anyio.sleep(0.01)
        response = await session.call("alpha__echo", {"text": "hi"})
    assert response.headers["content-type"] == "application/json"  # the SDK answers with a stream


@pytest.mark.usefixtures("_stream_at_once")
async def test_a_client_that_lost_its_connection_resumes_and_gets_the_answer() -> None:
    alpha, release = Fixture("alpha"), anyio.Event()

    async def wait(*_: Any) -> Any:
        alpha.waiting.set()
        await release.wait()
        return await alpha.tool_echo(None, None, {"text": "kept"})

    alpha.tool_wait = wait  # type: ignore[method-assign]
    async with sessions(alpha, "2025-11-25") as session:
        async with session.stream("alpha__wait") as response:
            first = await anext(response.aiter_lines())
            await alpha.waiting.wait()
        last = {"Last-Event-ID": first.removeprefix("id: ")}
        async with session.http.stream("GET", session.url, headers=session.headers | last) as resumed:
            release.set()
            async for line in resumed.aiter_lines():
                if line.startswith("data: {"):
                    answer = json.loads(line.removeprefix("data: "))
                    break
    assert answer["id"] == 3
    assert answer["result"]["content"][0]["text"] == "kept"


@versions
@pytest.mark.usefixtures("_stream_at_once")
async def test_the_call_of_a_client_that_does_not_come_back_is_cancelled(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumption, "VANISHED_SECONDS", 0.1)
    alpha = Fixture("alpha")
    async with sessions(alpha, version) as session:
        async with session.stream("alpha__wait"):
            await alpha.waiting.wait()
        await alpha.cancelled.wait()


async def test_a_session_is_closed_to_every_other_token_though_its_calls_take_the_fast_path() -> None:
    async with sessions(Fixture("alpha"), "2025-06-18", tokens=TOKENS) as session:
        assert (await session.call("alpha__echo", {"text": "mine"})).status_code == 200
        session.headers["Authorization"] = "Bearer bob-secret"
        assert (await session.call("alpha__echo", {"text": "theirs"})).status_code == 404


@versions
async def test_requests_that_are_not_as_usual_get_the_sdks_errors(version: str) -> None:
    async with sessions(Fixture("alpha"), version) as session:
        plain = {**session.headers, "Content-Type": "text/plain"}
        assert (await session.http.post(session.url, content=b"{}", headers=plain)).status_code == 400
        wrong = await session.post("tools/call", {"name": 7}, id=4)
        narrow = {**session.headers, "Accept": "application/json"}
        body = _message("tools/call", {"name": "search_tools", "arguments": {"query": "add"}}, id=5)
        assert (await session.http.post(session.url, json=body, headers=narrow)).status_code == 406
    assert messages(wrong)[0]["error"]["code"] == -32602


def manager(served: Served) -> ResumableSessions:
    """Return the sessions of a gateway that is listening."""
    found = getattr(served.front.audience.end_sessions, "__self__", None)
    assert isinstance(found, ResumableSessions)
    return found


@pytest.mark.usefixtures("_stream_at_once")
async def test_one_task_watches_the_calls_of_vanished_clients_and_cancels_only_those_that_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resumption, "VANISHED_SECONDS", 0.1)
    alpha = Fixture("alpha")
    async with (
        serve(alpha) as served,
        listening(served, Limits()) as (port, _),
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http,
    ):
        session = RawSession(http, f"http://127.0.0.1:{port}/mcp", "2025-06-18", dict(ACCEPT))
        await session.open()
        found, before = manager(served), len(asyncio.all_tasks())
        for answered in range(100, 150):
            found._vanished(session.headers["Mcp-Session-Id"], answered)
        assert len(asyncio.all_tasks()) == before + 1
        with anyio.fail_after(DEADLINE_SECONDS):
            async with session.stream("alpha__wait"):
                await alpha.waiting.wait()
            await alpha.cancelled.wait()
        assert (found.cancelled, len(found._gone)) == (1, 0)


async def test_a_session_that_ended_is_freed_without_the_garbage_collector() -> None:
    async with (
        serve(Fixture("alpha")) as served,
        listening(served, Limits()) as (port, _),
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http,
    ):
        session = RawSession(http, f"http://127.0.0.1:{port}/mcp", "2025-06-18", dict(ACCEPT))
        await session.open()
        await session.call("alpha__echo", {"text": "hi"})
        found, number = manager(served), session.headers["Mcp-Session-Id"]
        kept = [weakref.ref(each) for each in (found._server_instances[number], found._connection(number))]
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            await session.end()
            await session.ping()  # on the same connection, which refers to its last request
            with anyio.fail_after(DEADLINE_SECONDS):
                while any(each() is not None for each in kept):
                    await anyio.sleep(0.01)
        finally:
            if was_enabled:
                gc.enable()


@pytest.mark.parametrize(
    ("module", "kind"), [(legacy, legacy._Call), (modern, modern._Exchange)], ids=["legacy", "modern"]
)
async def test_a_call_that_was_watched_is_freed_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, kind: type, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.0)
    alpha, release = Fixture("alpha"), anyio.Event()

    async def wait(*_: Any) -> Any:
        alpha.waiting.set()
        await release.wait()
        return await alpha.tool_echo(None, None, {"text": "done"})

    alpha.tool_wait = wait  # type: ignore[method-assign]
    async with serve(alpha) as served, listening(served, Limits()) as (port, _), anyio.create_task_group() as tasks:
        client = RawClient(port, "legacy" if module is legacy else "modern")
        await client.open()
        await client.call("alpha__echo", {"text": "hi"})
        gc.disable()
        request.addfinalizer(gc.enable)
        with anyio.fail_after(DEADLINE_SECONDS):
            tasks.start_soon(client.call, "call_tool", {"name": "alpha__wait", "arguments": {}})
            await alpha.waiting.wait()
            while not any(vars(each).get("_watching") for each in gc.get_objects() if isinstance(each, kind)):
                await anyio.sleep(0.01)
            release.set()
            while any(isinstance(each, kind) for each in gc.get_objects()):
                await anyio.sleep(0.01)
        client.close()


async def test_ids_of_sessions_that_are_not_open_are_not_remembered() -> None:
    async with (
        serve(Fixture("alpha")) as served,
        listening(served, Limits()) as (port, _),
        httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http,
    ):
        for number in range(3):
            strange = {"Mcp-Session-Id": f"never-{number}", "MCP-Protocol-Version": "2025-06-18"}
            assert (await http.get(f"http://127.0.0.1:{port}/mcp", headers=strange)).status_code == 404
        assert not manager(served)._resumptions


async def test_a_session_is_not_idle_while_its_call_runs_nor_right_after_it() -> None:
    alpha = Fixture("alpha")
    async with (
        serve(alpha) as served,
        listening(served, Limits()) as (port, _),
        httpx2.AsyncClient(headers=ACCEPT, timeout=DEADLINE_SECONDS) as http,
        anyio.create_task_group() as tasks,
    ):
        session = RawSession(http, f"http://127.0.0.1:{port}/mcp", "2025-06-18")
        await session.open()
        idle = manager(served)._server_instances[session.headers["Mcp-Session-Id"]].idle_scope
        assert idle is not None

        async def counting_down() -> float:
            """Return when the session will end, once the last request is done with."""
            while idle.deadline == math.inf:
                await anyio.sleep(0.01)
            return idle.deadline

        with anyio.fail_after(DEADLINE_SECONDS):
            before = await counting_down()
            tasks.start_soon(session.call, "alpha__wait", {})
            await alpha.waiting.wait()
            during = idle.deadline
            await session.post("notifications/cancelled", {"requestId": 3})
            after = await counting_down()
    assert during == math.inf
    assert before < after
