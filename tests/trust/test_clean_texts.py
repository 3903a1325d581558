"""Every text of a server but its results is cleaned in every path: invisible characters in it are gone."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError

from shortlist.config.settings import Mode
from shortlist.gateway.view import MenuName, ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, Era, Fixture, serve

pytestmark = pytest.mark.anyio
INVISIBLE = "\u200b\u202e\U000e0041\x1b[8m"
CHARACTERS = frozenset(INVISIBLE) - frozenset("[8m")
KEYWORDS = frozenset(("type", "$ref", "format"))
"""Members of a schema whose values are not texts."""


def riddled(value: Any, key: str = "") -> Any:
    """Put invisible characters into every text of a definition, names of properties included."""
    if isinstance(value, str):
        return value if key in KEYWORDS else f"{value[:1]}{INVISIBLE}{value[1:]}"
    if isinstance(value, list):
        return [riddled(each, key) for each in value]
    if isinstance(value, dict):
        named = key in ("properties", "$defs", "patternProperties")
        return {riddled(k) if named else k: riddled(v, "" if named else k) for k, v in value.items()}
    return value


SCHEMA = {
    "type": "object",
    "title": "Options",
    "description": "What to fetch.",
    "properties": {
        "colour": {
            "type": "string",
            "title": "Colour",
            "description": "The colour.",
            "enum": ["red", "green"],
            "default": "red",
            "examples": ["green"],
        },
        "nested": {"type": "object", "properties": {"inner": {"type": "string", "const": "fixed"}}},
        "shared": {"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "integer"}]},
    },
    "required": ["colour"],
}


class Riddled(Fixture):
    """A server that hides characters in all that it says of itself and of what it offers."""

    async def list_tools(self, *_: Any) -> types.ListToolsResult:
        tool = types.Tool(
            name="fetch",
            title=riddled("Fetch things"),
            description=riddled("Fetch a thing by its colour."),
            input_schema=riddled(SCHEMA),
            output_schema=riddled(SCHEMA),
            annotations=types.ToolAnnotations(title=riddled("Fetch")),
        )
        broken = types.Tool(name="broken", description="Break a thing.", input_schema={"type": "object"})
        return types.ListToolsResult(tools=[tool, broken])

    async def list_prompts(self, *_: Any) -> types.ListPromptsResult:
        argument = types.PromptArgument(name=riddled("tone"), description=riddled("The tone."))
        prompt = types.Prompt(
            name="write", title=riddled("Write"), description=riddled("Write a thing."), arguments=[argument]
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def list_resources(self, *_: Any) -> types.ListResourcesResult:
        shown = {"name": riddled("thing"), "title": riddled("Thing"), "description": riddled("A thing.")}
        return types.ListResourcesResult(resources=[types.Resource(uri="doc://thing", **shown)])

    async def list_templates(self, *_: Any) -> types.ListResourceTemplatesResult:
        shown = {"name": riddled("things"), "title": riddled("Things"), "description": riddled("Some thing.")}
        found = types.ResourceTemplate(uri_template="doc://{thing}", **shown)
        return types.ListResourceTemplatesResult(resource_templates=[found])

    async def tool_broken(self, *_: Any) -> Any:
        raise MCPError(-32602, riddled("The colour is unknown."))


Ask = Callable[[Any], Awaitable[Any]]


def tool(meta_tool: str, **arguments: Any) -> Ask:
    return lambda client: client.call_tool(meta_tool, arguments)


def request(name: str) -> Ask:
    return lambda client: getattr(client, name)()


async def loaded(client: Any) -> Any:
    return [await client.call_tool("load_tools", {"names": ["alpha__fetch"]}), await client.list_tools()]


def refused(called: str, **arguments: Any) -> Ask:
    async def ask(client: Any) -> str:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(called, arguments)
        return str(caught.value.error.message)

    return ask


DETAILS = ("compact", "standard", "full")
PATHS: dict[str, tuple[Mode, MenuName, Ask]] = {
    "bound list": ("passthrough", "search", request("list_tools")),
    "static list": ("static", "search", request("list_tools")),
    "loaded": ("dynamic", "search", loaded),
    "describe": ("search", "search", tool("describe_tools", names=["alpha__fetch"])),
    "stub": ("search", "code", tool("describe_tools", names=["alpha.fetch"])),
    "stubs found": ("search", "code", tool("search_tools", query="fetch a thing by its colour")),
    "toolsets": ("dynamic", "search", tool("list_toolsets")),
    "wrong argument": ("search", "search", tool("call_tool", name="alpha__fetch", arguments={"colour": "blue"})),
    "missing argument": ("search", "search", tool("call_tool", name="alpha__fetch", arguments={})),
    "unknown name": ("search", "search", tool("call_tool", name="alpha__fetc", arguments={})),
    "kinds": ("search", "search", tool("search_tools", query="thing", kinds=["prompts", "resources", "templates"])),
    "prompts": ("search", "search", request("list_prompts")),
    "resources": ("search", "search", request("list_resources")),
    "templates": ("search", "search", request("list_resource_templates")),
    "error of the server": ("search", "search", refused("call_tool", name="alpha__broken", arguments={})),
    "error of a bound tool": ("passthrough", "search", refused("broken")),
    **{
        f"search, {detail}": ("search", "search", tool("search_tools", query="fetch a thing", detail=detail))
        for detail in DETAILS
    },
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def said(value: Any) -> str:
    """Return everything in an answer as text, with characters as they are."""
    if isinstance(value, list):
        return "\n".join(map(said, value))
    return repr(value.model_dump()) if hasattr(value, "model_dump") else str(value)


@pytest.mark.parametrize("path", PATHS)
async def test_no_text_of_a_definition_reaches_a_model_with_invisible_characters(path: str) -> None:
    mode, menu, ask = PATHS[path]
    options = ServeOptions(mode=mode, menu=menu)
    async with serve(Riddled("alpha"), options=options) as served, served.client() as client:
        answer = await ask(client)
    text = said(answer)
    assert any(word in text for word in ("thing", "alpha", "colour")), text
    assert not [each for each in CHARACTERS if each in text or repr(each)[1:-1] in text], text


class Whispering(Fixture):
    """A server that hides characters in what it says and asks during a call."""

    async def tool_count(self, ctx: Any, *_: Any) -> Any:
        await ctx.session.report_progress(1, 2, riddled("step 1"))
        data = {riddled("at"): [riddled("one")]}
        await ctx.session.send_log_message(
            "warning", data, logger=riddled("counter"), related_request_id=ctx.request_id
        )
        return types.CallToolResult(content=[types.TextContent(text="counted")])

    async def tool_ask_user(self, ctx: Any, params: Any, _: Any) -> Any:
        message, colour = riddled("Which colour?"), {"type": "string", "title": riddled("Colours")}
        form = {"type": "object", "properties": {"colour": colour}}
        if self.era == "legacy":
            await ctx.session.elicit_form(message, form, ctx.request_id)
        elif params.input_responses is None:
            asked = types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=form))
            return types.InputRequiredResult(input_requests={"colour": asked})
        return types.CallToolResult(content=[types.TextContent(text="asked")])


@pytest.mark.parametrize("client_era", ["legacy", "modern"])
@pytest.mark.parametrize("server_era", ["legacy", "modern"])
async def test_no_text_that_comes_during_a_call_has_invisible_characters(client_era: Era, server_era: Era) -> None:
    heard: list[str] = []
    arrived = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        heard.append(f"{progress} {total} {message}")

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(f"{params.logger} {params.data}")
        arrived.set()

    async def elicited(_: Any, params: Any) -> types.ElicitResult:
        heard.append(f"{params.message} {params.requested_schema}")
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    more = {"log_level": "info"} if client_era == "modern" else {}
    hears = {"logging_callback": logged, "elicitation_callback": elicited, **more}
    options = ServeOptions(mode="passthrough")
    async with (
        serve(Whispering("alpha", server_era), options=options) as served,
        served.client(client_era, **hears) as client,
    ):
        if client_era == "legacy":
            await client.set_logging_level("info")
        await client.call_tool("count", {}, progress_callback=progressed)
        await client.call_tool("ask_user", {})
        with anyio.fail_after(DEADLINE_SECONDS):
            await arrived.wait()
    text = " ".join(heard)
    assert all(word in text for word in ("step 1", "counter", "one", "Which colour?", "Colours")), text
    assert not [each for each in CHARACTERS if each in text or repr(each)[1:-1] in text], text
