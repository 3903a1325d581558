"""A server on the SDK, in both eras: `python modern.py [stdio | http | sse] [--token T]`.

Over HTTP it takes a free port, prints it, and serves /mcp or /sse; with a token it answers 401 without it.
"""

import argparse
import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
bus = InMemorySubscriptionBus()
names = ["echo", "grow", "touch", "confirm", "huge"]


async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=OBJECT) for name in names])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
    arguments = params.arguments or {}
    match params.name:
        case "grow":
            names.append("grown")
            await bus.publish(ToolsListChanged())
        case "touch":
            await bus.publish(ResourceUpdated(uri=arguments["text"]))
        case "confirm" if params.input_responses is None:
            ask = types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message="sure?", requested_schema={"type": "object", "properties": {}}
                )
            )
            return types.InputRequiredResult(input_requests={"sure": ask}, request_state="state-1")
        case "huge":
            return _text("x" * int(arguments["text"]))
    return _text(f"{params.name}: {arguments.get('text', '')}")


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet")])


server: Server[Any] = Server(
    "modern",
    version="1",
    instructions="Be kind.",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_prompts=list_prompts,
    on_subscriptions_listen=ListenHandler(bus),
)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def http_app() -> Any:
    return server.streamable_http_app()


def sse_app() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    transport = SseServerTransport("/messages/")

    async def connect(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", connect), Mount("/messages/", app=transport.handle_post_message)])


def guarded(app: Any, token: str) -> Any:
    async def guard(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        wanted = (b"authorization", f"Bearer {token}".encode())
        if scope["type"] != "http" or not token or wanted in scope["headers"]:
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b'Bearer realm="tests"')]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"who are you?"})

    return guard


async def over_http(app: Any) -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", default="stdio", choices=("stdio", "http", "sse"))
    parser.add_argument("--token", default="")
    arguments = parser.parse_args()
    if arguments.kind == "stdio":
        asyncio.run(over_stdio())
    else:
        app = http_app() if arguments.kind == "http" else sse_app()
        asyncio.run(over_http(guarded(app, arguments.token)))


if __name__ == "__main__":
    main()
