"""The 2×2 table of docs/eras.md, walked: client era × server era, one test per feature."""

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, NOTE, Era, Fixture, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
table = pytest.mark.parametrize(
    ("client_era", "server_era"),
    [("legacy", "legacy"), ("legacy", "modern"), ("modern", "legacy"), ("modern", "modern")],
)
through = pytest.mark.parametrize("way", ["call_tool", "native"])
PASSTHROUGH = ServeOptions(mode="passthrough")


async def call(client: Client, way: str, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    if way == "native":
        return await client.call_tool(f"one__{name}", arguments or {}, **more)
    return await client.call_tool("call_tool", {"name": f"one__{name}", "arguments": arguments or {}}, **more)


async def elicited(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert params.message in ("Which colour?", "one asks: Which colour?")
    return types.ElicitResult(action="accept", content={"colour": "blue"})


async def sampled(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    assert params.max_tokens == 9
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Roses."), model="m")


async def rooted(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home")])  # type: ignore[arg-type]


def served_pair(server_era: Era) -> Any:
    return serve(Fixture("one", server_era), Fixture("two", server_era), options=PASSTHROUGH)


@table
async def test_the_fixture_speaks_the_era_it_should(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        assert served.pool.status()["one"].era == server_era
        assert (client.protocol_version == "2026-07-28") == (client_era == "modern")


@table
@through
async def test_a_result_comes_back_untouched(client_era: Era, server_era: Era, way: str) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        said = await call(client, way, "echo", {"text": "hi\u200b \x1b[31m"})
        added = await call(client, way, "add", {"a": 1, "b": 2})
    assert words(said) == "hi\u200b \x1b[31m"
    assert said.meta is not None
    assert said.meta["from"] == "one"
    assert added.structured_content == {"total": 3}


@table
@through
async def test_elicitation_reaches_the_user_and_back(client_era: Era, server_era: Era, way: str) -> None:
    async with (
        served_pair(server_era) as served,
        served.client(client_era, elicitation_callback=elicited) as client,
    ):
        result = await call(client, way, "ask_user")
    assert words(result).startswith("accept {'colour': 'blue'}")


@table
async def test_sampling_reaches_the_clients_model_and_back(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era, sampling_callback=sampled) as client:
        assert words(await call(client, "call_tool", "ask_model")) == "Roses."


@table
async def test_roots_are_relayed(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era, list_roots_callback=rooted) as client:
        assert words(await call(client, "native", "ask_roots")) == "file:///home"


class Curious(Fixture):
    """Says what it was told that its client can be asked."""

    def __init__(self) -> None:
        super().__init__("one", "modern")
        self.tools["declared"] = ("Name what the client can be asked.", {"type": "object", "properties": {}})

    async def tool_declared(self, ctx: Any, *_: Any) -> Any:
        declared = ctx.session.client_capabilities
        names = [name for name in ("sampling", "elicitation", "roots") if getattr(declared, name) is not None]
        return types.CallToolResult(content=[types.TextContent(text=" ".join(names) or "nothing")])


@pytest.mark.parametrize("client_era", ["legacy", "modern"])
async def test_a_modern_server_is_told_what_this_client_can_be_asked_and_no_more(client_era: Era) -> None:
    async with serve(Curious(), options=PASSTHROUGH) as served:
        async with served.client(client_era, sampling_callback=sampled) as client:
            assert words(await client.call_tool("declared", {})) == "sampling"
        async with served.client(client_era) as client:
            assert words(await client.call_tool("declared", {})) == "nothing"


@table
async def test_a_question_to_a_client_that_cannot_answer_is_refused(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        try:
            result = await call(client, "native", "ask_user")
        except (MCPError, RuntimeError, ExceptionGroup):
            return
        assert result.is_error


@table
@through
async def test_progress_is_relayed(client_era: Era, server_era: Era, way: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with served_pair(server_era) as served, served.client(client_era) as client:
        await call(client, way, "count", progress_callback=progressed)
    assert seen == [(1, 2, "step 1"), (2, 2, "step 2")]


@table
async def test_logging_is_relayed(client_era: Era, server_era: Era) -> None:
    seen: list[Any] = []
    arrived = anyio.Event()

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        seen.append(params.data)
        if len(seen) == 2:
            arrived.set()

    more = {"log_level": "info"} if client_era == "modern" else {}
    async with served_pair(server_era) as served, served.client(client_era, logging_callback=logged, **more) as client:
        if client_era == "legacy":
            await client.set_logging_level("info")
        await call(client, "native", "count")
        with anyio.fail_after(DEADLINE_SECONDS):
            await arrived.wait()
    assert seen == ["at 1", "at 2"]


@pytest.mark.parametrize("server_era", ["legacy", "modern"])
async def test_a_modern_client_that_does_not_opt_in_hears_no_logs(server_era: Era) -> None:
    seen: list[Any] = []

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        seen.append(params.data)

    async with served_pair(server_era) as served, served.client("modern", logging_callback=logged) as client:
        await call(client, "native", "count")
    assert seen == []


@table
async def test_cancelling_a_call_cancels_it_at_the_server(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        fixture = served.fixtures["one"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, client, "native", "wait")
            with anyio.fail_after(DEADLINE_SECONDS):
                await fixture.waiting.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(DEADLINE_SECONDS):
            await fixture.cancelled.wait()


@table
async def test_prompts_are_kept_apart_by_server(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        got = await client.get_prompt("two__brief", {"topic": "tea"})
        with pytest.raises(MCPError):
            await client.get_prompt("three__brief", {"topic": "tea"})
    assert names == ["one__brief", "two__brief"]
    assert got.messages[0].content.text == "Brief of two on tea"


@table
async def test_resources_and_templates_are_kept_apart_by_server(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        templates = [t.uri_template for t in (await client.list_resource_templates()).resource_templates]
        read = await client.read_resource("shortlist://two/note://today")
    assert uris == ["shortlist://one/note://today", "shortlist://two/note://today"]
    assert templates == ["shortlist://one/note://{day}", "shortlist://two/note://{day}"]
    assert read.contents[0].text == "note://today of two"
    assert read.contents[0].uri == "shortlist://two/note://today"


@table
async def test_a_link_inside_a_result_can_be_read_as_it_stands(client_era: Era, server_era: Era) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        linked = await client.call_tool("two__link", {})
        read = await client.read_resource(linked.content[0].uri)
    assert read.contents[0].text == "note://today of two"


@table
async def test_completion_reaches_the_server_of_its_reference(client_era: Era, server_era: Era) -> None:
    argument = {"name": "topic", "value": "te"}
    async with served_pair(server_era) as served, served.client(client_era) as client:
        prompt = await client.complete(types.PromptReference(name="one__brief"), argument)
        template = await client.complete(types.ResourceTemplateReference(uri="shortlist://two/note://{day}"), argument)
    assert prompt.completion.values == ["brief te"]
    assert template.completion.values == ["note://{day} te"]


@table
async def test_subscribers_hear_of_a_changed_resource(client_era: Era, server_era: Era) -> None:
    uri = "shortlist://one/note://today"
    got: list[str] = []
    arrived = anyio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            got.append(str(message.params.uri))
            arrived.set()

    async with (
        served_pair(server_era) as served,
        served.client(client_era, message_handler=heard) as client,
    ):

        async def touch_until_heard() -> None:
            # A modern server's stream is opened anew after the subscription, so one touch may be too early.
            with anyio.fail_after(DEADLINE_SECONDS):
                while not arrived.is_set():
                    await client.call_tool("one__touch", {})
                    with anyio.move_on_after(0.05):
                        await arrived.wait()

        if client_era == "legacy":
            await client.subscribe_resource(uri)
            await touch_until_heard()
            await client.unsubscribe_resource(uri)
        else:
            async with anyio.create_task_group() as tasks:

                async def listen() -> None:
                    async with client.listen(resource_subscriptions=[uri]) as subscription:
                        async for event in subscription:
                            got.append(str(event.uri))
                            arrived.set()
                            return

                tasks.start_soon(listen)
                await touch_until_heard()
    assert set(got) == {uri}


@table
@through
async def test_a_servers_own_error_is_relayed_as_it_came(client_era: Era, server_era: Era, way: str) -> None:
    async with served_pair(server_era) as served, served.client(client_era) as client:
        with pytest.raises(MCPError) as caught:
            await call(client, way, "fail")
    assert (caught.value.code, caught.value.message) == (-32050, "Broken")
    assert caught.value.data == {"why": "on purpose"}


@table
async def test_passthrough_over_one_server_changes_no_name_or_uri(client_era: Era, server_era: Era) -> None:
    async with (
        serve(Fixture("one", server_era), options=PASSTHROUGH) as served,
        served.client(client_era, elicitation_callback=elicited) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        resources = [resource.uri for resource in (await client.list_resources()).resources]
        read = await client.read_resource(NOTE)
        asked = await client.call_tool("ask_user", {})
        with pytest.raises(MCPError, match="Unknown tool: nothing"):
            await client.call_tool("nothing", {})
    assert sorted(tools) == sorted(served.fixtures["one"].tools)
    assert prompts == ["brief"]
    assert resources == [NOTE]
    assert read.contents[0].uri == NOTE
    assert words(asked).startswith("accept")
