"""Real MCP servers of either era behind a real pool and gateway, all in this process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.server import Server
from mcp.server.runner import serve_loop
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from shortlist.access.principal import Principal
from shortlist.catalog.catalog import Catalog
from shortlist.cli.engine import server_order
from shortlist.cli.stack import explained
from shortlist.config.settings import (
    EMPTY,
    Confirm,
    Effect,
    Limits,
    MemoryTransport,
    Question,
    ServerSettings,
    Settings,
    ToolOverride,
    hash_token,
)
from shortlist.front.answerer import Answerer
from shortlist.front.server import Front
from shortlist.gateway.callers import Caller
from shortlist.gateway.gateway import Gateway
from shortlist.gateway.state import Seams
from shortlist.gateway.view import NO_OPTIONS, ServeOptions
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.upstream.events import ToolsChanged, UpstreamEvent
from shortlist.upstream.pool import UpstreamPool

Era = Literal["legacy", "modern"]
DEADLINE_SECONDS = 60.0
MODES: dict[Era, Any] = {"legacy": "legacy", "modern": "2026-07-28"}


def schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "echo": ("Say a text back.", schema(text="string")),
    "add": ("Add two numbers.", schema(a="number", b="number")),
    "long": ("Give a long text of so many characters.", schema(size="integer")),
    "link": ("Give a link to a resource.", schema()),
    "count": ("Count up, reporting progress and logging on the way.", schema()),
    "wait": ("Wait until the call is cancelled.", schema()),
    "ask_user": ("Ask the user for a colour.", schema()),
    "ask_model": ("Ask the client's model for a poem.", schema()),
    "ask_roots": ("List the client's roots.", schema()),
    "fail": ("Answer with an error of the protocol.", schema()),
    "touch": ("Change the note, telling subscribers.", schema()),
}
NOTE = "note://today"
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


class Fixture:
    """One server with a tool for every feature; `era` is the only one it speaks."""

    def __init__(self, name: str, era: Era = "legacy") -> None:
        self.name = name
        self.era = era
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.cancelled = anyio.Event()
        self.waiting = anyio.Event()
        self.tools = dict(TOOLS)
        self.effects: dict[str, Effect] = {}
        """What the configuration says that tools do."""
        self.confirm: Confirm = "never"
        self.may_ask: tuple[Question, ...] = ("sampling", "elicitation", "roots")
        self.bus = InMemorySubscriptionBus()
        self.level: str | None = None
        self._subscribed: list[Any] = []
        self.server = self._build()

    def _build(self) -> "EraServer":
        return EraServer(
            self.era,
            self.name,
            version="1",
            description=f"The {self.name} fixture.",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_subscribe_resource=self.subscribe,
            on_unsubscribe_resource=self.unsubscribe,
            on_completion=self.complete,
            on_set_logging_level=self.set_level,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def list_tools(self, *_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=n, description=d, input_schema=s) for n, (d, s) in self.tools.items()]
        )

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        arguments = params.arguments or {}
        self.calls.append((params.name, arguments))
        handler = getattr(self, f"tool_{params.name}", None)
        if handler is None:
            raise MCPError(-32602, f"Unknown tool: {params.name}")
        return await handler(ctx, params, arguments)

    async def tool_echo(self, _: Any, __: Any, arguments: Any) -> Any:
        return text(arguments["text"], meta={"from": self.name})

    async def tool_add(self, _: Any, __: Any, arguments: Any) -> Any:
        total = arguments["a"] + arguments["b"]
        return types.CallToolResult(content=[types.TextContent(text=str(total))], structured_content={"total": total})

    async def tool_long(self, _: Any, __: Any, arguments: Any) -> Any:
        return text("".join(f"line {i} of {self.name}\n" for i in range(arguments["size"])))

    async def tool_link(self, *_: Any) -> Any:
        return types.CallToolResult(content=[types.ResourceLink(name="note", uri=NOTE)])

    async def tool_count(self, ctx: Any, *_: Any) -> Any:
        for step in (1, 2):
            await ctx.session.report_progress(step, 2, f"step {step}")
            await ctx.session.send_log_message(
                "warning", f"at {step}", logger="counter", related_request_id=ctx.request_id
            )
        return text("counted")

    async def tool_wait(self, *_: Any) -> Any:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise

    async def tool_ask_user(self, ctx: Any, params: Any, _: Any) -> Any:
        if self.era == "legacy":
            answer = await ctx.session.elicit_form("Which colour?", FORM, ctx.request_id)
            return text(f"{answer.action} {answer.content}")
        if params.input_responses is None:
            question = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message="Which colour?", requested_schema=FORM)
            )
            return types.InputRequiredResult(input_requests={"colour": question}, request_state="state-1")
        answer = params.input_responses["colour"]
        return text(f"{answer.action} {answer.content} {params.request_state}")

    async def tool_ask_model(self, ctx: Any, params: Any, _: Any) -> Any:
        message = types.SamplingMessage(role="user", content=types.TextContent(text="A poem, please."))
        if self.era == "legacy":
            answer = await ctx.session.create_message([message], max_tokens=9, related_request_id=ctx.request_id)
            return text(answer.content.text)
        if params.input_responses is None:
            question = types.CreateMessageRequest(
                params=types.CreateMessageRequestParams(messages=[message], max_tokens=9)
            )
            return types.InputRequiredResult(input_requests={"poem": question})
        return text(params.input_responses["poem"].content.text)

    async def tool_ask_roots(self, ctx: Any, params: Any, _: Any) -> Any:
        if self.era == "legacy":
            found = await ctx.session.list_roots()
            return text(" ".join(str(root.uri) for root in found.roots))
        if params.input_responses is None:
            return types.InputRequiredResult(input_requests={"roots": types.ListRootsRequest()})
        return text(" ".join(str(root.uri) for root in params.input_responses["roots"].roots))

    async def tool_fail(self, *_: Any) -> Any:
        raise MCPError(-32050, "Broken", {"why": "on purpose"})

    async def tool_touch(self, *_: Any) -> Any:
        for session in self._subscribed:
            await session.send_resource_updated(NOTE)
        await self.bus.publish(ResourceUpdated(NOTE))
        return text("touched")

    async def list_prompts(self, *_: Any) -> types.ListPromptsResult:
        arguments = [types.PromptArgument(name="topic", required=True)]
        return types.ListPromptsResult(prompts=[types.Prompt(name="brief", arguments=arguments)])

    async def get_prompt(self, _: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != "brief":
            raise MCPError(-32602, f"Unknown prompt: {params.name}")
        words = f"Brief of {self.name} on {(params.arguments or {}).get('topic')}"
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=types.TextContent(text=words))])

    async def list_resources(self, *_: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="today", uri=NOTE)])

    async def list_templates(self, *_: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="day", uri_template="note://{day}")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, _: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        content = types.TextResourceContents(uri=params.uri, text=f"{params.uri} of {self.name}")
        return types.ReadResourceResult(contents=[content])

    async def subscribe(self, ctx: Any, _: Any) -> types.EmptyResult:
        self._subscribed.append(ctx.session)
        return types.EmptyResult()

    async def unsubscribe(self, *_: Any) -> types.EmptyResult:
        self._subscribed.clear()
        return types.EmptyResult()

    async def complete(self, _: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        about = getattr(params.ref, "name", None) or params.ref.uri  # type: ignore[union-attr]
        return types.CompleteResult(completion=types.Completion(values=[f"{about} {params.argument.value}"]))

    async def set_level(self, _: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.level = params.level
        return types.EmptyResult()


class EraServer(Server[Any]):
    """A server that speaks one era only."""

    def __init__(self, era: Era, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._era = era

    async def run(
        self, read_stream: Any, write_stream: Any, initialization_options: Any, raise_exceptions: bool = False
    ) -> None:
        if self._era == "modern":
            await super().run(read_stream, write_stream, initialization_options, raise_exceptions)
            return
        async with self.lifespan(self) as state:
            await serve_loop(self, read_stream, write_stream, lifespan_state=state, init_options=initialization_options)


def text(words: str, meta: dict[str, Any] | None = None) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)], _meta=meta)


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway over some fixtures, and what its clients connect to."""

    gateway: Gateway
    front: Front
    pool: UpstreamPool
    fixtures: dict[str, Fixture]
    searcher: Searcher

    def client(self, era: Era = "modern", **more: Any) -> Client:
        return Client(self.front.server, mode=MODES[era], **more)


