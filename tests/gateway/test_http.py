"""The front over real HTTP: who is let in, and what the path means."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from shortlist.config.settings import TokenSettings, hash_token
from shortlist.errors import InvalidConfig
from shortlist.front.border import Border
from shortlist.front.http import build_app, check_binding
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, Served, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])
DYNAMIC = ServeOptions(mode="dynamic")
HTTP_MODES: dict[Era, Any] = {"legacy": "legacy", "modern": "auto"}
TOKENS = {
    "ada": TokenSettings(name="ada", hash=hash_token("ada-secret")),
    "bob": TokenSettings(name="bob", hash=hash_token("bob-secret"), servers=("beta",)),
}


@asynccontextmanager
async def listening(served: Served, border: Border | None = None) -> AsyncIterator[str]:
    """Serve over HTTP on a free port and yield the base address."""
    app = build_app(served.front, "127.0.0.1", border=border)
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    socket = config.bind_socket()
    socket.listen()  # so that clients wait for the server instead of being refused
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [socket])
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True


@asynccontextmanager
async def connect(url: str, era: Era, token: str | None = None, **more: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(url, http_client=http), mode=HTTP_MODES[era], **more) as client,
    ):
        yield client


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


@eras
async def test_a_client_searches_and_calls_over_http(era: Era) -> None:
    async with (
        serve(Fixture("alpha"), Fixture("beta", "modern")) as served,
        listening(served) as base,
        connect(f"{base}/mcp", era) as client,
    ):
        found = words(await client.call_tool("search_tools", {"query": "add two numbers"}))
        added = await client.call_tool("call_tool", {"name": "beta__add", "arguments": {"a": 1, "b": 2}})
        assert (client.protocol_version == "2026-07-28") == (era == "modern")
        tools = client.server_capabilities.tools
    assert "__add(a: number" in found
    assert words(added) == "3"
    assert tools is not None
    assert tools.list_changed is True


async def test_the_path_names_a_modern_clients_workspace() -> None:
    async with serve(Fixture("alpha"), options=DYNAMIC) as served, listening(served) as base:
        async with connect(f"{base}/mcp", "modern") as client:
            loaded = words(await client.call_tool("load_tools", {"names": ["alpha__add"]}))
            handle = loaded.split("workspace: ")[1].split(" ")[0]
            plain = await names(client)
        async with connect(f"{base}/mcp/w/{handle}", "modern") as inside:
            listed = await names(inside)
            direct = words(await inside.call_tool("alpha__add", {"a": 1, "b": 2}))
            await inside.call_tool("load_tools", {"names": ["alpha__echo"]})
            grown = await names(inside)
        async with connect(f"{base}/mcp", "modern") as client:
            other = words(await client.call_tool("load_tools", {"names": ["alpha__echo"]}))
        second = other.split("workspace: ")[1].split(" ")[0]
        async with connect(f"{base}/mcp/w/{second}", "modern") as elsewhere:
            apart = await names(elsewhere)
    assert "alpha__add" not in plain
    assert listed == [*plain, "alpha__add"]
    assert direct == "3"
    assert grown == [*plain, "alpha__add", "alpha__echo"]
    assert apart == [*plain, "alpha__echo"]


async def test_a_listener_hears_of_changes_in_its_own_workspace_only() -> None:
    async with serve(Fixture("alpha"), options=DYNAMIC) as served, listening(served) as base:
        async with connect(f"{base}/mcp", "modern") as client:
            loaded = words(await client.call_tool("load_tools", {"names": ["alpha__add"]}))
        handle = loaded.split("workspace: ")[1].split(" ")[0]
        async with (
            connect(f"{base}/mcp/w/{handle}", "modern") as inside,
            connect(f"{base}/mcp", "modern") as outside,
            inside.listen(tools_list_changed=True) as mine,
            outside.listen(tools_list_changed=True) as others,
        ):
            heard: list[str] = []

            async def listen(name: str, subscription: Any) -> None:
                async for _ in subscription:
                    heard.append(name)
                    return

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen, "outside", others)
                await inside.call_tool("load_tools", {"names": ["alpha__echo"]})
                with anyio.fail_after(DEADLINE_SECONDS):
                    await listen("inside", mine)
                tasks.cancel_scope.cancel()
    assert heard == ["inside"]


async def test_an_unknown_handle_in_the_path_lists_nothing() -> None:
    async with (
        serve(Fixture("alpha"), options=DYNAMIC) as served,
        listening(served) as base,
        connect(f"{base}/mcp/w/guessed", "modern") as client,
    ):
        with pytest.raises(Exception, match="No such workspace"):
            await client.list_tools()


@eras
async def test_a_token_names_the_caller_and_limits_what_it_sees(era: Era) -> None:
    fixtures = Fixture("alpha"), Fixture("beta")
    async with serve(*fixtures, tokens=TOKENS) as served, listening(served) as base:
        async with connect(f"{base}/mcp", era, "bob-secret") as bob:
            found = words(await bob.call_tool("search_tools", {"query": "add two numbers", "limit": 20}))
            called = await bob.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 1, "b": 1}})
            described = await bob.call_tool("describe_tools", {"names": ["alpha__add"]})
            direct = await bob.call_tool("alpha__add", {"a": 1, "b": 1})
            prompts = [prompt.name for prompt in (await bob.list_prompts()).prompts]
        async with connect(f"{base}/mcp", era, "ada-secret") as ada:
            everything = words(await ada.call_tool("search_tools", {"query": "add two numbers", "limit": 20}))
    assert "beta__add" in found
    assert "alpha" not in found
    assert called.is_error
    assert described.is_error
    assert direct.is_error
    assert "alpha" not in words(called).partition("Did you mean")[2]
    assert prompts == ["beta__brief"]
    assert "alpha__add" in everything


async def test_a_principal_has_one_workspace_over_all_its_modern_connections() -> None:
    async with serve(Fixture("alpha"), options=DYNAMIC, tokens=TOKENS) as served, listening(served) as base:
        async with connect(f"{base}/mcp", "modern", "ada-secret") as one:
            loaded = words(await one.call_tool("load_tools", {"names": ["alpha__add"]}))
        async with connect(f"{base}/mcp", "modern", "ada-secret") as two:
            again = await names(two)
        async with connect(f"{base}/mcp", "modern", "bob-secret") as bob:
            apart = await names(bob)
    assert "workspace: " not in loaded
    assert "alpha__add" in again
    assert "alpha__add" not in apart


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic ada-secret", "Bearer"])
async def test_without_the_right_token_nobody_is_let_in(header: str | None) -> None:
    async with (
        serve(Fixture("alpha"), tokens=TOKENS) as served,
        listening(served) as base,
        httpx2.AsyncClient() as http,
    ):
        answer = await http.post(f"{base}/mcp", headers={"Authorization": header} if header else {}, json={})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "127.0.0.1:80, evil.example"}, 421),
        ({"Host": "127.0.0.1:evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
    ],
)
async def test_a_page_in_a_browser_cannot_reach_the_gateway(headers: dict[str, str], status: int) -> None:
    async with serve(Fixture("alpha")) as served, listening(served) as base, httpx2.AsyncClient() as http:
        for path in ("/mcp", "/mcp/w/x"):
            answer = await http.post(f"{base}{path}", headers=headers, json={})
            assert answer.status_code == status


@eras
@pytest.mark.parametrize("number", [1.5, None, True, [], {}])
async def test_a_request_with_an_unusable_id_is_refused_so_that_nobody_waits_for_it(era: Era, number: Any) -> None:
    async with serve(Fixture("alpha")) as served, listening(served) as base, httpx2.AsyncClient() as http:
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        if era == "legacy":
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            opened = await http.post(f"{base}/mcp", headers=headers, json=message)
            headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        else:
            headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/list"}
        answer = await http.post(f"{base}/mcp", headers=headers, json=message)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)


async def test_a_page_of_this_machine_is_let_in() -> None:
    async with serve(Fixture("alpha")) as served, listening(served) as base, httpx2.AsyncClient() as http:
        answer = await http.post(f"{base}/mcp", headers={"Origin": "http://localhost:6274"}, json={})
    assert answer.status_code not in (401, 403, 421)


def test_serving_other_machines_needs_tokens() -> None:
    with pytest.raises(InvalidConfig, match="Define `tokens`"):
        check_binding("0.0.0.0", has_callers=False)
    check_binding("0.0.0.0", has_callers=True)
    check_binding("::1", has_callers=False)
    check_binding("127.0.0.2", has_callers=False)


async def test_an_answer_is_sent_again_to_its_own_session_and_to_no_other() -> None:
    async with serve(Fixture("alpha")) as served, listening(served) as base, httpx2.AsyncClient() as http:
        ada, bob = await open_session(http, base), await open_session(http, base)
        count = {"name": "call_tool", "arguments": {"name": "alpha__count", "arguments": {}}}
        streamed = count | {"_meta": {"progressToken": "for Ada"}}  # what has progress is a stream, and kept
        answered = await http.post(f"{base}/mcp", headers=ada, json=rpc("tools/call", streamed))
        priming = next(line.removeprefix("id: ") for line in answered.text.splitlines() if line.startswith("id: "))
        assert "retry: " in answered.text
        again = await first_event(http, base, ada | {"last-event-id": priming})
        stolen = await first_event(http, base, bob | {"last-event-id": priming})
    assert "for Ada" in again
    assert "for Ada" not in stolen


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def open_session(http: httpx2.AsyncClient, base: str) -> dict[str, str]:
    """Shake hands as a client of the last legacy version, and give the headers of the session."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    answered = await http.post(f"{base}/mcp", headers=headers, json=rpc("initialize", hello))
    session = headers | {"mcp-session-id": answered.headers["mcp-session-id"]}
    await http.post(f"{base}/mcp", headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    return session


async def first_event(http: httpx2.AsyncClient, base: str, headers: dict[str, str]) -> str:
    """Ask for what came after an event; gives what is sent within a moment."""
    received = ""
    with anyio.move_on_after(1.0):
        async with http.stream("GET", f"{base}/mcp", headers=headers) as response:
            async for chunk in response.aiter_text():
                received += chunk
                if "data: {" in received:
                    break
    return received
