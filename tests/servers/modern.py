"""A server on the SDK, in both eras: `python modern.py [stdio | http | sse] [--token T] [--legacy]`.

Over HTTP it takes a free port, prints it, and serves /mcp or /sse.
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
listening = ListenHandler(bus)
names = ["echo", "grow", "touch", "hush", "confirm", "huge"]


async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=OBJECT) for name in names])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
    arguments = params.arguments or {}
    match params.name:
        case "grow":
            names.append(f"grown_{len(names)}")
            await bus.publish(ToolsListChanged())
        case "hush":
            listening.close()
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
    on_subscriptions_listen=listening,
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


class Guard:
    """Refuses what the options say: strangers, the modern era, and sessions from before a call of /forget."""

    def __init__(self, app: Any, token: str, legacy: bool) -> None:
        self._app, self._token, self._legacy = app, token, legacy
        self._seen: set[bytes] = set()
        self._forgotten: set[bytes] = set()

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        headers = dict(scope.get("headers", ()))
        status = self._refusal(scope, headers) if scope["type"] == "http" else None
        if status is None:
            await self._app(scope, receive, send)
            return
        challenge = [(b"www-authenticate", b'Bearer realm="tests"')] if status == 401 else []
        await send({"type": "http.response.start", "status": status, "headers": challenge})
        await send({"type": "http.response.body", "body": b"refused"})

    def _refusal(self, scope: Any, headers: dict[bytes, bytes]) -> int | None:
        if self._token and headers.get(b"authorization") != f"Bearer {self._token}".encode():
            return 401
        if scope["path"] == "/forget":
            self._forgotten |= self._seen
            return 410
        session = headers.get(b"mcp-session-id")
        if session is not None:
            self._seen.add(session)
        wanted_modern = self._legacy and headers.get(b"mcp-method") == b"server/discover"
        return 404 if session in self._forgotten or wanted_modern else None


async def over_http(app: Any) -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", default="stdio", choices=("stdio", "http", "sse"))
    parser.add_argument("--token", default="")
    parser.add_argument("--legacy", action="store_true")
    arguments = parser.parse_args()
    if arguments.kind == "stdio":
        asyncio.run(over_stdio())
    else:
        app = http_app() if arguments.kind == "http" else sse_app()
        asyncio.run(over_http(Guard(app, arguments.token, arguments.legacy)))


if __name__ == "__main__":
    main()