class _Late:
    """Hands events on once there is somebody to take them."""

    def __init__(self) -> None:
        self.take: Any = None
        self.known: set[str] = set()
        self.pulse = anyio.Event()

    def __call__(self, event: UpstreamEvent) -> None:
        self.take(event)
        if isinstance(event, ToolsChanged):
            self.known.add(event.server)
            self.pulse.set()
            self.pulse = anyio.Event()


@asynccontextmanager
async def serve(
    *fixtures: Fixture,
    options: ServeOptions = NO_OPTIONS,
    seams: Seams | None = None,
    others: Mapping[str, ServerSettings] = EMPTY,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Start fixtures and other servers, a pool over them and a gateway, and wait until all tools are known."""
    servers = {
        f.name: ServerSettings(
            name=f.name,
            transport=MemoryTransport(build=lambda f=f: f.server),  # type: ignore[misc]
            tools={name: ToolOverride(effect=effect) for name, effect in f.effects.items()},
            confirm=f.confirm,
            may_ask=f.may_ask,
        )
        for f in fixtures
    } | dict(others)
    whole = Settings(servers=servers, **{"limits": Limits(), **settings})
    late, answerer = _Late(), Answerer()
    pool = UpstreamPool(servers, on_event=late, client=answerer, limits=whole.limits)
    searcher = Searcher(Catalog.of(()), options=SearchOptions(order=server_order(whole)))
    engine = Engine.over(searcher)

    explain = partial(explained, engine)
    gateway = Gateway(whole, engine, pool, options=options, seams=replace(seams or Seams(), explain=explain))
    late.take = gateway.on_upstream
    async with gateway:
        front = Front(gateway, answerer)
        async with pool:
            with anyio.fail_after(DEADLINE_SECONDS):
                while late.known != set(servers):
                    await late.pulse.wait()
                await gateway.settled()
                await anyio.to_thread.run_sync(lambda: engine.searcher)  # which has indexed them
            yield Served(gateway, front, pool, {f.name: f for f in fixtures}, searcher)


def token_caller(name: str, secret: str = "x", **more: Any) -> Caller:
    """Return the caller that presented a token."""
    return Caller(principal=Principal(kind="token", name=name, credential=hash_token(secret)), **more)


def words(result: Any) -> str:
    """Join the texts of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")
